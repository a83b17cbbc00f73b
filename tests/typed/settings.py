"""Settings that type checkers accept, and settings that they refuse: `python -m tests.typed` has two of them look.

*Guarantees*: each `type: ignore` stands where both checkers see an error: one that isn't needed is an error itself.
`tests/docs/test_settings.py` calls `accepted`.
*Assumes*: nothing.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import milestones
from milestones import (
    LogAndContinue,
    LogAndFail,
    ProcessorWrapper,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsSettings,
    serdes,
    wallclock_timestamp_extractor,
)
from milestones.assignment import Placement, Rules, TaskPlan
from milestones.testing import TopologyTestDriver

if TYPE_CHECKING:
    from milestones.pipeline import run_on_spark
    from milestones.pipeline.audit import audit
    from milestones.pipeline.backfill import archive_inputs, backfill
    from milestones.pipeline.snapshots import compact_changelog


class Wrapper(ProcessorWrapper):
    """Changes nothing."""


def nowhere(members: Any, plan: TaskPlan, rules: Rules) -> Placement:
    """An assignor of a user."""
    raise NotImplementedError


def own(**settings: Unpack[StreamsSettings]) -> StreamsConfig:
    """A function of a user that passes settings on."""
    return StreamsConfig(variables={"MILESTONES_APPLICATION_ID": "own"}, **settings)


def accepted(directory: Path) -> list[StreamsConfig]:
    """A right program: values of each type in each of its forms."""
    named: dict[str, Any] = {"poll_ms": 5, "producer_of_tomorrow": 1}
    given: dict[str, int] = {"poll_ms": 5}
    del named["producer_of_tomorrow"]
    return [
        own(num_stream_threads=2, poll_ms="20", metrics_port=None),
        own(processing_guarantee="exactly_once_v2", ensure_explicit_internal_resource_naming=True),
        own(processing_guarantee="EXACTLY_ONCE_V2", ensure_explicit_internal_resource_naming="true"),
        own(bootstrap_servers="a:1,b:2", milestones="m3", state_dir=directory),
        own(bootstrap_servers=["a:1", "b:2"], milestones={"state_updater"}, state_dir=str(directory)),
        own(bootstrap_servers=("a:1", "b:2"), milestones=frozenset({"state_updater"}), client_id=None),
        own(auto_offset_reset=timedelta(hours=1)),
        own(auto_offset_reset="by_duration:PT1H"),
        own(default_key_serde=str, default_value_serde=serdes.list_serde(serdes.LONG)),
        own(default_key_serde="string", default_value_serde=dict[str, int]),
        own(default_timestamp_extractor=wallclock_timestamp_extractor, processor_wrapper=Wrapper),
        own(default_timestamp_extractor=lambda record, time: time + 1, processor_wrapper=Wrapper()),
        own(processing_exception_handler="log_and_continue", production_exception_handler=LogAndFail()),
        own(processing_exception_handler=LogAndContinue("dead"), task_assignor=nowhere),
        own(topology_optimization=["merge.repartition.topics"], task_priorities={0: 4}),
        own(topology_optimization="all", task_priorities="0=4", client_tags={"zone": "a"}),
        own(client_tags="zone=a", rack_aware_assignment_tags=["zone"], snapshot_options={"allow_http": True}),
        own(producer_linger_ms=20, consumer_fetch_min_bytes="1", main_consumer_client_rack="a"),
        own(topic_segment_bytes=1 << 20, admin_socket_keepalive_enable=True, restore_consumer_check_crcs=False),
        own(security_protocol="ssl", ssl_endpoint_identification_algorithm="https"),
        own(**named),
        own(**given),  # type: ignore[arg-type]  # any of its names might be another key's
    ]


def refused(builder: StreamsBuilder, spark: Any, config: StreamsConfig) -> None:
    """Wrong keys, wrong types, wrong names."""
    print(milestones.Exceptions.END_TASK, milestones.Streems)  # type: ignore[attr-defined]  # the second one
    Streams(builder, application_id="a", pol_ms=5)  # type: ignore[call-arg]
    Streams(builder, config, producer_lingr_ms=5)  # type: ignore[call-arg]
    Streams(builder, application_id=5)  # type: ignore[arg-type]
    Streams(builder, poll_ms=0.5)  # type: ignore[arg-type]
    Streams(builder, poll_ms=None)  # type: ignore[arg-type]
    Streams(builder, state_dir=5)  # type: ignore[arg-type]
    Streams(builder, bootstrap_servers={"a:1"})  # type: ignore[arg-type]
    Streams(builder, processing_guarantee=2)  # type: ignore[arg-type]
    Streams(builder, processing_exception_handler=lambda error: None)  # type: ignore[arg-type, misc]
    Streams(builder, default_timestamp_extractor=5)  # type: ignore[arg-type]
    Streams(builder, client_tags={"zone": 1})  # type: ignore[dict-item]
    Streams(builder, producer_linger_ms=[5])  # type: ignore[arg-type]
    StreamsConfig(application_id="a", pol_ms=5)  # type: ignore[call-arg]
    StreamsConfig(application_id="a", poll_ms=0.5)  # type: ignore[arg-type]
    StreamsConfig.from_toml("words.toml", pol_ms=5)  # type: ignore[call-arg]
    config.replace(pol_ms=5)  # type: ignore[call-arg]
    TopologyTestDriver(builder, pol_ms=5)  # type: ignore[call-arg]
    TopologyTestDriver(builder, poll_ms=0.5)  # type: ignore[arg-type]
    run_on_spark(builder, spark, pol_ms=5)  # type: ignore[call-arg]
    run_on_spark(builder, spark, poll_ms=0.5)  # type: ignore[arg-type]
    audit(builder, spark, pol_ms=5)  # type: ignore[call-arg]
    backfill(builder, spark, pol_ms=5)  # type: ignore[call-arg]
    archive_inputs(builder, spark, "file:///archive", pol_ms=5)  # type: ignore[call-arg]
    compact_changelog(builder, spark, pol_ms=5)  # type: ignore[call-arg]
