"""Milestones: a Kafka stream-processing runtime whose threading model migrates stage by stage.

What a user imports:

    from milestones import Streams, StreamsBuilder, serdes
"""

from __future__ import annotations

from milestones.common import serdes
from milestones.common.config import StreamsConfig
from milestones.common.records import Record, RecordMetadata, TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import (
    FixedKeyProcessor,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    StreamsBuilder,
    Topology,
)
from milestones.common.topology.handlers import (
    Action,
    ErrorContext,
    LogAndContinue,
    LogAndFail,
    Response,
    RetryOrFail,
    send_to_dead_letter_topic,
)
from milestones.context import Exceptions
from milestones.states import StreamsState, ThreadState
from milestones.streams import Streams

__all__ = [
    "Action",
    "ErrorContext",
    "Exceptions",
    "FixedKeyProcessor",
    "KStream",
    "KTable",
    "LogAndContinue",
    "LogAndFail",
    "Processor",
    "ProcessorContext",
    "Record",
    "RecordMetadata",
    "Response",
    "RetryOrFail",
    "StoreSpec",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsState",
    "TaskId",
    "ThreadState",
    "TopicPartition",
    "Topology",
    "send_to_dead_letter_topic",
    "serdes",
]
