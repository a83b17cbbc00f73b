"""Milestones: a Kafka stream-processing runtime whose threading model migrates stage by stage.

What a user imports:

    from milestones import Streams, StreamsBuilder, serdes

*Guarantees*: what isn't in `__all__` here, or in `milestones.serdes`, `stores`, `testing`, `assignment`, `embedded` or
`pipeline`, is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones import serdes, stores
from milestones.client.client_events import Status
from milestones.client.long_calls import LongCall
from milestones.client.streams import StateListener, Streams, UncaughtHandler
from milestones.common.config import ConfigErrors, StreamsConfig
from milestones.common.config.settings import StreamsSettings
from milestones.common.errors import (
    ApplicationShutdownError,
    CloseTimeoutError,
    ConfigError,
    KafkaUnreachableError,
    MembershipError,
    MilestonesError,
    OffsetsRefusedError,
    OwnershipError,
    ProcessingError,
    ProductionError,
    SecurityError,
    SerializationError,
    SourceTopicError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateFullError,
    StateLockedError,
    SuppressBufferFullError,
    TimeoutExceededError,
    TopologyError,
    TransactionalIdError,
    UserExitError,
)
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.memory.report import AccountReport, MemoryReport
from milestones.common.public import publish, renamed
from milestones.common.records import Headers, Output, Record, RecordMetadata, TaskId, TopicPartition
from milestones.common.serdes import Serde
from milestones.common.state.snapshots.objects import ObjectStoreError
from milestones.common.state.snapshots.repository import SnapshotError, SnapshotKeyError
from milestones.common.state.spec import StoreKind, StoreSpec
from milestones.common.state.stores.expiring_store import ExpiringStore
from milestones.common.state.stores.key_value_stores import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from milestones.common.state.stores.lru_store import LruStore
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import (
    AggregationWithHeaders,
    SessionStoreWithHeaders,
    TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
    ValueTimestampHeaders,
)
from milestones.common.state.stores.versioned_store import VersionedStore, VersionedValue
from milestones.common.state.stores.window_stores import TimestampedWindowStore, WindowStore
from milestones.common.task.metadata import OffsetMetadataError
from milestones.common.topology import (
    BranchedKStream,
    CogroupedKStream,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    GlobalKTable,
    JoinWindows,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    StreamsBuilder,
    Topology,
    WindowedCogroupedKStream,
)
from milestones.common.topology.describe import NodeDescription, SubTopologyDescription, TopologyDescription
from milestones.common.topology.handlers import (
    Action,
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndFail,
    Response,
    RetryOrFail,
    send_to_dead_letter_topic,
)
from milestones.common.topology.joins import JoinOptions
from milestones.common.topology.materialized import KeepOptions, StoreOptions, WindowOptions
from milestones.common.topology.nodes import OffsetReset, Partitioner, SinkRecord, TopicExtractor
from milestones.common.topology.operators.value_transformer import ValueTransformer, ValueTransformerContext
from milestones.common.topology.program import Cancellable, PunctuationType
from milestones.common.topology.sink import OutputSerializationError
from milestones.common.topology.split import Chain
from milestones.common.topology.suppress import Until, WhenFull
from milestones.common.topology.timestamps import (
    SourceRecord,
    TimestampExtractor,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp_extractor,
)
from milestones.common.topology.windowed_stream import Emit, WindowedKStream, Windows
from milestones.common.topology.windows import Duration, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from milestones.common.topology.wrapping import ProcessorWrapper
from milestones.common.windowed import SessionWindowedSerde, Windowed, WindowedSerde
from milestones.instance.context import UncaughtExceptionResponse
from milestones.instance.listeners import StandbyUpdateListener, StateRestoreListener, SuspendReason
from milestones.instance.states import StreamsState, ThreadState

__all__ = [
    "AccountReport", "Action", "AggregationWithHeaders", "ApplicationShutdownError", "BranchedKStream", "Cancellable",
    "Chain", "CloseTimeoutError", "CogroupedKStream", "ConfigError", "ConfigErrors", "Duration", "Emit", "ErrorContext",
    "ExpiringStore", "FixedKeyProcessor", "FixedKeyProcessorContext", "FixedKeyRecord", "GlobalKTable", "Handler",
    "Headers", "JoinOptions", "JoinWindows", "KGroupedStream", "KGroupedTable", "KStream", "KTable",
    "KafkaUnreachableError", "KeepOptions", "KeyValueStore", "LogAndContinue", "LogAndFail", "LongCall", "LruStore",
    "MembershipError", "MemoryReport", "MilestonesError", "NodeDescription", "ObjectStoreError", "OffsetMetadataError",
    "OffsetReset", "OffsetsRefusedError", "Output", "OutputSerializationError", "OwnershipError", "Partitioner",
    "ProcessingError", "Processor", "ProcessorContext", "ProcessorWrapper", "ProductionError", "PunctuationType",
    "Record", "RecordMetadata", "RefusedInTransactionError", "Response", "RetryOrFail", "SecurityError", "Serde",
    "SerializationError", "SessionStore", "SessionStoreWithHeaders", "SessionWindowedSerde", "SessionWindows",
    "SinkRecord", "SlidingWindows", "SnapshotError", "SnapshotKeyError", "SourceRecord", "SourceTopicError",
    "StandbyUpdateListener", "StateCorruptError", "StateError", "StateFormatError", "StateFullError", "StateListener",
    "StateLockedError", "StateRestoreListener", "Status", "StoreKind", "StoreOptions", "StoreSpec", "Streams",
    "StreamsBuilder", "StreamsConfig", "StreamsSettings", "StreamsState", "SubTopologyDescription",
    "SuppressBufferFullError", "SuspendReason", "TaskId", "ThreadState", "TimeWindows", "TimeoutExceededError",
    "TimestampExtractor", "TimestampedKeyValueStore", "TimestampedKeyValueStoreWithHeaders", "TimestampedWindowStore",
    "TimestampedWindowStoreWithHeaders", "TopicExtractor", "TopicPartition", "Topology", "TopologyDescription",
    "TopologyError", "TransactionalIdError", "UncaughtExceptionResponse", "UncaughtHandler", "UnlimitedWindows",
    "Until", "UserExitError", "ValueAndTimestamp", "ValueTimestampHeaders", "ValueTransformer",
    "ValueTransformerContext", "VersionedStore", "VersionedValue", "WhenFull", "WindowOptions", "WindowStore",
    "Windowed", "WindowedCogroupedKStream", "WindowedKStream", "WindowedSerde", "Windows", "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp", "send_to_dead_letter_topic", "serdes", "stores",
    "use_partition_time_on_invalid_timestamp", "wallclock_timestamp_extractor",
]  # fmt: skip

publish(__name__)

if TYPE_CHECKING:
    Exceptions = UncaughtExceptionResponse
else:
    __getattr__ = renamed(__name__, {"Exceptions": "UncaughtExceptionResponse"})
