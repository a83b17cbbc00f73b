"""`IdentityEnum`: an enumeration for hot dictionaries.

*Guarantees*: a member is found in a dictionary without a Python call: the hash of `Enum` is one.
*Assumes*: members are singletons; they are compared and looked up, not ordered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class IdentityEnum(enum.Enum):
    """An `Enum` whose members are hashed by identity."""

    __hash__: Callable[[Any], int] = object.__hash__  # type: ignore[assignment]
