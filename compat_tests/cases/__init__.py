"""The cases: each file says what a user may rely on, and runs it against real processes and a real Kafka."""
