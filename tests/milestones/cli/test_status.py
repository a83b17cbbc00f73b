"""`milestones status`: what it makes of a group's bytes and of metrics, what it prints, and a real application."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson
import pytest
from confluent_kafka import Consumer
from rich.console import Console

from milestones.cli.main import invoke
from milestones.cli.observing import _address, _rebalancing, read_metrics, scrape, with_page
from milestones.cli.picture import (
    DatabaseRow,
    GlobalRow,
    Member,
    Picture,
    Scraped,
    StoreRow,
    TaskRow,
    as_json,
    inputs_of,
    members_of,
    picture,
)
from milestones.cli.status import _watch
from milestones.cli.view import height, view
from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.groups import DescribedGroup, DescribedMember
from milestones.common.kafka.membership.protocol import assignment_bytes, subscription_bytes
from milestones.common.metrics import (
    ClientMetrics,
    GlobalThreadMetrics,
    Metrics,
    MetricsEndpoint,
    ProcessingThreadMetrics,
    RestorationMetrics,
    StandbyMetrics,
    TaskMetrics,
    ThreadMetrics,
)
from milestones.common.records import TaskId, TopicPartition
from milestones.common.testing import StepClock
from milestones.testing import until
from tests.milestones.app import App
from tests.topics import new_topic

A, B, C = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
IN = {task: (TopicPartition("in", task.partition),) for task in (A, B, C)}
LAGS = {IN[A][0]: 1_200, IN[B][0]: 0}
LEADER = "alpha-StreamThread-1-consumer-1"
ORIGIN = AssignmentOrigin(7, LEADER, 60_000)
PROCESS = "b99f1955-91bc-453f-99e5-3063024d55f1"


def described(client: str, process: str, got: Assignment, **said: Any) -> DescribedMember:
    name = f"{client}-consumer"
    subscription = Subscription(process, "baseline", 1, ("in",), "f", **said)
    return DescribedMember(
        f"{name}-1", name, "10.0.0.1", None, subscription_bytes(subscription, (), 2), assignment_bytes(got)
    )


def stable(*members: DescribedMember) -> DescribedGroup:
    return DescribedGroup("Stable", "consumer", "milestones-v2", members)


def running(*tasks: TaskId, **more: Any) -> Assignment:
    return Assignment(active=frozenset(tasks), partitions={task: IN[task] for task in tasks}, origin=ORIGIN, **more)


GROUP = stable(
    described("alpha-StreamThread-2", "p1", running(B, promised=frozenset({C})), reason="it starts"),
    described("alpha-StreamThread-1", "p1", running(A), reason="it starts"),
    described(
        f"words-{PROCESS}-StreamThread-1", PROCESS, Assignment(standby=frozenset({A}), warmup=frozenset({B})),
        reason="warm-up 0_1 has caught up", endpoint="127.0.0.1:9",
    ),
)  # fmt: skip
SEEN = Scraped(
    f"words-{PROCESS}", "RUNNING", "0.1.0", {f"words-{PROCESS}-StreamThread-1": "RUNNING"},
    standby_lags={A: 12, B: -1},
)  # fmt: skip


def shown(scraped: Mapping[str, Scraped | str], group: DescribedGroup = GROUP) -> Picture:
    return picture("words", group, members_of(group, "words"), LAGS, scraped)


def printed(what: Picture, *, tasks: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(view(what, 72_000, tasks=tasks))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_members_are_grouped_by_instance_and_threads_stand_in_order() -> None:
    found = shown({PROCESS: SEEN})
    assert [instance.name for instance in found.instances] == ["alpha", "b99f1955"]
    assert [thread.label for thread in found.instances[0].threads] == ["1", "2"]
    assert (found.generation, found.leader, found.rebalanced_ms) == (7, "alpha-StreamThread-1", 60_000)


def test_roles_and_lags_come_from_assignments_offsets_and_metrics() -> None:
    alpha, other = shown({PROCESS: SEEN}).instances
    assert alpha.threads[0].tasks == (TaskRow("0_0", "active", 1_200),)
    assert alpha.threads[1].tasks == (TaskRow("0_1", "active", 0), TaskRow("0_2", "promised"))
    assert other.threads[0].tasks == (TaskRow("0_1", "warm-up"), TaskRow("0_0", "standby", behind=12))
    assert (other.state, other.version, other.threads[0].state) == ("RUNNING", "0.1.0", "RUNNING")


def test_what_restores_shows_how_far_it_is() -> None:
    seen = Scraped("alpha", restored={A: 300, B: 9}, remaining={A: 100, B: 0})
    restoring, active = (thread.tasks[0] for thread in shown({"p1": seen}).instances[0].threads)
    assert (restoring.role, restoring.behind, restoring.progress) == ("restoring", 100, 0.75)
    assert (active.role, active.progress) == ("active", None)


def test_a_commit_that_takes_long_is_shown_beside_its_thread() -> None:
    ages = {"alpha-StreamThread-1": {"commit_age_ms": 3_400.0}, "alpha-StreamThread-2": {"commit_age_ms": 40.0}}
    found = shown({"p1": Scraped("alpha", numbers=ages)})
    assert [thread.commit_age_ms for thread in found.instances[0].threads] == [3_400, 40]
    text = "\n".join(printed(found))
    assert "1 leads commits for 3 s" in text
    assert text.count("commits for") == 1


def test_what_is_not_known_is_a_dash_and_says_why() -> None:
    found = shown({PROCESS: "no metrics at 127.0.0.1:9: refused"})
    assert found.instances[1].threads[0].tasks[1].behind is None
    text = "\n".join(printed(found))
    assert "alpha: metrics_port isn't set; states and restore progress aren't known" in text
    assert "b99f1955: no metrics at 127.0.0.1:9: refused" in text


def test_the_view_has_a_row_for_each_task() -> None:
    assert printed(shown({PROCESS: SEEN}))[1:14] == [
        "2 instances, 3 threads, 3 tasks: 2 active, 1 warm-up, 1 standby, 1 promised; input lag 1,200",
        "rebalanced 12 s ago: warm-up 0_1 has caught up; it starts (2)",
        "",
        "instance          thread   task  role      input lag  state",
        "alpha             1 leads  0_0   active        1,200",
        "baseline          2        0_1   active            0",
        "10.0.0.1                   0_2   promised             waits for its owner",
        "",
        "b99f1955          1        0_1   warm-up              –",
        "RUNNING baseline           0_0   standby              12 behind",
        "10.0.0.1 0.1.0",
        "",
        "alpha: metrics_port isn't set; states and restore progress aren't known",
    ]


def test_the_view_can_have_a_row_for_each_thread() -> None:
    rows = [" ".join(line.split()) for line in printed(shown({PROCESS: SEEN}), tasks=False)]
    assert "alpha 1 leads 1 1 active 1,200" in rows
    assert "b99f1955 1 2 1 warm-up, 1 standby – standbys 12 behind" in rows


def test_a_restoration_is_a_bar_with_what_is_left() -> None:
    seen = Scraped("alpha", restored={A: 3_000}, remaining={A: 1_000})
    (row,) = [line for line in printed(shown({"p1": seen})) if "restoring " in line and "0_0" in line]
    assert row.endswith("━━━━━━━╸   75 %, 1,000 left")


def test_a_task_in_quarantine_shows_its_error_and_how_long_it_is_tried() -> None:
    texts = {A: "TypeError: no number"}
    seen = Scraped("alpha", classes={A: "TypeError"}, texts=texts, seconds_left={A: 95})
    lines = printed(shown({"p1": seen}))
    (row,) = [line for line in lines if " 0_0 " in line and "active" in line]
    assert row.endswith("1,200  fails, tried for 95 s more")
    assert "task 0_0 fails: TypeError: no number" in lines
    assert "1 failing" in "\n".join(printed(shown({"p1": seen}), tasks=False))
    of_an_older_release = replace(seen, texts={})
    assert "task 0_0 fails: TypeError" in printed(shown({"p1": of_an_older_release}))


ENDED = Scraped("alpha", ended={A: "ValueError"}, texts={A: "record in-0@2: ValueError: bad"})


def test_a_task_that_has_ended_is_no_active_one_and_shows_its_error_and_its_lag() -> None:
    found = shown({"p1": ENDED})
    text = "\n".join(printed(found))
    assert re.search(r"0_0 +ended +1,200 +ended: ValueError", text)
    assert "1 active, 1 ended" in " ".join(text.split())
    assert "task 0_0 has ended: record in-0@2: ValueError: bad" in text
    assert "1 failing" not in "\n".join(printed(found, tasks=False))
    task = as_json(found)["instances"][0]["threads"][0]["tasks"][0]
    assert (task["role"], task["error_class"], task["input_lag"]) == ("ended", "ValueError", 1_200)
    assert task["error"] == "record in-0@2: ValueError: bad"
    assert height(found) >= len(printed(found))


def test_a_call_that_takes_long_is_named_with_its_thread() -> None:
    seen = with_page(
        Scraped("alpha"),
        '{"failing": {}, "ended": {}, "calls": [{"thread": "alpha-ProcessingThread-1", "function": "f, app.py:6", '
        '"seconds": 25}]}',
    )
    found = shown({"p1": seen})
    assert "alpha-ProcessingThread-1 is in f, app.py:6, for 25 s" in "\n".join(printed(found))
    assert as_json(found)["instances"][0]["calls"][0]["seconds"] == 25


def test_a_state_updater_s_restoration_shows_bytes_and_time_left_too() -> None:
    counts = StoreRow("counts", 3_000, 1_000, 1_500_000, 4.2)
    seen = Scraped("alpha", restored={A: 3_000}, remaining={A: 1_000}, stores={A: (counts,)})
    found = [line for line in printed(shown({"p1": seen})) if "1,000 left" in line]
    assert [line.partition("   75 %, ")[2] for line in found] == ["1,000 left (1.5 MB), 4 s to go"]


@pytest.mark.parametrize(
    ("everyone", "said"),
    [
        (GlobalRow(restored=30, left=10), "75 %, 10 left"),
        (GlobalRow(restored=40), "caught up"),
        (GlobalRow(restored=40, lag=1_200), "1,200 behind"),
    ],
)
def test_global_stores_have_a_row_of_the_instance(everyone: GlobalRow, said: str) -> None:
    found = shown({"p1": Scraped("alpha", globals=everyone)})
    (row,) = [line for line in printed(found) if "global stores" in line]
    assert row.endswith(said)
    assert height(found) == height(shown({"p1": Scraped("alpha")})) + 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((12_300_000, 7, 0, 0), "state 1 12.3 MB in 7 files"),
        ((12_300_000, 7, 0, 400), "state 1 12.3 MB in 7 files, unsynced for 0.4 s"),
        ((1_000_000, 1, 1, 0), "state 1 disk full 1.0 MB in 1 file"),
        ((1_000_000, 1, 2, 0), "state 1 being mended 1.0 MB in 1 file"),
    ],
)
def test_the_state_of_each_sub_topology_has_a_row_of_the_instance(told: tuple[int, ...], said: str) -> None:
    samples = zip(("size_bytes", "files", "writes_wait", "unsynced_ms"), told, strict=True)
    lines = [f'kafka_stream_state_database_{name}{{subtopology_id="1"}} {value}' for name, value in samples]
    seen = read_metrics("\n".join(lines) + "\n")
    assert seen.databases == {1: DatabaseRow(*told)}
    found = shown({"p1": replace(seen, client_id="alpha")})
    (row,) = [line for line in printed(found) if "state 1" in line]
    assert " ".join(row.split()).endswith(said)
    assert height(found) == height(shown({"p1": Scraped("alpha")})) + 1


def test_the_state_of_a_sub_topology_says_what_its_tasks_have_to_restore() -> None:
    databases = {A.subtopology: DatabaseRow(1_000_000, 1), 7: DatabaseRow()}
    found = shown({"p1": Scraped("alpha", remaining={A: 1_200}, restored={A: 5}, databases=databases)})
    rows = [" ".join(line.split()) for line in printed(found) if "state " in line]
    assert [row.partition("file")[2] for row in rows] == [", 1 task with 1,200 to restore", "s"]


def test_several_stores_of_a_task_have_a_bar_each_and_the_slowest_says_when() -> None:
    stores = StoreRow("counts", 100, 100, 50_000, 300.0), StoreRow("sums", 900, 100, 50_000, 2.0)
    seen = Scraped("alpha", restored={A: 1_000}, remaining={A: 200}, stores={A: stores})
    found = shown({"p1": seen})
    text = [line.partition("%, ")[2] for line in printed(found) if "%, " in line]
    assert text == [
        "200 left (0.1 MB), 5 min to go",
        "counts: 100 left (0.1 MB), 5 min to go",
        "sums: 100 left (0.1 MB), 2 s to go",
    ]
    assert height(found) >= len(printed(found))


def test_a_time_that_is_not_known_yet_is_not_told() -> None:
    stores = StoreRow("counts", 0, 100, 50_000, None), StoreRow("sums", 900, 100, 50_000, 2.0)
    seen = Scraped("alpha", restored={A: 900}, remaining={A: 200}, stores={A: stores})
    assert [line for line in printed(shown({"p1": seen})) if "to go" in line and "sums" not in line] == []


def test_a_view_knows_its_height() -> None:
    assert height(shown({PROCESS: SEEN})) >= len(printed(shown({PROCESS: SEEN})))


def test_a_member_that_was_refused_says_why() -> None:
    group = stable(described("alpha-StreamThread-1", "p1", Assignment(error="source topics don't exist: in")))
    assert "refused: source topics don't exist: in" in printed(shown({}, group))


def processing(*members: str, tasks: bool = True, **busy: float) -> list[str]:
    """The rows of an instance with these members, whose processing threads were busy for this part of their time."""
    names = {name: f"alpha-ProcessingThread-{name[1:].replace('_', '-')}" for name in busy}
    told = {names[name]: {"records": 1_000, "busy": part} for name, part in busy.items()}
    group = stable(*(described(f"alpha-{name}", "p1", running(TaskId(0, n))) for n, name in enumerate(members)))
    found = shown({"p1": Scraped("alpha", "RUNNING", "0.1.0", {}, told)}, group)
    assert found.instances[0].name == "alpha"
    return [" ".join(line.split()) for line in printed(found, tasks=tasks)[-len(members) - len(busy) :] if line]


@pytest.mark.parametrize("tasks", [True, False])
def test_below_a_polling_thread_stand_the_processing_threads_of_its_instance(tasks: bool) -> None:
    polling, *rows = processing("PollingThread", tasks=tasks, _1=0.5, _10=1.0, _2=0.0)
    assert "alpha polling" in polling
    assert [row[row.index("processing") :] for row in rows] == [
        "processing 1 running, busy 50 %, 1,000 records",
        "processing 2 running, busy 0 %, 1,000 records",
        "processing 10 running, busy 100 %, 1,000 records",
    ]


def test_below_each_stream_thread_stand_its_own_processing_threads() -> None:
    first, of_first, second, of_second = processing("StreamThread-1", "StreamThread-2", _1_1=0.25, _2_1=0.5)
    assert "alpha 1 leads 0_0" in first
    assert "processing 1 running, busy 25 %" in of_first
    assert "2 0_1" in second
    assert "processing 1 running, busy 50 %" in of_second


def test_a_member_that_is_a_whole_instance_shows_its_capacity() -> None:
    said = Subscription("p1", "m4", 4, ("in",), "f")
    member = Member(DescribedMember("id", "alpha", "10.0.0.1", None, b"", b""), said, running(A))
    (thread,) = picture("words", GROUP, [member], LAGS, {}).instances[0].threads
    assert thread.label == "4 threads"


def test_members_of_version_1_are_shown_without_what_they_do_not_say() -> None:
    said = Subscription("p1", "baseline", 1, ("in",), "f", reason="lost on the way")
    raw = DescribedMember("id", "alpha", "h", None, subscription_bytes(said, (), 1), assignment_bytes(Assignment()))
    found = shown({}, stable(raw))
    assert (found.generation, found.leader, found.reasons) == (None, None, ())
    assert not [line for line in printed(found) if "rebalanced" in line]


def test_json_has_everything_under_plain_names() -> None:
    raw = orjson.loads(orjson.dumps(as_json(shown({PROCESS: SEEN}))))
    assert raw["reasons"] == {"it starts": 2, "warm-up 0_1 has caught up": 1}
    task = raw["instances"][0]["threads"][0]["tasks"][0]
    assert task == {
        "task": "0_0", "role": "active", "input_lag": 1_200, "behind": None, "restored": None, "progress": None,
        "stores": [], "error": None, "error_class": None, "seconds_left": None,
    }  # fmt: skip


MEMORY = {
    "caches": 1_000_000, "remembered": 2_000_000, "input": 3_000_000, "outputs": 4_000_000, "uncommitted": 5_000_000,
    "kept_back": 500_000, "engines": 6_000_000, "client_queues_max": 256_000_000, "resident": 100_000_000,
}  # fmt: skip


def test_the_memory_of_those_that_tell_it_is_one_line_with_what_is_in_no_account() -> None:
    one, all_ = Scraped("alpha", memory=MEMORY), {"p1": Scraped("alpha", memory=MEMORY), PROCESS: SEEN}
    for scraped in ({"p1": one}, all_):
        (line,) = [line for line in printed(shown(scraped)) if "memory" in line]
        assert line == (
            "memory 100 MB (1 of 2): caches 1, remembered 2, input 3, outputs 4, uncommitted 5, engines 6, other 78; "
            "clients ≤ 256"
        )
    both = shown({"p1": one, PROCESS: Scraped(f"words-{PROCESS}", memory=MEMORY)})
    assert "memory 200 MB: caches 2, remembered 4" in "\n".join(printed(both))
    assert "uncommitted 10, kept back 1, engines 12" in "\n".join(printed(both))
    assert height(both) >= len(printed(both))
    assert "memory" not in "\n".join(printed(shown({PROCESS: SEEN})))


def test_json_has_the_memory_of_each_instance_in_bytes() -> None:
    first, second = as_json(shown({"p1": Scraped("alpha", memory=MEMORY), PROCESS: SEEN}))["instances"]
    assert first["memory"] == {**MEMORY, "other": 78_500_000}
    assert second["memory"] is None


def test_inputs_are_those_of_all_tasks_that_run() -> None:
    assert inputs_of(members_of(GROUP, "words")) == [IN[A][0], IN[B][0]]


def test_a_group_that_rebalances_tells_nothing_of_its_members() -> None:
    blank = DescribedMember("id", "alpha", "h", None, b"", b"")
    assert members_of(DescribedGroup("PreparingRebalance", "consumer", "", (blank,)), "words") == []


def test_while_a_group_rebalances_its_members_are_named() -> None:
    blank = DescribedMember("id", "alpha-StreamThread-1-consumer", "h", None, b"", b"")
    group = DescribedGroup("PreparingRebalance", "consumer", "", (blank,) * 9)
    note = _rebalancing(group, shown=False)
    assert note.startswith("rebalancing: alpha-StreamThread-1; what they have can't be seen before that ends")
    assert "had before" in _rebalancing(group, shown=True)
    lines = printed(picture("words", group, [], {}, {}, [note]))
    assert lines[0].startswith("words  PreparingRebalance")
    assert lines[2].startswith(note[:80])


@pytest.mark.parametrize(
    "group",
    [
        DescribedGroup("Stable", "connect", "sessioned", ()),
        stable(DescribedMember("id", "other", "h", None, b"\0\3\0\0\0\0", b"")),
        stable(DescribedMember("id", "other", "h", None, b"\0\0", b"")),
    ],
)
def test_another_programs_group_is_refused(group: DescribedGroup) -> None:
    with pytest.raises(MilestonesError, match=r"the group words is (none of consumers|that of another program)"):
        members_of(group, "words")


def test_a_kafka_that_goes_away_while_one_watches_is_a_line_below_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Watched:
        answers: ClassVar[list[BaseException]] = [KeyboardInterrupt(), KafkaUnreachableError("no broker told it")]

        def again(self) -> Picture:
            raise self.answers.pop()

    monkeypatch.setattr("milestones.cli.status.INTERVAL_MS", 0)
    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True, no_color=True)
    with pytest.raises(KeyboardInterrupt):
        _watch(Watched(), console, shown({PROCESS: SEEN}), None)  # type: ignore[arg-type]
    last = console.file.getvalue().rpartition("generation 7")[2]  # type: ignore[attr-defined]
    assert "warm-up 0_1 has caught up" in last
    assert "no broker told it" in last


@pytest.mark.parametrize(
    ("endpoint", "host", "address"),
    [
        ("127.0.0.1:80", "10.0.0.1", "127.0.0.1:80"),
        ("0.0.0.0:80", "10.0.0.1", "10.0.0.1:80"),
        ("[::]:80", "fe80::1", "[fe80::1]:80"),
    ],
)
def test_an_instance_that_listens_everywhere_is_asked_where_the_broker_sees_it(
    endpoint: str, host: str, address: str
) -> None:
    assert _address(endpoint, host) == address


@pytest.fixture
def served() -> Iterator[str]:
    """Metrics of an instance `alpha` with a restoring task, a standby and a thread."""
    metrics, clock = Metrics(StepClock()), StepClock()
    client = metrics.add(ClientMetrics, client_id="alpha")
    client.state.value, client.version.value = "RUNNING", "0.1.0"
    thread = metrics.add(ThreadMetrics, thread_id="alpha-StreamThread-1")
    thread.thread_state.value, thread.commit_age_ms.value = "PARTITIONS_ASSIGNED", 2_500
    task = metrics.add(TaskMetrics, thread_id="alpha-StreamThread-1", task_id="0_0")
    task.restore.total, task.restore_remaining_records_total.value = 30, 10
    standby = metrics.add(StandbyMetrics, thread_id="alpha-StreamThread-1", task_id="0_1")
    standby.standby_records_lag.value = 7
    worker = metrics.add(ProcessingThreadMetrics, thread_id="alpha-ProcessingThread-1-2")
    worker.process.total = 40
    store = metrics.add(RestorationMetrics, thread_id="alpha-StateUpdater-1", task_id="0_0", state_id="counts")
    store.restore.total, store.restore_remaining_records_total.value = 30, 10
    store.restore_remaining_bytes_total.value, store.restore_remaining_seconds.value = 1_000, -1
    everyone = metrics.add(GlobalThreadMetrics, thread_id="alpha-GlobalStreamThread")
    everyone.restore.total, everyone.restore_remaining_records_total.value, everyone.records_lag.value = 50, 5, 6
    for scope in (client, thread, task, standby, worker, store, everyone):
        scope.publish(clock.monotonic_ms())
    endpoint = MetricsEndpoint(metrics, "127.0.0.1", 0)
    yield str(metrics.address)
    endpoint.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is a thread of this process, which may have much to do."""
    monkeypatch.setattr("milestones.cli.observing.SCRAPE_TIMEOUT_S", 30.0)


