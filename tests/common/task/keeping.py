"""The topology that most tests of a task run: it keeps records in a store and forwards them."""

from __future__ import annotations

from typing import Any


def keep(context: Any, record: Any) -> None:
    """Put into "store", forward; "fail" raises after it has put."""
    context.get_state_store("store").put(record.key, record.value)
    context.forward(record)
    if record.value == "fail":
        raise RuntimeError("user code")


def keeping(kit: Any, **settings: Any) -> Any:
    return kit.Harness(kit.processing(keep, [kit.store()]), **settings).start()
