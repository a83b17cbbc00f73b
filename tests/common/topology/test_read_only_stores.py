"""Stores whose rows are the records of a topic (KIP-813): who reads and writes them, and how they come back."""

from __future__ import annotations

from typing import Any

import pytest

from milestones import (
    FixedKeyProcessor,
    ProcessingError,
    Processor,
    StoreSpec,
    StreamsBuilder,
    Topology,
    TopologyError,
    serdes,
)
from milestones.common.errors import OwnershipError
from milestones.common.records import TopicPartition
from milestones.common.topology.handlers import LogAndContinue
from milestones.testing import TopologyTestDriver
from tests.common.task.harness import Harness, message

TEXT = serdes.STRING
ROWS = TopicPartition("rows", 0)


def spec(**options: Any) -> StoreSpec:
    return StoreSpec(**{"name": "rows", "key_serde": TEXT, "value_serde": TEXT, **options})


class LookUp(FixedKeyProcessor):
    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(str(self.context.get_state_store("rows").get(record.key))))


def looked_up(store: StoreSpec, supplier: Any = None, processor: Any = LookUp) -> Topology:
    builder = StreamsBuilder().add_read_only_state_store(store, "rows", supplier)
    builder.stream("in", key=TEXT, value=TEXT).process_values(processor, "rows").to("out", value=TEXT)
    return builder.build()


def found(driver: TopologyTestDriver, key: str) -> str | None:
    driver.create_input_topic("in", key=TEXT, value=TEXT).pipe(key, "?")
    (row,) = driver.create_output_topic("out", key=TEXT, value=TEXT).read_records()
    return row.value


def test_processors_find_the_latest_record_of_the_topic_by_key() -> None:
    with TopologyTestDriver(looked_up(spec())) as driver:
        rows = driver.create_input_topic("rows", key=TEXT, value=TEXT)
        rows.pipe("a", "1")
        rows.pipe(None, "no key")
        rows.pipe("a", "2")
        assert [found(driver, key) for key in "ab"] == ["2", "None"]
        rows.pipe("a", None)
        assert found(driver, "a") == "None"
        assert list(driver.produced()) == ["out"]


def test_rows_with_time_have_that_of_their_record() -> None:
    with TopologyTestDriver(looked_up(spec(kind="timestamped-key-value"))) as driver:
        driver.create_input_topic("rows", key=TEXT, value=TEXT).pipe("a", "1", timestamp=77)
        assert found(driver, "a") == "ValueAndTimestamp(value='1', timestamp=77)"


def test_a_processor_of_ones_own_may_put_the_rows() -> None:
    class Mirror(Processor):
        def process(self, record: Any) -> None:
            self.context.get_state_store("rows").put(record.key, record.value)

    with TopologyTestDriver(looked_up(spec(), Mirror)) as driver:
        driver.create_input_topic("rows", key=TEXT, value=TEXT).pipe("a", "1")
        assert found(driver, "a") == "1"


@pytest.mark.parametrize("optimized", [False, True], ids=["read-only store", "table that is its own changelog"])
def test_who_writes_to_a_store_of_a_topic_is_told_why_not(optimized: bool) -> None:
    class Writes(FixedKeyProcessor):
        def process(self, record: Any) -> None:
            self.context.get_state_store("rows").put(record.key, record.value)

    if optimized:
        builder = StreamsBuilder()
        builder.table("rows", "rows", key=TEXT, value=TEXT)
        builder.stream("in", key=TEXT, value=TEXT).process_values(Writes, "rows")
        topology = builder.build(topology_optimization="all")
    else:
        topology = looked_up(spec(), processor=Writes)
    said = r"can't write to the store rows: its rows are those of the topic rows, which only"
    with TopologyTestDriver(topology) as driver, pytest.raises(ProcessingError, match=said):
        driver.create_input_topic("in", key=TEXT, value=TEXT).pipe("a", "1")


def test_a_kind_without_a_way_from_records_to_rows_needs_a_supplier() -> None:
    windows = spec(kind="window", retention_ms=100_000, window_ms=10)
    with pytest.raises(TopologyError, match=r"store rows is of the kind 'window': say with a supplier"):
        Topology().add_read_only_state_store(windows, "rows")


def test_the_names_of_both_nodes_may_be_given_and_the_topic_is_read_from_its_beginning() -> None:
    topology = Topology().add_read_only_state_store(spec(), "rows", source="reads", processor="keeps")
    source, processor = topology.resolve("app")[0].nodes
    assert (source.name, source.offset_reset, processor.name) == ("reads", "earliest", "keeps")  # type: ignore[union-attr]
    with pytest.raises(TopologyError, match=r"topic rows is read by two sources"):
        topology.add_source("another", "rows")


# -- in a task's life


def started(former: Harness | None = None) -> Harness:
    life = Harness(looked_up(spec()), processing_handler=LogAndContinue(), max_task_idle_ms=-1, transactional_id="tx")
    if former is not None:
        life.state = former.state
    return life.start()


def asked(life: Harness, key: str) -> bytes:
    life.pipe((key, "?", 1), topic="in")
    (row,) = life.outputs()
    return bytes(row[2])


def test_a_roll_back_takes_rows_back_and_a_restart_finds_the_committed_ones() -> None:
    life = started()
    life.pipe(("a", "1", 1), topic="rows")
    life.commit()
    life.pipe(("a", "2", 2), topic="rows")
    assert asked(life, "a") == b"2"
    life.task.roll_back()
    life.go_on()
    assert asked(life, "a") == b"1"
    life.task.close()
    assert asked(started(life), "a") == b"1"


def test_an_empty_disk_is_filled_from_the_topic_as_far_as_it_was_committed() -> None:
    life = Harness(looked_up(spec()), max_task_idle_ms=-1)
    life.task.open()
    assert life.task.restoration_ends({ROWS: 50}, {ROWS: 2}) == {ROWS: 2}
    with pytest.raises(OwnershipError, match="committed offsets"):
        life.task.restoration_ends({ROWS: 50})
    batch = [message(offset, b"a", value, 1, "rows") for offset, value in enumerate((b"1", b"2"))]
    life.task.restore("rows", batch, 2)
    life.task.start(dict.fromkeys(life.task.partitions, 0), {})
    assert asked(life, "a") == b"2"
