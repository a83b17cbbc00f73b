"""`StreamsConfig`: sources, types, defaults, what is said about values that can't be used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.config import KEYS, ConfigErrors, StreamsConfig
from milestones.common.config.render_docs import markdown
from milestones.common.errors import ConfigError
from milestones.common.topology.handlers import LogAndContinue, LogAndFail, RetryOrFail
from milestones.common.topology.timestamps import wallclock_timestamp_extractor

WORDS: dict[str, Any] = {"application_id": "words", "bootstrap_servers": "localhost:9092", "variables": {}}
EXACTLY_ONCE: dict[str, Any] = {"processing_guarantee": "exactly_once_v2"}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(**WORDS | settings)


def refusal(**settings: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    return caught.value


def test_without_a_directory_for_temporary_files_the_state_needs_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    with pytest.raises(ConfigError, match="set state_dir"):
        StreamsConfig(application_id="app", variables={})
    assert StreamsConfig(application_id="app", variables={}, state_dir="/var/state").state_dir == "/var/state"


def test_defaults_are_those_of_kafka_streams_but_heartbeats_come_more_often() -> None:
    words = config()
    assert (words.num_stream_threads, words.poll_ms, words.max_task_idle_ms) == (1, 100, 0)
    assert (words.task_timeout_ms, words.state_cleanup_delay_ms, words.replication_factor) == (300_000, 600_000, -1)
    assert (words.session_timeout_ms, words.heartbeat_interval_ms, words.max_poll_interval_ms) == (
        45_000,
        1_000,
        300_000,
    )
    assert (words.processing_guarantee, words.transaction_timeout_ms) == ("at_least_once", 10_000)


def test_commit_interval_follows_the_processing_guarantee_unless_it_is_given() -> None:
    assert config().commit_interval_ms == 30_000
    assert config(processing_guarantee="exactly_once_v2").commit_interval_ms == 100
    assert config(processing_guarantee="exactly_once_v2", commit_interval_ms=7).commit_interval_ms == 7
    assert config().replace(processing_guarantee="exactly_once_v2").commit_interval_ms == 100


def test_keywords_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text(
        'application_id = "file"\nbootstrap_servers = ["a:1", "b:2"]\npoll_ms = 1\nnum_stream_threads = 1\n'
    )
    variables = {"MILESTONES_POLL_MS": "2", "MILESTONES_NUM_STREAM_THREADS": "2", "OTHER_POLL_MS": "9"}
    words = StreamsConfig.from_toml(file, variables=variables, num_stream_threads=3)
    assert (words.application_id, words.poll_ms, words.num_stream_threads) == ("file", 2, 3)
    assert words.bootstrap_servers == "a:1,b:2"
    assert words.origin("application_id") == f"file {file}"
    assert words.origin("poll_ms") == "environment variable MILESTONES_POLL_MS"
    assert words.origin("num_stream_threads") == "keyword"
    assert words.origin("commit_interval_ms") == "default"


def test_a_file_can_be_laid_under_a_config(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text("poll_ms = 1\nnum_stream_threads = 4\n")
    under = config(poll_ms=5).over_file(file)
    assert (under.poll_ms, under.num_stream_threads) == (5, 4)


def test_tables_and_dotted_names_in_a_file_join_to_one_key(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text("num.stream.threads = 2\n[consumer]\nfetch_min_bytes = 3\n[producer]\n'linger.ms' = 4\n")
    words = StreamsConfig.from_toml(file, **WORDS)
    assert words.num_stream_threads == 2
    assert words.consumer_settings("t")["fetch.min.bytes"] == 3
    assert words.producer_settings("t")["linger.ms"] == 4


def test_kafkas_own_spelling_works_as_a_keyword() -> None:
    assert config(**{"num.stream.threads": 3}).num_stream_threads == 3


@pytest.mark.parametrize(
    ("text", "why"), [("a = ", "isn't TOML"), ("poll_ms = 1\npoll.ms = 2\n", "twice|TOML"), (None, "can't be read")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "words.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        StreamsConfig.from_toml(file, **WORDS)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("application_id", "word count", "a-z A-Z 0-9"),
        ("application_id", "wörter", "a-z A-Z 0-9"),
        ("application_id", "..", "isn't"),
        ("application_id", "a" * 250, "1 to 249"),
        ("bootstrap_servers", "localhost", "host:port"),
        ("bootstrap_servers", ["a:1", "b:99999"], "'b:99999' isn't host:port"),
        ("bootstrap_servers", [], "host:port"),
        ("num_stream_threads", 0, "at least 1"),
        ("num_stream_threads", True, "integer"),
        ("num_stream_threads", 1.0, "integer"),
        ("poll_ms", "soon", "integer"),
        ("metrics_port", 65536, "at most 65535"),
        ("replication_factor", 0, "brokers' default"),
        ("max_task_idle_ms", -2, "at least -1"),
        ("processing_guarantee", "exactly_once", "use exactly_once_v2"),
        ("processing_guarantee", 2, "at_least_once, exactly_once_v2"),
        ("rocksdb_engine", "leveldb", "rocksdict, rocksdb"),
        ("auto_offset_reset", "error", "earliest, latest, none"),
        ("default_key_serde", "strong", "built in are .*string"),
        ("default_key_serde", 5, "no serde of 5"),
        ("default_timestamp_extractor", "wallclock", "wallclock_timestamp_extractor"),
        ("deserialization_exception_handler", "log", "log_and_fail, log_and_continue"),
        ("processing_exception_handler", "no_such_module:x", "ModuleNotFoundError"),
        ("processing_exception_handler", "os:no_such_attribute", "AttributeError"),
        ("state_dir", "", "path"),
        ("client_tags", "zone", "name=value"),
        ("num_standby_replicas", -1, "at least 0"),
        ("task_assignor", "stick", "high_availability, sticky"),
        ("task_assignor", "no_such_module:x", "ModuleNotFoundError"),
        ("errors_dead_letter_queue_topic_name", "words-x-changelog", "internal topic"),
        ("num_stream_thread", 1, r"did you mean num_stream_threads\?"),
        ("num_threads_per_task", 2, "stage m2"),
        ("streams_memory_bytes", 1, "stage m6"),
        ("rocksdb_config_setter", "x", "rocksdb_block_cache_bytes"),
        ("linger_ms", 5, "write producer_linger_ms"),
        ("fetch_min_bytes", 5, "write consumer_fetch_min_bytes"),
    ],
)
def test_a_key_or_value_that_cannot_be_used_is_refused_with_key_and_reason(key: str, value: object, why: str) -> None:
    error = refusal(**{key: value})
    assert error.key == key
    assert error.exit_code == 2
    assert re.search(why, error.reason), error.reason
    assert key in str(error)


def test_text_of_the_environment_is_read_as_the_keys_type() -> None:
    words = config(variables={"MILESTONES_POLL_MS": "1_000", "MILESTONES_PROCESSING_GUARANTEE": "Exactly_Once_V2"})
    assert words.poll_ms == 1000
    assert words.exactly_once


def test_an_unknown_variable_is_refused_with_the_nearest_known_key_and_its_name() -> None:
    error = refusal(variables={"MILESTONES_POL_MS": "1"})
    assert "did you mean poll_ms?" in error.reason
    assert "environment variable MILESTONES_POL_MS" in error.reason


def test_variables_of_the_test_tools_are_no_config_keys() -> None:
    config(variables={"MILESTONES_FAULT": "commit:kill:1", "MILESTONES_MAVEN_REPOSITORY": "https://example.org"})


def test_a_missing_required_key_says_how_to_give_it() -> None:
    with pytest.raises(ConfigError, match="MILESTONES_APPLICATION_ID"):
        StreamsConfig(bootstrap_servers="a:1", variables={})


def test_all_errors_are_reported_together() -> None:
    error = refusal(num_stream_threads=0, poll_ms="x", nonsense=1)
    assert isinstance(error, ConfigErrors)
    assert {one.key for one in error.errors} == {"num_stream_threads", "poll_ms", "nonsense"}
    assert all(one.key in str(error) for one in error.errors)


def test_a_config_cannot_be_changed() -> None:
    words = config()
    with pytest.raises(AttributeError, match="replace"):
        words.poll_ms = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        words.anything = 5  # type: ignore[attr-defined]


def test_replacing_keeps_the_rest_and_checks_again() -> None:
    words = config(poll_ms=5)
    assert words.replace(num_stream_threads=2).poll_ms == 5
    assert words == config(poll_ms=5)
    with pytest.raises(ConfigError):
        words.replace(poll_ms=-1)


def test_secrets_are_never_printed() -> None:
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "me"}
    assert "hidden" not in repr(config(**security, sasl_password="hidden"))
    assert "hidden" not in str(refusal(**security, sasl_password="hidden", consumer_sasl_password=["hidden"]))


def test_serdes_and_extractors_are_given_as_objects_or_by_name() -> None:
    words = config(default_key_serde="string", default_value_serde=serdes.LONG)
    assert words.default_key_serde is serdes.STRING
    assert words.default_value_serde is serdes.LONG
    assert config(default_key_serde="milestones.common.serdes:JSON").default_key_serde is serdes.JSON
    by_name = config(default_timestamp_extractor="wallclock_timestamp_extractor").default_timestamp_extractor
    assert by_name is wallclock_timestamp_extractor


def test_a_built_in_handler_that_skips_records_writes_to_the_dead_letter_topic_of_the_config() -> None:
    words = config(errors_dead_letter_queue_topic_name="letters", processing_exception_handler="log_and_continue")
    assert words.processing_exception_handler == LogAndContinue("letters")
    assert words.deserialization_exception_handler == LogAndFail()
    assert words.production_exception_handler == RetryOrFail()
    assert config(processing_exception_handler=print).processing_exception_handler is print


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"heartbeat_interval_ms": 23_000}, "heartbeat_interval_ms"),
        ({"poll_ms": 300_000}, "poll_ms"),
        ({"processing_guarantee": "exactly_once_v2", "commit_interval_ms": 10_001}, "transaction_timeout_ms"),
        (
            {"processing_guarantee": "exactly_once_v2", "consumer_isolation_level": "read_uncommitted"},
            "consumer_isolation_level",
        ),
        ({"security_protocol": "SASL_SSL"}, "security_protocol"),
    ],
)
def test_values_that_cannot_work_together_are_refused(settings: dict[str, Any], key: str) -> None:
    assert refusal(**settings).key == key


def test_a_milestone_is_a_stage_or_a_set_of_flags() -> None:
    assert config(milestones="m3").milestones == {"m3"}
    assert config(milestones=["a", "b"]).milestones == config(milestones="a, b").milestones == {"a", "b"}


def test_the_documentation_is_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == markdown(), "run milestones config --markdown > docs/configuration.md"


def test_the_documentation_has_every_key_of_a_config() -> None:
    page = markdown()
    assert [key for key in config().as_dict() if f"| `{key}` |" not in page] == []


def test_every_key_has_a_sentence_of_documentation() -> None:
    assert all(key.doc.endswith(".") and len(key.doc) > 20 for key in KEYS.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SERVICE_HOST", "10.0.0.1"),
        ("SERVICE_PORT", "9700"),
        ("SERVICE_PORT_METRICS", "9700"),
        ("PORT", "tcp://10.0.0.1:9700"),
        ("PORT_9700_TCP", "tcp://10.0.0.1:9700"),
        ("PORT_9700_TCP_ADDR", "10.0.0.1"),
        ("PORT_9700_TCP_PORT", "9700"),
        ("PORT_9700_TCP_PROTO", "tcp"),
        ("METRICS_SERVICE_HOST", "10.0.0.1"),
        ("METRICS_PORT", "tcp://10.0.0.1:9700"),
        ("METRICS_PORT_53_UDP_ADDR", "10.0.0.1"),
        ("WORD_COUNT_PORT", "sctp://10.0.0.1:9700"),
    ],
)
def test_what_kubernetes_injects_for_a_service_called_milestones_is_passed_over(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        assert config(variables={f"MILESTONES_{name}": value}) == config()
    assert f"MILESTONES_{name}" in caplog.text


def test_a_port_that_is_no_address_of_a_service_is_a_setting() -> None:
    assert config(variables={"MILESTONES_METRICS_PORT": "9700"}).metrics_port == 9700
    assert refusal(variables={"MILESTONES_METRICS_PORT": "http://a"}).key == "metrics_port"
    assert refusal(variables={"MILESTONES_SERVICE_HOSTS": "a"}).key == "service_hosts"


def test_an_empty_variable_counts_as_none() -> None:
    empty = {f"MILESTONES_{key.upper()}": " " for key in [*KEYS, "nonsense", "ssl_key_pem"]}
    assert config(variables=empty) == config()


@pytest.mark.parametrize("text", ["{zone = 'a', rack = \"b\"}", '{zone="a",rack="b"}', "zone=a, rack=b"])
def test_a_table_may_be_written_in_the_environment_as_in_toml(text: str) -> None:
    assert config(variables={"MILESTONES_CLIENT_TAGS": text}).client_tags == {"zone": "a", "rack": "b"}


def test_lists_and_tables_of_numbers_may_be_written_in_the_environment_as_in_toml() -> None:
    words = config(
        variables={
            "MILESTONES_TASK_PRIORITIES": "{0 = 4}",
            "MILESTONES_RACK_AWARE_ASSIGNMENT_TAGS": '["zone"]',
            "MILESTONES_CLIENT_TAGS": "{zone = 'a'}",
        }
    )
    assert (words.task_priorities, words.rack_aware_assignment_tags) == ({0: 4}, ("zone",))
    servers = StreamsConfig(application_id="words", variables={"MILESTONES_BOOTSTRAP_SERVERS": '["a:1", "[::1]:2"]'})
    assert servers.bootstrap_servers == "a:1,[::1]:2"
    assert config(bootstrap_servers="[::1]:2").bootstrap_servers == "[::1]:2"


@pytest.mark.parametrize("text", ["{zone}", "{zone = 1}", '{zone: "a"}'])
def test_a_table_that_cannot_be_read_is_refused(text: str) -> None:
    assert refusal(variables={"MILESTONES_CLIENT_TAGS": text}).key == "client_tags"


def test_a_tilde_means_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config(state_dir="~/state").state_dir == str(tmp_path / "state")
    assert config(state_dir="./~").state_dir == "./~"
    assert "no user" in refusal(state_dir="~nobody-of-this-name/state").reason


def test_kafka_on_this_machine_is_the_default() -> None:
    assert StreamsConfig(application_id="words", variables={}).bootstrap_servers == "localhost:9092"


def test_what_the_code_says_in_another_way_is_not_overridden() -> None:
    variables = {
        "MILESTONES_BOOTSTRAP_SERVERS": "a:1, b:2", "MILESTONES_CLIENT_TAGS": "zone=a", "MILESTONES_MILESTONES": "m1",
        "MILESTONES_PROCESSING_GUARANTEE": "EXACTLY_ONCE_V2", "MILESTONES_CONSUMER_CHECK_CRCS": "true",
        "MILESTONES_PRODUCER_LINGER_MS": "20",
    }  # fmt: skip
    coded = StreamsConfig(
        application_id="words", bootstrap_servers=["a:1", "b:2"], client_tags={"zone": "a"}, milestones={"m1"},
        processing_guarantee="exactly_once_v2", consumer_check_crcs=True, producer_linger_ms=30, variables=variables,
    )  # fmt: skip
    assert coded.overridden().keys() == {"producer_linger_ms"}


def test_what_the_code_overrides_is_known_and_what_the_command_line_overrides_is_not_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text('bootstrap_servers = "a:1"\npoll_ms = 1\nnum_stream_threads = 5\nmax_task_idle_ms = 3\n')
    coded = StreamsConfig(
        application_id="words", bootstrap_servers="b:2", poll_ms=2, commit_interval_ms=4, max_task_idle_ms="3",
        variables={"MILESTONES_COMMIT_INTERVAL_MS": "5"},
    ).over_file(file)  # fmt: skip
    assert coded.overridden() == {
        "bootstrap_servers": f"file {file}",
        "poll_ms": f"file {file}",
        "commit_interval_ms": "environment variable MILESTONES_COMMIT_INTERVAL_MS",
    }
    given = coded.with_options({"poll_ms": "3", "num_stream_threads": "6"})
    assert "poll_ms" not in given.overridden()
    assert (given.poll_ms, given.origin("poll_ms")) == (3, "command line")


OPTIONS = {"aws_region": "here", "aws_secret_access_key": "a=b/c+d==", "allow_http": "true", "timeout": "7"}


def test_options_of_snapshots_come_as_a_table_of_a_file_or_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text(
        '[snapshot_options]\naws_region = "here"\naws_secret_access_key = "a=b/c+d=="\nallow_http = true\ntimeout = 7\n'
    )
    texts = (
        '{aws_region = "here", aws_secret_access_key = "a=b/c+d==", allow_http = true, timeout = 7}',
        "aws_region=here, aws_secret_access_key=a=b/c+d==, allow_http=true, timeout=7",
    )
    assert StreamsConfig.from_toml(file, **WORDS).snapshot_options == OPTIONS
    for text in texts:
        assert config(variables={"MILESTONES_SNAPSHOT_OPTIONS": text}).snapshot_options == OPTIONS
    assert config().snapshot_options == {}
    assert config(snapshot_options={"allow_http": True}).snapshot_options == {"allow_http": "true"}


@pytest.mark.parametrize(
    "value", ["sesame", ["sesame"], {"a": ["sesame"]}, {"a": None, "b": "sesame"}, '{a = "sesame"']
)
def test_what_is_no_table_of_options_is_refused_without_being_shown(value: object) -> None:
    error = refusal(snapshot_options=value)
    assert (error.key, "sesame" in f"{error}{vars(error)}") == ("snapshot_options", False)


def test_a_key_of_snapshots_has_an_id_and_32_bytes() -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    for value in (f"2026:{key}", f"2027:{key}, 2026:{key}"):
        assert config(snapshot_encryption_key=value).snapshot_encryption_key == value
    for value in (key, f"2026:{key[4:]}", f"2026:{key},2026:{key}"):
        error = refusal(snapshot_encryption_key=value)
        assert ("32 bytes in base64" in error.reason, key[4:] in f"{error}{vars(error)}") == (True, False)
