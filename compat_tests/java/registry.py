"""Topologies by name, for both sides.

*Guarantees*: a name stands once.
*Assumes*: Java has a topology of the same name that is the same, operator by operator (src/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from compat_tests.java.cases import TEXT, Records
from milestones.common.topology import StreamsBuilder, Topology


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

    def _add(self, name: str, build: Callable[[], Topology], topics: tuple[str, ...], records: Records) -> None:
        if name in self._entries:
            raise ValueError(f"there are two topologies {name}")
        self._entries[name] = Entry(name, build, dict.fromkeys(topics or ("in",), records))
