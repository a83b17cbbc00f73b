"""Each package folder of `common/` and `milestones/` has a README; the files that READMEs name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sources import ROOT, files


def packages() -> list[Path]:
    """Every folder with an `__init__.py` below `common/` and `milestones/`, links left out."""
    return [path.parent for path in files("common", "milestones") if path.name == "__init__.py"]


def named_files(text: str) -> list[str]:
    """What a README names in backticks that looks like a file, or like a folder with its slash."""
    return re.findall(r"`([\w./]+(?:\.(?:py|md|toml)|/))`", text)


def there(name: str, folder: Path) -> bool:
    return any((base / name).exists() for base in (folder, ROOT, ROOT / "milestones", ROOT / "common"))


PACKAGES = packages()
IDS = [str(folder.relative_to(ROOT)) for folder in PACKAGES]


def test_packages_are_found_and_links_are_not_followed() -> None:
    assert {"common", "common/kafka/membership", "milestones", "milestones/m1_state_updater"} <= set(IDS)
    assert "milestones/common" not in IDS


@pytest.mark.parametrize("folder", PACKAGES, ids=IDS)
def test_a_package_has_a_readme_that_says_who_owns_what_and_where_to_begin(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert text.startswith("# ")
    assert re.search(r"\bowns?\b", text)
    assert "**Where to begin.**" in text


@pytest.mark.parametrize("folder", PACKAGES, ids=IDS)
def test_a_file_that_a_readme_names_exists(folder: Path) -> None:
    names = named_files((folder / "README.md").read_text())
    assert names, "a README says which files there are"
    assert [name for name in names if not there(name, folder)] == []


@pytest.mark.parametrize("folder", PACKAGES, ids=IDS)
def test_a_readme_with_a_table_of_files_leaves_no_file_out(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    there_are = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    if re.search(r"^\| files? \|", text, re.MULTILINE):
        assert there_are <= set(named_files(text))


def test_names_of_files_and_folders_are_told_from_others() -> None:
    assert named_files("`a.py`, `b/c.md` and `d/`, but neither `Task` nor `a.b`") == ["a.py", "b/c.md", "d/"]
