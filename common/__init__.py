"""The code that all stages share: topologies, tasks, state, Kafka clients, the assignor, test tools.

*Guarantees*: this code doesn't know which stage runs it.
*Assumes*: it is imported as `milestones.common`.
"""
