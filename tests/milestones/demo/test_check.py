"""The demo's plain count, and its judgement over what Kafka holds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import orjson
import pytest

from milestones.common.serdes import LONG
from milestones.demo.check import DemoResult, checks, difference, most_frequent
from milestones.demo.counting import Letter, add_word, no_words, plain_count, words
from milestones.demo.text import lines

TEXT = ["In the beginning was the Word,", "and the Word was with God."]
PLAIN = plain_count(TEXT)


def as_read(counts: dict[str, int], letters: dict[str, Letter]) -> DemoResult:
    table = {word.encode(): LONG.serialize("", count) or b"" for word, count in counts.items()}
    by_letter = {letter.encode(): orjson.dumps(sum_) for letter, sum_ in letters.items()}
    return DemoResult(table, by_letter, dict(table), dict(by_letter), sum(counts.values()))


def test_words_are_lower_case_without_punctuation_but_with_their_apostrophes() -> None:
    assert words("And God’s Word -- it isn't 'far'!") == ["and", "god’s", "word", "it", "isn't", "far"]


def test_a_line_without_words_has_none() -> None:
    assert words("  -- 1:1 --  ") == []


def test_the_plain_count_counts_words_and_sums_up_letters() -> None:
    assert PLAIN.words["the"] == 3
    assert PLAIN.letters["w"] == {"words": 5, "characters": 18, "longest": "word"}
    assert PLAIN.total == 12


def test_the_topologys_aggregate_equals_the_plain_count_in_any_order() -> None:
    all_words = [word for line in lines()[:200] for word in words(line)]
    Random(7).shuffle(all_words)
    letters: dict[str, Letter] = {}
    for word in all_words:
        letters[word[0]] = add_word(word[0], word, letters.get(word[0]) or no_words())
    assert letters == plain_count(lines()[:200]).letters


def test_a_right_result_passes_every_check() -> None:
    assert [check.wrong for check in checks(as_read(PLAIN.words, PLAIN.letters), PLAIN)] == [""] * 5


@pytest.mark.parametrize("field", ["word_counts", "letters", "counts_changelog", "letters_changelog"])
def test_a_missing_key_in_any_topic_is_found(field: str) -> None:
    outcome = as_read(PLAIN.words, PLAIN.letters)
    table = dict(getattr(outcome, field))
    table.pop(next(iter(table)))
    assert sum(not check.holds for check in checks(replace(outcome, **{field: table}), PLAIN)) == 1


def test_a_word_counted_twice_is_found_and_named() -> None:
    wrong = as_read({**PLAIN.words, "god": 2}, PLAIN.letters)
    assert "'god' is 2, should be 1" in checks(wrong, PLAIN)[0].wrong


def test_an_output_too_many_is_found_even_when_the_last_counts_are_right() -> None:
    outcome = replace(as_read(PLAIN.words, PLAIN.letters), outputs=PLAIN.total + 1)
    assert [check.holds for check in checks(outcome, PLAIN)] == [True, False, True, True, True]


def test_a_difference_says_what_is_missing_and_what_is_too_much() -> None:
    assert difference({"b": 1}, {"a": 1}) == ("2 differ: 'a' is missing, should be 1; 'b' is 1, should be missing")


def test_many_differences_are_counted_and_a_few_shown() -> None:
    text = difference({}, {str(number): number for number in range(50)})
    assert text.startswith("50 differ")
    assert text.count("should be") == 3


def test_the_most_frequent_words_come_in_order() -> None:
    assert most_frequent(PLAIN.words, 1) == [("the", 3)]
