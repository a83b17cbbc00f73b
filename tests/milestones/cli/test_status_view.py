"""`milestones status`: what it makes of a group's bytes and of metrics, and what it prints."""

from __future__ import annotations

import re
from dataclasses import replace

import orjson
import pytest

from milestones.cli.application_status import (
    DatabaseRow,
    GlobalRow,
    Member,
    Scraped,
    StoreRow,
    TaskRow,
    application_status,
    as_json,
)
from milestones.cli.observing import read_metrics, with_page
from milestones.cli.view import height, memory_view
from milestones.common.assignment.machines import COMMAND_TAG, WORKER_TAG
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.kafka.groups import DescribedMember
from milestones.common.kafka.membership.protocol import assignment_bytes, subscription_bytes
from milestones.common.records import TaskId
from tests.milestones.cli.status_pictures import (
    GROUP,
    LAGS,
    PROCESS,
    SEEN,
    A,
    B,
    described,
    lines_of,
    printed,
    running,
    shown,
    stable,
)


def test_members_are_grouped_by_instance_and_threads_stand_in_order() -> None:
    found = shown({PROCESS: SEEN})
    assert [instance.name for instance in found.instances] == ["alpha", "b99f1955"]
    assert [thread.label for thread in found.instances[0].threads] == ["1", "2"]
    assert (found.generation, found.leader, found.rebalanced_ms) == (7, "alpha-StreamThread-1", 60_000)


def test_workers_have_a_column_and_their_own_tags_arent_shown() -> None:
    tags = {WORKER_TAG: "2/4", COMMAND_TAG: "1a2b3c", "zone": "west"}
    group = stable(
        described("alpha-StreamThread-1", "p1", running(A), client_tags=tags),
        described("beta-StreamThread-1", "p2", running(B)),
    )
    found = shown({}, group)
    assert [(one.worker, one.tags) for one in found.instances] == [("2/4", {"zone": "west"}), (None, {})]
    for tasks in (True, False):
        headings, first = [line.split() for line in printed(found, tasks=tasks) if "instance " in line or "2/4" in line]
        assert headings[:3] == ["instance", "worker", "thread"]
        assert first[:3] == ["alpha", "2/4", "1"]
    assert [one["worker"] for one in as_json(found)["instances"]] == ["2/4", None]
    assert "worker" not in "\n".join(printed(shown({PROCESS: SEEN})))


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
    (thread,) = application_status("words", GROUP, [member], LAGS, {}).instances[0].threads
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
    "program": 40_000_000, "caches": 1_000_000, "remembered": 2_000_000, "input": 3_000_000, "outputs": 4_000_000,
    "uncommitted": 5_000_000, "kept_back": 500_000, "block_cache": 6_000_000, "client_queues_max": 256_000_000,
    "resident": 100_000_000, "other": 38_500_000,
}  # fmt: skip
LIMITS = {"caches": 64_000_000, "uncommitted": 512_000_000}


def test_the_memory_of_those_that_tell_it_is_one_line_with_what_is_in_no_account() -> None:
    one, all_ = Scraped("alpha", memory=MEMORY), {"p1": Scraped("alpha", memory=MEMORY), PROCESS: SEEN}
    for scraped in ({"p1": one}, all_):
        (line,) = [line for line in printed(shown(scraped)) if "memory" in line]
        assert line == (
            "memory 100 MB (1 of 2), client queues ≤ 256: program 40, other 38, block cache 6, uncommitted 5, "
            "outputs 4, input 3, re…"
        )
    both = shown({"p1": one, PROCESS: Scraped(f"words-{PROCESS}", memory=MEMORY)})
    assert "memory 200 MB, client queues ≤ 512: program 80, other 77, block cache 12" in "\n".join(printed(both))
    assert height(both) >= len(printed(both))
    assert "memory" not in "\n".join(printed(shown({PROCESS: SEEN})))


def test_the_table_of_the_memory_has_a_row_for_each_account_and_its_limit() -> None:
    scraped = Scraped("alpha", memory=MEMORY, memory_limits=LIMITS)
    lines = lines_of(memory_view(shown({"p1": scraped, PROCESS: SEEN})))
    rows = {line[:17].strip(): line[17:].split("  ") for line in lines}
    cells = {name: [cell.strip() for cell in found if cell.strip()] for name, found in rows.items()}
    assert cells["caches"] == ["1.0 of 64", "–"]
    assert cells["block cache"] == ["6.0", "–"]
    assert cells["table readers"] == ["–", "–"], "an older release doesn't tell it"
    assert (cells["other"], cells["resident"]) == (["38.5", "–"], ["100.0", "–"])


def told(**accounts: int) -> str:
    """The metrics of an instance's memory, as it serves them."""
    lines = [f'kafka_stream_memory_{name}_bytes{{client_id="alpha"}} {value}' for name, value in accounts.items()]
    return "\n".join(lines) + "\n"


OF_ACCOUNTS = """\
kafka_stream_memory_account_bytes{account="caches",client_id="alpha"} 10
kafka_stream_memory_account_limit_bytes{account="caches",client_id="alpha"} 64
kafka_stream_memory_account_bytes{account="kept_back",client_id="alpha"} 20
kafka_stream_memory_account_limit_bytes{account="kept_back",client_id="alpha"} -1
"""


def test_accounts_and_their_limits_are_read_by_name_and_no_limit_is_none() -> None:
    seen = read_metrics(told(resident=100, other=70, client_queues_max=7) + OF_ACCOUNTS)
    assert seen.memory == {"caches": 10, "kept_back": 20, "resident": 100, "other": 70, "client_queues_max": 7}
    assert seen.memory_limits == {"caches": 64}


@pytest.mark.parametrize(
    "text", [told(resident=100, caches=10, client_queues_max=7), OF_ACCOUNTS], ids=["an older release", "one that ends"]
)
def test_an_instance_that_does_not_tell_all_of_its_memory_is_left_out(text: str) -> None:
    seen = replace(read_metrics(text), client_id="alpha")
    assert seen.memory == {}
    both = shown({"p1": seen, PROCESS: Scraped(f"words-{PROCESS}", memory=MEMORY)})
    assert "memory 100 MB (1 of 2), client queues ≤ 256: program 40" in "\n".join(printed(both))
    assert "memory" not in "\n".join(printed(shown({"p1": seen})))


def test_json_has_the_memory_of_each_instance_in_bytes() -> None:
    first, second = as_json(shown({"p1": Scraped("alpha", memory=MEMORY), PROCESS: SEEN}))["instances"]
    assert (first["memory"], first["memory_limits"]) == (MEMORY, {})
    assert (second["memory"], second["memory_limits"]) == (None, None)
