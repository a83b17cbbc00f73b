"""The programs in `examples/`, without a broker."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from milestones.common import serdes
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology.handlers import HEADER_EXCEPTION, HEADER_TOPIC

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_the_word_count_counts_words() -> None:
    with TopologyTestDriver(example("word_count")["builder"].build()) as driver:
        driver.create_input_topic("lines", value=serdes.STRING).pipe_values(["to be or", "not to be"])
        counts = driver.create_output_topic("word-counts", key=serdes.STRING, value=serdes.LONG)
        assert counts.read_key_values_to_map() == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_a_device_that_stays_silent_raises_one_alarm() -> None:
    with TopologyTestDriver(example("silent_devices")["topology"]) as driver:
        heartbeats = driver.create_input_topic("heartbeats", key=serdes.STRING, value=serdes.STRING)
        alarms = driver.create_output_topic("alarms", key=serdes.STRING, value=serdes.STRING)
        heartbeats.pipe("pump", "ok")
        driver.advance_wall_clock(20_000)
        assert alarms.is_empty()
        driver.advance_wall_clock(10_000)
        assert alarms.read_key_values() == [("pump", "silent for 30 s")]
        driver.advance_wall_clock(60_000)
        assert alarms.is_empty()


def test_a_device_that_is_heard_of_raises_none() -> None:
    with TopologyTestDriver(example("silent_devices")["topology"]) as driver:
        heartbeats = driver.create_input_topic("heartbeats", key=serdes.STRING, value=serdes.STRING)
        alarms = driver.create_output_topic("alarms", key=serdes.STRING, value=serdes.STRING)
        for _ in range(4):
            heartbeats.pipe("pump", "ok", timestamp=driver.clock.wall_ms())
            driver.advance_wall_clock(20_000)
        assert alarms.is_empty()


def test_orders_that_cannot_be_used_become_dead_letters_and_the_others_count() -> None:
    program = example("dead_letters")
    with TopologyTestDriver(program["builder"].build(), program["SETTINGS"]) as driver:
        orders = driver.create_input_topic("orders", key=serdes.STRING, value=serdes.BYTES)
        spent = driver.create_output_topic("spent", key=serdes.STRING, value=serdes.LONG)
        letters = driver.create_output_topic("orders-dead-letters", key=serdes.STRING, value=serdes.BYTES)
        orders.pipe("ann", b'{"quantity": 2, "cents": 350}')
        orders.pipe("ann", b'{"quantity": 2}')
        orders.pipe("ann", b"hello")
        orders.pipe("ann", b'{"quantity": 1, "cents": 100}')
        assert spent.read_key_values() == [("ann", 700), ("ann", 800)]
        incomplete, unreadable = letters.read_records()
        assert (incomplete.value, dict(incomplete.headers)[HEADER_EXCEPTION]) == (b'{"quantity": 2}', b"KeyError")
        assert (unreadable.value, dict(unreadable.headers)[HEADER_TOPIC]) == (b"hello", b"orders")
