"""`constraints.txt`, for installations that are the same each time: what it pins fits what the package asks for."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
PINS = dict(line.split("==") for line in LINES)
SHIPPED = ("embedded", "pydantic", "rocksdb", "snapshots", "spark")
OFTEN_THERE = {"setuptools"}
"""Which an environment has before, in a version of its own."""


def asked() -> list[Requirement]:
    """What the package asks for, with the extras that an application may have."""
    extras = [text for extra in SHIPPED for text in PROJECT["optional-dependencies"][extra]]
    found = [Requirement(text) for text in [*PROJECT["dependencies"], *extras]]
    return [one for one in found if canonicalize_name(one.name) != "milestones"]


@pytest.mark.parametrize("requirement", asked(), ids=str)
def test_what_the_package_asks_for_is_pinned_to_a_version_that_fits(requirement: Requirement) -> None:
    pinned = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned), f"{requirement} isn't {pinned}"


def test_what_pinned_packages_need_is_pinned_too() -> None:
    """As far as they are installed here in the pinned version."""
    missing: dict[str, str] = {}
    for name, version in PINS.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if installed.version != version:
            continue
        needs = [Requirement(text) for text in installed.requires or ()]
        plain = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
        for one in plain:
            if (needed := canonicalize_name(one.name)) not in PINS.keys() | OFTEN_THERE:
                missing[needed] = name
            elif needed in PINS and not one.specifier.contains(PINS[needed]):
                missing[needed] = f"{name} asks for {one.specifier}"
    assert missing == {}


def test_each_package_is_pinned_once_and_in_order() -> None:
    assert len(LINES) == len(PINS)
    assert list(PINS) == sorted(PINS)
    assert all(name == canonicalize_name(name) for name in PINS)
