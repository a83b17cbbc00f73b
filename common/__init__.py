"""What every stage shares: topologies, tasks, state, Kafka clients, the assignor, test tools.

*Guarantees*: nothing here knows which stage runs it.
*Assumes*: imported as `milestones.common`.
"""
