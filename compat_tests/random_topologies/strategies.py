"""Plans and inputs as hypothesis strategies.

*Guarantees*: hypothesis shrinks a plan to fewer paths with fewer steps, and inputs to fewer and plainer records.
*Assumes*: `plans.py` says which plans work.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compat_tests.oracles.rows import Row
from compat_tests.random_topologies.plans import ENDS, STEPS, VALUE_STEPS, Path, Plan

MOST_PARTITIONS = 5


def plans(sources: int = 2) -> st.SearchStrategy[Plan]:
    """Up to three paths of up to four steps, from up to `sources` topics."""
    partitions = st.integers(1, MOST_PARTITIONS)
    paths = st.lists(_paths(sources), min_size=1, max_size=3)
    return st.builds(_fitting, paths, st.lists(partitions, min_size=sources, max_size=sources))


def _paths(sources: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "steps": st.lists(st.sampled_from(STEPS), max_size=4).map(tuple),
            "end": st.sampled_from(ENDS),
            "sources": st.lists(st.integers(0, sources - 1), min_size=1, max_size=sources, unique=True).map(tuple),
            "again": st.just(0) | st.integers(1, MOST_PARTITIONS),
            "more": st.lists(st.sampled_from(VALUE_STEPS), max_size=2).map(tuple),
            "in_memory": st.booleans(),
            "partitions": st.integers(1, MOST_PARTITIONS),
        }
    )


def _fitting(paths: list[dict[str, Any]], partitions: list[int]) -> Plan:
    """What can't work is made to: no steps behind a repartition that isn't there, state by key over topics of equal
    partition counts, and no source that nobody reads."""
    used = sorted({source for path in paths for source in path["sources"]})
    number = {source: at for at, source in enumerate(used)}
    made = []
    for path in paths:
        sources, more = tuple(number[at] for at in path["sources"]), path["more"] if path["again"] else ()
        made.append(Path(**{**path, "sources": sources, "more": more}))
    counts = [partitions[source] for source in used]
    even = any(len(path.sources) > 1 and path.stateful and not (path.again or path.rekeyed) for path in made)
    return Plan(tuple(made), tuple([counts[0]] * len(counts) if even else counts))


def inputs(plan: Plan) -> st.SearchStrategy[list[Row]]:
    """Up to thirty records of a few keys for the plan's sources, some keyless, some without a value, some late."""
    text = st.none() | st.text("ab", max_size=4).map(str.encode)
    record = st.tuples(st.sampled_from(plan.used), text, text, st.integers(1, 50))
    return st.lists(record, max_size=30).map(
        lambda records: [
            Row(f"in{source}", 0, offset, key, value, timestamp)
            for offset, (source, key, value, timestamp) in enumerate(records)
        ]
    )
