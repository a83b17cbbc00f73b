"""Which public methods of stores are called.

*Guarantees*: a method does what it did.
*Assumes*: stores are made by the classes in `KINDS`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest

from milestones.common.state.spec import StoreKind
from milestones.common.state.stores.kinds import KINDS

Method = tuple[StoreKind, str]
"""A kind of store, and the name of a method."""


def count_calls(
    monkeypatch: pytest.MonkeyPatch, kinds: Collection[StoreKind], left_out: Collection[str] = ()
) -> tuple[frozenset[Method], Counter[Method]]:
    """The public methods of these kinds, except those named in `left_out`, and how often each is called from now on."""
    called: Counter[Method] = Counter()

    def counting(of: Method, method: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            called[of] += 1
            return method(*arguments, **named)

        return count

    public = {
        (kind, name): method
        for kind in kinds
        for name, method in inspect.getmembers(KINDS[kind].store, callable)
        if not name.startswith("_") and name not in left_out
    }
    for (kind, name), method in public.items():
        monkeypatch.setattr(KINDS[kind].store, name, counting((kind, name), method))
    return frozenset(public), called
