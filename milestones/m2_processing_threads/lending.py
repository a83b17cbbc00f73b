"""`LoopLending`: while calls are short, the processing thread makes the turns of the stream thread's loop, too.

*Why this way*: two threads that hand each other every record take a quarter more CPU than one, as each record's objects
cross from one core to another (`docs/decisions/0007-lending-the-loop.md`). So the stream thread lends its loop to its
only processing thread, and watches:

    kept: the stream thread makes turns, the processing thread works        (long calls, recoveries, rebalances)
      |  ^
      v  |  a lease lasts long; or a turn fails, or leaves work for which the stream thread must wait
    lent: the processing thread works, and makes a turn every `TURN_MS`, or when there is nothing to work on

One long lease doesn't stop the lending: a commit may have written to an engine, or the thread had no core for a moment.
If user code lasts longer than `LOOK_MS` twice within two seconds, it is probably slow. Then the stream thread keeps its
loop for `CALM_MS`.

*Guarantees*: one thread at a time is in a turn. During a call of user code the stream thread makes the turns, at the
latest 2 x `LOOK_MS` after the call's begin. The error of a turn is raised in the stream thread.
*Assumes*: a turn waits for no processing thread. Only `take_back_loop` does; the stream thread calls it before it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milestones.common.kafka.clients import standing_in_for

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.parts import Loop

TURN_MS: Final = 10
"""The time between two turns of the processing thread while it works. While the loop is lent, no lease is longer."""

LOOK_MS: Final = 30
"""The time between two looks of the stream thread while its loop is lent. A lease that is older is called long."""

CALM_MS: Final = 1_000
"""After two long calls that follow each other within twice this time, the stream thread keeps its loop for this time.
If there has been no lease for this time, the stream thread naps."""

NAP_MS: Final = 200
"""The longest sleep of the stream thread while its processing thread has nothing to work on. A lease wakes it."""


class LoopLending:
    """*Owns*: the stream thread's loop while it is lent, and the stage of the present turn.

    *Concurrency*: the lock guards the fields that both threads change. Only the processing thread writes `_sign_ms`,
    `_calls`, `_leased`, `_leased_ms` and `_turned_ms`; the stream thread reads them at any time."""

    def __init__(
        self,
        clock: Clock,
        may_be_lent: Callable[[], bool],
        call: Callable[[], object],
        wait: Callable[[threading.Condition, int], object],
    ) -> None:
        """`may_be_lent` returns True if there is exactly one processing thread. `call` wakes this thread. `wait` waits
        for a condition, at most for the given ms."""
        self._clock, self._may_be_lent, self._call, self._wait = clock, may_be_lent, call, wait
        self._changed = threading.Condition()
        self._loop: Loop | None = None
        self._stream_thread = threading.get_ident()
        self._turning = self._wanted = self._naps = self._leased = False
        self._calls = True
        self._error: BaseException | None = None
        self._kept_until_ms, self._lasted_ms = 0, -2 * CALM_MS
        self._sign_ms = self._leased_ms = self._turned_ms = 0

    @property
    def lent(self) -> bool:
        """True while the processing thread makes the turns."""
        return self._loop is not None

    @property
    def turn_is_due(self) -> bool:
        """True if the processing thread should make a turn now, and none is under way."""
        return self._loop is not None and not self._turning

    @property
    def worker_in_turn(self) -> bool:
        """True while the processing thread is in a turn of the loop. Then a call from the loop comes from the
        processing thread."""
        return self._turning

    # -- the stream thread

    def run_turn(self, loop: Loop) -> None:
        """Make a turn; or let the processing thread make turns, and watch it for a moment. Raises the turn's error."""
        if self._loop is None and self._error is None and not self._lend(loop):
            loop.run_once(self._clock.monotonic_ms())
            return
        self._look()
        if self._error is not None:
            with self._changed:
                error, self._error = self._error, None
            raise error

    def _lend(self, loop: Loop) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._kept_until_ms or self._lasts(now_ms) or not (loop.steady and self._may_be_lent()):
            return False
        with self._changed:
            self._stream_thread, self._loop, self._sign_ms = threading.get_ident(), loop, now_ms
        self._call()
        return True

    def _lasts(self, now_ms: int) -> bool:
        """Return True if the present lease is a long one."""
        return self._leased and now_ms - self._leased_ms >= LOOK_MS

    def _look(self) -> None:
        with self._changed:
            if self._loop is None:
                return
            self._naps = True  # set before the check: otherwise a lease that begins now wouldn't wake this thread
            self._naps = not self._leased and self._clock.monotonic_ms() - self._leased_ms >= CALM_MS
            self._wait(self._changed, NAP_MS if self._naps else LOOK_MS)
            self._naps, now_ms = False, self._clock.monotonic_ms()
            if not self._turning and now_ms - self._sign_ms >= LOOK_MS:
                self._loop = None
                if self._calls or not self._leased:
                    self._keep_for_a_while(now_ms)

    def _keep_for_a_while(self, now_ms: int) -> None:
        """Keep the loop for a while, unless this is the first long lease for some time."""
        if now_ms - self._lasted_ms < 2 * CALM_MS:
            self._kept_until_ms = now_ms + CALM_MS
        self._lasted_ms = now_ms

    def take_back_loop(self) -> BaseException | None:
        """Take the loop back, once the present turn is over. Returns the error of that turn."""
        with self._changed:
            self._wanted = True
            while self._turning:
                self._wait(self._changed, LOOK_MS)
            self._loop, self._wanted = None, False
            error, self._error = self._error, None
            return error

    # -- the processing thread

    def works(self, *, calls: bool) -> None:
        """Note that a lease begins. The lease ends with the next `turn`. `calls`: True if user code is called in the
        lease."""
        self._calls = calls
        self._sign_ms = self._leased_ms = self._clock.monotonic_ms()
        self._leased = True
        if self._naps:
            with self._changed:
                self._changed.notify()

    def turn(self, *, idle: bool) -> bool:
        """Make a turn, if the loop is lent and either a turn is due or there is nothing else to do. Returns True if it
        was made."""
        self._leased = False
        if self._loop is None or not (idle or self._clock.monotonic_ms() - self._turned_ms >= TURN_MS):
            return False
        with self._changed:
            loop = self._take()
        if loop is None:
            return False
        error: BaseException | None = None
        steady = False
        try:
            self._turned_ms = self._clock.monotonic_ms()
            with standing_in_for(self._stream_thread):
                loop.run_once(self._turned_ms)
                steady = loop.steady and self._may_be_lent()
        except BaseException as raised:
            error = raised
        with self._changed:
            self._turning, self._sign_ms = False, self._clock.monotonic_ms()
            self._error = error
            if self._wanted or not steady:
                self._loop = None
                self._changed.notify()
        return True

    def _take(self) -> Loop | None:
        """Take the loop for a turn. Returns None if the stream thread has taken the loop back, or another thread is in
        a turn."""
        if self._loop is None or self._turning:
            return None
        self._turning = True
        return self._loop
