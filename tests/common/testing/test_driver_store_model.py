"""The stores that a `TopologyTestDriver` gives out do what a dict does, each call committed at once."""

from __future__ import annotations

import pytest

from milestones.common import serdes
from milestones.common.state.spec import StoreSpec
from milestones.common.testing import TopologyTestDriver
from milestones.common.topology import Processor, Topology
from tests.common.task.storemodel.calls import KINDS, VALUES, Calls, Draw, Plain, Rows, Scan

SEEDS = range(8)
CALLS = 60
ONLY_IN_A_RECORD = ("fail", "within", "echo")


class Idle(Processor):
    def init(self, context: object) -> None:
        """Stores are the test's alone."""


def topology(spec: StoreSpec) -> Topology:
    built = Topology().add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    return built.add_processor("worker", Idle, "source").add_state_store(spec, "worker")


def hold(driver: TopologyTestDriver, kind: Plain, seed: int, *, persistent: bool) -> None:
    """So many calls of one store, beside a dict."""
    rows, scans, wrong = Rows(), list[Scan](), list[str]()
    store, changelog = driver.store("store"), dict[bytes | None, bytes | None]()
    calls = Calls(store, kind, rows, driver.clock.wall_ms(), scans, wrong, None)
    for call in Draw(seed).calls(CALLS):
        if call[0] in ONLY_IN_A_RECORD:
            continue
        calls.committed = None if persistent else len(rows)
        calls.perform(call)
        assert not wrong, call
    for outputs in driver.produced().values():
        changelog.update((output.key, output.value) for output in outputs)
    held = {key: value for key, value in changelog.items() if value is not None}
    assert held == {key: kind.values.encoded(row.number) for key, row in rows.items()}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("cache", [0, 1_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_drivers_store_does_what_a_dict_does(kind: str, cache: int, persistent: bool) -> None:
    for seed in SEEDS if not persistent else SEEDS[:2]:
        reference = KINDS[kind](VALUES[sorted(VALUES)[seed % len(VALUES)]])
        spec = StoreSpec(
            "store", kind, persistent=persistent, cached=cache > 0, key_serde=serdes.BYTES,
            value_serde=reference.values.serde,
        )  # fmt: skip
        with TopologyTestDriver(topology(spec), persistent=persistent, statestore_cache_max_bytes=cache) as driver:
            hold(driver, reference, seed, persistent=persistent)
