"""Word count: lines in, a running count per word out.

milestones broker --port 9092                       # a Kafka to try it on, in a terminal of its own
python examples/console.py lines word-counts:long   # type lines, see counts, in another one
python examples/word_count.py                       # in a third one

Kafka is at localhost:9092, the default; MILESTONES_BOOTSTRAP_SERVERS=kafka:9092 says it is elsewhere.
"""

from __future__ import annotations

from milestones import Streams, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("lines", value=str)
    .flat_map_values(str.split)
    .group_by(lambda _, word: word, key=str)
    .count("counts")
    .to_stream()
    .to("word-counts", value=int)
)

streams = Streams(
    builder,
    application_id="words",
    processing_guarantee="exactly_once_v2",
)

if __name__ == "__main__":
    raise SystemExit(streams.run())
