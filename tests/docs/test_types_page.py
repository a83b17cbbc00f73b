"""The example of docs/types.md runs, and gives what the page says."""

from __future__ import annotations

from milestones.testing import TopologyTestDriver
from tests.docs.pages import run


def test_types_stand_for_serdes() -> None:
    page = run("types.md")
    with TopologyTestDriver(page.builder) as driver:
        orders = driver.create_input_topic("orders", key=str, value=page.Order)
        good = driver.create_output_topic("good-customers", key=str, value=int)
        for cents in (9_000, 2_000):
            orders.pipe("o", page.Order("ann", cents))
        assert good.read_key_values() == [("ann", 11_000)]
