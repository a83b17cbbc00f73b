"""`Coordinator`: finds the group's coordinator among the brokers, and keeps the connections to it.

*Guarantees*: each call makes one attempt, so that no call blocks for longer than one connect and one request. JoinGroup
and SyncGroup have a connection of their own, because the broker may delay their answers for minutes. Heartbeats and
commits use the other connection.
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
    """The broker answered with an error code. The membership reacts to it; users never see this error."""

    request: str
    code: ErrorCode
    member_id: str

    def __init__(self, request: str, code: ErrorCode, member_id: str = "") -> None:
        super().__init__(f"{request}: {code.name}")
        self.request, self.code, self.member_id = request, code, member_id


class Coordinator:
    """The connections to the coordinator of one group. *Owns*: the connections. Brokers that have been the coordinator
    before are asked for the present one, like the bootstrap servers."""

    def __init__(self, group: str, bootstrap: tuple[Address, ...], connect: Connect, timeout_ms: int) -> None:
        self._group, self._connect, self._timeout_ms = group, connect, timeout_ms
        self._known = list(bootstrap)
        self._turn = 0
        self._address: Address | None = None
        self._wire: Wire | None = None
        self._slow: Wire | None = None
        self.contacts: int = 0
        """The number of answers that brokers have sent."""

    @property
    def connected(self) -> bool:
        return self._wire is not None or self._slow is not None

    def call(self, request: RequestPayload, answer: type[R]) -> R:
        """Send a request to the coordinator, and return the answer. An unknown coordinator is looked up first.

        Raises `ConnectionLostError`, or `CoordinatorError` if the look-up fails. The caller handles error codes in the
        answer itself.
        """
        if self._wire is None:
            self._wire = self._connect(self._locate())
        result = self._wire.call(request, answer, self._timeout_ms)
        self.contacts += 1
        return result

    def start(self, request: RequestPayload) -> None:
        """Send a request whose answer may take long. Before the next `start`, wait for the answer or call
        `end_slow`."""
        if self._slow is None:
            self._slow = self._connect(self._locate())
        self._slow.send(request)

    def result(self, answer: type[R], timeout_ms: int) -> R | None:
        """Wait at most `timeout_ms` for the answer to the request of `start`. Returns None without an answer."""
        if self._slow is None:
            raise ConnectionLostError("the connection was given up")
        result = self._slow.receive(answer, timeout_ms)
        self.contacts += result is not None
        return result

    def end_slow(self) -> None:
        """Give up the request of `start`, and close its connection."""
        if self._slow is not None:
            self._slow.close()
            self._slow = None

    def forget(self) -> None:
        """Close the connections. The next call looks up the coordinator."""
        self.end_slow()
        if self._wire is not None:
            self._wire.close()
        self._wire = self._address = None

    def _locate(self) -> Address:
        if self._address is not None:
            return self._address
        # Each look-up asks the next known server, so that a dead one is skipped.
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
    """Returns the worst error code in an answer, its members and its partitions. A code that isn't retriable is worse
    than a retriable one. Returns `none` if all succeeded."""
    parts: list[Any] = [answer, *getattr(answer, "members", ())]
    parts += [partition for topic in getattr(answer, "topics", ()) for partition in topic.partitions]
    codes = [cast(ErrorCode, part.error_code) for part in parts if hasattr(part, "error_code")]
    wrong = [code for code in codes if code is not ErrorCode.none]
    return min(wrong, key=lambda code: code.retriable, default=ErrorCode.none)
