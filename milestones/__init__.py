"""Milestones: a Kafka stream-processing runtime whose threading model migrates stage by stage.

What a user imports:

    from milestones import Streams, StreamsBuilder, serdes
"""

from __future__ import annotations

from milestones.common import serdes
from milestones.common.config import StreamsConfig
from milestones.common.records import Record, RecordMetadata, TaskId, TopicPartition
from milestones.common.topology import (
    FixedKeyProcessor,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    StreamsBuilder,
    Topology,
)
from milestones.context import Exceptions
from milestones.states import StreamsState, ThreadState
from milestones.streams import Streams

__all__ = [
    "Exceptions",
    "FixedKeyProcessor",
    "KStream",
    "KTable",
    "Processor",
    "ProcessorContext",
    "Record",
    "RecordMetadata",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsState",
    "TaskId",
    "ThreadState",
    "TopicPartition",
    "Topology",
    "serdes",
]
