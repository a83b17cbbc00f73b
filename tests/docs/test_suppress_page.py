"""The examples of docs/suppress.md and docs/cogroup.md run, and give what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from milestones.testing import TopologyTestDriver

DOCS = Path(__file__).parents[2] / "docs"


def example(page: str) -> Any:
    """The builder that a page's example makes."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["builder"]


def test_a_window_has_one_result_and_prices_are_calm() -> None:
    with TopologyTestDriver(example("suppress.md")) as driver:
        visits = driver.create_input_topic("visits", key=str, value=dict)
        busy = driver.create_output_topic("busy", key=str, value=int)
        for minute in (0, 1, 2, 7, 11):
            visits.pipe("ann", {}, timestamp=60_000 * minute + 1)
        assert [(record.key, record.value) for record in busy.read_records()] == [("ann", 3)]
        prices = driver.create_input_topic("prices", key=str, value=float)
        calm = driver.create_output_topic("calm-prices", key=str, value=float)
        for second, price in enumerate((1.0, 1.5, 2.0, 2.5)):
            prices.pipe("x", price, timestamp=1_000 * (second + 1))
        prices.pipe("y", 7.0, timestamp=11_000)
        assert [(record.key, record.value, record.timestamp) for record in calm.read_records()] == [("x", 2.5, 4_000)]


def test_orders_and_payments_add_to_one_account() -> None:
    with TopologyTestDriver(example("cogroup.md")) as driver:
        for topic, amount in (("orders", 5), ("payments", 3), ("orders", 2)):
            driver.create_input_topic(topic, key=str, value=dict).pipe("ann", {"amount": amount})
        accounts = driver.create_output_topic("accounts", key=str, value=dict)
        assert accounts.read_key_values_to_map() == {"ann": {"ordered": 7, "paid": 3}}
