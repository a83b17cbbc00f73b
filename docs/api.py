"""`docs/api.md`, made from signatures and docstrings: `python -m docs.api > docs/api.md`.

*Guarantees*: the page says what the code says; a test compares them.
*Assumes*: a docstring's first paragraph says what a user must know.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ForwardRef, is_typeddict

import milestones as m
from milestones import assignment, embedded, serdes, stores, testing
from milestones.common import serdes as built_in

MODULES = (m, serdes, stores, testing, embedded, assignment)
"""What a user imports from, beside `milestones.pipeline`: `docs/spark.md` describes that."""

SECTIONS: Mapping[str, Sequence[Any]] = {
    "Application": [
        m.Streams,
        m.StreamsConfig,
        m.StreamsSettings,
        m.StreamsState,
        m.ThreadState,
        m.Status,
        m.LongCall,
        m.MemoryReport,
        m.AccountReport,
        m.UncaughtExceptionResponse,
    ],
    "Streams and tables": [
        m.StreamsBuilder,
        m.KStream,
        m.KTable,
        m.GlobalKTable,
        m.KGroupedStream,
        m.KGroupedTable,
        m.CogroupedKStream,
        m.BranchedKStream,
        m.KeepOptions,
        m.StoreOptions,
        m.JoinWindows,
        m.JoinOptions,
        m.SinkRecord,
    ],
    "Windows": [
        m.TimeWindows,
        m.SlidingWindows,
        m.SessionWindows,
        m.UnlimitedWindows,
        m.WindowedKStream,
        m.WindowedCogroupedKStream,
        m.WindowOptions,
        m.Windowed,
        m.WindowedSerde,
        m.SessionWindowedSerde,
    ],
    "Topology": [m.Topology, m.TopologyDescription, m.SubTopologyDescription, m.NodeDescription, m.StoreSpec],
    "Processor API": [
        m.Processor,
        m.ProcessorContext,
        m.Record,
        m.RecordMetadata,
        m.TaskId,
        m.TopicPartition,
        m.Cancellable,
        m.FixedKeyProcessor,
        m.FixedKeyProcessorContext,
        m.ProcessorWrapper,
        m.FixedKeyRecord,
        m.ValueTransformer,
        m.ValueTransformerContext,
    ],
    "State stores": [
        m.KeyValueStore,
        m.TimestampedKeyValueStore,
        m.ValueAndTimestamp,
        m.WindowStore,
        m.TimestampedWindowStore,
        m.SessionStore,
        m.TimestampedKeyValueStoreWithHeaders,
        m.ValueTimestampHeaders,
        m.TimestampedWindowStoreWithHeaders,
        m.SessionStoreWithHeaders,
        m.AggregationWithHeaders,
        m.VersionedStore,
        m.VersionedValue,
        m.LruStore,
        m.ExpiringStore,
        stores.key_value,
        stores.timestamped_key_value,
        stores.timestamped_key_value_with_headers,
        stores.window,
        stores.timestamped_window,
        stores.timestamped_window_with_headers,
        stores.session,
        stores.session_with_headers,
        stores.versioned,
        stores.lru,
        stores.SpecOptions,
    ],
    "Exception handlers": [
        m.LogAndFail,
        m.LogAndContinue,
        m.RetryOrFail,
        m.send_to_dead_letter_topic,
        m.Response,
        m.Action,
        m.ErrorContext,
        m.Output,
    ],
    "Timestamp extractors": [
        m.fail_on_invalid_timestamp,
        m.log_and_skip_on_invalid_timestamp,
        m.use_partition_time_on_invalid_timestamp,
        m.wallclock_timestamp_extractor,
        m.SourceRecord,
    ],
    "Serdes": [m.Serde, serdes.of, serdes.json, serdes.list_serde],
    "Listeners": [m.StateRestoreListener, m.StandbyUpdateListener, m.SuspendReason],
    "Errors": [
        m.MilestonesError,
        m.ConfigError,
        m.TopologyError,
        m.KafkaUnreachableError,
        m.TimeoutExceededError,
        m.SecurityError,
        m.MembershipError,
        m.OffsetsRefusedError,
        m.TransactionalIdError,
        m.SourceTopicError,
        m.StateError,
        m.StateLockedError,
        m.StateCorruptError,
        m.StateFormatError,
        m.StateFullError,
        m.SnapshotError,
        m.SnapshotKeyError,
        m.ObjectStoreError,
        m.OffsetMetadataError,
        m.SerializationError,
        m.OutputSerializationError,
        m.ProcessingError,
        m.SuppressBufferFullError,
        m.UserExitError,
        m.ProductionError,
        m.RefusedInTransactionError,
        m.ApplicationShutdownError,
        m.CloseTimeoutError,
        m.OwnershipError,
        m.ConfigErrors,
    ],
    "Tests without a broker": [
        testing.TopologyTestDriver, testing.SteppedApplication, testing.InputTopic, testing.OutputTopic,
        testing.StepClock,
    ],
    "Tests with a broker": [
        testing.KafkaProbe, testing.TopicTail, testing.KafkaRecord, testing.until, testing.DeadlineError,
    ],
    "A broker for tests": [
        embedded.EmbeddedKafka,
        embedded.EmbeddedKafkaError,
        embedded.JavaNotFoundError,
        embedded.JarsError,
        embedded.PortTakenError,
        embedded.DataDirInUseError,
        embedded.BrokerDiedError,
    ],
    "Task assignors": [assignment.Placement, assignment.Rules, assignment.TaskPlan, assignment.Subscription],
}

TYPES: Mapping[str, tuple[Any, str]] = {
    "Assignor": (assignment.Assignor, "as the setting `task_assignor` names one (KIP-924)."),
    "Chain": (m.Chain, "what to do with a branch at once; what it returns takes the branch's place in the result."),
    "Clock": (testing.Clock, "two clocks, for tests: `milestones.testing.StepClock` is moved by hand."),
    "Duration": (m.Duration, "a span of time: a `timedelta`, or a number of ms."),
    "Emit": (m.Emit, "each update of a window, or its result once it has closed."),
    "FAULT_POINTS": (
        None,
        (
            "names of places in the runtime at which `MILESTONES_FAULT` makes a process fail, each with what is true "
            "there ([Tests](testing.md))."
        ),
    ),
    "HasTopology": (testing.HasTopology, "an object with the attributes `topology` and `config`, such as a `Streams`."),
    "Handler": (m.Handler, "an exception handler, such as `LogAndFail()`."),
    "Headers": (m.Headers, "in the order of the record; names may repeat."),
    "KAFKA_VERSION": (None, "of the broker that `EmbeddedKafka` runs."),
    "Members": (assignment.Members, "all members of the group by their member id."),
    "NotYet": (testing.NotYet, "a text that says why a condition of `until` doesn't hold yet; it counts as false."),
    "OffsetReset": (m.OffsetReset, "where to begin without a committed offset."),
    "Partitioner": (
        m.Partitioner,
        (
            "topic, key, value and number of partitions give the partition. None: the default partitioner; several: "
            "the record goes to each; an empty collection: it is dropped (KIP-837)."
        ),
    ),
    "PunctuationType": (m.PunctuationType, "which time a punctuation follows."),
    "SerdeLike": (serdes.SerdeLike, "a serde, or a type that has one: `serdes.of` gives it."),
    "StateListener": (m.StateListener, "is called with the new state and the old one."),
    "StoreKind": (m.StoreKind, "a store of plain values, or of values with their timestamps, as tables have."),
    "Tasks": (assignment.Tasks, "tasks by member id; a member that has none may be left out."),
    "TimestampExtractor": (
        m.TimestampExtractor,
        "a record and its partition's time so far give the record's time, in ms; negative: the record is skipped.",
    ),
    "TopicExtractor": (m.TopicExtractor, "key, value and record of a sink give the topic, which must exist."),
    "Until": (m.Until, "until windows close."),
    "WhenFull": (m.WhenFull, "what a full buffer of suppress does."),
    "Windows": (m.Windows, "any of the four kinds of windows."),
    "UncaughtHandler": (m.UncaughtHandler, "is called with the error, and says what follows."),
}
"""Types in signatures that have no section of their own: what they are, what they are for."""

GIVEN = {
    m.KStream, m.KTable, m.GlobalKTable, m.KGroupedStream, m.KGroupedTable, m.BranchedKStream, m.Processor,
    m.FixedKeyProcessor, m.ProcessorContext, m.FixedKeyProcessorContext, m.ValueTransformer,
    m.ValueTransformerContext, m.Cancellable, m.KeyValueStore,
    m.TimestampedKeyValueStore, m.WindowStore, m.TimestampedWindowStore, m.SessionStore, m.VersionedStore, m.LruStore,
    m.ExpiringStore, m.TimestampedKeyValueStoreWithHeaders, m.TimestampedWindowStoreWithHeaders,
    m.SessionStoreWithHeaders,
    m.WindowedKStream, m.CogroupedKStream, m.WindowedCogroupedKStream, m.TopologyDescription,
    m.SubTopologyDescription, m.NodeDescription, testing.InputTopic,
    testing.OutputTopic,
}  # fmt: skip
"""Classes that a user subclasses, or whose objects the runtime makes."""

ELSEWHERE = {m.StreamsSettings}
"""Classes whose members another page lists."""

OF_THE_RUNTIME: Mapping[type, set[str]] = {
    m.StreamsConfig: {
        "admin_settings", "client_queue_bytes", "consumer_settings", "global_consumer_settings", "global_queue_bytes",
        "member_settings", "of_options", "overridden", "passed", "producer_settings", "restore_consumer_settings",
        "security_settings", "static_id", "topic_settings", "with_options",
    },
    m.Topology: {
        "add_node", "add_global_nodes", "add_internal_topic", "copartition_sources", "may_be_optimized", "optimized",
        "resolve", "resolve_global", "rewritten",
    },
    m.KeyValueStore: {"open", "close", "flush", "set_flush_listener"},
    m.TimestampedKeyValueStore: {"open", "get_raw", "put_raw", "delete_raw", "bytes_of", "row_of", "put_row",
                                 "delete_row"},
    m.WindowStore: {"open", "close", "flush", "set_flush_listener", "closed_between", "rows_between"},
    m.TimestampedWindowStore: {"open", "fetch_raw", "put_raw", "put_window", "rows", "backward_rows", "get_raw",
                               "bytes_of", "row_of", "put_row", "delete_raw"},
    m.SessionStore: {"open", "close", "flush", "set_flush_listener", "closed_between", "get_raw", "put_raw", "put_at",
                     "near", "row_value", "replace_rows", "delete_rows"},
    m.TimestampedKeyValueStoreWithHeaders: {"open", "get_raw", "put_raw", "delete_raw"},
    m.TimestampedWindowStoreWithHeaders: {"open", "get_raw", "put_raw", "put_window", "bytes_of", "row_of", "put_row",
                                          "delete_raw"},
    m.SessionStoreWithHeaders: {"open", "flush", "replace_rows"},
    m.VersionedStore: {"open", "close", "flush", "set_flush_listener", "get_raw", "put_raw", "delete_raw", "get_as_of",
                       "versioned", "last_put"},
    m.LruStore: {"open"},
    m.ExpiringStore: {"open", "get_raw", "put_raw", "delete_raw"},
    testing.SteppedApplication: {"unread"},
    testing.TopologyTestDriver: {"of_stage", "unread"},
}  # fmt: skip
"""Methods that user code doesn't call."""


