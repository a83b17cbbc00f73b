"""The whole picture: its scenarios, who takes part, and its page. No broker."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
import rich_click as click

from benchmarks.cli import cli, main
from benchmarks.count.data import VALUE_BYTES, Data
from benchmarks.count.work import Count
from benchmarks.errors import BenchmarkError
from benchmarks.fed import Fresh
from benchmarks.job import AT_LEAST_ONCE, EXACTLY_ONCE
from benchmarks.picture import command, measuring
from benchmarks.picture.measuring import Found, Turns, failed, measure, taking_part
from benchmarks.picture.page import page, ratio
from benchmarks.picture.scenarios import BYTES, KEYS, PARTITIONS, RATE, Scenario, Sizes, scenarios
from benchmarks.rows import Figure, Row

SIZES = Sizes(
    records=100_000, keys=1_000, seed=1, commit_interval_ms=1_000, seconds=2, warm=1, partition_counts=(1, 4, 64),
    record_bytes=(100, 10_000), key_counts=(1_000, 10_000_000), rates=(1_000, 5_000),
)  # fmt: skip
FIGURES = (Figure("warm_records_per_s", "warm records/s"), Figure("p50_ms", "p50 ms"), Figure("p99_ms", "p99 ms"),
           Figure("p999_ms", "p99.9 ms"))  # fmt: skip


def made(name: str) -> Fresh:
    (scenario,) = (one for one in scenarios(SIZES) if one.name == name)
    return scenario.make(None, Path())  # type: ignore[arg-type]


def row(contender: str, speed: float = 0, guarantee: str = EXACTLY_ONCE, said: str = "") -> Row:
    figures = {figure.name: speed for figure in FIGURES}
    return Row("count", contender, guarantee, [figures] if speed else [], said)


def found(*rows: Row, name: str = "count", **at: int) -> Found:
    scenario = Scenario(name, f"the {name}", "count", lambda *_: made("count"), at)
    return Found(scenario, "100 records", FIGURES, rows)


def test_scenarios_have_different_names_none_of_which_begins_another_s_topics() -> None:
    names = [one.name for one in scenarios(SIZES)]
    assert len(set(names)) == len(names)
    assert {"stateless", "count", "count-zipf", "tumbling", "table-join", "restore", "spark"} <= set(names)


def test_each_scenario_makes_a_work_with_the_figure_that_is_drawn() -> None:
    for one in scenarios(SIZES):
        work = one.make(None, Path())  # type: ignore[arg-type]
        assert one.shown in {figure.name for figure in work.figures}
        assert work.title


def test_an_axis_is_one_count_varied_and_the_plain_one_is_done_once_for_all() -> None:
    places: dict[str, list[int]] = {PARTITIONS: [], BYTES: [], KEYS: [], RATE: []}
    for one in scenarios(SIZES):
        for axis, at in one.at.items():
            places[axis].append(at)
    assert places == {PARTITIONS: [4, 1, 64], BYTES: [100, 10_000], KEYS: [1_000, 10_000_000], RATE: [1_000, 5_000]}


def test_larger_records_are_fewer() -> None:
    large, plain = made("count-10000-bytes"), made("count")
    assert isinstance(large, Count)
    assert isinstance(plain, Count)
    assert (large.records(1), plain.records(1), plain.records(0.25)) == (5_000, 100_000, 25_000)
    assert {len(value) for _, value in Data(50, 5, 1, 1_000).values()} == {1_000}
    assert made("count-64-partitions").partitions == 64


def test_by_zipf_s_law_few_customers_have_most_records_and_the_same_ones_for_a_seed() -> None:
    data = Data(20_000, 1_000, 1, VALUE_BYTES, zipf=1.0)
    assert list(data) == list(data)
    assert list(replace(data, records=100)) == list(data)[:100]
    counts: dict[bytes, int] = {}
    for key, _ in data:
        counts[key] = counts.get(key, 0) + 1
    first = [counts[b"customer-%06d" % rank] for rank in range(4)]
    assert all(one > other for one, other in pairwise(first))
    assert first[0] == pytest.approx(2 * first[1], rel=0.2)
    assert max(counts) <= b"customer-000999"


def test_who_cant_take_part_has_a_reason_and_a_cold_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario("restore", "", "restore", lambda *_: made("restore"))

    def no_jdk(names: list[str], work: str) -> None:
        raise BenchmarkError("there is no javac")

    monkeypatch.setattr(measuring, "peers", no_jdk)
    who = taking_part(scenario, ["baseline"], ["kafka-streams"])
    assert [(one.name, one.absent) for one in who] == [
        ("kafka-streams", "there is no javac"), ("milestones baseline", "")
    ]  # fmt: skip
    monkeypatch.setattr(measuring, "peers", lambda *_: [replace(who[0], name=f"ks {run}") for run in ("cold", "warm")])
    assert [one.name for one in taking_part(scenario, [], ["kafka-streams"])] == ["ks warm"]


def test_without_pyspark_its_contenders_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "find_spec", lambda _: None)
    who = taking_part(Scenario("spark", "", "spark", lambda *_: made("spark")), ["baseline"], [])
    assert {one.absent for one in who} == {"PySpark isn't installed: pip install 'milestones[spark]'"}


class Topics:
    """What `measure` asks of a cluster beside its works."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, prefix: str) -> None:
        self.deleted.append(prefix)