def test_metrics_are_read_as_instances_serve_them(served: str) -> None:
    assert scrape(served, "alpha-StreamThread-1-consumer") == Scraped(
        "alpha", "RUNNING", "0.1.0", {"alpha-StreamThread-1": "PARTITIONS_ASSIGNED"},
        {
            "alpha-StreamThread-1": {"commit_age_ms": 2_500.0},
            "alpha-ProcessingThread-1-2": {"records": 40.0, "busy": 0.0},
        },
        restored={A: 30}, remaining={A: 10}, standby_lags={B: 7},
        stores={A: (StoreRow("counts", 30, 10, 1_000, None),)},
        globals=GlobalRow(50, 5, 6),
    )  # fmt: skip


def test_metrics_of_another_instance_at_an_outdated_address_do_not_count(served: str) -> None:
    assert scrape(served, "beta-StreamThread-1-consumer") == f"no metrics at {served}: those are of alpha"


def test_an_address_where_nobody_listens_or_nonsense_is_no_error() -> None:
    assert "no metrics at 127.0.0.1:9" in str(scrape("127.0.0.1:9", "alpha"))
    assert "no metrics at nonsense" in str(scrape("nonsense:port", "alpha"))
    with pytest.raises(ValueError):
        read_metrics("<html>}{ 1 2 3 4")


