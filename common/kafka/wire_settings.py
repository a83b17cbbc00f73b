"""`WireSettings`: reads the settings of a connection from a client configuration with confluent-kafka's names.

*Guarantees*: a security setting either has its effect, or raises `ConfigError`. Settings about other things are
ignored.
*Assumes*: values have the types that confluent-kafka accepts: strings, numbers or booleans.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from milestones.common.errors import ConfigError
from milestones.common.kafka.sasl import MECHANISMS
from milestones.common.kafka.wire_security import refuse, restrict

DEFAULT_PORT = 9092
FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Maps each `security.protocol` to two flags: uses TLS, uses SASL."""


class Address(NamedTuple):
    """Host and port of a broker. `str` returns `host:port`, with an IPv6 address in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class SaslSettings:
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class TlsSettings:
    ca_location: str | None
    ca_pem: str | None = field(repr=False)
    certificate: str | None
    key: str | None
    key_password: str | None = field(repr=False)
    verify: bool
    check_host: bool
    ciphers: str | None
    curves: str | None


@dataclass(frozen=True)
class WireSettings:
    """The settings of a connection. `socket_timeout_ms`: the longest time of one request. `connect_timeout_ms`: the
    longest time to set up a connection."""

    bootstrap: tuple[Address, ...]
    client_id: str
    socket_timeout_ms: int
    connect_timeout_ms: int
    family: int
    tls: TlsSettings | None
    sasl: SaslSettings | None
    protocol: str = "PLAINTEXT"

    @classmethod
    def of(cls, config: Mapping[str, object]) -> WireSettings:
        """Read a client configuration. Raises `ConfigError`, which names key, value and reason."""
        refuse(config)
        protocol = str(config.get("security.protocol") or "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ConfigError("security.protocol", protocol, f"expected one of {', '.join(PROTOCOLS)}")
        tls, sasl = PROTOCOLS[protocol]
        family = str(config.get("broker.address.family") or "any").lower()
        if family not in FAMILIES:
            raise ConfigError("broker.address.family", family, f"expected one of {', '.join(FAMILIES)}")
        return cls(
            bootstrap=_bootstrap(config),
            client_id=str(config.get("client.id") or "milestones"),
            socket_timeout_ms=_milliseconds(config, "socket.timeout.ms", 60_000),
            connect_timeout_ms=_milliseconds(config, "socket.connection.setup.timeout.ms", 30_000),
            family=FAMILIES[family],
            tls=_tls(config) if tls else None,
            sasl=_sasl(config) if sasl else None,
            protocol=protocol,
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, or None without TLS. Raises `ConfigError`, which names the file that can't be
        used."""
        if self.tls is None:
            return None
        t = self.tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = t.verify and t.check_host
        context.verify_mode = ssl.CERT_REQUIRED if t.verify else ssl.CERT_NONE
        try:
            if t.ca_location and t.ca_location != "probe":
                folder = Path(t.ca_location).is_dir()
                context.load_verify_locations(**{"capath" if folder else "cafile": t.ca_location})
            elif t.ca_pem:
                context.load_verify_locations(cadata=t.ca_pem)
            else:
                context.load_default_certs()
        except (OSError, TypeError, ValueError) as error:
            key = "ssl.ca.location" if t.ca_location else "ssl.ca.pem"
            raise ConfigError(key, t.ca_location, f"can't be loaded: {error}") from error
        restrict(context, t.ciphers, t.curves)
        if t.certificate:
            try:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(t.certificate, t.key, t.key_password or "")
            except (OSError, ValueError) as error:
                reason = f"can't be loaded with ssl.key.location={t.key!r}: {error}"
                raise ConfigError("ssl.certificate.location", t.certificate, reason) from error
        return context


def _bootstrap(config: Mapping[str, object]) -> tuple[Address, ...]:
    servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
    found = tuple(_address(part.strip()) for part in str(servers or "").split(",") if part.strip())
    if not found:
        raise ConfigError("bootstrap.servers", servers, "name at least one broker as HOST:PORT")
    return found


def _address(text: str) -> Address:
    """Read an address: `host`, `host:port`, `[IPv6]:port` or a bare IPv6 address. `PROTOCOL://` may stand before the
    host."""
    bare = re.sub(r"^[A-Za-z_]+://", "", text)
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", bare) or re.fullmatch(r"([^:]+)(?::(\d+))?", bare)
    if match is None and re.fullmatch(r"[0-9A-Fa-f:.]+", bare):
        return Address(bare, DEFAULT_PORT)
    port = int(match[2] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ConfigError("bootstrap.servers", text, "expected HOST:PORT, an IPv6 address as [ADDRESS]:PORT")
    return Address(match[1], port)


def _tls(config: Mapping[str, object]) -> TlsSettings:
    algorithm = str(config.get("ssl.endpoint.identification.algorithm") or "https").lower()
    if algorithm not in {"https", "none"}:
        raise ConfigError("ssl.endpoint.identification.algorithm", algorithm, "expected https or none")
    return TlsSettings(
        ca_location=_text(config, "ssl.ca.location"),
        ca_pem=_text(config, "ssl.ca.pem"),
        certificate=_text(config, "ssl.certificate.location"),
        key=_text(config, "ssl.key.location"),
        key_password=_text(config, "ssl.key.password"),
        verify=_flag(config, "enable.ssl.certificate.verification", default=True),
        check_host=algorithm == "https",
        ciphers=_text(config, "ssl.cipher.suites"),
        curves=_text(config, "ssl.curves.list"),
    )


def _sasl(config: Mapping[str, object]) -> SaslSettings:
    mechanism = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        reason = f"not supported for group membership: use one of {', '.join(MECHANISMS)}"
        raise ConfigError("sasl.mechanism", mechanism, reason)
    username, password = _text(config, "sasl.username"), _text(config, "sasl.password")
    if not username or not password:
        missing = "sasl.password" if username else "sasl.username"
        raise ConfigError(missing, None, f"needed for sasl.mechanism {mechanism}")
    return SaslSettings(mechanism, username, password)


def _text(config: Mapping[str, object], key: str) -> str | None:
    value = config.get(key)
    return None if value is None or value == "" else str(value)


def _flag(config: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    text = str(value).lower()
    if text not in {"true", "false", "1", "0"}:
        raise ConfigError(key, value, "expected true or false")
    return text in {"true", "1"}


def _milliseconds(config: Mapping[str, object], key: str, default: int) -> int:
    value = config.get(key, default)
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(key, value, "expected milliseconds, at least 1")
    return number