class Failing(Count):
    """Its input can't be written, or one contender fails."""

    def __init__(self, fault: str) -> None:
        super().__init__(None, Path(), 1_000, 10, 1)  # type: ignore[arg-type]
        self._fault = fault

    def prepare(self, contenders: Any) -> None:
        if self._fault == "prepare":
            raise BenchmarkError("Kafka refused the input")

    def measure(self, contender: Any, guarantee: str) -> dict[str, float]:
        if self._fault in contender.name:
            raise BenchmarkError("the output is wrong")
        return {figure.name: 1.0 for figure in self.figures}


def test_a_scenario_that_fails_leaves_rows_that_say_so_and_the_next_one_is_done() -> None:
    topics, kept = Topics(), list[int]()
    wanted = [
        Scenario(name, name, "count", lambda *_, fault=fault: Failing(fault))
        for name, fault in (("first", "prepare"), ("second", "m6"), ("third", "nobody"))
    ]
    turns = Turns(["baseline", "m6"], [], [EXACTLY_ONCE], rounds=2, seed=1, within_s=60)
    all_of = measure(topics, Path(), wanted, turns, lambda _: None, lambda far: kept.append(len(far)))  # type: ignore[arg-type]
    said = [[row.said for row in one.rows] for one in all_of]
    assert said[0] == ["Kafka refused the input"] * 2
    assert (said[1][0], said[1][1][-19:]) == ("", "the output is wrong")
    assert said[2] == ["", ""]
    assert failed(all_of) == ["first, milestones baseline", "first, milestones m6", "second, milestones m6"]
    assert (kept, topics.deleted) == ([1, 2, 3], ["first-", "second-", "third-"])


def test_a_share_is_of_the_same_guarantee_or_of_the_one_that_the_yardstick_has() -> None:
    strong, weak = row("loop", 10), row("loop", 20, AT_LEAST_ONCE)
    ours = row("ours", 5)
    assert ratio(ours, FIGURES[0], [weak, strong, ours], "loop") == 0.5
    assert ratio(ours, FIGURES[0], [weak, ours], "loop") == 0.25
    assert ratio(ours, FIGURES[0], [ours], "loop") is None


def test_the_page_has_every_scenario_and_axis_and_says_why_a_row_is_empty() -> None:
    pytest.importorskip("matplotlib")
    lame = row("quix", said="failed in round 1 of 5: it ended by itself, with <exit code 1>\nlog")
    all_of = [
        found(row("loop", 10), row("ours", 5, said="failed in round 3 of 5: late"), lame, partitions=4),
        found(row("loop", 9), row("ours", 6), name="count-64-partitions", partitions=64),
        found(row("ours", 7), name="latency-5000", **{RATE: 5_000}),
        found(lame, name="nobody"),
    ]
    text = page(all_of, {"Machine": {"cores": 2}}, {"quix": "both"})
    assert text == page(all_of, {"Machine": {"cores": 2}}, {"quix": "both"})
    for said in ("failed in round 1", "failed in round 3", "&lt;exit code 1&gt;", "0.50"):
        assert said in text
    assert all(heading in text for heading in ("the count", "By partitions", "Latency by rate"))
    assert text.count("<svg") == 3
    assert "log</td>" not in text
    assert "src=" not in text, "it needs no other file"
    assert 'href="http' not in text


def test_what_was_found_is_written_as_json_and_as_a_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command.write([found(row("ours", 5), partitions=4)], {"rounds": 5}, tmp_path / "p.json", tmp_path / "p.html")
    document = orjson.loads((tmp_path / "p.json").read_bytes())
    (one,) = document["scenarios"]
    assert (one["scenario"], one["at"], one["rows"][0]["warm_records_per_s"]) == ("count", {"partitions": 4}, 5)
    assert document["settings"]["guarantees"].keys() >= {"quix", "bytewax", "faust", "loop"}
    assert "quixstreams" in document["settings"]["packages"]["quix"]
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")


def test_a_page_that_cant_be_drawn_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    command.must_draw(None)
    monkeypatch.setattr("sys.argv", ["benchmarks", "picture", "--html", str(tmp_path / "p.html")])
    assert main() == 1


def test_some_scenarios_can_be_asked_for_and_an_unknown_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [one.name for one in command.wanted(SIZES, ["count", "restore"])]
    assert (names[0], names[-1], "stateless" in names) == ("count", "count-10000000-keys", False)
    with pytest.raises(click.BadParameter, match="no scenario typo, only stateless, count"):
        command.wanted(SIZES, ["typo"])
    assert "picture" in cli.commands
    monkeypatch.setattr("sys.argv", ["benchmarks", "picture", "--scenarios", "typo"])
    assert main() == 2
