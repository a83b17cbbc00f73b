"""`IdentityEnum`: an enumeration whose members are keys of dictionaries that are used very often.

*Guarantees*: looking up a member in a dictionary calls no Python code. With a plain `Enum` its hash is a Python method.
*Assumes*: members are singletons. They are compared and looked up, not ordered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class IdentityEnum(enum.Enum):
    """An `Enum` whose members are hashed by identity."""

    __hash__: Callable[[Any], int] = object.__hash__  # type: ignore[assignment]
