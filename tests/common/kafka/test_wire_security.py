"""Our own connections honour each of librdkafka's settings about security, or refuse it by name."""

from __future__ import annotations

import ssl

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.errors import ConfigError
from milestones.common.kafka.wire_security import HONOURED, REFUSED, REFUSED_FAMILIES, is_about_security, why_refused
from milestones.common.kafka.wire_settings import WireSettings
from tests.common.librdkafka import properties, redacted

ABOUT_SECURITY = sorted({name for name in properties() if is_about_security(name)} | redacted())
TLS = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def test_librdkafka_tells_its_settings() -> None:
    assert {"ssl.key.pem", "sasl.password", "ssl.curves.list", "security.protocol"} <= set(ABOUT_SECURITY)
    assert set(ABOUT_SECURITY) >= HONOURED
    assert REFUSED.keys() - {"ssl.certificate.verify_cb"} <= set(ABOUT_SECURITY)


@pytest.mark.parametrize("name", ABOUT_SECURITY)
def test_each_setting_about_security_is_honoured_or_refused_by_name(name: str) -> None:
    assert is_about_security(name)
    if name in HONOURED:
        assert name not in REFUSED
        assert not name.startswith(tuple(REFUSED_FAMILIES))
        return
    reason = why_refused(name)
    assert reason is not None, "a new setting of librdkafka: honour it, or say why not"
    with pytest.raises(ConfigError) as caught:
        WireSettings.of({**TLS, name: "1"})
    assert caught.value.key == name
    assert caught.value.reason == reason


@pytest.mark.parametrize("prefix", ["", "consumer_", "main_consumer_", "admin_"])
@pytest.mark.parametrize("name", sorted(set(ABOUT_SECURITY) - HONOURED))
def test_a_config_refuses_under_every_prefix_what_our_own_connections_cannot_honour(name: str, prefix: str) -> None:
    key = prefix + name.replace(".", "_")
    with pytest.raises(ConfigError) as caught:
        StreamsConfig(
            application_id="words", bootstrap_servers="a:1", variables={}, security_protocol="ssl", **{key: "1"}
        )
    assert caught.value.key == key


def test_a_setting_that_a_later_librdkafka_may_have_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="doesn't know it"):
        WireSettings.of({**TLS, "ssl.quantum.proof": "true"})


def hello(**settings: str) -> dict[str, list[str]]:
    """The cipher suites and curves that a connection with these settings offers."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    context = WireSettings.of({**TLS, **named}).tls_context()
    assert context is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="a").do_handshake()
    sent = outgoing.read()[5 + 4 + 2 + 32 :]  # after the headers of record and message, version and random
    rest = sent[1 + sent[0] :]
    suites, rest = _block(rest)
    _, extensions = rest[:0], rest[1 + rest[0] + 2 :]
    curves = b""
    while extensions:
        kind = int.from_bytes(extensions[:2], "big")
        body, extensions = _block(extensions[2:])
        if kind == 10:
            curves, _ = _block(body)
    return {"suites": _pairs(suites), "curves": _pairs(curves)}


def _block(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]


def _pairs(data: bytes) -> list[str]:
    return [data[at : at + 2].hex() for at in range(0, len(data), 2)]


def test_the_cipher_suites_and_the_curve_of_the_settings_are_offered_and_no_others() -> None:
    default = hello()
    assert len(default["suites"]) > 10
    assert len(default["curves"]) > 2
    offered = hello(ssl_cipher_suites="ECDHE-RSA-AES256-GCM-SHA384", ssl_curves_list="P-384")
    of_tls_1_2 = [suite for suite in offered["suites"] if not suite.startswith("13") and suite != "00ff"]
    assert of_tls_1_2 == ["c030"]
    assert offered["curves"] == ["0018"]
    if knows_x25519():
        assert hello(ssl_curves_list="X25519")["curves"] == ["001d"]


def knows_x25519() -> bool:
    """Whether this Python's ssl can offer this curve: that of Debian 12 can't."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ecdh_curve("X25519")
    except ssl.SSLError:
        return False
    return True


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("ssl.cipher.suites", "NONESUCH", "No cipher"),
        ("ssl.curves.list", "P-384:X25519", "one curve"),
        ("ssl.curves.list", "P-1", "one curve"),
    ],
)
def test_suites_and_curves_that_cannot_be_offered_are_refused(key: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        WireSettings.of({**TLS, key: value}).tls_context()
    assert caught.value.key == key
