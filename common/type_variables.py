"""The type variables of the public API. Their default is `Any`: `KStream` alone means `KStream[Any, Any]`.

*Guarantees*: type variables have no effect at run time.
*Assumes*: nothing.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

K = TypeVar("K", default=Any)
"""The type of keys."""
V = TypeVar("V", default=Any)
"""The type of values."""

KR = TypeVar("KR", default=Any)
"""The type of the keys in an operator's result."""
VR = TypeVar("VR", default=Any)
"""The type of the values in an operator's result."""
VO = TypeVar("VO", default=Any)
"""The type of the values on the other side of a join."""
