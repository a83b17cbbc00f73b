"""Finds the internal topics that were deleted while the application was stopped.

If a changelog is deleted while the application is stopped, the next start would make it anew, and its store would be
empty. A repartition topic may have held records that count as processed upstream and weren't read yet. So the committed
offsets of the inputs name the internal topics that the tasks write to, by Kafka's ids. The state directory names them,
too, because brokers delete the committed offsets of a deleted input topic, and of a group that is idle for long.

*Guarantees*: a topic that neither of them names counts as new, so that a store can be added to a topology.
*Assumes*: the functions are called before the application creates topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import TopicsSeen, number_of
from milestones.common.task.metadata import OffsetMetadata, written_ids, written_mark

if TYPE_CHECKING:
    from milestones.common.kafka.topic_metadata import Described
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.instance.application import Application


SECOND_LOOK_MS = 3_000
"""The pause before missing topics are looked up once more."""


def unsure(own: Collection[str], found: Mapping[str, Described], on_disk: Mapping[str, str]) -> frozenset[str]:
    """Return the topics of `own` that don't have the id that the state directory records. For these, the committed
    offsets decide.
    """
    return frozenset(
        topic for topic in own if topic not in found or found[topic].id is None or found[topic].id != on_disk.get(topic)
    )


def lost(
    own: Collection[str], found: Mapping[str, Described], on_disk: Mapping[str, str], metadata: Collection[str]
) -> list[str]:
    """Return the topics of `own` that existed earlier and are gone, sorted. `metadata`: the metadata of all committed
    offsets of the application's inputs. If no offset has metadata, the offsets were set by a reset. Then the state
    directory, which may be older than the reset, is ignored.
    """
    marks = frozenset[str]().union(*(OffsetMetadata.decode(text).written for text in metadata))
    was_reset = bool(metadata) and not any(metadata)
    present = frozenset(written_mark(topic, number_of(told.id)) for topic, told in found.items() if told.id is not None)

    def is_lost(topic: str) -> bool:
        now = found.get(topic)
        if now is not None and now.id is None:
            return False  # the brokers have no topic ids
        if committed := written_ids(topic, marks):
            # Marks of two topics may begin alike (1 in 16 million). Both exist if all of these marks are present.
            return not committed <= present | {written_mark(topic, None)}
        former = None if was_reset else on_disk.get(topic)
        return former is not None and (now is None or now.id != former)

    return sorted(filter(is_lost, own))


def refuse_deleted(
    application: Application,
    sources: Collection[str],
    look: Callable[[Collection[str]], TopicsSeen],
    committed: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
    on_disk: Mapping[str, str],
    rest: Callable[[], object],
) -> dict[str, str]:
    """Raise a `SourceTopicError` if internal topics are gone; return the ids of the existing ones. `sources`: the
    topics that the application reads and doesn't create. `committed`: returns all committed offsets of the group.
    `rest`: waits before missing topics are looked up once more, because a broker that has just started may not know
    them yet.
    """
    own = application.internal_topics
    seen = look(own) if own else TopicsSeen({}, frozenset())
    own -= seen.forbidden
    if doubtful := unsure(own, seen.found, on_disk):
        inputs = {*application.source_topics, *sources}
        metadata = [at.metadata for partition, at in committed().items() if partition.topic in inputs]
        missed = lost(doubtful, seen.found, on_disk, metadata)
        if missed and not seen.found.keys() >= set(missed):
            rest()
            seen = look(own)
            missed = lost(missed, seen.found, on_disk, metadata)
        refuse_lost(missed, seen.found, application)
    return {topic: told.id for topic, told in seen.found.items() if topic in own and told.id is not None}


def refuse_lost(topics: Collection[str], found: Collection[str], application: Application) -> None:
    """Raise a `SourceTopicError` if there are lost topics. It names the topics, the lost data, and what to do."""
    if not topics:
        return
    told = "; ".join(
        f"internal topic {topic} was deleted {'and made anew ' if topic in found else ''}while the application was "
        f"stopped, and with it {_held(topic, application)}"
        for topic in sorted(topics)
    )
    raise SourceTopicError(
        f"{told}. Nothing was changed by this start. Stop all instances, then: `milestones reset --only "
        f"{','.join(sorted(topics))} --execute` has the application go on without that, or with what you have put "
        "back into a topic of that name; without `--only` it starts over"
    )


def _held(topic: str, application: Application) -> str:
    stores = [
        f"the state of store {store}"
        for sub in application.subtopologies
        for store, changelog in sub.changelogs.items()
        if changelog == topic
    ]
    return " and ".join(stores) or "the records that were written to it and not yet read"
