"""Records of 2015 on a broker that deletes by age each second: windows, sessions and joins of streams lose nothing of
what they need, whatever ends a process, on an empty disk too."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from compat_tests.apps.topologies import LONG_AGO_MS
from compat_tests.cases.steps import AT_ONCE, commit_steps_of
from compat_tests.harness.feed import Sent
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.oracles.transactions import none_left_open
from milestones.testing import NotYet

IN_2015 = 1_420_070_400_000
LIVES = 3


class LongAgo:
    """The application, and the records of the left side so far, which are all in one window."""

    def __init__(self, world: World, step: str) -> None:
        self.world, self.step, self.sent = world, step, 0
        self.right, self.left = world.input("other", 1), world.input("in", 1, out=1)
        own = AT_ONCE if step == "commit.in-apply" else {}
        self.app = world.instance("long-ago", num_stream_threads=1, **own)

    def send(self) -> None:
        self.left.send([Sent(b"k", b"l%d" % self.sent, IN_2015 + self.sent)])
        self.sent += 1

    def die_on_the_way(self, *, empty: bool) -> None:
        """A life that makes some commits, and is killed in another one. `empty`: its disk goes with it."""
        self.app.start(fault=f"{self.step}:kill:4")

        def struck() -> object:
            self.send()
            return not self.app.running or NotYet("it runs")

        self.world.wait(struck, "the fault strikes")
        self.app.dies(-9)
        if empty:
            shutil.rmtree(self.app.state_dir)

    def end(self) -> Counter[bytes | None]:
        """What it has said once the right side has come, and the window is over."""
        self.app.start()
        self.world.processed()
        self.right.send([Sent(b"k", b"r", IN_2015)])
        self.world.processed()
        self.world.wait(self.all_is_ended, "Kafka ends by its age what a process has left open whose disk is gone")
        self.left.send([Sent(b"k", b"end", IN_2015 + 10 * LONG_AGO_MS)])
        end_and_judge(self.world, crashed=True)
        return Counter(row.value for row in self.world.cluster.read(self.world.topic("out")))

    def all_is_ended(self) -> object:
        """No transaction is open. The next process knows those of the last one by the disk, and ends them."""
        left_open = none_left_open(self.world.transactions())
        return not left_open or NotYet(str(left_open))

    def expected(self) -> Counter[bytes | None]:
        counts = [b"%s %d" % (kind, at) for kind in (b"window", b"session") for at in [*range(1, self.sent + 1), 1]]
        pairs = [b"%s l%d+r" % (kind, at) for kind in (b"inner", b"left", b"outer") for at in range(self.sent)]
        return Counter([*counts, b"closed %d" % self.sent, *pairs])


@pytest.mark.parametrize("disk", ["kept", "empty"])
@pytest.mark.parametrize("step", commit_steps_of("commit.after-commit"))
def test_windows_sessions_and_joins_of_long_ago_are_complete_over_kills_at_any_step_of_a_commit(
    exact_world: World, step: str, disk: str
) -> None:
    long_ago = LongAgo(exact_world, step)
    for _ in range(LIVES):
        long_ago.die_on_the_way(empty=disk == "empty")
    assert long_ago.end() == long_ago.expected()
