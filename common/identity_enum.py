"""`IdentityEnum`: an enumeration whose members are fast keys of dictionaries.

*Guarantees*: looking up a member in a dictionary calls no Python code. A plain `Enum` computes its hash in Python.
*Assumes*: each member is a singleton. Members are compared and looked up, not ordered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class IdentityEnum(enum.Enum):
    """An `Enum` whose members are hashed by identity."""

    __hash__: Callable[[Any], int] = object.__hash__  # type: ignore[assignment]
