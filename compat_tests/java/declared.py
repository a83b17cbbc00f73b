"""Where we differ from Kafka Streams on purpose, as far as the bench can see it.

*Guarantees*: docs/differences-from-kafka-streams.md has a row of each; a test looks.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compat_tests.java.cases import Case, Outcome, Pipe
from compat_tests.java.of_windows import GRACE, SIZE
from milestones.common.topology import Topology

EVERY = ""
"""In place of a topology: the inputs of the bench don't lead there, or its comparison doesn't look."""


def every_case(_case: Case, _cache: int) -> bool:
    return True


@dataclass(frozen=True)
class Declared:
    """`row`: how the row in docs/differences-from-kafka-streams.md begins. `reason`: why the outcomes of this topology
    differ. `topics`: a pattern of the names of the topics that differ, by default all; the other topics are compared.
    `of`: whether a case, with a cache of this number of bytes, may have such outcomes; other cases are compared."""

    topology: str
    row: str
    reason: str
    topics: str = ""
    of: Callable[[Case, int], bool] = every_case

    def rest(self, outcome: Outcome) -> Outcome:
        """An outcome without the topics that differ."""
        differs = re.compile(self.topics).search
        steps = [{topic: rows for topic, rows in step.items() if not differs(topic)} for step in outcome.outputs]
        return outcome._replace(outputs=steps)


# Those of the records that wait for a partner are compared.
JOINED_RECORDS = r"-(JOIN|OUTER)(THIS|OTHER)-\d+-store-changelog$|-(this|other)-join-store-changelog$"
STREAM_JOINED = re.compile(r"-(JOIN|OUTER)(THIS|OTHER)-\d+-store$|-(this|other)-join-store$")
STREAM_JOINS = (
    "join_streams_inner", "join_streams_left", "join_streams_outer", "join_streams_asymmetric_inner",
    "join_streams_asymmetric_outer", "join_streams_no_grace", "join_streams_with_key", "join_streams_self",
    "join_streams_rekeyed", "join_streams_named", "join_streams_in_memory", "optimized_joined_streams",
    "optimized_self_left", "optimized_self_outer_named", "optimized_twin_sources", "optimized_self_rekeyed",
    "optimized_self_of_two_branches", "chain_joined_in_windows", "chain_joined_in_closing_windows",
    "chain_joined_in_sessions", "chain_later_partners", "chain_earlier_partners", "chain_joined_twice",
    "chain_updates_joined", "chain_joined_then_deleted", "chain_joined_then_windows_deleted",
    "headers_join_streams_left",
)  # fmt: skip



def near_an_old_session(case: Case, cache: int) -> bool:
    """Whether a record comes to a session whose retention is over, behind a cache. Java's cache has the session until
    it evicts it, and its store learns of the time that ends the retention when the cache is flushed."""
    records = [step for step in case if isinstance(step, Pipe) and step.key is not None] if cache else []
    ended = [max(record.timestamp for record in records[: at + 1]) - SIZE - GRACE for at in range(len(records))]
    return any(
        former.key == record.key and former.timestamp <= over and abs(former.timestamp - record.timestamp) <= SIZE
        for at, (record, over) in enumerate(zip(records, ended, strict=True))
        for former in records[:at]
    )


SESSIONS = (
    "windows_session_count", "windows_session_reduce", "windows_session_aggregate", "windows_session_windowed_keys",
    "windows_hopping_in_memory", "headers_windows_hopping_in_memory",
)  # fmt: skip

DECLARED: tuple[Declared, ...] = (
    Declared(EVERY, "a timestamp of 0", "librdkafka takes 0 for now; times begin at 1"),
    Declared(EVERY, "behind a cache, a row that came and went", "the last deletion of a changelog's key is no row"),
    Declared(EVERY, "`record_metadata()` in a punctuation", "both are told as none"),
    Declared(EVERY, "punctuations of one clock that are due at the same time", "no two of a clock are scheduled"),
    Declared(EVERY, "a record without a key, of a left join with a versioned table with grace", "records have keys"),
    Declared(EVERY, "records that wait in a join with grace, after a restoration", "no store is restored"),
    Declared(EVERY, "a suppress buffer that is full", "no handler continues"),
    Declared(EVERY, "an update that suppress keeps back", "punctuations lead to no table"),
    Declared(EVERY, "the name of a header with a NUL", "librdkafka's Python client cuts it; names have none"),
    Declared(EVERY, "`merge.repartition.topics` past a merge", "only plans have one, run without it"),
    Declared(EVERY, "`merge.repartition.topics` on a merge of merges", "Java can't build it"),
    Declared(EVERY, "`process` between a change of keys", "Java's setting that mends it is on"),
    Declared(EVERY, "a record that can't be read, in a topic that serves as changelog", "nothing is restored"),
    Declared(EVERY, "stores that the supplier of `transform_values` brings", "Java's transformer fails"),
    Declared(EVERY, "a store that two suppliers of the DSL bring", "no two suppliers bring one"),
    Declared(EVERY, "anchored punctuations after the clock was put back", "the clock goes on"),
    Declared(EVERY, "a processor wrapper around an operator", "no wrapper is set"),
    Declared(EVERY, "a task's read of a global LRU store", "tasks read its ranges, which are no uses"),
    Declared(EVERY, "records of a left or an outer join that come late", "`AS_JAVA` has ours do as Java"),
    Declared(EVERY, "records of equal time in several topics", "only plans have them, run in Java's order, too"),
    Declared(EVERY, "a default timestamp extractor", "both have none but the records' own"),
    Declared(EVERY, "rows with headers of a table that is read from its topic", "nothing is restored"),
    Declared(EVERY, "behind a cache, a scan backwards over a store with headers", "no topology of the bench has one"),
    *(
        Declared(name, "behind a cache, a window or session", "sessions past their retention", of=near_an_old_session)
        for name in SESSIONS
    ),
    Declared("window_store_duplicates", "changelogs of joined records", "values of None", "-windows-changelog$"),
    *(
        Declared(name, "changelogs of joined records", "changelogs of joined records", JOINED_RECORDS)
        for name in STREAM_JOINS
    ),
)


def declared_for_plan(topology: Topology) -> Declared | None:
    """The difference declared for a random plan."""
    stores = (spec.name for sub in topology.resolve("bench") for spec in sub.stores)
    if any(map(STREAM_JOINED.search, stores)):
        return Declared("plans", "changelogs of joined records", "changelogs of joined records", JOINED_RECORDS)
    return None


EQUAL_TIMES = "the order of records in several topics"
"""The reason where our outcome is Java's once our tasks get records in the order of the one task of Java's driver."""


PAST_A_MERGE = "repartition topics merged past a merge"
"""The reason where only the text of an optimised plan differs; the plan is run without that."""


def declared_for(topology: str, table: Iterable[Declared] = DECLARED) -> Declared | None:
    """The difference declared for a topology."""
    return next((each for each in table if each.topology == topology), None)
