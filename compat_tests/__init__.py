"""The compatibility suite: what every stage of the runtime is held to, on a real Kafka. See README.md."""

ALO, EOS = GUARANTEES = ("at_least_once", "exactly_once_v2")
