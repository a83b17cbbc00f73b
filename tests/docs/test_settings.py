"""`StreamsSettings`, the settings as keywords: made from the table of keys, and no wider than what a config reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.settings import FILE, passed_names, source
from milestones import StreamsSettings
from milestones.common.config import KEYS, passthrough
from tests.typed.settings import accepted


def test_the_file_is_the_table() -> None:
    assert FILE.read_text() == source(), "run python -m docs.settings"


def test_each_key_is_a_keyword_that_may_be_left_out() -> None:
    assert StreamsSettings.__annotations__.keys() == KEYS.keys() | {*passed_names()}
    assert StreamsSettings.__required_keys__ == frozenset()


def test_each_keyword_for_kafkas_clients_is_one_that_a_config_passes_on_and_that_librdkafka_knows() -> None:
    assert {name: reason for name in passed_names() if (reason := why_not(name)) is not None} == {}


@pytest.mark.parametrize("name", ["producer_lingr_ms", "main_consumer_linger_ms", "topic_linger_ms", "producer_acks"])
def test_a_name_that_is_not_its_clients_is_found(name: str) -> None:
    assert why_not(name) is not None


NOT_ITS_OWN = "No such configuration property", "will be ignored by this"
SOME_VALUES = "1", "none"
"""One of them fits most settings: librdkafka looks at the value first, then whether the client has the setting."""


def why_not(name: str) -> str | None:
    """Why no value could be given for the name."""
    prefix, setting = passthrough.split(name) or pytest.fail(f"{name} isn't passed on")
    reason = passthrough.why_not(prefix, setting, "PLAIN")
    clients = passthrough.PREFIXES.get(prefix, {"main_consumer", "producer"})
    said = [_said(client, setting, value) for client in clients if reason is None for value in SOME_VALUES]
    return next((text for text in said if any(mark in text for mark in NOT_ITS_OWN)), reason)


def _said(client: str, setting: str, value: str) -> str:
    """librdkafka's refusal of the value, or ""."""
    return passthrough._attempt_one(client, setting, value) or ""


def test_a_config_reads_what_type_checkers_accept(tmp_path: Path) -> None:
    read = accepted(tmp_path)
    assert read[0].poll_ms == 20
    assert len(read) > 20
