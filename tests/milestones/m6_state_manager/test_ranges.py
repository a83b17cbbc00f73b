"""A task's range has the keys of that task, in the order of its store, and no other one's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milestones.common.errors import StateError
from milestones.common.records import TaskId
from milestones.common.state.engines.memory_engine import MemoryEngine
from milestones.common.state.engines.rocks_namespace import RocksNamespace
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.ranges import MOST, RangeNamespace, partition_of, prefix_of, prefixed, span_of
from tests.milestones.m6_state_manager.states import COUNTS, entries

KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\x00", b"\xff", b"\xff\xff\xff\xff"])
PARTITIONS = st.sampled_from([0, 1, 2, 255, 256, 2**31 - 2, MOST])
BOUNDS = st.none() | KEYS


def ranges_of(contents: dict[int, dict[bytes, bytes]]) -> dict[int, Any]:
    engine = MemoryEngine()
    family = engine.open("s")
    for partition, content in contents.items():
        engine.apply({"s": prefixed(content, prefix_of(partition))}, {})
    return {partition: RangeNamespace("s", family, partition, lambda: 5) for partition in contents}


@given(
    st.dictionaries(PARTITIONS, st.dictionaries(KEYS, st.binary(max_size=3)), min_size=1), BOUNDS, BOUNDS,
    st.booleans(), st.integers(1, 4),
)  # fmt: skip
def test_a_range_is_as_a_store_of_its_own(
    contents: dict[int, dict[bytes, bytes]], start: bytes | None, end: bytes | None, reverse: bool, limit: int
) -> None:
    for partition, opened in ranges_of(contents).items():
        own = sorted(contents[partition].items())
        within = [(k, v) for k, v in own if (start or b"") <= k and (end is None or k < end)]
        assert list(opened.scan(start, end, reverse=reverse)) == (within[::-1] if reverse else within)
        if start is not None and end is not None:
            assert opened.scan_bounded(start, end, limit) == opened.reader()(start, end, limit) == within[:limit]
        assert [(key, opened.get(key)) for key, _ in own] == own


@pytest.mark.parametrize("partition", [-1, MOST + 1, 2**32])
def test_a_partition_that_kafka_doesnt_have_is_refused(partition: int) -> None:
    with pytest.raises(StateError, match=f"partition {partition} has no range"):
        prefix_of(partition)


def test_the_highest_partition_has_an_end() -> None:
    first, beyond = span_of(MOST)
    assert first < first + b"\xff" * 100 < beyond
    assert partition_of(first) == MOST


def test_a_range_that_was_closed_refuses_all_calls_also_of_a_scan_that_began_before() -> None:
    opened = ranges_of({1: {b"a": b"1", b"b": b"2"}})[1]
    get, scan = opened.get, opened.scan(None, None)
    assert next(scan) == (b"a", b"1")
    opened.close()
    opened.close()
    few, reader = lambda: opened.scan_bounded(b"", b"z", 1), lambda: opened.reader()(b"", b"z", 1)
    for call in (lambda: get(b"a"), lambda: next(scan), lambda: opened.scan(None, None), few, reader):
        with pytest.raises(StateError, match="store 's' of partition 1 was closed"):
            call()


def test_the_entries_of_a_column_family_are_told_in_equal_parts(manager: RangeStateManager) -> None:
    tasks = [manager.open(TaskId(0, partition), [COUNTS]) for partition in range(4)]
    for storage in tasks:
        storage.apply({"counts": entries(100)}, {"counts": 1})
    assert [storage.namespace("counts").approximate_entries() for storage in tasks] == [100] * 4
    for storage in tasks:
        storage.close()


def test_no_reader_is_led_past_the_end_of_its_range(
    manager: RangeStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has expired behind it would be passed row by row, at each look into a segment that is empty yet."""
    ends: list[bytes | None] = []
    new_seeker = RocksNamespace.new_seeker

    def told(self: RocksNamespace, beyond: bytes | None = None) -> tuple[object, Any]:
        ends.append(beyond)
        return new_seeker(self, beyond)

    monkeypatch.setattr(RocksNamespace, "new_seeker", told)
    namespaces = [manager.open(TaskId(0, partition), [COUNTS]).namespace("counts") for partition in range(50)]
    for namespace in namespaces:
        assert namespace.scan_bounded(b"a", b"z", 1) == namespace.reader()(b"a", b"z", 1) == []
    assert ends == [span_of(partition)[1] for partition in range(50) for _ in range(2)]
