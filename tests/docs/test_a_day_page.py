"""docs/a-day-in-the-life-of-a-record.md: each number and byte of its word is the demo's."""

from __future__ import annotations

from milestones import ValueAndTimestamp
from milestones.common.partitioner import partition_of
from milestones.demo.app import COUNTS_STORE, LINES, WORD_COUNTS, topology
from milestones.demo.counting import plain_count, words
from milestones.demo.story import APPLICATION_ID, PARTITIONS, SESSION_TIMEOUT_S
from milestones.demo.text import lines
from milestones.flags import STAGES
from milestones.serdes import LONG
from milestones.testing import TopologyTestDriver
from tests.docs.pages import DOCS
from tests.docs.test_architecture import quoted, rows, section

PAGE = DOCS / "a-day-in-the-life-of-a-record.md"
WORD = "lamb"
NOW_MS = 1_700_000_000_000

TEXT = " ".join(PAGE.read_text().split())
FIRST = next(number for number, line in enumerate(lines()) if WORD in words(line))


def test_the_word_is_where_the_page_says_in_the_text_and_in_the_topic() -> None:
    line = lines()[FIRST]
    assert f"in line {FIRST + 1} of the text" in TEXT
    for part in TEXT.split(f"line {FIRST + 1} of the text: \"")[1].split("\"")[0].split(" ... "):
        assert part in line
    assert f"gives {len(words(line))} words; ours is the {words(line).index(WORD) + 1}rd" in TEXT
    assert f"| topic `{LINES}` | {FIRST % PARTITIONS} | offset {FIRST // PARTITIONS}, no key | the whole line |" in TEXT
    assert f"task `0_{FIRST % PARTITIONS}`" in TEXT
    assert f"For `{WORD}` both are {plain_count(lines()).words[WORD]}." in TEXT


def test_the_forms_of_the_word_are_those_that_the_demos_topology_makes() -> None:
    with TopologyTestDriver(topology(), application_id=APPLICATION_ID, start_time_ms=NOW_MS) as driver:
        driver.pipe(LINES, None, lines()[FIRST].encode(), NOW_MS)
        made = driver.produced()
        row = driver.store(COUNTS_STORE).get(WORD)
    repartition, changelog = (f"{APPLICATION_ID}-{COUNTS_STORE}-{kind}" for kind in ("repartition", "changelog"))
    one = LONG.serialize(WORD_COUNTS, 1)
    values = {
        topic: [output.value for output in outputs if output.key == WORD.encode()] for topic, outputs in made.items()
    }
    assert {topic: found for topic, found in values.items() if found} == {
        repartition: [WORD.encode()], changelog: [one], WORD_COUNTS: [one],
    }  # fmt: skip
    assert len(one or b"") == 8
    assert row == ValueAndTimestamp(1, NOW_MS)
    described = {quoted(row[0])[0]: row[1:] for row in rows(section(PAGE, "# A day in the life of a record"))}
    at = str(partition_of(WORD.encode(), PARTITIONS))
    assert described[repartition] == [at, f"key `{WORD}`", f"`{WORD}`"]
    assert described[changelog] == described[WORD_COUNTS] == [at, f"key `{WORD}`", "8 bytes: 1"]
    assert f"store `{COUNTS_STORE}` of task `1_{at}`" in TEXT


def test_a_line_has_two_outputs_per_word() -> None:
    with TopologyTestDriver(topology(), application_id=APPLICATION_ID) as driver:
        driver.pipe(LINES, None, lines()[FIRST].encode(), NOW_MS)
        made = driver.produced()
    outputs = sum(len(outputs) for topic, outputs in made.items() if topic.endswith("-repartition"))
    assert f"The {outputs} outputs lie in the *scope*" in TEXT


def test_each_stage_has_its_row_and_its_part() -> None:
    names = [stage.name for stage in STAGES if stage.name != "baseline"]
    assert [quoted(row[0])[0] for row in rows(section(PAGE, "## What each stage changes"))] == names
    for name in names:
        assert section(PAGE, next(line for line in PAGE.read_text().splitlines() if line.startswith(f"### {name}: ")))


def test_the_session_is_the_demos() -> None:
    assert f"After the session timeout, {SESSION_TIMEOUT_S} s in the demo" in TEXT
