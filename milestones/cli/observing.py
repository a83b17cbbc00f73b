"""`ClusterObserver`: makes a status of a running application from its group, its topics and its instances' metrics.

*Guarantees*: nothing is changed. If an instance or a topic can't be asked, the status contains a note. An error is
raised only if the group can't be asked, or belongs to another program.
*Assumes*: one thread uses the object. Instances serve metrics in Prometheus' text format at `metrics_port`.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import orjson
from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families

from milestones.cli.application_status import (
    CLIENT_QUEUES,
    OTHER,
    RESIDENT,
    ApplicationStatus,
    CallRow,
    DatabaseRow,
    GlobalRow,
    Member,
    Scraped,
    StoreRow,
    application_status,
    inputs_of,
    members_of,
)
from milestones.common.assignment.summary import short_name
from milestones.common.clock import SystemClock
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.groups import DescribedGroup, GroupReader
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.topic_ids import known_ids, unlike

TIMEOUT_MS = 10_000
SCRAPE_TIMEOUT_S = 1.0
SCRAPES_AT_ONCE = 16
MAX_METRICS_BYTES = 64 << 20
ANY_HOST = {"0.0.0.0", "::", ""}
SETTLE_MS = 10_000
"""The longest time that the first status waits for the end of a rebalance. During a rebalance Kafka doesn't return the
members' metadata."""
PAUSE_MS = 200
MOST_NAMES = 8


class ClusterObserver:
    """Asks Kafka and the instances. While the group rebalances, the status has the members of the last stable
    generation. *Owns*: the connections."""

    def __init__(self, config: StreamsConfig) -> None:
        self._name, self._clock = config.application_id, SystemClock()
        settings = config.admin_settings(f"{config.application_id}-status")
        self._reader = GroupReader(settings, self._name, timeout_ms=TIMEOUT_MS, clock=self._clock)
        self._cluster = Cluster(settings, request_timeout_ms=TIMEOUT_MS)
        self._pool = ThreadPoolExecutor(SCRAPES_AT_ONCE, thread_name_prefix="metrics")
        self._members: list[Member] = []

    def first(self) -> ApplicationStatus:
        """Returns a status with at least one member. Raises `MilestonesError` if the group doesn't exist, or has no
        members."""
        deadline = self._clock.monotonic_ms() + SETTLE_MS
        while True:
            group = self._reader.describe()
            _refuse(group, self._name)
            if group.state == "Stable" or self._clock.monotonic_ms() >= deadline:
                return self._status(group)
            self._clock.sleep_ms(PAUSE_MS)

    def refresh(self) -> ApplicationStatus:
        """Returns a status of the group, which may have no members."""
        return self._status(self._reader.describe())

    def _status(self, group: DescribedGroup) -> ApplicationStatus:
        members = members_of(group, self._name)
        if group.state == "Stable" or not group.members:
            self._members = members
        notes: list[str] = []
        if group.members and group.state != "Stable":
            notes.append(_rebalancing(group, shown=bool(self._members)))
        if not group.members:
            notes.append("no instance runs")
        lags = self._lags(notes)
        return application_status(self._name, group, self._members, lags, self._scrape(), notes)

    def _lags(self, notes: list[str]) -> dict[TopicPartition, int]:
        inputs = inputs_of(self._members)
        if not inputs:
            return {}
        try:
            committed = self._reader.offsets(inputs)
            bounds = self._cluster.bounds(inputs, committed=True)
            found = self._cluster.look({at.topic for at in inputs})
        except (KafkaException, MilestonesError) as error:
            notes.append(f"input lags aren't known: {text_of(error)}")
            return {}
        former = unlike(found, known_ids(committed, committed))
        notes += [
            f"{topic} was deleted and made anew: the committed offsets belong to the former topic"
            for topic in sorted(former)
        ]
        begins = {at: committed[at].offset if at in committed else begin for at, (begin, _) in bounds.items()}
        return {at: max(0, bounds[at][1] - begin) for at, begin in begins.items() if at.topic not in former}

    def _scrape(self) -> dict[str, Scraped | str]:
        """Ask all instances at the same time for their metrics. Each has a second to answer. Returns the answers by
        process id."""
        asked: dict[str, tuple[str, str]] = {}
        for member in self._members:
            if member.said.endpoint is not None:
                host = member.described.host
                asked[member.said.process_id] = _address(member.said.endpoint, host), member.described.client_id
        answers = self._pool.map(lambda one: scrape(*one), asked.values())
        return dict(zip(asked, answers, strict=True))

    def close(self) -> None:
        self._reader.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _refuse(group: DescribedGroup, name: str) -> None:
    if group.state == "Dead":
        raise MilestonesError(
            f"there is no group {name}: no instance of an application with this id has run on this Kafka, or its "
            "committed offsets have expired; check application_id and bootstrap_servers"
        )
    if not group.members:
        raise MilestonesError(f"no instance runs: the group {name} has no members, only committed offsets")


