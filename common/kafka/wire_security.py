"""Translates librdkafka's settings about security for our own connections.

*Guarantees*: each of them is honoured as librdkafka does it, or refused by its name with the reason; one that isn't
listed here is refused too.
*Assumes*: names are librdkafka's.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from milestones.common.errors import ConfigError
from milestones.common.kafka.sasl import MECHANISMS

HONOURED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "enable.ssl.certificate.verification",
    }
)

_FILES = "give certificate and key as PEM files: ssl.certificate.location, ssl.key.location"
_ENGINES = "OpenSSL engines and providers aren't supported: leave it out"
_OAUTH = f"OAUTHBEARER isn't supported: use sasl.mechanism {', '.join(MECHANISMS)}, or a client certificate"
_KERBEROS = f"GSSAPI (Kerberos) isn't supported: use sasl.mechanism {', '.join(MECHANISMS)}, or a client certificate"

REFUSED: Mapping[str, str] = {
    "ssl.ca.certificate.stores": "certificate stores of Windows aren't supported: give ssl.ca.location",
    "ssl.certificate.pem": "give a file: ssl.certificate.location",
    "ssl.key.pem": "give a file: ssl.key.location",
    "ssl.keystore.location": f"PKCS#12 key stores aren't supported: {_FILES}",
    "ssl.keystore.password": f"PKCS#12 key stores aren't supported: {_FILES}",
    "ssl.crl.location": "revocation lists aren't supported: leave it out",
    "ssl.sigalgs.list": "Python's ssl can't choose signature algorithms: leave it out, or set it for the brokers",
    "ssl.providers": _ENGINES,
    "ssl.engine.location": _ENGINES,
    "ssl.engine.id": _ENGINES,
    "ssl.certificate.verify_cb": "callbacks belong to the runtime",
    "enable.sasl.oauthbearer.unsecure.jwt": _OAUTH,
    "https.ca.location": _OAUTH,
    "https.ca.pem": _OAUTH,
}
"""Settings that would have no effect on the group's own connection."""

REFUSED_FAMILIES: Mapping[str, str] = {"sasl.oauthbearer.": _OAUTH, "sasl.kerberos.": _KERBEROS}
"""The same, by what their names begin with."""

_ABOUT_SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")
_UNSET = (None, "", False, "false")

CURVES = {"p-256": "prime256v1", "p-384": "secp384r1", "p-521": "secp521r1", "secp256r1": "prime256v1"}
"""Names under which OpenSSL's list of curves knows those that have another name everywhere else."""


def is_about_security(name: str) -> bool:
    """True if librdkafka's setting of that name is about TLS or SASL."""
    return name.startswith(_ABOUT_SECURITY)


def why_refused(name: str) -> str | None:
    """Why our own connections can't honour this setting of librdkafka's; None when they do, or it isn't listed."""
    family = next((reason for prefix, reason in REFUSED_FAMILIES.items() if name.startswith(prefix)), None)
    reason = REFUSED.get(name, family)
    return None if reason is None else f"not supported for group membership: {reason}"


def refuse(settings: Mapping[str, object]) -> None:
    """Raise `ConfigError` for the first setting about security that can't be honoured."""
    for name, value in settings.items():
        if is_about_security(name) and name not in HONOURED and value not in _UNSET:
            raise ConfigError(name, value, why_refused(name) or "group membership doesn't know it: leave it out")


def restrict(context: ssl.SSLContext, ciphers: str | None, curves: str | None) -> None:
    """Offer these cipher suites (of TLS 1.2, as in librdkafka) and this curve only. `ConfigError`."""
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise ConfigError("ssl.cipher.suites", ciphers, f"OpenSSL can't use it: {error}") from error
    if curves is not None:
        try:
            context.set_ecdh_curve(CURVES.get(curves.lower(), curves))
        except (ValueError, ssl.SSLError) as error:
            reason = "Python's ssl takes one curve, such as P-256, P-384 or P-521, and X25519 in newer versions"
            raise ConfigError("ssl.curves.list", curves, f"not supported for group membership: {reason}") from error
