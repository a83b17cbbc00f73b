from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from kio.index import load_request_schema
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatRequest, HeartbeatResponse
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from milestones.common.errors import ConfigError, MembershipError, SecurityError
from milestones.common.kafka.wire import DEAD_AFTER, Connection, ConnectionLostError, Connector
from milestones.common.kafka.wire_settings import Address, WireSettings

ZERO = i32Timedelta.parse(timedelta())
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)  # type: ignore[arg-type]
GOOD = HeartbeatResponse(throttle_time=ZERO, error_code=ErrorCode.none)
HANDSHAKE = SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN", "SCRAM-SHA-256"))

ALGORITHM, VERIFICATION = "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"

Answer = Callable[[Any], Any]


def versions(highest: int = 20) -> ApiVersionsResponse:
    apis = tuple(ApiVersion(api_key=key, min_version=0, max_version=highest) for key in range(40))  # type: ignore[arg-type]
    return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=apis, throttle_time=ZERO)


class Server:
    """Accepts on a free port of loopback; `answer(request)` gives an entity, raw bytes, or None to hang up."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.answer, self.tls = answer, tls
        self.requests: list[Any] = []
        self._closing = False
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.address = Address(host, self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        # Wakes up the thread that waits in `accept`.
        socket.create_connection(self.address).close()
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            raw, _ = self._listener.accept()
            with raw:
                if self._closing:
                    return
                with suppress(OSError):
                    sock = raw if self.tls is None else self.tls.wrap_socket(raw, server_side=True)
                    with sock:
                        self._talk(sock)

    def _talk(self, sock: socket.socket) -> None:
        reader = sock.makefile("rb")
        with reader:
            while head := reader.read(4):
                frame = reader.read(int.from_bytes(head, "big"))
                kind = load_request_schema(int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big"))
                header, offset = entity_reader(kind.__header_schema__)(frame, 0)
                request, _ = entity_reader(kind)(frame, offset)
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    return
                if isinstance(answer, bytes):
                    sock.sendall(answer)
                    continue
                body = io.BytesIO()
                entity_writer(answer.__header_schema__)(
                    body, answer.__header_schema__(correlation_id=header.correlation_id)
                )
                entity_writer(type(answer))(body, answer)
                sock.sendall(len(body.getvalue()).to_bytes(4, "big") + body.getvalue())


@contextmanager
def serving(answers: dict[str, Any], tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Server]:
    """Answers by request name; a list is used up in turn."""
    answers = {"ApiVersions": versions(), "Heartbeat": GOOD, **answers}

    def answer(request: Any) -> Any:
        found = answers[type(request).__name__.removesuffix("Request")]
        return found.pop(0) if isinstance(found, list) else found

    server = Server(answer, tls, host)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def connected(server: Server, **config: object) -> Iterator[Connection]:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    connection = Connector(WireSettings.of({"bootstrap.servers": str(server.address), **settings}))(server.address)
    try:
        yield connection
    finally:
        connection.close()


def connect(server: Server, **config: object) -> None:
    with connected(server, **config):
        pass


def test_a_request_gets_its_answer():
    with serving({}) as server, connected(server, client_id="me") as connection:
        assert connection.call(BEAT, HeartbeatResponse, 5_000) == GOOD
        assert server.requests[-1] == BEAT


def test_an_answer_that_comes_later_is_waited_for_in_pieces():
    with serving({}) as server, connected(server) as connection:
        assert connection.receive(HeartbeatResponse, 1) is None
        connection.send(BEAT)
        answer = None
        while answer is None:
            answer = connection.receive(HeartbeatResponse, 1_000)
        assert answer == GOOD


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_ipv6_servers_are_reached():
    with serving({}, host="::1") as server, connected(server) as connection:
        assert str(server.address).startswith("[::1]:")
        assert connection.call(BEAT, HeartbeatResponse, 5_000) == GOOD


def test_the_system_notices_a_broker_that_has_vanished_within_half_a_minute():
    """What Linux calls these is what it has; where nothing is sent it would look after two hours."""
    with serving({}) as server, connected(server) as connection:
        sock = connection._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option in {"TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"} & set(dir(socket)):
            assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) == DEAD_AFTER[option]
        idle_s, every_s, times = (DEAD_AFTER[name] for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"))
        assert idle_s + every_s * times <= 30


def test_a_broker_that_does_not_answer_in_time_is_a_lost_connection():
    with serving({"Heartbeat": b""}) as server, connected(server) as connection:
        with pytest.raises(ConnectionLostError, match="within 20 ms"):
            connection.call(BEAT, HeartbeatResponse, 20)
        with pytest.raises(ConnectionLostError):
            connection.send(BEAT)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (None, "closed"),
        (b"HTTP/1.1 400 Bad Request", "security.protocol"),
        (b"\0\0\0\x05\0\0\0\x63\0", "wasn't sent"),
        (b"\0\0\0\x06\0\0\0\x02\0\0", "can't be read"),
    ],
)
def test_a_broker_that_hangs_up_or_answers_nonsense_is_a_lost_connection(frame, reason):
    raised = pytest.raises(ConnectionLostError, match=reason)
    with serving({"Heartbeat": frame}) as server, connected(server) as connection, raised:
        connection.call(BEAT, HeartbeatResponse, 5_000)


def test_nobody_at_the_address_is_a_lost_connection_that_names_it():
    with serving({}) as server:
        address = server.address
    with pytest.raises(ConnectionLostError, match=str(address.port)):
        Connector(WireSettings.of({"bootstrap.servers": str(address)}))(address)


def test_a_broker_that_is_too_old_is_named_with_what_is_needed():
    raised = pytest.raises(MembershipError, match=r"Kafka 3\.2")
    with serving({"ApiVersions": versions(highest=3)}) as server, connected(server) as connection, raised:
        connection.call(BEAT, HeartbeatResponse, 5_000)


def authenticated(data: bytes, code: ErrorCode = ErrorCode.none) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message="no such user", auth_bytes=data)


NO_SUCH_USER = authenticated(b"", ErrorCode.sasl_authentication_failed)
OTHERS_ONLY = SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("GSSAPI",))
SASL = {"security_protocol": "sasl_plaintext", "sasl_username": "ann", "sasl_password": "secret"}


def test_plain_credentials_are_sent_before_anything_else():
    with (
        serving({"SaslHandshake": HANDSHAKE, "SaslAuthenticate": authenticated(b"")}) as server,
        connected(server, sasl_mechanism="PLAIN", **SASL) as connection,
    ):
        connection.call(BEAT, HeartbeatResponse, 5_000)
        assert server.requests[2].auth_bytes == b"\0ann\0secret"


@pytest.mark.parametrize(
    ("mechanism", "handshake", "answer", "why"),
    [
        ("PLAIN", HANDSHAKE, NO_SUCH_USER, "no such user; check sasl.username"),
        ("SCRAM-SHA-512", OTHERS_ONLY, None, "GSSAPI"),
        ("SCRAM-SHA-256", HANDSHAKE, authenticated(b"r=evil,s=YWJj,i=4096"), "trusted"),
    ],
    ids=["credentials are refused", "the broker has other mechanisms", "a SCRAM server can't prove itself"],
)
def test_a_login_that_fails_says_what_to_check(mechanism, handshake, answer, why):
    raised = pytest.raises(SecurityError, match=why)
    with serving({"SaslHandshake": handshake, "SaslAuthenticate": answer}) as server, raised:
        connect(server, sasl_mechanisms=mechanism, **SASL)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def server_context(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_tls_trusts_the_authority_that_was_given(authority, ca_file):
    tls = {"security_protocol": "SSL", "ssl_ca_location": ca_file}
    with serving({}, server_context(authority)) as server, connected(server, **tls) as connection:
        assert connection.receive(HeartbeatResponse, 1) is None
        assert connection.call(BEAT, HeartbeatResponse, 5_000) == GOOD


@pytest.mark.parametrize("last", [b"", b"\x15\x03\x03\0\x02\x01\0"], ids=["without-a-word", "close-notify"])
def test_a_broker_that_ends_in_the_middle_of_a_tls_handshake_is_a_lost_connection(last):
    """A member for which it were a refusal would end for good when a broker is restarted."""

    def end() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(last)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(ConnectionLostError):
            connect(SimpleNamespace(address=Address("127.0.0.1", listener.getsockname()[1])), security_protocol="SSL")
        ending.join(10)


def test_tls_refuses_a_broker_of_another_authority_or_name(authority, ca_file):
    stranger = trustme.CA()
    with serving({}, server_context(stranger)) as server, pytest.raises(MembershipError, match=r"ssl\.ca\.location"):
        connect(server, security_protocol="SSL", ssl_ca_location=ca_file)
    elsewhere = server_context(authority, "kafka.example.org")
    with serving({}, elsewhere) as server, pytest.raises(MembershipError, match="identification"):
        connect(server, security_protocol="SSL", ssl_ca_location=ca_file)


def test_tls_checks_of_the_name_or_of_everything_can_be_switched_off(authority, ca_file):
    elsewhere = server_context(authority, "kafka.example.org")
    for off in (
        {"ssl.ca.location": ca_file, "ssl.endpoint.identification.algorithm": "none"},
        {"enable.ssl.certificate.verification": False},
    ):
        with serving({}, elsewhere) as server, connected(server, security_protocol="SSL", **off) as connection:
            assert connection.call(BEAT, HeartbeatResponse, 5_000) == GOOD


def test_tls_shows_the_client_s_certificate_and_says_so_when_it_is_missing(authority, ca_file, tmp_path):
    mine = authority.issue_cert("client@example.org")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(part.bytes() for part in mine.cert_chain_pems))
    mine.private_key_pem.write_to_path(key)
    context = server_context(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    tls = {"security_protocol": "SSL", "ssl_ca_location": ca_file}
    with serving({}, context) as server:
        with connected(server, **tls, ssl_certificate_location=str(cert), ssl_key_location=str(key)) as connection:
            assert connection.call(BEAT, HeartbeatResponse, 5_000) == GOOD
        with pytest.raises((MembershipError, ConnectionLostError)):
            connect(server, **tls)


def test_files_that_can_t_be_loaded_are_named():
    base = {"bootstrap.servers": "h", "security.protocol": "ssl"}
    for key in ("ssl.ca.location", "ssl.certificate.location"):
        with pytest.raises(ConfigError) as caught:
            WireSettings.of({**base, key: "/nowhere.pem"}).tls_context()
        assert caught.value.key == key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("SASL_SSL://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers_are_read_in_every_form_that_confluent_kafka_takes(text, expected):
    assert list(WireSettings.of({"bootstrap.servers": text}).bootstrap) == expected


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("bootstrap.servers", {"bootstrap.servers": ""}),
        ("bootstrap.servers", {"bootstrap.servers": "a:x"}),
        ("bootstrap.servers", {"bootstrap.servers": "a:70000"}),
        ("security.protocol", {"security.protocol": "TLS"}),
        ("sasl.mechanism", {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}),
        ("sasl.mechanism", {"security.protocol": "SASL_SSL"}),
        ("sasl.password", {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}),
        ("ssl.keystore.location", {"ssl.keystore.location": "x.p12"}),
        (
            "ssl.endpoint.identification.algorithm",
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"},
        ),
        (
            "enable.ssl.certificate.verification",
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "?"},
        ),
        ("broker.address.family", {"broker.address.family": "v5"}),
        ("socket.timeout.ms", {"socket.timeout.ms": "soon"}),
    ],
)
def test_settings_that_can_t_be_honoured_are_refused_by_name(key, config):
    with pytest.raises(ConfigError) as caught:
        WireSettings.of({"bootstrap.servers": "a:1", **config})
    assert caught.value.key == key


def test_a_password_is_never_printed():
    secrets = {"ssl.key.password": "hidden", "sasl.password": "hidden"}
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    assert "hidden" not in repr(WireSettings.of({"bootstrap.servers": "a", **sasl, **secrets}))
