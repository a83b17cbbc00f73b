"""The example of docs/windows.md runs, and gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from milestones import serdes
from milestones.testing import TopologyTestDriver

PAGE = Path(__file__).parents[2] / "docs" / "windows.md"


def test_the_example_emits_each_window_once_it_has_closed() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    with TopologyTestDriver(names["builder"], default_key_serde=serdes.STRING) as driver:
        visits = driver.create_input_topic("visits", key=serdes.STRING, value=serdes.JSON)
        counts = driver.create_output_topic("counts", key=serdes.STRING, value=serdes.LONG)
        for minutes in (10, 11, 20):
            visits.pipe("ann", {}, timestamp=minutes * 60_000)
        found = counts.read_key_values_to_map()
    assert found["ann from 600000"] == 2
    assert found["ann from 360000"] == 1
    assert "ann from 1200000" not in found
