"""The resolved topology of one application, which the runtime's threads read.

*Guarantees*: immutable; shared by all threads.
*Assumes*: the topology isn't changed after it was handed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from milestones.common.assignment.plan import fingerprint, internal_names
from milestones.common.errors import SourceTopicError, TopologyError
from milestones.common.patterns import matches, matching
from milestones.common.records import TopicPartition
from milestones.common.topology.configured import configured
from milestones.common.topology.nodes import SourceNode

if TYPE_CHECKING:
    from milestones.common.config import StreamsConfig
    from milestones.common.offset_reset import ResetPolicy
    from milestones.common.topology.topology import SubTopology, Topology

WRITTEN = frozenset({"output", "dead letter"})
"""The kinds of topics that the application only writes."""

MOST_NAMES = 4
"""The largest number of stores that a warning names."""


@dataclass(frozen=True)
class Application:
    """An application id and its sub-topologies, with real topic names."""

    id: str
    subtopologies: tuple[SubTopology, ...]
    dead_letters: str | None = None
    """The dead letter topic: where a handler writes records that it skips."""
    globals: SubTopology | None = None
    """The global stores with their nodes, which have no tasks."""

    @classmethod
    def of(cls, topology: Topology, config: StreamsConfig) -> Application:
        """Return the topology, resolved with the config's application id and default serdes. Raises a `TopologyError`
        if it can't run.
        """
        subtopologies, global_stores = configured(topology, config)
        if not subtopologies:
            raise TopologyError(
                "the topology reads no topic but those of global stores, and nothing reads these stores: add a source. "
                "(A TopologyTestDriver runs it all the same.)"
            )
        return cls(config.application_id, subtopologies, config.errors_dead_letter_queue_topic_name, global_stores)

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """All named source topics, the application's own repartition topics included."""
        return tuple(sorted({topic for sub in self.subtopologies for topic in sub.source_topics}))

    @property
    def global_topics(self) -> tuple[str, ...]:
        """The topics of global stores, of which each instance reads all partitions."""
        return () if self.globals is None else self.globals.source_topics

    def global_partitions(self, counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """All partitions of the topics of global stores. `counts`: of partitions, by topic. `SourceTopicError`."""
        missing = [topic for topic in self.global_topics if topic not in counts]
        if missing:
            raise SourceTopicError(f"global topics don't exist: {', '.join(missing)}; create them, then start again")
        return frozenset(TopicPartition(topic, at) for topic in self.global_topics for at in range(counts[topic]))

    @cached_property
    def source_patterns(self) -> tuple[str, ...]:
        return tuple(sorted({pattern for sub in self.subtopologies for pattern in sub.source_patterns}))

    @cached_property
    def repartition_topics(self) -> frozenset[str]:
        return frozenset(topic for sub in self.subtopologies for topic in sub.repartition_topics)

    @cached_property
    def output_topics(self) -> frozenset[str]:
        """The static sink topics that the application doesn't create: all except its own repartition topics."""
        sinks = frozenset(topic for sub in self.subtopologies for topic in sub.sink_topics)
        return sinks - self.repartition_topics

    @cached_property
    def internal_topics(self) -> frozenset[str]:
        """The topics that the application creates: repartition topics, and changelogs that aren't source topics."""
        sourced = {spec.source_topic for sub in self.subtopologies for spec in sub.stores}
        changelogs = {topic for sub in self.subtopologies for topic in sub.changelogs.values()}
        return self.repartition_topics | (changelogs - sourced)

    def written_topics(self, subtopology: int) -> frozenset[str]:
        """Return the internal topics that a task of this sub-topology writes to."""
        sub = self._by_id[subtopology]
        return self.internal_topics & {*sub.sink_topics, *sub.changelogs.values()}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the tasks and their stores, on which the members of a group must agree."""
        return fingerprint(self.subtopologies)

    def subtopology(self, number: int) -> SubTopology:
        return self._by_id[number]

    @cached_property
    def _by_id(self) -> dict[int, SubTopology]:
        return {sub.id: sub for sub in self.subtopologies}

    def named_subtopologies(self, names: int | str | Iterable[int | str] | None) -> frozenset[int]:
        """The sub-topologies of these names: numbers, or names of their nodes or stores; None: all.

        `TopologyError` for an unknown name; the error lists the known ones.
        """
        if names is None:
            return frozenset(self._by_id)
        wanted = [names] if isinstance(names, int | str) else list(names)
        by_name = {str(sub.id): sub.id for sub in self.subtopologies}
        for sub in self.subtopologies:
            by_name |= {named.name: sub.id for named in (*sub.nodes, *sub.stores)}
        unknown = [name for name in wanted if str(name) not in by_name]
        if unknown:
            there_are = [
                f"{sub.id} ({', '.join(sorted({named.name for named in (*sub.nodes, *sub.stores)}))})"
                for sub in self.subtopologies
            ]
            raise TopologyError(
                f"no sub-topology is called {', '.join(map(repr, unknown))}, nor has it a node or store of that name; "
                f"there are {'; '.join(there_are)}"
            )
        return frozenset(by_name[str(name)] for name in wanted)

    def offset_reset(self, topic: str) -> ResetPolicy | None:
        """The reset policy that the topology gives a source topic, None for the config's."""
        nodes = [node for sub in self.subtopologies for node in sub.nodes if isinstance(node, SourceNode)]
        named = [node for node in nodes if topic in node.topics]
        matched = [node for node in nodes if node.pattern is not None and matches(node.pattern, topic)]
        return next((node.offset_reset for node in named + matched), None)

    def missing_topics(self, existing: Collection[str], forbidden: Collection[str] = ()) -> str | None:
        """The text for a user about topics that the application needs and doesn't make, and that don't exist, or that
        this principal may not see (`forbidden`); None when all exist."""
        dead_letters = frozenset() if self.dead_letters is None else frozenset({self.dead_letters})
        expected = {
            "source": self.external_topics(()), "global": frozenset(self.global_topics),
            "output": self.output_topics, "dead letter": dead_letters,
        }  # fmt: skip
        hidden = [
            f"this principal may not see the {kind} topics {', '.join(sorted(topics & set(forbidden)))}: grant it "
            f"{'WRITE' if kind in WRITTEN else 'READ'} on them (docs/rights.md)"
            for kind, topics in expected.items()
            if topics & set(forbidden)
        ]
        missing = [
            f"{kind} topics don't exist: {', '.join(sorted(unknown))}"
            for kind, topics in expected.items()
            if (unknown := topics - set(existing) - set(forbidden))
        ]
        texts = [*hidden, *([f"{'; '.join(missing)}; create them, then start again"] if missing else [])]
        return "; ".join(texts) or None

    @cached_property
    def named_topics(self) -> frozenset[str]:
        """All topics that the application doesn't make itself, by name."""
        dead_letters = () if self.dead_letters is None else (self.dead_letters,)
        return self.output_topics.union(self.external_topics(()), self.global_topics, dead_letters)

    def external_topics(self, existing: Collection[str]) -> set[str]:
        """The source topics that the application doesn't make: named ones, and those of `existing` that a pattern
        matches."""
        matched = matching(self.source_patterns, set(existing) - internal_names(self.subtopologies))
        return matched.union(self.source_topics) - self.repartition_topics

    def passing_state(self, config: StreamsConfig) -> str | None:
        """The warning about stores on the disk in the directory for temporary files, where no setting says so; None
        without."""
        stores = sorted({spec.name for sub in self.subtopologies for spec in sub.stores if spec.persistent})
        if not stores or config.origin("state_dir") != "default":
            return None
        return (
            f"the state of {', '.join(stores[:MOST_NAMES])}{' and others' if stores[MOST_NAMES:] else ''} lies in "
            f"{config.state_dir}, as state_dir isn't set: a machine that starts anew, or a new container, has none of "
            "it, and reads all of it from the changelogs; set state_dir to a place that lasts"
        )

    def fed_back(self) -> str | None:
        """The warning about topics that the application writes and reads by a pattern, which may never end; None
        without."""
        dead_letters = () if self.dead_letters is None else (self.dead_letters,)
        own = sorted(matching(self.source_patterns, self.output_topics.union(dead_letters)) - set(self.source_topics))
        if not own:
            return None
        patterns = sorted(pattern for pattern in self.source_patterns if matching((pattern,), own))
        return (
            f"the application reads what it writes: the pattern {', '.join(patterns)} matches its own "
            f"{', '.join(own)}. Where that isn't meant, have the pattern leave them out, or call the topics otherwise"
        )
