"""Audits on Spark of applications that the suite disturbs.

A second opinion on what was lost, repeated or misplaced: it reads Kafka by itself and shares no code with the oracles.
Not on semantics: its fold runs the runtime's own `Task`, so an operator that computes something wrong computes it wrong
in both. That is for the oracles, which use nothing of the runtime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compat_tests.apps.topologies import named
from compat_tests.cases.test_endurance import RECORDS, endure
from compat_tests.harness.world import World
from milestones import StreamsConfig
from milestones.pipeline.audit import AuditReport, audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEVER_MS = 3_600_000


def audited(world: World, topology: str, spark: SparkSession) -> AuditReport:
    config = StreamsConfig(
        application_id=world.application_id,
        bootstrap_servers=world.cluster.bootstrap_servers,
        processing_guarantee=world.guarantee,
    )
    return audit(named(topology)(world.application_id), spark, config=config)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_audit_of_a_hundred_thousand_records_and_ten_kills_finds_nothing(
    plain_world: World, spark: SparkSession
) -> None:
    """The repartition topic is kept, so that the order of its records is known, and everything is judged."""
    world = replace(plain_world, guarantee="exactly_once_v2")
    endure(world, repartition_purge_interval_ms=NEVER_MS)
    found = audited(world, "count-by-value", spark)
    assert (found.wrong, found.doubtful) == (0, 0), found
    assert found.records == 2 * RECORDS  # on either side of the repartition
    assert [one.actual for one in found.topics] == [RECORDS, RECORDS]  # the repartition topic and the output
    assert all(one.expected == one.actual > 0 for one in found.stores)
