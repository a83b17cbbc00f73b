"""The Processor API: an alarm for each device that has not been heard of for half a minute.

A processor keeps state in a store and is called by the clock. Everything it does, in its store and with `forward`, is
part of the same transaction as the offsets of its input.

    milestones broker --port 9092
    python examples/console.py heartbeats alarms --keyed   # type `pump:ok`, wait half a minute
    python examples/silent_devices.py
"""

from __future__ import annotations

from datetime import timedelta

from milestones import KeyValueStore, Processor, ProcessorContext, Record, StoreSpec, Streams, Topology

SILENCE_MS = 30_000
LAST_SEEN = "last-seen"


class SilenceAlarm(Processor[str, str, str, str]):
    """Keeps when each device was last seen; looks for silent ones every ten seconds."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.last_seen: KeyValueStore[str, int] = context.get_state_store(LAST_SEEN)
        context.schedule(timedelta(seconds=10), "wall-clock-time", self.look)

    def process(self, record: Record[str, str]) -> None:
        self.last_seen.put(record.key, record.timestamp)

    def look(self, now_ms: int) -> None:
        silent = [(device, seen) for device, seen in self.last_seen.all() if now_ms - seen >= SILENCE_MS]
        for device, seen in silent:
            self.context.forward(Record(device, f"silent for {(now_ms - seen) // 1000} s", now_ms))
            self.last_seen.delete(device)


topology = (
    Topology()
    .add_source("heartbeats", "heartbeats", key=str, value=str)
    .add_processor("silence-alarm", SilenceAlarm, "heartbeats")
    .add_state_store(StoreSpec(LAST_SEEN, key_serde=str, value_serde=int), "silence-alarm")
    .add_sink("alarms", "alarms", "silence-alarm", key=str, value=str)
)

streams = Streams(
    topology,
    application_id="silent-devices",
    processing_guarantee="exactly_once_v2",
)

if __name__ == "__main__":
    raise SystemExit(streams.run())
