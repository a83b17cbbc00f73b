"""A login that Kafka refuses is told at once, as that, and isn't tried again."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse

from milestones.common.errors import KafkaUnreachableError, SecurityError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.login import Login
from milestones.common.kafka.topics import Cluster
from milestones.testing import KafkaProbe
from tests.common.kafka.test_wire import HANDSHAKE, serving
from tests.common.kafka.tls import certified

PASSWORD = "sesame-open-4711"
PLAIN = f"org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='{PASSWORD}';"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
LISTENERS = {"TLS": "SSL", "OPEN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "MUTUAL": "SSL"}
APPLICATION = """
from milestones import StreamsBuilder, serdes
builder = StreamsBuilder()
builder.stream("lines", value=serdes.STRING).map_values(str.upper).to("shouts", value=serdes.STRING)
"""


class Secure:
    """A broker with a listener of each kind."""

    def __init__(self, broker: EmbeddedKafka, ca_file: str, strange_ca_file: str) -> None:
        self.broker, self.ca_file, self.strange_ca_file = broker, ca_file, strange_ca_file

    def settings(self, listener: str, **security: str) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in security.items()}
        return {"bootstrap.servers": self.broker.address(listener), **named}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    certified(folder)
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(folder / "stranger.pem")
    own: dict[str, str] = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    for name in ("tls", "both", "mutual"):
        own[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        own[f"listener.name.{name}.ssl.keystore.location"] = str(folder / "server.pem")
    own["listener.name.mutual.ssl.client.auth"] = "required"
    own["listener.name.mutual.ssl.truststore.type"] = "PEM"
    own["listener.name.mutual.ssl.truststore.location"] = str(folder / "ca.pem")
    for name in ("open", "both"):
        own[f"listener.name.{name}.plain.sasl.jaas.config"] = PLAIN
        own[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = SCRAM
    with EmbeddedKafka(folder / "data", properties=own, listeners=LISTENERS) as broker:
        KafkaProbe(broker.bootstrap_servers).create({"lines": 1, "shouts": 1})
        yield Secure(broker, str(folder / "ca.pem"), str(folder / "stranger.pem"))


def asked(settings: dict[str, Any]) -> tuple[BaseException | None, float]:
    """What a look at the topics raises, and how long it takes."""
    began = time.monotonic()
    try:
        Cluster(settings, request_timeout_ms=3_000, login=Login(settings)).partition_counts()
    except (SecurityError, KafkaUnreachableError) as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("listener", ["OPEN", "BOTH"])
def test_refused_credentials_are_told_with_the_users_name(secure: Secure, listener: str, mechanism: str) -> None:
    wrong = secure.settings(
        listener, security_protocol=LISTENERS[listener], sasl_mechanism=mechanism,
        sasl_username="ann", sasl_password="guess", ssl_ca_location=secure.ca_file,
    )  # fmt: skip
    error, took_s = asked(wrong)
    assert isinstance(error, SecurityError)
    assert error.exit_code == 2
    assert "Kafka refused the login of ann" in str(error)
    assert took_s < 3
    with (
        closing(GroupReader(wrong, "words", timeout_ms=3_000)) as asking,
        pytest.raises(SecurityError, match="refused the login of ann"),
    ):
        asking.describe()


def test_the_right_settings_are_taken(secure: Secure) -> None:
    error, _ = asked(
        secure.settings(
            "BOTH", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password=PASSWORD,
            ssl_ca_location=secure.ca_file,
        )
    )
    assert error is None


@pytest.mark.parametrize(
    ("listener", "protocol", "exit_code", "why"),
    [
        ("TLS", "PLAINTEXT", 2, r"speaks TLS: set security\.protocol"),
        ("BOTH", "PLAINTEXT", 2, r"speaks TLS: set security\.protocol"),
        ("OPEN", "PLAINTEXT", 3, r"security_protocol=PLAINTEXT right"),
        ("OPEN", "SSL", 3, r"security_protocol=SSL right"),
        ("BOTH", "SSL", 3, r"security_protocol=SSL right"),
        ("MUTUAL", "SSL", 2, r"ssl\.certificate\.location"),
    ],
)
def test_the_wrong_protocol_for_a_listener_is_told_by_its_setting(
    secure: Secure, listener: str, protocol: str, exit_code: int, why: str
) -> None:
    error, took_s = asked(secure.settings(listener, security_protocol=protocol, ssl_ca_location=secure.ca_file))
    assert isinstance(error, (SecurityError, KafkaUnreachableError))
    assert error.exit_code == exit_code
    assert re.search(why, str(error)), str(error)
    assert took_s < 10


def test_a_certificate_of_another_authority_is_told_at_once(secure: Secure) -> None:
    error, took_s = asked(secure.settings("TLS", security_protocol="SSL", ssl_ca_location=secure.strange_ca_file))
    assert isinstance(error, SecurityError)
    assert "ssl.ca.location" in str(error)
    assert took_s < 3


@pytest.mark.parametrize("silent", [False, True], ids=["one server", "a silent one before it"])
def test_what_is_refused_is_tried_once_and_told_whoever_is_silent(silent: bool) -> None:
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.sasl_authentication_failed, error_message="no such user", auth_bytes=b""
    )
    with (
        serving({"SaslHandshake": HANDSHAKE, "SaslAuthenticate": refused}) as server,
        socket.create_server(("127.0.0.1", 0)) as mute,
    ):
        servers = [f"127.0.0.1:{mute.getsockname()[1]}"] * silent + [str(server.address)]
        error, _ = asked(
            {
                "bootstrap.servers": ",".join(servers), "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "guess",
            }
        )
        assert isinstance(error, SecurityError)
        assert sum(isinstance(request, SaslAuthenticateRequest) for request in server.requests) == 1


def started(secure: Secure, folder: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    """The application as a process, with the listener of login and TLS."""
    app = folder / "words.py"
    app.write_text(APPLICATION)
    settings = {
        "APPLICATION_ID": "words", "BOOTSTRAP_SERVERS": secure.broker.address("BOTH"),
        "STATE_DIR": str(folder / "state"), "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "ann", "SSL_CA_LOCATION": secure.ca_file, **variables,
    }  # fmt: skip
    own = {name: value for name, value in os.environ.items() if not name.startswith("MILESTONES_")}
    return subprocess.Popen(
        [sys.executable, "-c", "from milestones.cli.main import main; main()", "-v", "run", str(app), *options],
        env=own | {f"MILESTONES_{name}": value for name, value in settings.items()},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("wrong", ["SASL_PASSWORD", "PRODUCER_SASL_PASSWORD", "RESTORE_CONSUMER_SASL_PASSWORD"])
def test_an_application_whose_login_is_refused_ends_at_once_as_badly_configured(
    secure: Secure, tmp_path: Path, wrong: str
) -> None:
    process = started(secure, tmp_path, **{"SASL_PASSWORD": PASSWORD, wrong: "guess-4712"})
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Kafka refused the login of ann" in said
    assert "guess-4712" not in said


def test_the_password_is_in_no_log_page_or_user_data_of_a_running_application(secure: Secure, tmp_path: Path) -> None:
    process = started(
        secure, tmp_path, "--stage", "m3", "--set", "metrics_port=0", "--set", "consumer_debug=all",
        SASL_PASSWORD=PASSWORD, PRODUCER_DEBUG="all", ADMIN_DEBUG="all",
    )  # fmt: skip
    said: list[str] = []
    runs = threading.Event()

    def read() -> None:
        for line in process.stdout or ():
            said.append(line)
            if "REBALANCING -> RUNNING" in line:
                runs.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert runs.wait(60)
        page = re.search(r"http://\S+/metrics", "".join(said))
        assert page is not None
        with urllib.request.urlopen(page[0], timeout=30) as answer:
            metrics = answer.read().decode()
        plain = {"bootstrap.servers": secure.broker.bootstrap_servers}
        with closing(GroupReader(plain, "words", timeout_ms=30_000)) as asking:
            group = asking.describe()
    finally:
        process.terminate()
        process.wait(60)
        reader.join(60)
        if process.stdout is not None:
            process.stdout.close()
    assert len(group.members) == 1
    everything = "".join(said) + metrics + repr(group)
    assert "kafka_" in metrics
    assert "sasl.password = [redacted]" in everything
    assert PASSWORD not in everything
