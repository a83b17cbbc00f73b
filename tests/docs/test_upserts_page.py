"""The example of docs/upserts.md runs, and gives what the page says."""

from __future__ import annotations

from milestones.testing import TopologyTestDriver
from tests.docs.pages import run


def test_a_count_is_sent_with_each_update_and_jubilees_are_found() -> None:
    with TopologyTestDriver(run("upserts.md").builder) as driver:
        visits = driver.create_input_topic("visits", key=str, value=dict)
        for _ in range(1_001):
            visits.pipe("ann", {})
        counts = driver.create_output_topic("visits-by-visitor", key=str, value=int)
        assert counts.size() == 1_001
        assert counts.read_key_values_to_map() == {"ann": 1_001}
        jubilees = driver.create_output_topic("jubilees", key=str, value=int)
        assert jubilees.read_key_values() == [("ann", 1_000)]
