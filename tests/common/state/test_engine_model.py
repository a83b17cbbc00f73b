"""Random operations: every engine does what a dict does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from milestones.common.state.engine import Engine, Engines

NAMESPACES = ("one", "two")
KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\x00", b"a", b"ab", b"\xff\xff"])
BATCHES = st.dictionaries(KEYS, st.none() | st.binary(max_size=5), max_size=12)
BOUNDS = st.none() | KEYS

Scan = tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]


class EngineMachine(RuleBasedStateMachine):
    """An engine and its model; scans stay in work while other operations go on."""

    engines: Engines

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.engine: Engine = self.engines.open(self.directory / "engine")
        self.model: dict[str, dict[bytes, bytes]] = {}
        self.offsets: dict[str, int] = {}
        self.scans: list[Scan] = []
        self.copies = 0

    @initialize()
    def open_both(self) -> None:
        for name in NAMESPACES:
            self.engine.open(name)
            self.model.setdefault(name, {})

    @rule(batches=st.dictionaries(st.sampled_from(NAMESPACES), BATCHES), number=st.integers(0, 2**40))
    def apply(self, batches: dict[str, dict[bytes, bytes | None]], number: int) -> None:
        offsets = {name: number + place for place, name in enumerate(batches)}
        self.engine.apply(batches, offsets)
        for name, batch in batches.items():
            for key, value in batch.items():
                if value is None:
                    self.model[name].pop(key, None)
                else:
                    self.model[name][key] = value
        self.offsets.update(offsets)

    @rule(name=st.sampled_from(NAMESPACES), key=KEYS)
    def get(self, name: str, key: bytes) -> None:
        assert self.engine.open(name).get(key) == self.model[name].get(key)

    @rule(name=st.sampled_from(NAMESPACES), start=BOUNDS, end=BOUNDS, reverse=st.booleans(), read=st.integers(0, 3))
    def scan(self, name: str, start: bytes | None, end: bytes | None, reverse: bool, read: int) -> None:
        expected = sorted(
            ((k, v) for k, v in self.model[name].items() if (start or b"") <= k and (end is None or k < end)),
            reverse=reverse,
        )
        found = self.engine.open(name).scan(start, end, reverse=reverse)
        for entry in expected[:read]:
            assert next(found) == entry
        self.scans.append((found, expected[read:]))

    @rule(
        name=st.sampled_from(NAMESPACES), spans=st.lists(st.tuples(KEYS, KEYS), max_size=8),
        limit=st.integers(0, 4), beyond=BOUNDS,
    )  # fmt: skip
    def scan_bounded(self, name: str, spans: list[tuple[bytes, bytes]], limit: int, beyond: bytes | None) -> None:
        few = self.engine.open(name).scan_bounded if beyond is None else self.engine.open(name).reader(beyond)
        for start, end in spans:
            end = end if beyond is None else min(end, beyond)
            expected = sorted((k, v) for k, v in self.model[name].items() if start <= k < end)
            assert few(start, end, limit) == expected[:limit]

    @rule(name=st.sampled_from(NAMESPACES), spans=st.lists(st.tuples(KEYS, KEYS), max_size=2))
    def expire(self, name: str, spans: list[tuple[bytes, bytes]]) -> None:
        gone = [(first, beyond) for first, beyond in spans if first < beyond]
        self.engine.expire(name, gone)
        for key in list(self.model[name]):
            if any(first <= key < beyond for first, beyond in gone):
                del self.model[name][key]

    @rule()
    def finish_scans(self) -> None:
        for found, expected in self.scans:
            assert list(found) == expected
        self.scans.clear()

    @rule(name=st.sampled_from(NAMESPACES))
    def drop(self, name: str) -> None:
        self.finish_scans()
        self.engine.drop(name)
        self.engine.open(name)
        self.model[name] = {}
        self.offsets.pop(name, None)

    @rule()
    def reopen(self) -> None:
        self.finish_scans()
        self.engine.close()
        self.engine = self.engines.open(self.directory / "engine")
        if self.engines.name == "memory":
            self.model.clear()
            self.offsets.clear()
        self.open_both()

    @invariant()
    def offsets_agree(self) -> None:
        if self.model:
            assert {name: self.engine.open(name).offset() for name in NAMESPACES} == {
                name: self.offsets.get(name) for name in NAMESPACES
            }

    def teardown(self) -> None:
        if self.model:
            self.finish_scans()
            for name in NAMESPACES:
                assert list(self.engine.open(name).scan(None, None)) == sorted(self.model[name].items())
        self.engine.close()
        shutil.rmtree(self.directory)


EXAMPLES = {"memory": 30, "rocksdict": 10, "rocksdb": 10}


def test_an_engine_does_what_a_dict_does(any_engines: Engines) -> None:
    attributes: dict[str, Any] = {"engines": any_engines}
    run_state_machine_as_test(
        type("Machine", (EngineMachine,), attributes),
        settings=settings(
            max_examples=EXAMPLES[any_engines.name],
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
