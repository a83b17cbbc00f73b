"""A secret is in nothing that is printed: whichever setting it is in, wherever that comes from, whatever goes wrong."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from milestones.cli.main import invoke
from milestones.common.config import StreamsConfig
from milestones.common.config.sources import environment, keywords, toml_file
from milestones.common.errors import ConfigError, MilestonesError
from milestones.common.kafka.wire_security import is_about_security
from milestones.common.kafka.wire_settings import WireSettings
from milestones.common.records import TopicPartition
from milestones.common.state.snapshots.repository import SnapshotRepository
from tests.common.librdkafka import properties, redacted

CANARY = "sesame-open-4711"
NAMED = {"sasl.username", "ssl.key.location", "sasl.oauthbearer.assertion.private.key.file"}
"""Names of a user and of files, which librdkafka hides and we don't."""

SECRETS = sorted((redacted() - NAMED) | {name for name in properties() if "secret" in name or name.endswith("pem")})
PREFIXES = ("", "consumer_", "main_consumer_", "restore_consumer_", "producer_", "admin_")
KEYS = [prefix + name.replace(".", "_") for prefix in PREFIXES for name in SECRETS]
KEYS += ["snapshot_options", "snapshot_encryption_key"]
MISSPELT = [
    "snapshot_option", "snapshots_options", "snapshot_options_aws_key", "snapshot_encryption_keys", "snapshot_key",
    "sasl_pasword", "consumer_ssl_key_passwort", "password", "pwd", "sasl_jaas_config", "topic_sasl_password",
]  # fmt: skip
LOGIN = {"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
WORDS: dict[str, Any] = {"application_id": "words", "bootstrap_servers": "127.0.0.1:1"}
URLS = [
    f"nosuch://ann:{CANARY}@host/snapshots",
    f"memory://ann:{CANARY}@host/snapshots?sig={CANARY}",
    f"s3://ann:{CANARY}@bucket/snapshots?sig={CANARY}",
    f"https://ann:{CANARY}@host/snapshots?sig={CANARY}",
    f"file:///nowhere/snapshots?token={CANARY}",
]
APPLICATION = """
from milestones import StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("lines", value=serdes.STRING).to("shouts", value=serdes.STRING)
"""


def test_librdkafka_tells_its_secrets() -> None:
    assert {"sasl.password", "ssl.key.pem", "ssl.key.password", "sasl.oauthbearer.client.secret"} <= set(SECRETS)
    assert all(is_about_security(name) for name in SECRETS)


def printed(make: Callable[[], object]) -> Iterator[str]:
    """All that can be printed of a config, or of why there is none."""
    try:
        made = make()
    except MilestonesError as error:
        yield from (str(error), repr(error), *map(str, error.args), *traceback.format_exception(error))
        for one in getattr(error, "errors", [error]):
            yield repr(vars(one))
        return
    yield repr(made)
    if not isinstance(made, StreamsConfig):
        return
    yield repr(made._sources)
    yield repr(made.member_settings("t", 1))
    yield repr(WireSettings.of(made.consumer_settings("t")))
    yield from printed(lambda: made.replace(poll_ms=-1))
    yield from printed(lambda: made.replace(security_protocol="nonsense"))
    yield from printed(lambda: made.replace(sasl_mechanism="OAUTHBEARER"))


def sources(key: str, value: str, tmp_path: Path) -> Iterator[Callable[[], object]]:
    """Ways to make a config with this setting."""
    file = tmp_path / "words.toml"
    file.write_text(f"{key} = '{value}'\n")
    variables = {f"MILESTONES_{key.upper()}": value}
    yield lambda: StreamsConfig(**WORDS, variables={}, **{key: value})
    yield lambda: StreamsConfig(**WORDS | LOGIN, variables={}, **{key: value})
    yield lambda: StreamsConfig(**WORDS, variables={}, security_protocol="ssl", ssl_key_location="/no", **{key: value})
    yield lambda: StreamsConfig(**WORDS, variables=variables)
    yield lambda: StreamsConfig.from_toml(file, variables={}, **WORDS)
    yield lambda: StreamsConfig(**WORDS, variables={}, **{key: [value]})
    yield lambda: StreamsConfig(**WORDS, variables={}, **{key: {"a": value}})
    yield lambda: [keywords({key: value}), environment(variables), toml_file(file)]


@pytest.mark.parametrize("key", KEYS + MISSPELT)
def test_a_secret_setting_is_printed_nowhere(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        for make in sources(key, CANARY, tmp_path):
            for text in printed(make):
                assert CANARY not in text
    out, err = capfd.readouterr()
    assert CANARY not in caplog.text + out + err


@pytest.mark.parametrize("name", SECRETS)
def test_our_own_connections_refuse_a_secret_setting_without_its_value(name: str) -> None:
    settings = {"bootstrap.servers": "a:1", "security.protocol": "SSL", name: CANARY}
    for text in printed(lambda: WireSettings.of(settings).tls_context()):
        assert CANARY not in text


@pytest.mark.parametrize("url", URLS)
def test_the_credentials_of_a_url_are_printed_nowhere(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for make in sources("snapshot_url", url, tmp_path):
            for text in printed(make):
                assert CANARY not in text
        for text in printed(lambda: SnapshotRepository(url, "words").url):
            assert CANARY not in text
    assert CANARY not in caplog.text


def test_the_credentials_of_a_url_are_not_in_the_errors_of_a_snapshot() -> None:
    url = f"http://ann:{CANARY}@127.0.0.1:1/snapshots?sig={CANARY}"
    repository = SnapshotRepository(url, "words", timeout_ms=30)
    texts = list(printed(lambda: repository.newest(TopicPartition("words-counts-changelog", 0), "counts")))
    assert any("can't read" in text for text in texts)
    assert not any(CANARY in text for text in texts)


OPTIONS = (
    {"aws_secret_access_key": CANARY},
    {"aws_secret_access_key": CANARY, "aws_access_key_id": CANARY, "aws_session_token": CANARY},
    {"proxy_url": f"http://ann:{CANARY}@127.0.0.1:1"},
    {"root_certificate": CANARY},
    {"timeout": CANARY},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_options_of_snapshots_are_printed_nowhere(
    options: dict[str, str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    changelog = TopicPartition("words-counts-changelog", 0)

    def used(endpoint: str) -> object:
        config = StreamsConfig(**WORDS, variables={}, snapshot_url=endpoint, snapshot_options=options)
        given = {**config.snapshot_options, "aws_endpoint": "http://127.0.0.1:1", "allow_http": "true"}
        repository = SnapshotRepository.of(config.replace(snapshot_options=given, snapshot_timeout_ms=30))
        return repository.newest(changelog, "counts")

    with caplog.at_level(logging.DEBUG):
        for url in ("s3://bucket/snapshots", "https://127.0.0.1:1/x"):
            for text in printed(partial(used, url)):
                assert CANARY not in text
        for url in ("gs://bucket", "az://container"):
            for text in printed(partial(SnapshotRepository, url, "words", options=options)):
                assert CANARY not in text
    out, err = capfd.readouterr()
    assert CANARY not in caplog.text + out + err


@pytest.mark.parametrize("key", ["ssl_key_pem", "consumer_ssl_key_pem", "sasl_password", "sasl_pasword", "password"])
def test_the_command_line_prints_no_secret(
    key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, file = tmp_path / "words.py", tmp_path / "words.toml"
    app.write_text(APPLICATION)
    file.write_text(f"{key} = '{CANARY}'\n")
    base = ["-v", "run", str(app), "-a", "words", "-b", "a:1", "--set", "poll_ms=-1"]
    for more in (
        ["--set", f"{key}={CANARY}"],
        ["--config", str(file)],
        ["--set", f"{key}:{CANARY}"],
        ["--set", key, CANARY],
    ):
        assert invoke(base + more) == ConfigError.exit_code
    assert invoke(["-v", "spark", "run", str(app), "--spark", f"fs.s3a.secret.key={CANARY}"]) == ConfigError.exit_code
    assert invoke(["-v", "broker", "--property", f"ssl.key.password:{CANARY}"]) == ConfigError.exit_code
    monkeypatch.setenv(f"MILESTONES_{key.upper()}", CANARY)
    assert invoke(base) == ConfigError.exit_code
    out, err = capfd.readouterr()
    assert key in err
    assert CANARY not in out + err
