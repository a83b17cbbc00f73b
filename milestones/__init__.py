"""Milestones: a Kafka stream-processing runtime whose threading model migrates stage by stage.

What a user imports:

    from milestones import Streams, StreamsBuilder, serdes
"""

from __future__ import annotations

from milestones.client.streams import Streams
from milestones.common import serdes
from milestones.common.config import StreamsConfig
from milestones.common.errors import (
    ConfigError,
    KafkaUnreachableError,
    MilestonesError,
    ProcessingError,
    ProductionError,
    SerializationError,
    SourceTopicError,
    StateError,
    TopologyError,
)
from milestones.common.records import Record, RecordMetadata, TaskId, TopicPartition
from milestones.common.serdes import Serde
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from milestones.common.topology import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KGroupedStream,
    KGroupedTable,
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
from milestones.instance.context import Exceptions
from milestones.instance.listeners import StandbyUpdateListener, StateRestoreListener, SuspendReason
from milestones.instance.states import StreamsState, ThreadState

__all__ = [
    "Action",
    "ConfigError",
    "ErrorContext",
    "Exceptions",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaUnreachableError",
    "KeyValueStore",
    "LogAndContinue",
    "LogAndFail",
    "MilestonesError",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "ProductionError",
    "Record",
    "RecordMetadata",
    "Response",
    "RetryOrFail",
    "Serde",
    "SerializationError",
    "SourceTopicError",
    "StandbyUpdateListener",
    "StateError",
    "StateRestoreListener",
    "StoreSpec",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsState",
    "SuspendReason",
    "TaskId",
    "ThreadState",
    "TimestampedKeyValueStore",
    "TopicPartition",
    "Topology",
    "TopologyError",
    "ValueAndTimestamp",
    "send_to_dead_letter_topic",
    "serdes",
]
