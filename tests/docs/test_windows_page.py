"""The example of docs/windows.md runs, and gives what the page says."""

from __future__ import annotations

from milestones.testing import TopologyTestDriver
from tests.docs.pages import run


def test_the_example_emits_each_window_once_it_has_closed() -> None:
    with TopologyTestDriver(run("windows.md").builder, default_key_serde=str) as driver:
        visits = driver.create_input_topic("visits", key=str, value=dict)
        counts = driver.create_output_topic("counts", key=str, value=int)
        for minutes in (10, 11, 20):
            visits.pipe("ann", {}, timestamp=minutes * 60_000)
        found = counts.read_key_values_to_map()
    assert found["ann from 600000"] == 2
    assert found["ann from 360000"] == 1
    assert "ann from 1200000" not in found
