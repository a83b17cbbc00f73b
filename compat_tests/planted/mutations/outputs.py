"""What is sent: lost, repeated, out of place, changed.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: every output of every stage passes `OutputProducer.send`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from compat_tests.planted.mutations import Once, around, mutation_by, mutations_by
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import Output, emitted_of, output_of

NTH = 50
"""Which output is the broken one, where it is a single one."""

Change = Callable[[Sequence[Output], Collection[str]], list[Output]]
"""(outputs of a task, its changelog topics) -> what is sent instead"""


def sending(change: Change) -> None:
    """Send what `change` makes of the outputs."""

    @around(OutputProducer, "send")
    def send(original: Any, producer: Any, task: Any, outputs: Any, changelogs: Any = (), **named: Any) -> Any:
        changed = change([*map(output_of, outputs)], changelogs)
        return original(producer, task, [*map(emitted_of, changed)], changelogs, **named)


def instead_of_one(replacements: Callable[[Output], list[Output]]) -> None:
    """Send `replacements` in place of one record that isn't a changelog's."""
    due = Once(NTH)

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        sent = []
        for output in outputs:
            sent += replacements(output) if output.topic not in changelogs and due() else [output]
        return sent

    sending(change)


mutations_by(
    instead_of_one,
    {
        "an-output-is-skipped": lambda output: [],
        "an-output-is-sent-twice": lambda output: [output, output],
        "an-output-has-another-key": lambda output: [output._replace(key=b"other")],
        "an-output-has-another-value": lambda output: [output._replace(value=flipped(output.value or b"\0"))],
        "an-output-has-another-timestamp": lambda output: [output._replace(timestamp=output.timestamp + 1)],
        "an-output-has-no-headers": lambda output: [output._replace(headers=None)],
    },
)
# One that has no partition goes to partition 0; or the writes of one key are never logged.
mutations_by(
    sending,
    {
        "outputs-go-to-the-wrong-partition":
            lambda outputs, _: [output._replace(partition=max(output.partition, 0)) for output in outputs],
        "the-changelog-lacks-a-key":
            lambda outputs, changelogs: [one for one in outputs if one.topic not in changelogs or one.key != b"k0"],
    },
)  # fmt: skip
ONCE = Once()
"""Of the only mutation of a process."""


@mutation_by(sending)
def two_outputs_of_a_key_are_swapped(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
    """The first two outputs of one key that are sent together change places."""
    changed, seen = list(outputs), dict[tuple[str, bytes | None], int]()
    for at, output in enumerate(outputs):
        before = seen.setdefault((output.topic, output.key), at)
        if output.topic not in changelogs and before < at and ONCE():
            changed[before], changed[at] = output, outputs[before]
    return changed


@mutation_by(sending)
def two_outputs_of_a_partition_are_swapped(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
    """The first two neighbours of different keys change places: legal for each key, not for the whole partition."""
    changed = list(outputs)
    for at in range(1, len(outputs)):
        one, other = outputs[at - 1], outputs[at]
        if one.topic == other.topic and one.key != other.key and one.topic not in changelogs and ONCE():
            changed[at - 1], changed[at] = other, one
    return changed


@mutation_by(sending)
def the_changelog_lacks_the_last_write_of_each_batch(
    outputs: Sequence[Output], changelogs: Collection[str]
) -> list[Output]:
    """The last changelog record of what is sent together is never sent."""
    logged = [at for at, output in enumerate(outputs) if output.topic in changelogs]
    return [output for at, output in enumerate(outputs) if len(logged) < 2 or at != logged[-1]]


@mutation_by(sending)
def the_changelog_has_a_foreign_key(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
    """A write that no store made is logged."""
    foreign = [output._replace(key=b"foreign") for output in outputs if output.topic in changelogs][:1]
    return [*(foreign if foreign and ONCE() else []), *outputs]


@mutation_by(sending)
def a_changelog_record_has_another_value(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
    """What is logged of a key once isn't what its store has."""
    changed = list(outputs)
    for at, output in enumerate(outputs):
        if output.topic in changelogs and ONCE():
            changed[at] = output._replace(value=flipped(output.value or b"\0"))
    return changed


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])
