"""`GroupMember`: a member of a consumer group, owned by one thread.

*Guarantees*: `poll` never blocks. No other call waits for the network without a deadline. Heartbeats are sent even
while the owner is busy.
*Assumes*: one owner calls `poll`, `join`, `close` and the methods that commit. It makes one commit at a time. Any
thread may call `request_rejoin`, `metadata` and `joining`.

*Why this way*: see [decision 0003](../../../docs/decisions/0003-own-group-member.md).
- The assignor must read and write the user data of the group protocol, which librdkafka doesn't allow.
- The member must answer the group while user code runs or a commit waits. So it has a thread of its own.
- The owner and the thread exchange messages. So the owner's poll never waits for the network.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns
from typing import Final

from milestones.common.assignment.model import Subscription
from milestones.common.clock import Clock, Standstill
from milestones.common.errors import MembershipError, MilestonesError, OwnershipError
from milestones.common.kafka.membership.coordinator import Coordinator
from milestones.common.kafka.membership.events import (
    Close,
    Command,
    CommitOffsets,
    Committed,
    FetchOffsets,
    Join,
    JoinNeeded,
    Leader,
    Lost,
    MemberEvent,
    Membership,
    Offsets,
    Rejoin,
)
from milestones.common.kafka.membership.machine import MemberMachine
from milestones.common.kafka.membership.metadata import group_metadata, verify_group_metadata_format
from milestones.common.kafka.membership.reactions import CommitRetriableError, StaleGenerationError
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.membership.states import MemberState
from milestones.common.kafka.wire import Connect, Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.last_words import report, typed
from milestones.common.mailbox import Mailbox, MailboxClosedError
from milestones.common.records import TopicPartition

log: Final = logging.getLogger(__name__)

MAX_EVENTS = 64
MAX_COMMANDS = 1024
PUT_TIMEOUT_MS = 5_000
CLOSE_TIMEOUT_MS = 10_000
"""The longest time that `close` waits for the membership thread. A slower thread ends by itself later."""


class GroupMember:
    """A member of a group with the classic protocol, which has a thread of its own.

    *Owns* (the thread): the machine with the connections, the member id and the generation. *Receives*: joins, rejoin
    requests, commits, questions for offsets, the close. *Sends*: `JoinNeeded`, `Assigned`, `Lost`, `Failed`, answers.
    *Concurrency*: the thread writes `_membership`, and all threads read it. The owner writes `machine.polled_ms`, and
    the thread reads it. Both are immutable values that are replaced as a whole. Only the owner uses `_joins`,
    `_losses`, `_stale_below` and `blocked_ns`, the total time for which its calls have waited.
    """

    def __init__(
        self,
        settings: MemberSettings,
        leader: Leader,
        clock: Clock,
        connect: Connect | None = None,
        tell: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Raises `ConfigError` for settings that can't work. `connect`: replaces the real network, for tests. The
        thread calls `tell` after each step, with the time and the ms since the coordinator has last confirmed the
        member."""
        wire = WireSettings.of(settings.client)
        timeout_ms = min(settings.request_timeout_ms, wire.socket_timeout_ms)
        connector = connect or Connector(replace(wire, connect_timeout_ms=min(timeout_ms, wire.connect_timeout_ms)))
        coordinator = Coordinator(settings.group_id, wire.bootstrap, connector, timeout_ms)
        self._settings, self._clock = settings, clock
        self._events: Mailbox[tuple[MemberEvent, int]] = Mailbox(MAX_EVENTS, f"events of {wire.client_id}")
        self._commands: Mailbox[Command] = Mailbox(MAX_COMMANDS, f"membership of {wire.client_id}")
        self._membership = Membership()
        self._machine = MemberMachine(
            settings, leader, coordinator, self._take_event, self._take_membership, clock.monotonic_ms(),
            Standstill(clock).ms,
        )
        self._tell = tell
        self._joins = 0
        self._losses = 0
        self._stale_below = 0
        self._commit: tuple[Mailbox[MilestonesError | None], int] | None = None
        self.blocked_ns: int = 0
        self._thread = threading.Thread(target=self._run, name=f"{wire.client_id}-membership", daemon=True)

    # ---- the owner's side ----

    def start(self) -> None:
        """Start the membership thread. The first `JoinNeeded` comes without delay. Raises `MembershipError` if this
        version of confluent-kafka isn't supported."""
        verify_group_metadata_format()
        self._machine.polled_ms = self._clock.monotonic_ms()
        self._thread.start()

    def poll(self) -> list[MemberEvent]:
        """Returns the events since the last call, oldest first. If the owner doesn't call `poll` for
        `max_poll_interval_ms`, the member gives its generation up. A dynamic member then leaves the group. A static
        member stays in the group until its session ends."""
        self._machine.polled_ms = self._clock.monotonic_ms()
        events: list[MemberEvent] = []
        for event, joins in self._events.drain():
            if isinstance(event, Lost):
                self._losses, self._stale_below = self._losses + 1, 0
            # A JoinNeeded that was posted before the last join is already answered by this join.
            if not (isinstance(event, JoinNeeded) and joins < self._stale_below):
                events.append(event)
        return events

    def join(self, subscription: Subscription) -> None:
        """Join the next generation with the tasks that the owner has now. The owner calls it once after each
        `JoinNeeded`, after a commit."""
        self._joins += 1
        self._stale_below = self._joins
        self._send(Join(self._joins, self._losses, subscription))

    def joining(self) -> bool:
        """True from `join` until the new generation has come, or can't come any more. Commits must wait meanwhile."""
        current = self._membership
        return self._joins > current.joins and current.error is None

    def session_over(self) -> bool:
        """True if the group may have given this member's tasks to other members by now.

        This is so if the member has no generation, if the coordinator hasn't confirmed the member for a session
        timeout, or if the owner hasn't polled for `max_poll_interval_ms`. After the process or computer was suspended,
        the clocks show it before any message comes."""
        return self._machine.session_over(self._clock.monotonic_ms())

    def commit_offsets(self, offsets: Offsets, timeout_ms: int) -> None:
        """Do `begin_commit`, and wait for the answer."""
        self.begin_commit(offsets, timeout_ms)
        while not self.commit_returned(timeout_ms):
            pass

    def begin_commit(self, offsets: Offsets, timeout_ms: int) -> None:
        """Begin to commit the offsets under the present generation. `commit_returned` reports the outcome."""
        reply: Mailbox[MilestonesError | None] = Mailbox(1, "answer to a commit")
        now_ms = self._clock.monotonic_ms()
        if offsets:
            self._send(CommitOffsets(offsets, now_ms + timeout_ms, reply))
        else:
            reply.try_put(None)
        # The thread answers at the deadline; a request sent just before may take a little longer.
        self._commit = reply, now_ms + timeout_ms + min(self._settings.request_timeout_ms, timeout_ms)

    def commit_returned(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms` for the begun commit. Returns True if it has succeeded.

        Raises `CommitRetriableError` if no answer came in time: the caller may repeat the commit. Raises
        `StaleGenerationError`, a `TaskMigratedError`, if the generation is over. Raises `MembershipError` if the commit
        can never succeed.
        """
        if self._commit is None:
            raise OwnershipError("no commit is under way: this is a bug")
        reply, until_ms = self._commit
        began = perf_counter_ns()
        answered = reply.wait(min(wait_ms, until_ms - self._clock.monotonic_ms()))
        self.blocked_ns += perf_counter_ns() - began
        if not answered and self._clock.monotonic_ms() < until_ms:
            return False
        self._commit = None
        if not answered:
            raise CommitRetriableError("the commit got no answer in time: it may or may not have succeeded")
        error = reply.get(0)
        if error is not None:
            raise error
        return True

    def fetch_offsets(self, number: int, partitions: frozenset[TopicPartition], reply_to: Mailbox[Committed]) -> None:
        """Ask for the group's committed offsets of these partitions. `reply_to` gets a `Committed` with this `number`
        once no open transaction contains any of the offsets, or when the membership is lost. There is no deadline.

        The member sends a heartbeat before the question. So an owner that gets offsets, and isn't `joining`, was still
        in its generation after it had asked."""
        self._send(FetchOffsets(number, partitions, reply_to))

    def close(self, leave: bool) -> None:
        """End the member. Without `leave` the group removes the member after the session timeout. A second call is
        harmless."""
        try:
            self._commands.put(Close(leave), PUT_TIMEOUT_MS)
        except MilestonesError:
            log.debug("membership had ended before the close")
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_MS / 1000)

    @property
    def left(self) -> bool:
        """True if the coordinator has confirmed that the member left the group. Valid after `close`."""
        return self._machine.left

    # ---- for any thread ----

    def request_rejoin(self, reason: str) -> None:
        """Ask for a rebalance. The owner gets a `JoinNeeded` once the group is stable."""
        try:
            self._send(Rejoin(reason))
        except MembershipError:
            log.debug("no rejoin (%s): membership has ended", reason)

    def metadata(self) -> bytes:
        """Returns the group metadata for `send_offsets_to_transaction`. Raises `StaleGenerationError` if the member is
        in no generation."""
        current = self._membership
        if current.error is not None:
            raise current.error
        if current.generation < 0:
            raise StaleGenerationError("this member has no generation to commit under")
        return group_metadata(
            self._settings.group_id, current.generation, current.member_id, self._settings.instance_id
        )

    # ---- the thread's side ----

    def _run(self) -> None:
        machine, error = self._machine, MembershipError("the member is closed")
        try:
            while machine.state not in {MemberState.CLOSED, MemberState.FAILED}:
                for command in self._commands.drain():
                    machine.receive(command)
                machine.run_once(self._clock.monotonic_ms())
                now_ms = self._clock.monotonic_ms()
                self._tell(now_ms, machine.silent_ms(now_ms))
                self._commands.wait(machine.wait_ms(self._clock.monotonic_ms()))
        except BaseException as bug:
            error = MembershipError(f"a bug in the membership thread: {typed(bug)}")
            machine.die(error)
            report(log, "the membership thread died", error=bug)
        finally:
            self._commands.close(self._membership.error or error)
            self._reject_rest(self._membership.error or error)

    def _reject_rest(self, error: MilestonesError) -> None:
        """Answer the commits and questions that came after the last step with `error`."""
        try:
            for command in self._commands.drain():
                if isinstance(command, CommitOffsets):
                    command.reply.try_put(error)
                elif isinstance(command, FetchOffsets):
                    command.reply_to.try_put(Committed(command.number, {}, error))
        except MilestonesError:
            return

    def _take_event(self, event: MemberEvent, joins: int) -> None:
        if not self._events.try_put((event, joins)):
            raise AssertionError(f"a bug: the owner hasn't polled {MAX_EVENTS} membership events")

    def _take_membership(self, membership: Membership) -> None:
        self._membership = membership

    def _send(self, command: Command) -> None:
        try:
            self._commands.put(command, PUT_TIMEOUT_MS)
        except MailboxClosedError as error:
            raise MembershipError(str(error)) from error
