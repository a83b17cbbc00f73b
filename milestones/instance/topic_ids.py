"""Answers the questions of many tasks about the ids of the topics that their offsets belong to, together.

An offset is valid only together with the id of its topic. A topic that was deleted and made anew has the same name, but
other records at the same offsets. Kafka's consumer silently continues in the new topic.

*Guarantees*: no call waits. Questions that come together share a request. Each question is answered once. The ids in an
answer were read after the question came. So an offset that is looked up afterwards belongs to the same topic or to a
later one.
*Assumes*: driven by the thread that owns the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topic_metadata import Described, number_of
from milestones.common.kafka.topics import ALL
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import OffsetMetadata

if TYPE_CHECKING:
    from milestones.common.kafka.admin import Answers

KEPT = (
    "`milestones reset --only {topic} --execute` has the application begin the new topic at its first record, and "
    "leaves its state as it is; without `--only` it starts over"
)
"""What to do about a source topic that was made anew, once all instances are stopped."""

LOST = (
    "what it held is lost, and a store that moves or is opened anew would lose it too: stop all instances, reset the "
    "application (`milestones reset`), and see that nothing deletes its topics"
)
"""The consequence of a deleted internal topic, for errors."""


@dataclass(frozen=True)
class AskTopicIds:
    """The question for the present ids of these topics. `known`: for each partition, the id of the topic that its
    offset belongs to, as `number_of`.
    """

    number: int
    topics: frozenset[str]
    known: Mapping[TopicPartition, int]
    reply_to: Mailbox[TopicIds]


@dataclass(frozen=True)
class TopicIds:
    """The answer to `AskTopicIds`: the ids, as `number_of`, by topic that has one; or the error. This is a
    `SourceTopicError` if a topic doesn't have its known id.
    """

    number: int
    ids: Mapping[str, int]
    error: Exception | None = None


Unfit = Callable[[Mapping[str, Described], Mapping[TopicPartition, int]], Mapping[str, SourceTopicError]]
"""Takes topics as Kafka has described them, and the known ids. Returns an error for each topic that no longer has its
known id, keyed by the topic's name."""


Looking = Callable[[Collection[str]], "Answers[str, dict[str, Described]]"]
"""Begins a look at these topics."""


class IdsDesk:
    """Answers questions about ids. *Owns*: the open questions. *Receives*: `AskTopicIds`. *Sends*: `TopicIds`."""

    def __init__(self, unfit: Unfit) -> None:
        self._unfit = unfit
        self._waiting: list[AskTopicIds] = []
        self._asked: list[AskTopicIds] = []
        self._answers: Answers[str, dict[str, Described]] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting or self._asked)

    def ask(self, questions: Collection[AskTopicIds]) -> None:
        """Take these questions; `run_once` asks Kafka."""
        self._waiting += questions

    def run_once(self, look: Looking) -> None:
        """Send waiting questions to Kafka, and pass the answers on."""
        if self._waiting and self._answers is None:
            self._asked, self._waiting = self._waiting, []
            self._answers = look({topic for question in self._asked for topic in question.topics})
        if self._answers is None or not self._answers.done():
            return
        answers, self._answers = self._answers, None
        asked, self._asked = self._asked, []
        try:
            found = answers.result()[ALL].result()
        except (KafkaException, MilestonesError) as error:
            told = [TopicIds(question.number, {}, error) for question in asked]
        else:
            told = [self._answer(question, found) for question in asked]
        for question, answer in zip(asked, told, strict=True):
            question.reply_to.try_put(answer)

    def _answer(self, question: AskTopicIds, found: Mapping[str, Described]) -> TopicIds:
        there = {topic: found[topic] for topic in question.topics if topic in found}
        for error in self._unfit(there, question.known).values():
            return TopicIds(question.number, {}, error)
        for topic in sorted(question.topics - found.keys()):
            missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"a broker doesn't know the topic {topic}")
            return TopicIds(question.number, {}, KafkaException(missing))
        return TopicIds(question.number, numbers_of(there))


def known_ids(
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    own: Mapping[str, int] | None = None,
) -> dict[TopicPartition, int]:
    """Return the ids of the topics that the offsets of these partitions belong to, as `number_of`, if they are known.
    They are in the committed metadata, or else in the task's `own` ids, because a rolled-back task continues at its own
    offsets.
    """
    known: dict[TopicPartition, int] = {}
    for at in partitions:
        number = OffsetMetadata.decode(committed[at].metadata).topic_id(at.topic) if at in committed else None
        number = own.get(at.topic) if own is not None and number is None else number
        if number is not None:
            known[at] = number
    return known


def numbers_of(found: Mapping[str, Described]) -> dict[str, int]:
    """Return the ids, as `number_of`, of the topics that have an id."""
    return {topic: number_of(told.id) for topic, told in found.items() if told.id is not None}


def unlike(found: Mapping[str, Described], known: Mapping[TopicPartition, int]) -> frozenset[str]:
    """Return the topics whose id differs from the known id of their offsets."""
    now = numbers_of(found)
    return frozenset(at.topic for at, number in known.items() if now.get(at.topic, number) != number)


def refuse_former(
    found: Mapping[str, Described], known: Mapping[TopicPartition, int], internal: Collection[str]
) -> None:
    """Raise the first of the errors of `former_topics`."""
    for error in former_topics(found, known, internal).values():
        raise error


def former_topics(
    found: Mapping[str, Described], known: Mapping[TopicPartition, int], internal: Collection[str]
) -> dict[str, SourceTopicError]:
    """Return the errors of topics whose id differs from the known id of their offsets, by topic. `internal`: the
    application's own topics.
    """
    return {topic: _former(topic, internal=topic in internal) for topic in sorted(unlike(found, known))}


def refuse_skipped(
    now: Mapping[str, Described], before: Mapping[str, str], committed: Collection[TopicPartition]
) -> None:
    """Raise a `SourceTopicError` for a topic that isn't read from its first record and doesn't have the id of `before`
    the start. Brokers delete the committed offsets together with a topic, so that all records of the new topic would be
    skipped. `committed`: the partitions with a committed offset. If all partitions of a topic have one, no error is
    raised.
    """
    for topic, told in sorted(now.items()):
        all_committed = all(TopicPartition(topic, number) in committed for number in range(told.partitions))
        if before.get(topic, told.id) != told.id and not all_committed:
            raise SourceTopicError(
                f"source topic {topic} was deleted and made anew while the application was stopped, no offset of it is "
                "committed any more, and auto_offset_reset has new records only read: those that it holds now would be "
                f"skipped. Stop all instances, then: {KEPT.format(topic=topic)}; with `--to latest` it skips them"
            )


def _former(topic: str, *, internal: bool) -> SourceTopicError:
    what = f"topic {topic} was deleted and made anew: the committed offsets belong to the former topic"
    if internal:
        return SourceTopicError(f"internal {what}; {LOST}")
    return SourceTopicError(
        f"source {what}, and records of the new one before them would be skipped. Stop all instances, then: "
        f"{KEPT.format(topic=topic)}"
    )
