"""What is sent: lost, repeated, out of place, changed.

*Guarantees*: as `mutations/__init__.py`.
*Assumes*: every output of every stage passes `OutputProducer.send`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from compat_tests.planted.mutations import Once, around, mutation
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import Output

NTH = 50
"""Which output is the broken one, where it is a single one."""

Change = Callable[[Sequence[Output], Collection[str]], list[Output]]
"""(outputs of a task, its changelog topics) -> what is sent instead"""


def sending(change: Change) -> None:
    """Send what `change` makes of the outputs."""

    @around(OutputProducer, "send")
    def send(original: Any, producer: Any, task: Any, outputs: Any, changelogs: Any = (), **named: Any) -> Any:
        changed = change([Output(*fields) for fields in outputs], changelogs)
        return original(producer, task, changed, changelogs, **named)


def instead_of_one(replacements: Callable[[Output], list[Output]], nth: int = NTH) -> None:
    """Send `replacements` in place of one record that isn't a changelog's."""
    due = Once(nth)

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        sent = []
        for output in outputs:
            sent += replacements(output) if output.topic not in changelogs and due() else [output]
        return sent

    sending(change)


@mutation
def an_output_is_skipped() -> None:
    """One output is never sent."""
    instead_of_one(lambda output: [])


@mutation
def an_output_is_sent_twice() -> None:
    """One output is sent two times in a row."""
    instead_of_one(lambda output: [output, output])


@mutation
def an_output_has_another_key() -> None:
    """One output has a key that its input doesn't give."""
    instead_of_one(lambda output: [output._replace(key=b"other")])


@mutation
def an_output_has_another_value() -> None:
    """One output's last bit is flipped."""
    instead_of_one(lambda output: [output._replace(value=flipped(output.value or b"\0"))])


@mutation
def an_output_has_another_timestamp() -> None:
    """One output is a millisecond late."""
    instead_of_one(lambda output: [output._replace(timestamp=output.timestamp + 1)])


@mutation
def an_output_has_no_headers() -> None:
    """One output loses its input's headers."""
    instead_of_one(lambda output: [output._replace(headers=None)])


@mutation
def outputs_go_to_the_wrong_partition() -> None:
    """The partitioner isn't Kafka's: everything without a partition goes to partition 0."""
    sending(lambda outputs, _: [output._replace(partition=max(output.partition, 0)) for output in outputs])


@mutation
def two_outputs_of_a_key_are_swapped() -> None:
    """The first two outputs of one key that are sent together change places."""
    swapped = Once()

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        changed, seen = list(outputs), dict[tuple[str, bytes | None], int]()
        for at, output in enumerate(outputs):
            before = seen.setdefault((output.topic, output.key), at)
            if output.topic not in changelogs and before < at and swapped():
                changed[before], changed[at] = output, outputs[before]
        return changed

    sending(change)


@mutation
def two_outputs_of_a_partition_are_swapped() -> None:
    """The first two neighbours of different keys change places: legal for each key, not for the whole partition."""
    swapped = Once()

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        changed = list(outputs)
        for at in range(1, len(outputs)):
            one, other = outputs[at - 1], outputs[at]
            if one.topic == other.topic and one.key != other.key and one.topic not in changelogs and swapped():
                changed[at - 1], changed[at] = other, one
        return changed

    sending(change)


@mutation
def the_changelog_lacks_a_key() -> None:
    """Writes of one key are never logged."""
    sending(lambda outputs, changelogs: [one for one in outputs if one.topic not in changelogs or one.key != b"k0"])


@mutation
def the_changelog_lacks_the_last_write_of_each_batch() -> None:
    """The last changelog record of what is sent together is never sent."""

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        logged = [at for at, output in enumerate(outputs) if output.topic in changelogs]
        return [output for at, output in enumerate(outputs) if len(logged) < 2 or at != logged[-1]]

    sending(change)


@mutation
def the_changelog_has_a_foreign_key() -> None:
    """A write that no store made is logged."""
    written = Once()

    def change(outputs: Sequence[Output], changelogs: Collection[str]) -> list[Output]:
        foreign = [output._replace(key=b"foreign") for output in outputs if output.topic in changelogs][:1]
        return [*(foreign if foreign and written() else []), *outputs]

    sending(change)


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])
