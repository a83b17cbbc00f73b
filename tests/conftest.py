"""What all tests share: `kafka`, the bootstrap servers of one embedded broker for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.spark import PYSPARK


def pytest_report_header() -> list[str]:
    return [] if PYSPARK else ["tests of the pipeline: left out, PySpark isn't installed here (`tox -e spark` has it)"]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a real broker. Tests share it: make the names of topics and groups your own."""
    from milestones.common.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap_servers
