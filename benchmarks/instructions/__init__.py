"""The work `instructions`: what a record of the count costs, by part, without Kafka. `work.py` measures it in a process
of its own, `job.py` is that process, `counters.py` counts."""
