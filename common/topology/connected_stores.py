"""Stores that a supplier brings with it (KIP-401). The supplier's attribute `stores` contains their specs, or is a
method that returns the specs.

*Guarantees*: on a class, an attribute `stores` that is a property or an ordinary method is ignored: it is the user's
own.
*Assumes*: suppliers that share a store return the same `StoreSpec` object.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec


def stores_of(supplier: Any, node: str) -> tuple[StoreSpec, ...]:
    """Return the specs of the stores that the supplier brings. A class has them in an attribute, or returns them from a
    class method or a static method."""
    given = getattr(supplier, "stores", None)
    if isinstance(supplier, type) and callable(given):
        method = inspect.getattr_static(supplier, "stores")
        given = given if isinstance(method, classmethod | staticmethod) else None
    if given is None or isinstance(given, property):
        return ()
    found = given() if callable(given) else given
    specs = (found,) if isinstance(found, StoreSpec) else tuple(found) if isinstance(found, Iterable) else (found,)
    for spec in specs:
        if not isinstance(spec, StoreSpec):
            raise TopologyError(f"{node}: the stores that its supplier brings are StoreSpecs, not {spec!r}")
    return specs


