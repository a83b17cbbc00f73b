"""The type variables of the public API. Where a type isn't known it is `Any`: `KStream` alone is `KStream[Any, Any]`.

*Guarantees*: nothing at run time.
*Assumes*: nothing.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

K = TypeVar("K", default=Any)
"""Keys."""
V = TypeVar("V", default=Any)
"""Values."""

KR = TypeVar("KR", default=Any)
"""Keys that an operator results in."""
VR = TypeVar("VR", default=Any)
"""Values that an operator results in."""
VO = TypeVar("VO", default=Any)
"""Values of the other side of a join."""
