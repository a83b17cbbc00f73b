"""What a binding's objects point at outlives them: rules that the bindings impose, and that no type says.

A C library keeps a pointer where Python would keep a reference. A caller that holds the object by chance hides it, so
here nothing is held that the engines don't hold themselves, and freed memory is overwritten at once.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import milestones
from milestones.common.state.engine import Engines

PACKAGE = Path(milestones.__file__).parent
FOLDERS = (PACKAGE, PACKAGE / "common", PACKAGE / "pipeline")  # the last two are links

USER = """
import gc, sys
from pathlib import Path
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.sst import SstWriter, entries

def fresh(text, *values):
    return bytes(bytearray(text % values))  # an object that nothing else holds

def check(found, numbers):
    gc.collect()
    again = [fresh(b"key-%06d", 999) for _ in range(100)]  # takes freed memory of a bound's size
    keys = [key for key, _ in found]
    assert keys == [b"key-%06d" % number for number in numbers], (keys[:3], keys[-3:], len(keys))

gc.freeze()  # no look for garbage goes through all modules again
name, directory = sys.argv[1], Path(sys.argv[2])
engine = open_engines(name).open(directory / "engine")  # the object that owns the shared caches is gone
ns = engine.open("s")
engine.apply({"s": {fresh(b"key-%06d", number): fresh(b"value-%d", number) for number in range(3000)}}, {"s": 1})
for reverse in (False, True):
    numbers = range(2999, -1, -1) if reverse else range(3000)
    check(ns.scan(None, None, reverse=reverse), numbers)
    for low in (0, 100, 1500):
        span = [number for number in numbers if low <= number < low + 700]
        check(ns.scan(fresh(b"key-%06d", low), fresh(b"key-%06d", low + 700), reverse=reverse), span)
        waiting = ns.scan(fresh(b"key-%06d", low), fresh(b"key-%06d", low + 700), reverse=reverse)
        engine.apply({"s": {fresh(b"key-%06d", low): fresh(b"new")}}, {"s": 2})
        check(waiting, span)
assert ns.get(fresh(b"key-%06d", 100)) == b"new"
for turn in range(3):  # one seeker has several reads, and a write ends it
    for low in (7, 0, 2990, 5000):
        span = [number for number in range(3000) if low <= number < low + 9]
        check(ns.scan_bounded(fresh(b"key-%06d", low), fresh(b"key-%06d", low + 9), 20), span)
    engine.apply({"s": {fresh(b"key-%06d", 2995): fresh(b"turn-%d", turn)}}, {"s": 3})
    assert ns.scan_bounded(fresh(b"key-%06d", 2995), fresh(b"key-%06d", 2996), 20)[0][1] == b"turn-%d" % turn
    bounded = ns.reader(fresh(b"key-%06d", 1000))
    for low in (7, 0, 985, 991):
        check(bounded(fresh(b"key-%06d", low), fresh(b"key-%06d", low + 9), 20), range(low, low + 9))
(directory / "files").mkdir()
writer = SstWriter(directory / "files", file_bytes=20_000)
writer.write((fresh(b"key-%06d", number), fresh(b"value-%d", number)) for number in range(3000))
check(entries(list(writer.files)), range(3000))
other = engine.open("other")
for _ in engine.ingest("other", list(writer.files)):
    pass
check(other.scan(fresh(b"key-%06d", 7), fresh(b"key-%06d", 2000)), range(7, 2000))
left = other.scan(fresh(b"key-%06d", 7), fresh(b"key-%06d", 2000))
next(left)
other.scan_bounded(fresh(b"key-%06d", 7), fresh(b"key-%06d", 9), 20)
engine.drop("other")
engine.close()
print("right")
"""


def test_an_engine_holds_all_that_its_library_points_at(any_engines: Engines, tmp_path: Path) -> None:
    # glibc overwrites what is freed, and Python takes even small objects from it.
    scribbled = {**os.environ, "MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-c", USER, any_engines.name, str(tmp_path)]
    done = subprocess.run(command, env=scribbled, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")


HELD = {
    "AccessType": "kept by those that open engines; read during the call",
    "BlockBasedOptions": "shared with the options that take it",
    "Cache": "shared with every database that uses it",
    "ChecksumType": "a value",
    "ColumnFamily": "holds the database open: let go when its namespace is released",
    "DBCompressionType": "a value",
    "DbClosedError": "an error",
    "IngestExternalFileOptions": "read during the call",
    "Options": "copied by what takes it",
    "Rdict": "closed by its engine",
    "RdictIter": "holds the database open: let go by its cursor",
    "ReadOptions": "the iterator points at the bytes of its upper bound: kept by the cursor beside the iterator",
    "SstFileWriter": "copies its options, and each key and value",
    "WriteBatch": "copies each key and value; used up by the write",
    "WriteBufferManager": "shared with every database that uses it",
    "WriteOptions": "read during the call",
}
"""By name in `rocksdict`: for how long its objects, and what they point at, are held, and by what."""


def imported(module: str) -> Iterator[str]:
    for path in {path.resolve() for folder in FOLDERS for path in folder.rglob("*.py")}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (f"import {alias.name} in {path}" for alias in node.names if alias.name == module)


def test_of_every_kind_of_object_of_the_default_library_it_is_known_how_long_it_is_held() -> None:
    assert set(imported("rocksdict")) == set(HELD)
