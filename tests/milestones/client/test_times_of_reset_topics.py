"""What is late stays late when one of a task's inputs was made anew and is begun by `milestones reset --only`, on a
real broker, which has dropped the topic's committed offsets, and the times in their metadata."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from milestones import StreamsBuilder, TimeWindows, serdes
from milestones.testing import KafkaProbe
from tests.milestones.app import STAGES, App
from tests.milestones.client.test_topics_made_anew import make_anew

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

MINUTE_MS = 60_000
NOW_MS = 1_000 * MINUTE_MS


def topology(app: App, *inputs: str) -> StreamsBuilder:
    """The inputs -> counts per minute, without grace -> out."""
    builder = StreamsBuilder()
    lines = builder.stream([app[name] for name in inputs], key=serdes.STRING, value=serdes.STRING)
    counts = lines.group_by_key().windowed_by(TimeWindows(timedelta(minutes=1), grace=0)).count("counts")
    counts.to_stream().map(lambda windowed, count: (windowed.key, count)).to(
        app["out"], key=serdes.STRING, value=serdes.LONG
    )
    return builder


def counted(app: App) -> list[str]:
    return [(record.key or b"").decode() for record in KafkaProbe(app.kafka).read(app["out"])]


@STAGES
@pytest.mark.parametrize("disk", ["kept", "empty"])
def test_a_window_that_was_over_takes_no_record_of_the_new_topic(
    app: App, stage: str, guarantee: str, disk: str
) -> None:
    """The offsets of the task's other input carry the times."""
    inputs = "in", "other"
    settings: dict[str, Any] = {"milestones": stage, "processing_guarantee": guarantee}
    app.create({**dict.fromkeys(inputs, 1), "out": 1})
    for name in inputs:
        app.write("1", to=name, key=f"first of {name}", timestamp=NOW_MS)
    with app.running(topology(app, *inputs), **settings):
        app.until(lambda: len(counted(app)) == len(inputs), "all is counted")
    make_anew(app, 0)
    app.reset("--only", app["in"])
    with app.running(topology(app, *inputs), "one" if disk == "kept" else "another", **settings):
        app.write("1", key="late", timestamp=NOW_MS - 5 * MINUTE_MS)
        app.write("1", key="in time", timestamp=NOW_MS)
        app.until(lambda: "in time" in counted(app), "the new topic is processed")
    assert "late" not in counted(app)