def _rebalancing(group: DescribedGroup, *, shown: bool) -> str:
    told = "their former tasks are shown" if shown else "their tasks aren't known before the rebalance ends"
    names = sorted({short_name(member.client_id) for member in group.members})
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (
        f"rebalancing: {', '.join(names[:MOST_NAMES])}{more}; {told} (the group waits for a member that doesn't answer "
        "until its session_timeout_ms is over)"
    )


def _address(endpoint: str, host: str) -> str:
    """Returns the address of an instance's metrics. If the instance listens on all addresses, the host is the one that
    the broker knows for the member."""
    own, _, port = endpoint.rpartition(":")
    if own.strip("[]") not in ANY_HOST:
        return endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def scrape(address: str, client_id: str) -> Scraped | str:
    """Read the metrics at `address` of the instance with the member `client_id`. Returns the reason if they can't be
    read. The address may be outdated, so that another instance uses it now; then the reason says so."""
    try:
        text = fetched(address, "/metrics")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"no metrics at {address}: {error}"
    try:
        found = read_metrics(text)
    except (ValueError, KeyError) as error:
        return f"no metrics at {address}: the answer can't be read ({error})"
    if not found.client_id or not client_id.startswith(found.client_id):
        return f"no metrics at {address}: the address belongs to {found.client_id or 'another program'}"
    try:
        return with_page(found, fetched(address, "/status"))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return found  # an older release has no such page


def fetched(address: str, path: str) -> str:
    """Fetch a page and return its text. `address`: `host:port`, for a worker `host:port/workers/2`. Raises `OSError`,
    `ValueError` or `HTTPException`."""
    host, slash, before = address.partition("/")
    connection = http.client.HTTPConnection(host, timeout=SCRAPE_TIMEOUT_S)
    try:
        connection.request("GET", slash + before + path)
        return connection.getresponse().read(MAX_METRICS_BYTES).decode()
    finally:
        connection.close()


def with_page(found: Scraped, text: str) -> Scraped:
    """Returns `found`, completed by the values of the page `/status` that metrics don't have: texts of errors, and long
    calls."""
    page = orjson.loads(text)
    texts = {TaskId.parse(task): str(error) for task, error in {**page["failing"], **page["ended"]}.items()}
    return replace(found, texts=texts, calls=tuple(CallRow(**call) for call in page["calls"]))


