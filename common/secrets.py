"""Hides the secrets of settings before they are printed.

*Guarantees*: the value of a TLS or SASL setting is hidden unless the setting is in `PUBLIC`. So the value of a misspelt
setting is hidden, too. The options and keys of snapshots are hidden. In URLs the credentials and the query are hidden.
*Assumes*: settings have the names of Kafka or of this project, with dots or underscores.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from milestones.common.public import path_of

HIDDEN = "***"

SECRETS = frozenset({"password", "passphrase", "passwd", "pem", "secret", "token", "jaas", "credential", "credentials"})
"""A setting with one of these words in its name holds a secret."""

PUBLIC = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.method",
        "sasl.username",
        "ssl.ca.certificate.stores",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.certificate.verification",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.id",
        "ssl.engine.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.providers",
        "ssl.sigalgs.list",
    }
)
"""The settings of TLS and SASL that hold no secret."""

_OF_SNAPSHOTS = re.compile(r"snapshot.*(?:option|encr|key)")
_SECURITY = re.compile(r"(?:^|\.)((?:ssl|sasl|https)\..*)")
_IN_URL = re.compile(r"(?<=://)(?:[^\s'\"]*:[^\s'\"]*|[^/\s'\"]*)@|(?<=\?)[^\s'\"?]*=[^\s'\"]*")
"""Finds, in a URL, the user with the password, and the query. The password may contain a slash, although the standard
doesn't allow this."""
_LONG_ENOUGH = 4
"""The length from which a secret is hidden everywhere in a text. A shorter one could be part of an ordinary word."""


def is_secret(name: str) -> bool:
    """True if the value of this setting must be hidden."""
    dotted = name.replace("_", ".").lower()
    security = _SECURITY.search(dotted)
    hidden = not SECRETS.isdisjoint(dotted.split(".")) or _OF_SNAPSHOTS.search(dotted) is not None
    return hidden or (security is not None and security[1] not in PUBLIC)


def shown(name: str, value: object) -> object:
    """Returns the value of a setting in a form that may be printed. A class or a function becomes `module:name`."""
    if value is None or value == "":
        return value
    if is_secret(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: shown(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(name, item) for item in value]
    if isinstance(value, type) or inspect.isroutine(value):
        return path_of(value)
    return without_credentials(value) if isinstance(value, str) else value


def without_credentials(text: str) -> str:
    """Returns `text` with user, password and query hidden in all URLs."""
    return _IN_URL.sub(lambda found: f"{HIDDEN}@" if found[0].endswith("@") else HIDDEN, text)


def scrubbed(text: str, settings: Mapping[str, object]) -> str:
    """Returns `text`, such as the error text of another library, with the secrets in `settings` hidden."""
    secrets = {str(value) for name, value in settings.items() if value is not None and is_secret(name)}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        if len(secret) >= _LONG_ENOUGH:
            text = text.replace(secret, HIDDEN)
        else:
            text = re.sub(rf"(['\"]){re.escape(secret)}\1", rf"\1{HIDDEN}\1", text)
    return without_credentials(text)
