"""The compatibility suite: what every stage of the runtime is held to, on a real Kafka. See README.md."""
