"""`MemberMachine`: the logic of a group member. The membership thread calls it, one step at a time.

*Guarantees*: a step sends at most one heartbeat and waits for one answer at most. During a rebalance the old generation
stays published, because the broker accepts its commits until the join completes. Only an answer proves that the group
still knows the member. Before the machine leaves the group, its owner can see that it has lost its generation.
*Assumes*: one thread calls the machine. `now_ms` is monotonic.

*Why this way*: the machine has no thread and no clock of its own, and gets its connections from outside. So tests can
take its steps in any order. No lock is needed, because only the membership thread calls the machine: the owner of the
member sends commands to this thread, and reads one published value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5 import LeaveGroupResponse

from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.membership import protocol
from milestones.common.kafka.membership.commits import COMMIT, PendingCommits
from milestones.common.kafka.membership.coordinator import Coordinator, CoordinatorError, code_of
from milestones.common.kafka.membership.events import (
    Close,
    Command,
    CommitOffsets,
    Committed,
    FetchOffsets,
    Join,
    Leader,
    MemberEvent,
    Membership,
    Rejoin,
)
from milestones.common.kafka.membership.fetches import REQUEST as FETCH
from milestones.common.kafka.membership.fetches import PendingFetches
from milestones.common.kafka.membership.foreign_members import foreign_members
from milestones.common.kafka.membership.handshake import Handshake
from milestones.common.kafka.membership.heartbeat_timer import HeartbeatTimer
from milestones.common.kafka.membership.leading import outdated, topics_of
from milestones.common.kafka.membership.outage import Outage
from milestones.common.kafka.membership.owner_events import OwnerEvents
from milestones.common.kafka.membership.probe import HEARTBEAT, Probe
from milestones.common.kafka.membership.reactions import (
    CommitRetriableError,
    Reaction,
    StaleGenerationError,
    explain,
    failure,
    has_foreign_members,
    reaction_to,
)
from milestones.common.kafka.membership.settings import MemberSettings
from milestones.common.kafka.membership.states import ENDS, WAITING, MemberState, check_move
from milestones.common.kafka.wire import ConnectionLostError

log: Final = logging.getLogger(__name__)


class MemberMachine:
    """A group member as a state machine. *Owns*: the connections to the coordinator, and the parts of the member.
    *Receives*: commands. *Sends*: events, the published `Membership`, and replies."""

    left: bool

    def __init__(
        self,
        settings: MemberSettings,
        leader: Leader,
        coordinator: Coordinator,
        post: Callable[[MemberEvent, int], None],
        publish: Callable[[Membership], None],
        now_ms: int,
        stood_still_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`stood_still_ms`: a function that returns how long the computer has been suspended so far (`Standstill`)."""
        self._settings, self._coordinator = settings, coordinator
        self.polled_ms = now_ms
        """The time of the owner's last poll. *Concurrency*: the owner writes it and the machine reads it. It is one
        int, replaced as a whole."""
        self.state: MemberState = MemberState.UNJOINED
        self._timer = HeartbeatTimer(settings, now_ms, stood_still_ms)
        self._owner_events = OwnerEvents(post, publish)
        self._outage = Outage(settings.group_id)
        self._handshake = Handshake(settings, leader, coordinator, self._timer)
        self._probe = Probe(settings, coordinator, self._handshake, self._timer)
        self._commits = PendingCommits(settings, now_ms)
        self._fetches = PendingFetches(settings)
        self._assignment = Assignment()
        self._subscription: Subscription | None = None
        self._topics: frozenset[str] = frozenset()
        self._reason = ""
        self._started = self.left = False

    # ---- what the thread calls ----

    def receive(self, command: Command) -> None:
        """Accept one command. The next steps carry it out."""
        match command:
            case Join():
                self._join(command)
            case Rejoin(reason):
                self._want_rejoin(reason)
            case CommitOffsets():
                self._take_commit(command)
            case FetchOffsets():
                self._take_question(command)
            case Close(leave):
                self._close(leave)

    def run_once(self, now_ms: int) -> bool:
        """Take one step. 1. Check that the owner still polls. 2. During a rebalance, send a probe if one is due.
        3. Continue the rebalance, or send a heartbeat. 4. Ask for committed offsets. 5. Send a commit.

        Returns True if the step did something."""
        if not self._started:
            self._started = True
            self._owner_events.ask("the member starts")
        if self.state in ENDS:
            return False
        self._timer.step()
        if self.state is not MemberState.UNJOINED and self._owner_is_late(now_ms):
            self._poll_timeout()
            return True
        try:
            did = now_ms >= self._timer.retry_ms and self._step(now_ms)
        except (ConnectionLostError, CoordinatorError) as error:
            self._trouble(error, now_ms)
            did = True
        except MilestonesError as error:
            self._fail(error)
            did = True
        self._commits.expire(now_ms)
        return did

    def session_over(self, now_ms: int) -> bool:
        """Implements `GroupMember.session_over`. *Concurrency*: the owner calls this method. Each value that it reads
        is replaced as a whole."""
        without = self.state in ENDS or not self._owner_events.has_generation
        return without or self._owner_is_late(now_ms) or self._timer.session_over(now_ms)

    def _owner_is_late(self, now_ms: int) -> bool:
        """True if the owner's last poll is so old that the machine gives its generation up."""
        return now_ms - self.polled_ms > self._settings.max_poll_interval_ms

    def silent_ms(self, now_ms: int) -> int:
        """Returns the time since the last request was sent whose answer proved that the group knows this member."""
        return max(0, self._timer.in_session_ms(now_ms) - self._timer.contact_ms)

    def die(self, error: MilestonesError) -> None:
        """End the member because of a bug. The owner gets `Failed`. Each waiting commit and question gets the error."""
        self.state = MemberState.FAILED
        self._end(error)
        self._owner_events.failed(error)

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time until the next step must be taken, if no command comes before. 0 means immediately."""
        if self.state in ENDS:
            return 0
        due, retry_ms = [now_ms + self._settings.heartbeat_interval_ms], self._timer.retry_ms
        if self.state is MemberState.STABLE:
            due.append(max(self._timer.beat_ms, retry_ms))
        if self.state in WAITING:
            due.append(retry_ms)
        if self._commits:
            due.append(max(self._commits.next_ms(), retry_ms))
        if self._fetches and self.state is not MemberState.UNJOINED:
            due.append(max(self._fetches.next_ms(), retry_ms))
        if self.state is not MemberState.UNJOINED:
            due.append(self.polled_ms + self._settings.max_poll_interval_ms + 1)
        return max(min(due) - now_ms, 0)

    # ---- commands ----

    def _join(self, command: Join) -> None:
        if self.state in ENDS or command.losses != self._owner_events.published.losses:
            # The owner hasn't seen the last loss yet, so this join names lost tasks. Another JoinNeeded follows.
            self._owner_events.stale(command)
            return
        told = command.subscription
        self._subscription = replace(told, topics=tuple(sorted(self._topics.union(told.topics))))
        self._reason = self._owner_events.taken(command)
        if self.state is not MemberState.JOINING:
            self._handshake.give_up()
            self._move(MemberState.JOINING)

    def _want_rejoin(self, reason: str) -> None:
        if self.state is MemberState.STABLE:
            self._owner_events.ask(reason)
        elif self.state in WAITING:
            self._owner_events.ask_once_assigned(reason)

    def _take_commit(self, command: CommitOffsets) -> None:
        if not self._owner_events.has_generation:
            command.reply.try_put(StaleGenerationError("this member has no generation to commit under"))
        else:
            self._commits.add(command)

    def _take_question(self, question: FetchOffsets) -> None:
        if self.state in ENDS:
            question.reply_to.try_put(Committed(question.number, {}, StaleGenerationError("this member has ended")))
            return
        self._fetches.add(question)
        self._timer.hasten()

    def _close(self, leave: bool) -> None:
        if self.state in ENDS:
            return
        self._move(MemberState.CLOSED)
        self.left = leave and self._leave_group("the member closes")
        self._end(CommitRetriableError("the member was closed before the commit"))

    # ---- steps ----

    def _step(self, now_ms: int) -> bool:
        if self.state in WAITING and self._probe.is_due(now_ms, to_lose=self._owner_events.has_generation):
            self._probe_the_group(now_ms)
        if self.state is MemberState.JOINING:
            did = self._step_join(now_ms)
        elif self.state is MemberState.SYNCING:
            did = self._step_sync(now_ms)
        else:
            did = self.state is MemberState.STABLE and now_ms >= self._timer.beat_ms and self._heartbeat(now_ms)
        fetched = self.state is not MemberState.UNJOINED and self._fetches.step(self._coordinator, now_ms)
        # Between JoinGroup and SyncGroup no generation can commit, so commits wait for the new generation.
        if self.state not in {MemberState.JOINING, MemberState.STABLE}:
            return fetched or did
        committed = self._commits.step(self._coordinator, self._owner_events.published, now_ms)
        if committed is ErrorCode.none:
            # The coordinator may refuse a commit before it checks the generation.
            self._timer.confirmed(now_ms)
        return committed is not None or fetched or did

    def _probe_the_group(self, now_ms: int) -> None:
        if not self._probe.send(now_ms, joining=self.state is MemberState.JOINING):
            log.info("group %s: %s takes long; JoinGroup is resent", self._settings.group_id, self.state.name)
            self._join_again()

    def _step_join(self, now_ms: int) -> bool:
        assert self._subscription is not None
        held = replace(self._subscription, generation=self._owner_events.published.generation)
        owned = [tp for task in held.active for tp in self._assignment.partitions.get(task, ())]
        if not self._handshake.join(held, owned, self._reason, now_ms):
            return False
        self._move(MemberState.SYNCING)
        return True

    def _step_sync(self, now_ms: int) -> bool:
        assignment = self._handshake.sync(now_ms)
        if assignment is None:
            return False
        assert self._subscription is not None
        self._assignment, self._topics = assignment, topics_of(assignment)
        self._move(MemberState.STABLE)
        self._outage.over(now_ms)
        self._timer.assigned(now_ms, followup=assignment.followup)
        returns = self._settings.instance_id is not None and not self._owner_events.has_generation
        if wish := outdated(assignment, self._subscription, returns=returns):
            self._owner_events.ask_once_assigned(wish)
        joined = self._handshake
        self._owner_events.assigned(joined.generation, joined.member_id, assignment, leads=joined.leads)
        return True

    def _heartbeat(self, now_ms: int) -> bool:
        # The time of the sending counts, so that a slow answer doesn't make the session look longer than it is.
        code = self._probe.ask()
        self._timer.beaten(now_ms)
        if code is not ErrorCode.none:
            raise CoordinatorError(HEARTBEAT, code)
        self._timer.confirmed(now_ms)
        self._outage.over(now_ms)
        return True

    def _poll_timeout(self) -> None:
        limit = self._settings.max_poll_interval_ms
        reason = (
            f"the owner hasn't polled for more than max_poll_interval_ms ({limit}): a record takes too long, or the "
            "thread is stuck; process less at once, or raise it"
        )
        # The owner must be able to see the loss before the group gives the tasks to other members.
        self._lose(reason, keep_id=True)
        if self._settings.instance_id is None:
            self._leave_group("max_poll_interval_ms exceeded")
            self._handshake.member_id = ""

    # ---- errors: see the table in `reactions` ----

    def _trouble(self, error: ConnectionLostError | CoordinatorError, now_ms: int) -> None:
        if isinstance(error, ConnectionLostError):
            self._outage.lost(error, now_ms)
            self._look_up_again(error, now_ms)
            return
        self._outage.over(now_ms)
        code, commits = error.code, error.request == COMMIT
        # These errors are expected at a start, and when the coordinator moves to another broker.
        calm = reaction_to(code) in (Reaction.RETRY, Reaction.FIND, Reaction.TAKE_ID)
        log.log(logging.DEBUG if calm else logging.INFO, "group %s: %s", self._settings.group_id, error)
        match reaction_to(code):
            case Reaction.RETRY if error.request == FETCH:
                self._fetches.pause(now_ms + self._timer.pause_ms())
            case Reaction.RETRY | Reaction.REFUSE:
                self._retry(error, now_ms, commits=commits)
            case Reaction.FIND:
                self._look_up_again(error, now_ms)
            case Reaction.REJOIN:
                self._rebalance(error, now_ms, commits=commits)
            case Reaction.TAKE_ID:
                self._handshake.member_id = error.member_id
                self._handshake.send_again()
            case Reaction.LOSE_GENERATION if commits and self.state is MemberState.JOINING:
                # The join has just completed, and its answer will come soon. The commit is sent after that.
                self._retry(error, now_ms, commits=True)
            case Reaction.LOSE_GENERATION | Reaction.LOSE_MEMBER as reaction:
                self._forgotten(error, now_ms, keep_id=reaction is Reaction.LOSE_GENERATION)
            case Reaction.FAIL:
                settings = self._settings
                others = foreign_members(self._coordinator, settings.group_id) if has_foreign_members(code) else ""
                self._fail(failure(settings, error.request, code, others))

    def _look_up_again(self, error: MilestonesError, now_ms: int) -> None:
        self._coordinator.forget()
        self._retry(error, now_ms)

    def _retry(self, error: MilestonesError, now_ms: int, *, commits: bool = False) -> None:
        if commits:
            self._commits.pause(now_ms + self._timer.pause_ms())
            return
        self._join_again()
        self._timer.failed(now_ms)
        self._check_patience(error, now_ms)

    def _join_again(self) -> None:
        if self.state is MemberState.SYNCING:
            # The broker answers a repeated JoinGroup of the same generation without delay.
            self._move(MemberState.JOINING)
        self._handshake.send_again()

    def _check_patience(self, error: MilestonesError, now_ms: int) -> None:
        if self._coordinator.contacts == 0:
            if self._timer.unreachable(now_ms):
                servers = self._settings.client.get("bootstrap.servers")
                seconds = self._settings.unreachable_after_ms / 1000
                self._fail(KafkaUnreachableError(
                    f"no broker of bootstrap.servers={servers} answered for {seconds:g} s; the last reason: {error}; "
                    "check that Kafka runs there, and security.protocol"
                ))  # fmt: skip
        elif self._owner_events.has_generation and self._timer.session_over(now_ms):
            self._lose(f"no answer from the coordinator for longer than session_timeout_ms: {error}", keep_id=True)

    def _rebalance(self, error: CoordinatorError, now_ms: int, *, commits: bool) -> None:
        if self.state is MemberState.STABLE:
            self._timer.confirmed(now_ms)
            self._timer.known(now_ms)
            self._owner_events.ask(explain(error.code))
            if commits:
                self._retry(error, now_ms, commits=True)
        elif commits or self.state is MemberState.JOINING:
            self._retry(error, now_ms, commits=commits)
        else:
            self._handshake.send_again()
            self._move(MemberState.JOINING)

    def _forgotten(self, error: CoordinatorError, now_ms: int, *, keep_id: bool) -> None:
        if self._owner_events.has_generation:
            self._lose(explain(error.code), keep_id=keep_id)
            return
        # The member has no generation to lose yet, so it joins once more with the same subscription.
        if not keep_id:
            self._handshake.member_id = ""
        self._retry(error, now_ms)

    # ---- ends ----

    def _lose(self, reason: str, *, keep_id: bool) -> None:
        if not keep_id:
            self._handshake.member_id = ""
        self._handshake.give_up()
        self._assignment, self._subscription = Assignment(), None
        self._move(MemberState.UNJOINED)
        self._reject(StaleGenerationError(reason))
        self._owner_events.lost(reason)

    def _fail(self, error: MilestonesError) -> None:
        self._move(MemberState.FAILED)
        self._reject(error)
        self._owner_events.failed(error)
        if self._coordinator.connected and self._settings.instance_id is None:
            self._leave_group("the member failed")
        self._coordinator.forget()

    def _end(self, error: MilestonesError) -> None:
        self._reject(error)
        self._coordinator.forget()

    def _reject(self, error: MilestonesError) -> None:
        self._commits.reject(error)
        self._fetches.reject(error)

    def _leave_group(self, reason: str) -> bool:
        """Send LeaveGroup once. Returns True if the coordinator has confirmed it. If the request gets lost, the group
        removes the member after the session timeout."""
        if not self._handshake.member_id:
            return False
        request = protocol.leave_request(self._settings, self._handshake.member_id, reason)
        try:
            code = code_of(self._coordinator.call(request, LeaveGroupResponse))
        except MilestonesError as error:
            log.info("group %s: leaving failed: %s", self._settings.group_id, error)
            return False
        return code in protocol.LEFT

    def _move(self, state: MemberState) -> None:
        check_move(self.state, state)
        log.debug("group %s: %s -> %s", self._settings.group_id, self.state.name, state.name)
        self.state = state
