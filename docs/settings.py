"""`common/config/settings.py`, made from the table of keys: `python -m docs.settings` writes it.

*Guarantees*: the file says what the table says, and what librdkafka takes; a test compares them.
*Assumes*: the annotations of `value_types.py` use no names but those that `_HEAD` imports or defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milestones.common.config import KEYS
from milestones.common.config.librdkafka_names import CONSUMER, EVERY_CLIENT, PRODUCER
from milestones.common.config.passthrough import PREFIXES, SECURITY, TOPIC_SETTINGS, split, why_not

FILE = Path(__file__).parents[1] / "common" / "config" / "settings.py"

_HEAD = '''\
"""The settings as keywords, so that type checkers and editors know them. Made: `python -m docs.settings` writes it.

*Guarantees*: each key has the type of all values that are read for it, so that a right program has no error.
*Assumes*: librdkafka's settings are those of `librdkafka_names.py`. Others can be given as `**{name: value}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

from milestones.common.assignment.rules import Assignor
from milestones.common.topology.handlers import Handler
from milestones.common.topology.nodes import OffsetReset
from milestones.common.topology.timestamps import TimestampExtractor
from milestones.common.topology.wrapping import ProcessorWrapper
from milestones.common.typed_serdes import SerdeLike

Names: TypeAlias = str | list[str] | tuple[str, ...]
"""Several names; as text with commas."""
Words: TypeAlias = Names | set[str] | frozenset[str]
"""Several names whose order means nothing."""
Passed: TypeAlias = str | int | float | bool
"""A value for librdkafka, or for a topic."""


class PassedSettings(TypedDict, total=False):
    """Settings that are passed on: to Kafka's clients, by librdkafka's names, and to internal topics."""

'''

_OWN = '''

class StreamsSettings(PassedSettings, total=False):
    """The settings as keywords, for a function of yours with `**settings: Unpack[StreamsSettings]`: all keys of
    [Configuration](configuration.md), and those that are passed on to Kafka's clients and to internal topics. So type
    checkers know each key, and the type of the values that it takes."""

'''


def source() -> str:
    """The file."""
    passed = "".join(f"    {name}: Passed\n" for name in sorted(passed_names()))
    return _HEAD + passed + _OWN + "".join(f"    {name}: {key.kind.takes}\n" for name, key in KEYS.items())


def passed_names() -> Iterator[str]:
    """The keys that are passed on, as far as their names say it."""
    yield from (f"topic_{_underscored(name)}" for name in TOPIC_SETTINGS)
    for name in EVERY_CLIENT:
        if split(_underscored(name)) == ("", name) and _may_pass("", name):
            yield _underscored(name)
    for prefix, clients in PREFIXES.items():
        own = {"producer": PRODUCER, "admin": frozenset[str]()}
        for name in EVERY_CLIENT.union(*(own.get(client, CONSUMER) for client in clients)) if clients else ():
            if _may_pass(prefix, name) and (_may_pass("", name) or not name.startswith(_SECURITY)):
                yield prefix + _underscored(name)


_SECURITY = tuple(each.replace("_", ".") for each in SECURITY)


def _may_pass(prefix: str, name: str) -> bool:
    """Whether the name isn't refused; one of SASL's has a value that isn't."""
    return why_not(prefix, name, "PLAIN") is None


def _underscored(name: str) -> str:
    return name.replace(".", "_")


if __name__ == "__main__":
    FILE.write_text(source())