@pytest.mark.kafka
def test_two_instances_with_standbys_are_shown_as_they_are(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    app.create({"in": 2, "out": 1})
    command = ["status", "-a", app.id, "-b", app.kafka]
    assert invoke([*command, "--once"]) == 1
    assert f"there is no group {app.id}" in " ".join(capsys.readouterr().err.split())

    def seen() -> list[tuple[str, str, str, int | None, int | None]]:
        assert invoke([*command, "--json"]) == 0
        raw = orjson.loads(capsys.readouterr().out)
        return sorted(
            (instance["name"], task["task"], task["role"], task["input_lag"], task["behind"])
            for instance in raw["instances"] for thread in instance["threads"] for task in thread["tasks"]
        )  # fmt: skip

    def settled(of_a: str, of_b: str) -> bool:
        wanted = [
            ("a", of_a, "active", 0, None), ("a", of_b, "standby", None, 0),
            ("b", of_a, "standby", None, 0), ("b", of_b, "active", 0, None),
        ]  # fmt: skip
        return seen() == sorted(wanted)

    instances = [
        app.start(app.counting(), client, client_id=client, metrics_port=0, num_standby_replicas=1) for client in "ab"
    ]
    for partition in range(2):
        app.write(*["x"] * 500, partition=partition)
    app.until(lambda: settled("0_0", "0_1") or settled("0_1", "0_0"), "each has one task, and a standby of the other")
    assert invoke([*command, "--once"]) == 0
    text = capsys.readouterr().out
    assert "2 instances, 2 threads, 2 tasks: 2 active, 2 standby; input lag 0" in text
    assert "RUNNING baseline" in text
    assert "leads" in text
    assert re.search(r"^memory [1-9][\d,]* MB: .*other -?\d", text, re.M)
    for streams in instances:
        streams.close()
    assert invoke([*command, "--once"]) == 1
    assert "no instance runs" in capsys.readouterr().err


@pytest.mark.kafka
def test_the_group_of_a_plain_consumer_is_told_from_ours(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = new_topic(kafka)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": name})
    consumer.subscribe([name])
    until(lambda: (consumer.poll(0.1), consumer.assignment())[1] != [], "the consumer has its partition")
    assert invoke(["status", "-a", name, "-b", kafka, "--once"]) == 1
    assert f"the group {name} is that of another program" in " ".join(capsys.readouterr().err.split())
    consumer.close()
