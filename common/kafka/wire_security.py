"""Checks which of librdkafka's security settings the runtime's own connections support, and refuses all others.

*Guarantees*: a supported setting has the same effect as in librdkafka. Every other security setting is refused with its
name and the reason, also one that isn't listed here.
*Assumes*: settings have librdkafka's names.
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
"""Settings that would have no effect on the runtime's own connections, each with the reason for the user."""

REFUSED_FAMILIES: Mapping[str, str] = {"sasl.oauthbearer.": _OAUTH, "sasl.kerberos.": _KERBEROS}
"""More refused settings, by the beginning of their names."""

_ABOUT_SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")
_UNSET = (None, "", False, "false")

CURVES = {"p-256": "prime256v1", "p-384": "secp384r1", "p-521": "secp521r1", "secp256r1": "prime256v1"}
"""Curve names of OpenSSL's list of curves, and the names that Python's `set_ecdh_curve` accepts for them."""


def is_about_security(name: str) -> bool:
    """True if librdkafka's setting of that name is about TLS or SASL."""
    return name.startswith(_ABOUT_SECURITY)


def why_refused(name: str) -> str | None:
    """Returns the reason why the runtime's own connections don't support this setting of librdkafka. Returns None if
    they do, or if the setting isn't listed."""
    family = next((reason for prefix, reason in REFUSED_FAMILIES.items() if name.startswith(prefix)), None)
    reason = REFUSED.get(name, family)
    return None if reason is None else f"not supported for group membership: {reason}"


def refuse(settings: Mapping[str, object]) -> None:
    """Raise `ConfigError` for the first security setting that isn't supported."""
    for name, value in settings.items():
        if is_about_security(name) and name not in HONOURED and value not in _UNSET:
            raise ConfigError(name, value, why_refused(name) or "group membership doesn't know it: leave it out")


def restrict(context: ssl.SSLContext, ciphers: str | None, curves: str | None) -> None:
    """Restrict a TLS context to these cipher suites and this curve. As in librdkafka, `ciphers` concerns TLS 1.2 only.
    Raises `ConfigError` if OpenSSL or Python doesn't accept a name."""
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
