"""The DSL and the Processor API (builder, streams, tables, processors), sub-topologies, compiled programs."""

from milestones.common.records import FixedKeyRecord
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.cogrouped import CogroupedKStream, WindowedCogroupedKStream
from milestones.common.topology.global_tables import GlobalKTable
from milestones.common.topology.grouped import KGroupedStream, KGroupedTable
from milestones.common.topology.handlers import LogAndContinue, LogAndFail, send_to_dead_letter_topic
from milestones.common.topology.join_windows import JoinWindows
from milestones.common.topology.operators.value_transformer import ValueTransformer
from milestones.common.topology.processor import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    Processor,
    ProcessorContext,
)
from milestones.common.topology.split import BranchedKStream
from milestones.common.topology.stream import KStream
from milestones.common.topology.table import KTable
from milestones.common.topology.topology import Topology

__all__ = [
    "BranchedKStream",
    "CogroupedKStream",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "GlobalKTable",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "LogAndContinue",
    "LogAndFail",
    "Processor",
    "ProcessorContext",
    "StreamsBuilder",
    "Topology",
    "ValueTransformer",
    "WindowedCogroupedKStream",
    "send_to_dead_letter_topic",
]