class _Text(str):
    """An annotation as it was written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def markdown() -> str:
    """The page."""
    lines = [*_introduction()]
    for title, entries in SECTIONS.items():
        lines += ["", f"## {title}"]
        for entry in entries:
            lines += ["", f"### {entry.__name__}", "", *_entry(entry)]
        if title == "Serdes":
            lines += ["", "### Built-in serdes", "", *_built_in_serdes()]
    return "\n".join([*lines, "", "## Types in signatures", "", *_types()]) + "\n"


_MODULES = re.compile(r"\b(?:typing|collections\.abc|milestones(?:\.\w+)*)\.|ForwardRef\('([^']+)'\)")


def _types() -> Iterator[str]:
    for name, (of, meaning) in TYPES.items():
        fields = getattr(of, "__dataclass_fields__", {})
        written = ", ".join(f"{field}: {about.type}" for field, about in fields.items())
        if not isinstance(of, type):
            written = "" if of is None else _MODULES.sub(r"\1", repr(of))
        yield f"- `{name}`" + (f": `{written}`" if written else "") + f": {meaning}"


def _introduction() -> Iterator[str]:
    yield "# API\n"
    yield "Made from signatures and docstrings, of which this is the first paragraph each:"
    yield "`python -m docs.api > docs/api.md`. Settings are in [Configuration](configuration.md).\n"
    yield "| import | names |\n|---|---|"
    for module in MODULES:
        yield f"| `from {module.__name__} import ...` | {', '.join(f'`{name}`' for name in module.__all__)} |"
    yield "| `from milestones.pipeline import ...` | see [Spark](spark.md) |\n"
    yield "A name has one path, also in tracebacks, error texts and dead letters. Other modules are private,"
    yield "`milestones.common` with all that is in it. The list of `milestones` is flat: its names don't overlap, and"
    yield "editors complete them. The other modules are apart for a reason each: `serdes.STRING` says more than"
    yield "`STRING`; tests have names of their own; the broker needs the extra `embedded`; `Rules` and `Subscription`"
    yield "mean something to a task assignor only."


def _entry(entry: Any) -> Iterator[str]:
    if inspect.isfunction(entry):
        yield f"`{entry.__name__}{_signature(entry)}`\n\n{_doc(entry)}"
        return
    if entry not in GIVEN and not is_typeddict(entry) and not issubclass(entry, (enum.Enum, Exception)):
        yield f"`{entry.__name__}{_signature(entry, returns=False)}`\n"
    listed = {each for entries in SECTIONS.values() for each in entries}
    bases = [base for base in entry.__mro__[1:] if base in listed]
    members = [] if entry in ELSEWHERE else [*_members(entry, bases)]
    yield _doc(entry) + "".join(f" Besides what `{base.__name__}` has:" for base in bases[:1] if members)
    if members:
        yield ""
        yield from members


def _members(entry: Any, bases: Sequence[type]) -> Iterator[str]:
    if is_typeddict(entry):
        yield from (f"- `{name}: {_written(of)}`" for name, of in entry.__annotations__.items())
    elif issubclass(entry, enum.Enum):
        yield ", ".join(f"`{member.name}`" for member in entry)
    else:
        inherited = {name for base in bases for name in _public(base)} - {*vars(entry)}
        for name, member in _public(entry).items():
            if name not in inherited and name not in OF_THE_RUNTIME.get(entry, ()):
                yield f"- {_member(entry, name, member)}"


def _public(entry: type) -> dict[str, Any]:
    """Methods and properties by name, those of bases first."""
    ours = [base for base in reversed(entry.__mro__) if base.__module__.partition(".")[0] == "milestones"]
    return {
        name: member
        for base in ours
        for name, member in vars(base).items()
        if not name.startswith("_") and (isinstance(member, (property, classmethod)) or inspect.isfunction(member))
    }


def _member(entry: type, name: str, member: Any) -> str:
    if isinstance(member, property):
        assert member.fget is not None
        return f"`{name}: {_written(inspect.signature(member.fget).return_annotation)}`: {_doc(member)}"
    if isinstance(member, classmethod):
        return f"`{entry.__name__}.{name}{_signature(getattr(entry, name))}`: {_doc(member)}"
    return f"`{name}{_signature(member, of_object=True)}`: {_doc(member)}"


def _signature(function: Any, *, of_object: bool = False, returns: bool = True) -> str:
    """As it was written, without `self`."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(
            annotation=_written(each.annotation),
            default=_Text("...") if inspect.isfunction(each.default) else each.default,
        )
        for each in signature.parameters.values()
    ]
    result = _written(signature.return_annotation) if returns else inspect.Signature.empty
    return str(signature.replace(parameters=parameters[1:] if of_object else parameters, return_annotation=result))


def _written(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    if isinstance(annotation, ForwardRef):
        return _Text(annotation.__forward_arg__)
    return _Text(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _doc(documented: Any) -> str:
    """The first paragraph, in one line."""
    text = inspect.getdoc(documented)
    if not text:
        raise SystemExit(f"{getattr(documented, 'fget', documented)} needs a docstring")
    return " ".join(text.split("\n\n")[0].split())


def _built_in_serdes() -> Iterator[str]:
    for name, annotation in built_in.__annotations__.items():
        if name in serdes.__all__:
            yield f"- `serdes.{name}: {annotation}`"


if __name__ == "__main__":
    sys.stdout.write(markdown())
