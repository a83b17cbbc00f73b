"""What all tests share: `kafka`, the bootstrap servers of one embedded broker for the whole run; temporary files, the
broker's too, in memory, where there is room (`PYTEST_DEBUG_TEMPROOT` names another place)."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from compat_tests.harness import hangs
from compat_tests.spark import PYSPARK
from milestones.common.writable import first_timestamp
from tests.shared_memory import roomy

MEMORY = roomy()
if MEMORY is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

settings.register_profile(
    "soak", max_examples=3_000, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
"""`pytest tests -k model --hypothesis-profile soak`: others each time, as long as it takes."""


def pytest_configure(config: pytest.Config) -> None:
    hangs.register(config)


def pytest_report_header() -> list[str]:
    where = f"temporary files: in {os.environ.get('PYTEST_DEBUG_TEMPROOT', tempfile.gettempdir())}"
    pipeline = "tests of the pipeline: left out, PySpark isn't installed here (`tox -e spark` has it)"
    return [where] if PYSPARK else [where, pipeline]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers must collect the same tests: an id that holds an object's address differs from process to process."""
    moving = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if moving:
        raise pytest.UsageError(f"ids of tests that change from run to run, give them names: {moving}")


@pytest.fixture(autouse=True)
def new_process() -> None:
    """What a process says once, each test hears: whichever tests ran before in the same worker."""
    first_timestamp.cache_clear()


@pytest.fixture
def quiet() -> Iterator[None]:
    """No log, for tests that fill it with what they let fail."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a real broker. Tests share it: make the names of topics and groups your own."""
    from milestones.common.kafka.embedded import EmbeddedKafka
    from milestones.common.kafka.embedded.properties import DELETES_BY_AGE

    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), properties=DELETES_BY_AGE) as broker:
        yield broker.bootstrap_servers
