"""The example of docs/table-joins.md runs, and gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from milestones import serdes
from milestones.testing import TopologyTestDriver

PAGE = Path(__file__).parents[2] / "docs" / "table-joins.md"


def test_the_example_names_orders_by_their_customers() -> None:
    text = PAGE.read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    with TopologyTestDriver(names["builder"]) as driver:
        orders = driver.create_input_topic("orders", key=serdes.STRING, value=serdes.JSON)
        customers = driver.create_input_topic("customers", key=serdes.STRING, value=serdes.JSON)
        named = driver.create_output_topic("named-orders", key=serdes.STRING, value=serdes.JSON)
        orders.pipe("o1", {"customer": "c1"})
        orders.pipe("o2", {"customer": "c1"})
        customers.pipe("c1", {"name": "Ann"})
        assert named.read_key_values() == [
            ("o1", {"customer": "c1", "name": None}), ("o2", {"customer": "c1", "name": None}),
            ("o1", {"customer": "c1", "name": "Ann"}), ("o2", {"customer": "c1", "name": "Ann"}),
        ]  # fmt: skip
        orders.pipe("o1", {"customer": "c2"})
        orders.pipe("o2", None)
        assert named.read_key_values() == [("o1", {"customer": "c2", "name": None}), ("o2", None)]
        internal = {topic for topic in driver.produced() if "-subscription-r" in topic}
    assert all(f"<application.id>{topic.removeprefix('topology-test-driver')}`" in text for topic in internal)
    assert len(internal) == 2
