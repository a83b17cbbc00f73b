"""The example of docs/global-tables.md runs, and gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from milestones import serdes
from milestones.testing import TopologyTestDriver

PAGE = Path(__file__).parents[2] / "docs" / "global-tables.md"


def test_the_example_joins_orders_with_rates_and_stops_those_of_blocked_users() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    with TopologyTestDriver(names["builder"]) as driver:
        driver.create_input_topic("rates", key=serdes.STRING, value=serdes.DOUBLE).pipe("usd", 0.5)
        driver.create_input_topic("users", key=serdes.STRING, value=serdes.JSON).pipe("7", {"email": "mallory@x"})
        orders = driver.create_input_topic("orders", key=serdes.STRING, value=serdes.JSON)
        orders.pipe("1", {"amount": 10, "currency": "usd", "email": "ann@x"})
        orders.pipe("2", {"amount": 10, "currency": "gbp", "email": "mallory@x"})
        in_euros = driver.create_output_topic("in-euros", key=serdes.STRING, value=serdes.DOUBLE)
        checked = driver.create_output_topic("checked", key=serdes.STRING, value=serdes.JSON)
        assert in_euros.read_key_values() == [("1", 5.0)]
        assert [key for key, _ in checked.read_key_values()] == ["1"]
