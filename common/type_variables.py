"""The type variables of the public API. A type that isn't given is `Any`: `KStream` alone means `KStream[Any, Any]`.

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
"""Keys of an operator's result."""
VR = TypeVar("VR", default=Any)
"""Values of an operator's result."""
VO = TypeVar("VO", default=Any)
"""Values of the other side of a join."""
