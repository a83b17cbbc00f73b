"""Topologies by name, for both sides.

*Guarantees*: a name stands once.
*Assumes*: Java has a topology of the same name that is the same, operator by operator (src/).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compat_tests.java.cases import TEXT, Records
from compat_tests.java.plans import is_plan
from milestones.common.topology import StreamsBuilder, Topology

SETTINGS: Mapping[str, Mapping[str, str]] = {"headers_": {"dsl_store_format": "headers"}}
"""Settings of the topologies whose names begin so."""


def settings_of(name: str) -> dict[str, Any]:
    """The settings, by our keys, with which both sides run a topology; of a plan those that it has itself."""
    if is_plan(name):
        return dict(json.loads(name)["settings"])
    return {key: value for begin, of in SETTINGS.items() if name.startswith(begin) for key, value in of.items()}


@dataclass(frozen=True)
class Entry:
    """`build` makes the topology, a new one each time. `inputs`: what may come to which topic."""

    name: str
    build: Callable[[], Topology]
    inputs: Mapping[str, Records]


Program = Callable[[StreamsBuilder], object]


class Registry:
    """Entries in the order of their definition. The decorators name a function's topology and its input topics."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def dsl(self, name: str, *topics: str, records: Records = TEXT) -> Callable[[Program], Program]:
        """A program on a `StreamsBuilder`. `topics`: by default `in`."""

        def add(program: Program) -> Program:
            def build() -> Topology:
                builder = StreamsBuilder()
                program(builder)
                return builder.build()

            self._add(name, build, topics, records)
            return program

        return add

    def api(
        self, name: str, *topics: str, records: Records = TEXT
    ) -> Callable[[Callable[[], Topology]], Callable[[], Topology]]:
        """A function that makes a `Topology`."""

        def add(build: Callable[[], Topology]) -> Callable[[], Topology]:
            self._add(name, build, topics, records)
            return build

        return add

    def again(self, begin: str, names: Iterable[str], others: Iterable[Entry]) -> None:
        """Topologies of `others`, by names that begin so, with the settings of these names."""
        known = {entry.name: entry for entry in others}
        for name in names:
            self._enter(Entry(begin + name, known[name].build, known[name].inputs))

    def _add(self, name: str, build: Callable[[], Topology], topics: tuple[str, ...], records: Records) -> None:
        self._enter(Entry(name, build, dict.fromkeys(topics or ("in",), records)))

    def _enter(self, entry: Entry) -> None:
        if entry.name in self._entries:
            raise ValueError(f"there are two topologies {entry.name}")
        self._entries[entry.name] = entry
