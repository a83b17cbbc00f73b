"""The internal topic between an operator that changes keys and one that needs them.

*Guarantees*: Kafka Streams' names: three numbers are used up, whether the names are used or not.
*Assumes*: nothing.
"""

from __future__ import annotations

from milestones.common.topology import naming
from milestones.common.topology.graph import Graph, Repartition
from milestones.common.topology.nodes import Partitioner
from milestones.common.topology.serde_choice import Choice


def repartition_node(
    graph: Graph,
    prefix: str,
    key: Choice,
    value: Choice,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
) -> Repartition:
    """The operation for the topic `<prefix>-repartition`, not yet added to the graph."""
    topic = naming.repartition_topic(prefix)
    sink, drop, source = (graph.names.processor(kind) for kind in (naming.SINK, naming.FILTER, naming.SOURCE))
    if not naming.is_generated(prefix):
        sink, drop, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return Repartition(source, topic, sink, source, drop, key, value, partitions, partitioner)
