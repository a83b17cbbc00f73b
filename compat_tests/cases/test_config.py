"""A start that can't succeed ends at once, with an exit code and a text that says what, where and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.harness.world import World

BAD_CONFIG, UNREACHABLE = 2, 3

WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a removed guarantee": ({"processing_guarantee": "exactly_once"}, ("processing_guarantee", "exactly_once_v2")),
    "a value out of range": ({"num_stream_threads": 0}, ("num_stream_threads", "0", "1")),
    "a misspelt key": ({"comit_interval_ms": 5}, ("comit_interval_ms", "commit_interval_ms")),
    "an unknown stage": ({"milestones": "m9"}, ("milestones", "m9")),
    "a flag without the one it needs": ({"milestones": "polling_thread"}, ("polling_thread needs processing_threads",)),
    "a setting the runtime owns": ({"consumer_group_id": "mine"}, ("consumer_group_id", "application_id")),
    "a client setting that does not exist": ({"producer_lingerr_ms": 5}, ("producer_lingerr_ms", "linger")),
    "an illegal name": ({"application_id": "no blanks"}, ("application_id", "no blanks")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_config_is_refused_by_name_value_and_reason(plain_world: World, what: str) -> None:
    changes, texts = WRONG[what]
    plain_world.instance("copy", **changes).start().dies(BAD_CONFIG, *texts)


def test_a_missing_source_topic_is_named(plain_world: World) -> None:
    plain_world.create(out=1)
    plain_world.instance("copy").start().dies(BAD_CONFIG, plain_world.topic("in"))


def test_an_unreachable_broker_is_named(plain_world: World) -> None:
    app = plain_world.instance("copy", bootstrap_servers="127.0.0.1:1", request_timeout_ms=2_000, task_timeout_ms=4_000)
    app.start().dies(UNREACHABLE, "127.0.0.1:1")
