"""`Coordinator`: finds the group's coordinator among the brokers, and keeps the connections to it.

*Guarantees*: one attempt per call, so that no call blocks for longer than one connect and one request. JoinGroup and
SyncGroup, whose answers the broker may hold back for minutes, have a connection of their own, beside that of heartbeats
and commits.
*Assumes*: one owner thread.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import FindCoordinatorRequest, FindCoordinatorResponse
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload, ResponsePayload

from milestones.common.errors import MilestonesError
from milestones.common.kafka.wire import Connect, ConnectionLostError, Wire
from milestones.common.kafka.wire_settings import Address

R = TypeVar("R", bound=ResponsePayload)


class CoordinatorError(MilestonesError):
    """The broker answered with an error code. Steers the membership only."""

    request: str
    code: ErrorCode
    member_id: str

    def __init__(self, request: str, code: ErrorCode, member_id: str = "") -> None:
        super().__init__(f"{request}: {code.name}")
        self.request, self.code, self.member_id = request, code, member_id


class Coordinator:
    """*Owns*: the connections. Brokers that once coordinated are asked like the bootstrap servers."""

    def __init__(self, group: str, bootstrap: tuple[Address, ...], connect: Connect, timeout_ms: int) -> None:
        self._group, self._connect, self._timeout_ms = group, connect, timeout_ms
        self._known = list(bootstrap)
        self._turn = 0
        self._address: Address | None = None
        self._wire: Wire | None = None
        self._slow: Wire | None = None
        self.contacts: int = 0
        """The number of answers of brokers."""

    @property
    def connected(self) -> bool:
        return self._wire is not None or self._slow is not None

    def call(self, request: RequestPayload, answer: type[R]) -> R:
        """Ask the coordinator, after a look-up when it isn't known, and return the answer.

        `ConnectionLostError`, `CoordinatorError` of the look-up; the answer's own codes are the caller's.
        """
        if self._wire is None:
            self._wire = self._connect(self._locate())
        result = self._wire.call(request, answer, self._timeout_ms)
        self.contacts += 1
        return result

    def start(self, request: RequestPayload) -> None:
        """Send a request whose answer may take long. Without an answer, `end_slow` comes before the next `start`."""
        if self._slow is None:
            self._slow = self._connect(self._locate())
        self._slow.send(request)

    def result(self, answer: type[R], timeout_ms: int) -> R | None:
        """The answer to `start`; None while it hasn't come."""
        if self._slow is None:
            raise ConnectionLostError("the connection was given up")
        result = self._slow.receive(answer, timeout_ms)
        self.contacts += result is not None
        return result

    def end_slow(self) -> None:
        """Give up the request of `start`, with its connection."""
        if self._slow is not None:
            self._slow.close()
            self._slow = None

    def forget(self) -> None:
        """Look the coordinator up again at the next call."""
        self.end_slow()
        if self._wire is not None:
            self._wire.close()
        self._wire = self._address = None

    def _locate(self) -> Address:
        if self._address is not None:
            return self._address
        # The next one in turn each time, so that a dead server doesn't hide a live one.
        server = self._known[self._turn % len(self._known)]
        self._turn += 1
        wire = self._connect(server)
        try:
            request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(self._group,))
            answer = wire.call(request, FindCoordinatorResponse, self._timeout_ms)
        finally:
            wire.close()
        self.contacts += 1
        found = answer.coordinators[0]
        if found.error_code is not ErrorCode.none:
            raise CoordinatorError("FindCoordinator", found.error_code)
        self._address = Address(found.host, found.port)
        if self._address not in self._known:
            self._known.append(self._address)
        return self._address


def code_of(answer: ResponsePayload) -> ErrorCode:
    """The worst code in an answer, also of its members and partitions; `none` when all is well."""
    parts: list[Any] = [answer, *getattr(answer, "members", ())]
    parts += [partition for topic in getattr(answer, "topics", ()) for partition in topic.partitions]
    codes = [cast(ErrorCode, part.error_code) for part in parts if hasattr(part, "error_code")]
    wrong = [code for code in codes if code is not ErrorCode.none]
    return min(wrong, key=lambda code: code.retriable, default=ErrorCode.none)
