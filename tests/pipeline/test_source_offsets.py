"""Offsets and options of the data source, without Spark and Kafka."""

from __future__ import annotations

import json

import pytest

from milestones import ConfigError
from milestones.common.records import TopicPartition
from milestones.pipeline.source.offsets import as_json, behind, limited, of_json
from milestones.pipeline.source.options import ReadOptions, WriteOptions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = {"kafka.bootstrap.servers": "b:1"}


def test_offsets_survive_a_checkpoint() -> None:
    offsets = {A: 3, B: 2**40, TopicPartition("u", 7): 0}
    assert of_json(json.loads(json.dumps(as_json(offsets)))) == offsets


def test_a_limit_is_shared_alike_and_what_one_does_not_need_goes_to_the_others() -> None:
    assert limited({A: 0, B: 0}, {A: 900, B: 900}, 100) == {A: 50, B: 50}
    assert limited({A: 0, B: 0}, {A: 900, B: 10}, 100) == {A: 90, B: 10}
    assert limited({A: 5, B: 5}, {A: 8, B: 5}, 100) == {A: 8, B: 5}


def test_a_large_backlog_of_one_partition_keeps_no_other_waiting() -> None:
    assert limited({A: 100, B: 1_000_000}, {A: 200, B: 9_000_000}, 100) == {A: 150, B: 1_000_050}


def test_each_partition_moves_however_small_the_limit() -> None:
    assert limited({A: 0, B: 0}, {A: 900, B: 900}, 1) == {A: 1, B: 1}


def test_an_end_is_never_before_its_start() -> None:
    assert limited({A: 9, B: 4}, {A: 5, B: 4}, 100) == {A: 9, B: 4}
    assert limited({A: 9, B: 0}, {A: 5, B: 400}, 100) == {A: 9, B: 100}


def test_a_target_bounds_and_leaves_out_what_came_later() -> None:
    assert behind({A: 9, B: 9}, {A: 5}) == {A: 5}


def test_committed_records_are_read_unless_told_otherwise() -> None:
    assert ReadOptions.of({**SERVERS, "subscribe": "a, b"}, stream=False).committed
    read = ReadOptions.of({**SERVERS, "subscribe": "a", "kafka.isolation.level": "read_uncommitted"}, stream=False)
    assert not read.committed


def test_a_stream_begins_at_the_latest_a_batch_at_the_earliest_offset() -> None:
    options = {**SERVERS, "subscribe": "a,b"}
    assert ReadOptions.of(options, stream=True).starting == "latest"
    assert ReadOptions.of(options, stream=False).starting == "earliest"
    named = ReadOptions.of({**options, "startingOffsets": '{"a": {"0": 5, "1": -2}}'}, stream=True)
    assert named.starting == {"a": {"0": 5, "1": -2}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers"),
        (SERVERS, "subscribe"),
        ({**SERVERS, "subscribe": "a", "subscribePattern": "b"}, "either"),
        ({**SERVERS, "subscribe": "a", "maxOffsetsPerTriger": "5"}, "isn't an option.*maxOffsetsPerTrigger"),
        ({**SERVERS, "subscribe": "a", "maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({**SERVERS, "subscribe": "a", "startingOffsets": "oldest"}, "earliest, latest, or JSON"),
        ({**SERVERS, "subscribe": "a", "failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.of(options, stream=True)


def test_keys_are_placed_as_kafka_places_them() -> None:
    assert WriteOptions.of({**SERVERS, "topic": "t"}).client["partitioner"] == "murmur2_random"