def read_metrics(text: str) -> Scraped:
    """Read the metrics of one instance in Prometheus' text format. Raises `ValueError` for another format."""
    clients: dict[str, str] = {}
    threads: dict[str, str] = {}
    numbers: dict[str, dict[str, float]] = {}
    by_task: dict[str, dict[TaskId, int]] = {name: {} for name in _BY_TASK.values()}
    stores: dict[TaskId, dict[str, dict[str, float]]] = {}
    classes: dict[str, dict[TaskId, str]] = {name: {} for name in _CLASSES.values()}
    of_instance: dict[str, dict[str, int]] = {MEMORY: {}, LIMITS: {}, GLOBALS: {}}
    databases: dict[int, dict[str, int]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels, name = sample.labels, sample.name
            if name in _OF_CLIENT:
                clients |= {"client_id": labels["client_id"], _OF_CLIENT[name]: labels["value"]}
            elif name == "kafka_stream_thread_thread_state_info":
                threads[labels["thread_id"]] = labels["value"]
            elif name in _OF_THREAD:
                numbers.setdefault(labels["thread_id"], {})[_OF_THREAD[name]] = sample.value
            elif name in _CLASSES:
                classes[_CLASSES[name]][TaskId.parse(labels["task_id"])] = labels["value"]
            elif name in _OF_INSTANCE:
                field, key = _OF_INSTANCE[name]
                of_instance[field][key or labels["account"]] = int(sample.value)
            elif name in _OF_DATABASE:
                databases.setdefault(int(labels["subtopology_id"]), {})[_OF_DATABASE[name]] = int(sample.value)
            elif name in _BY_TASK:
                by_task[_BY_TASK[name]][TaskId.parse(labels["task_id"])] = int(sample.value)
            elif name in _OF_STORE:
                of_task = stores.setdefault(TaskId.parse(labels["task_id"]), {})
                of_task.setdefault(labels["state_id"], {})[_OF_STORE[name]] = sample.value
    rows = {task: tuple(_store(name, told) for name, told in sorted(found.items())) for task, found in stores.items()}
    known: dict[str, object] = {"threads": threads, "numbers": numbers, "stores": rows, **classes}
    known["databases"] = {number: DatabaseRow(**told) for number, told in sorted(databases.items())}
    known[MEMORY] = of_instance[MEMORY] if of_instance[MEMORY].keys() >= {RESIDENT, OTHER} else {}
    known[LIMITS] = {account: limit for account, limit in of_instance[LIMITS].items() if limit >= 0}
    if everyone := of_instance[GLOBALS]:
        known[GLOBALS] = GlobalRow(**everyone)
    return replace(Scraped(""), **known, **by_task, **clients)  # type: ignore[arg-type]


def _store(name: str, told: Mapping[str, float]) -> StoreRow:
    counts = {field: int(told[field]) for field in ("restored", "left", "bytes_left")}
    seconds = told["seconds_left"]
    return StoreRow(name, **counts, seconds_left=None if seconds < 0 else seconds)


_OF_CLIENT = {"kafka_stream_state_info": "state", "kafka_stream_version_info": "version"}
_CLASSES = {"kafka_stream_task_quarantine_error_info": "classes", "kafka_stream_task_ended_error_info": "ended"}
"""The metrics with the class of a task's error, and the field of `Scraped` for each."""
_BY_TASK = {
    "kafka_stream_task_restore_total": "restored",
    "kafka_stream_task_restore_remaining_records": "remaining",
    "kafka_stream_task_standby_records_lag": "standby_lags",
    "kafka_stream_task_quarantine_seconds_left": "seconds_left",
}
"""The metrics of tasks, and the field of `Scraped` for each."""
MEMORY, LIMITS, GLOBALS = "memory", "memory_limits", "globals"
_OF_GLOBAL = {
    "kafka_stream_global_thread_restore_remaining_records": "left",
    "kafka_stream_global_thread_restore_total": "restored",
    "kafka_stream_global_thread_records_lag": "lag",
}
"""The metrics of global stores, and the field of `GlobalRow` for each."""
_OF_DATABASE = {
    f"kafka_stream_state_database_{name}": name for name in ("size_bytes", "files", "writes_wait", "unsynced_ms")
}
"""The metrics of databases, and the field of `DatabaseRow` for each."""
_OF_MEMORY = {f"kafka_stream_memory_{name}_bytes": name for name in (RESIDENT, OTHER, CLIENT_QUEUES)}
"""The metrics of a process' memory, and the key in `Scraped.memory` for each."""
_OF_ACCOUNT = {"kafka_stream_memory_account_bytes": MEMORY, "kafka_stream_memory_account_limit_bytes": LIMITS}
"""The metrics of an account of memory, and the field of `Scraped` for each."""
_OF_INSTANCE = {
    **{name: (GLOBALS, key) for name, key in _OF_GLOBAL.items()},
    **{name: (MEMORY, key) for name, key in _OF_MEMORY.items()},
    **{name: (field, None) for name, field in _OF_ACCOUNT.items()},
}
"""The metrics of the whole instance, and for each the field of `Scraped` with the key in it. None: the key is the
metric's account."""
_OF_THREAD = {
    "kafka_stream_thread_commit_age_ms": "commit_age_ms",
    "kafka_stream_processing_thread_process_total": "records", "kafka_stream_processing_thread_turn_ratio": "busy",
}  # fmt: skip
"""The metrics of threads, and the key in `Scraped.numbers` for each."""
_OF_STORE = {
    "kafka_stream_state_restore_total": "restored",
    "kafka_stream_state_restore_remaining_records": "left",
    "kafka_stream_state_restore_remaining_bytes": "bytes_left",
    "kafka_stream_state_restore_remaining_seconds": "seconds_left",
}
"""The metrics of restored stores, and the field of `StoreRow` for each."""
