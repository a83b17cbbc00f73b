"""`milestones reset`: makes an application start over, as Kafka's `kafka-streams-application-reset` does.

*Guarantees*: nothing is changed without `--execute`, while the group has members, or while an instance on this machine
uses the state directory. If a member joins meanwhile, Kafka itself refuses the new offsets. With a topology, only the
internal topics of this topology are deleted. Without a topology, no topic is deleted that may belong to another group.
Each step is printed. After a failure, the same command can be repeated.
*Assumes*: no instance starts while the command runs. Without a topology, the principal may see the groups of all
applications whose ids begin with this application's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich.table import Table

from milestones.cli.console import OK, err, out, verbose_option
from milestones.cli.loading import load_config, load_streams
from milestones.cli.settings import config_options
from milestones.common.config import StreamsConfig
from milestones.common.errors import MilestonesError
from milestones.common.kafka.other_topics import ENDINGS
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.state.spark_folders import spark_directories
from milestones.common.task.metadata import (
    NOT_COMMITTED,
    OffsetMetadata,
    offset_entry,
    topic_entry,
    written_ids,
    written_mark,
)
from milestones.workers.settings import state_directories

if TYPE_CHECKING:
    from milestones.cli.cluster import ResetCluster
    from milestones.common.kafka.topic_metadata import Described
    from milestones.instance.application import Application


@dataclass(frozen=True)
class Target:
    """The place from which input is read once more: `earliest`, `latest`, or the first record that isn't older than a
    time."""

    text: str
    timestamp_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `earliest`, `latest`, or a time in ISO 8601. A time without an offset is in UTC. Raises `ValueError` for
        another text."""
        if text in ("earliest", "latest"):
            return cls(text)
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return cls(aware.isoformat(), int(aware.timestamp() * 1000))


@dataclass(frozen=True)
class Plan:
    """The changes that a reset will make. `offsets`: for each input partition the committed offset (or None) and the
    new offset. `metadata`: the metadata of the new offsets. `topics`: internal topics to delete. `state`: local
    directories to delete. `left_out`: topics whose names look internal and that aren't deleted, each with the reason.

    `given_up`: deleted internal topics whose lost content the application gives up. Without this, the application would
    report the loss. `directories`: the state directories in which the ids of these topics are deleted."""

    application_id: str
    offsets: dict[TopicPartition, tuple[int | None, int]]
    topics: list[str]
    state: list[Path]
    left_out: dict[str, str]
    metadata: dict[TopicPartition, str] = field(default_factory=dict)
    given_up: list[str] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)

    def is_empty(self) -> bool:
        return not (self.offsets or self.topics or self.state or self.directories)


def is_internal(topic: str, application_id: str) -> bool:
    """True if the name of `topic` is that of a changelog, repartition or subscription topic of the application."""
    return topic.startswith(f"{application_id}-") and topic.endswith(ENDINGS)


def not_ours(
    topics: Iterable[str], application_id: str, groups: Iterable[str], application: Application | None
) -> dict[str, str]:
    """Returns the topics that may belong to another group although their names look like this application's, each with
    the reason.

    If the topology is known (`application`), it decides. Without it, `rs-eu-counts-changelog` counts as a topic of the
    group `rs-eu` if there is such a group, although it may be the changelog of a store `eu-counts` of the application
    `rs`.
    """
    if application is not None:
        return {t: "the topology has no such topic" for t in topics if t not in application.internal_topics}
    longer = sorted((g for g in groups if g.startswith(f"{application_id}-")), key=len)
    return {
        topic: f"it may belong to the group {group}; name APP if it doesn't"
        for topic in topics
        for group in longer
        if is_internal(topic, group)
    }


def make_plan(
    cluster: ResetCluster,
    config: StreamsConfig,
    inputs: list[str],
    target: Target,
    keep: bool,
    application: Application | None = None,
) -> Plan:
    """Make the plan of a whole reset. Nothing is changed. `application`: the topology, if it is known. Raises
    `MilestonesError` if the application is running, or if an input topic doesn't exist."""
    application_id = config.application_id
    _refuse_members(cluster, application_id)
    partitions = cluster.partitions()
    missing = [topic for topic in inputs if topic not in partitions]
    if missing:
        raise MilestonesError(f"--input-topics: there is no topic {', '.join(missing)}")
    internal = sorted(topic for topic in partitions if is_internal(topic, application_id))
    left_out = not_ours(internal, application_id, cluster.groups(), application)
    sources = set() if application is None else application.external_topics(partitions)
    committed = cluster.committed(application_id)
    external = {p for p in committed if p.topic in partitions and p.topic not in set(internal) - sources}
    external |= {TopicPartition(topic, number) for topic in inputs for number in range(partitions[topic])}
    new = cluster.offsets(sorted(external), target.text, target.timestamp_ms)
    return Plan(
        application_id,
        {p: (committed.get(p), new[p]) for p in sorted(external)},
        [topic for topic in internal if topic not in left_out],
        [] if keep else _state_of(Path(config.state_dir).absolute(), application_id),
        left_out,
    )


def plan_of_topics(cluster: ResetCluster, config: StreamsConfig, only: list[str], target: Target) -> Plan:
    """Make the plan to begin only the topics `only` anew, after they were deleted and recreated.

    Input topics begin at the target. Internal topics are used with their present content. State and other offsets
    aren't changed. The tasks keep their stream times and commit numbers. Raises the errors of `make_plan`."""
    application_id = config.application_id
    _refuse_members(cluster, application_id)
    known = cluster.committed(application_id)
    described = cluster.look({*only, *(topic for topic, _ in known)})
    internal = [topic for topic in only if is_internal(topic, application_id)]
    inputs = [topic for topic in only if topic not in internal]
    missing = [topic for topic in inputs if topic not in described]
    if missing:
        raise MilestonesError(f"--only: there is no topic {', '.join(missing)}")
    partitions = [TopicPartition(topic, number) for topic in inputs for number in range(described[topic].partitions)]
    new = cluster.offsets(partitions, target.text, target.timestamp_ms)
    there = {at for at in known if at.topic in described}
    committed = cluster.committed_with_metadata(application_id, there.union(partitions))
    metadata = {
        at: _moved(at.topic, committed.get(at, NOT_COMMITTED), new[at], _identity(at.topic, described))
        for at in partitions
    }
    directory = Path(config.state_dir).absolute() / application_id
    _refuse_unmissed(internal, described, directory, [found.metadata for found in committed.values()])
    if internal:
        decoded = {at: OffsetMetadata.decode(found.metadata) for at, found in committed.items()}
        metadata = {at: data for at, data in decoded.items() if data != OffsetMetadata()} | metadata
        metadata = {at: _without(data, internal, described) for at, data in metadata.items()}
    old = {at: committed[at].offset if at in committed else None for at in sorted(metadata)}
    offsets = {at: (offset, new.get(at, offset or 0)) for at, offset in old.items()}
    encoded = {at: data.encode() for at, data in metadata.items()}
    forgets = state_directories(Path(config.state_dir).absolute(), application_id) if internal else []
    return Plan(application_id, offsets, [], [], {}, encoded, internal, forgets)


def _refuse_unmissed(
    internal: list[str], described: Mapping[str, Described], directory: Path, metadata: list[str]
) -> None:
    from milestones.common.state.manifest import InstanceManifest
    from milestones.instance.lost_topics import lost

    manifest = InstanceManifest.read(directory)
    on_disk = {} if manifest is None else manifest.internal_ids
    whole = sorted(set(internal) - set(lost(internal, described, on_disk, metadata)))
    if whole:
        raise MilestonesError(
            f"--only: {', '.join(whole)} is an internal topic of the application, and it has lost nothing: reset the "
            "whole application"
        )


def _without(data: OffsetMetadata, topics: Iterable[str], described: Mapping[str, Described]) -> OffsetMetadata:
    """Returns the metadata without the ids of deleted internal topics with these names."""
    former = frozenset[str]().union(*(written_ids(topic, data.written) for topic in topics))
    return replace(data, written=data.written - former | {_mark(topic, described) for topic in topics})


def _mark(topic: str, described: Mapping[str, Described]) -> str:
    id = described[topic].id if topic in described else None
    return written_mark(topic, None if id is None else number_of(id))


def _moved(topic: str, committed: OffsetAndMetadata, offset: int, topics: Mapping[str, int]) -> OffsetMetadata:
    """Returns the metadata for another offset of the topic. It keeps the times in the metadata of the committed
    offset."""
    found = OffsetMetadata.decode(committed.metadata)
    offsets = {offset_entry(topic): offset} if found.is_of(topic, committed.offset) else {}
    return replace(found, topics=topics, offsets=offsets)


def _identity(topic: str, described: Mapping[str, Described]) -> dict[str, int]:
    id = described[topic].id
    return {} if id is None else {topic_entry(topic): number_of(id)}


def _state_of(state_dir: Path, application_id: str) -> list[Path]:
    """Returns the state directories of the application on this machine: those of an instance, of workers, and of Spark
    tasks."""
    spark = sorted(spark_directories(state_dir, application_id))
    return [*state_directories(state_dir, application_id), *(path for path in spark if path.is_dir())]


def _refuse_members(cluster: ResetCluster, application_id: str) -> None:
    members = cluster.members(application_id)
    if members:
        raise MilestonesError(
            f"the group {application_id} still has members ({', '.join(members[:5])}): stop every instance; "
            "one that was killed, or is static, stays a member until session_timeout_ms is over"
        )


def execute(cluster: ResetCluster, plan: Plan) -> None:
    """Carry out the plan, in the order in which a failure does the least harm."""
    for directory in plan.directories:
        _forget(directory, plan.given_up)
        err().print(f"{directory} forgets {', '.join(plan.given_up)}", highlight=False, soft_wrap=True)
    _delete(plan.state)
    for path in plan.state:
        err().print(f"deleted {path}", highlight=False, soft_wrap=True)
    if plan.offsets:
        new_offsets = {
            partition: OffsetAndMetadata(new, plan.metadata.get(partition, ""))
            for partition, (_, new) in plan.offsets.items()
        }
        cluster.commit(plan.application_id, new_offsets)
        err().print(
            f"reset {len(plan.offsets)} offsets of the group {plan.application_id}", highlight=False, soft_wrap=True
        )
    if plan.topics:
        cluster.delete(plan.topics)
        err().print(f"deleted {len(plan.topics)} internal topics", highlight=False, soft_wrap=True)


def _forget(path: Path, topics: Iterable[str]) -> None:
    """Delete the ids of these internal topics from a state directory. No instance may use the directory meanwhile."""
    from milestones.common.state.directory import StateDirectory

    with closing(StateDirectory(path.parent, path.name)) as directory:
        directory.record_internal({t: id for t, id in directory.internal_ids.items() if t not in set(topics)})


def _delete(paths: list[Path]) -> None:
    """Lock all directories, so that no process uses them, then delete them. Raises the `StateError` of `StateDirectory`
    if one is in use; then no directory was deleted."""
    from milestones.common.state.directory import StateDirectory
    from milestones.common.state.disk import remove_tree

    with ExitStack() as locked:
        for path in paths:
            locked.callback(StateDirectory(path.parent, path.name).close)
        for path in paths:
            remove_tree(path)


def show(plan: Plan) -> None:
    if plan.offsets:
        table = Table(title=f"offsets of the group {plan.application_id}", title_justify="left", pad_edge=False)
        for heading in ("partition", "committed", "new"):
            table.add_column(heading, justify="left" if heading == "partition" else "right")
        for partition, (old, new) in plan.offsets.items():
            table.add_row(str(partition), "–" if old is None else str(old), str(new))
        out().print(table)
    for topic in plan.given_up:
        out().print(f"give up the content of the deleted topic {topic}", highlight=False, markup=False, soft_wrap=True)
    for topic in plan.topics:
        out().print(f"delete topic {topic}", highlight=False, markup=False, soft_wrap=True)
    for topic, why in plan.left_out.items():
        out().print(f"leave topic {topic}: {why}", highlight=False, markup=False, soft_wrap=True)
    for path in plan.state:
        out().print(f"delete directory {path}", highlight=False, markup=False, soft_wrap=True)


def _application(app: str | None, file: Path | None, given: dict[str, Any]) -> tuple[StreamsConfig, Application | None]:
    """Returns the settings, and the topology if the user has given APP."""
    if app is None:
        return load_config(None, file, given), None
    from milestones.instance.application import Application

    streams = load_streams(app, file, given)
    return streams.config, Application.of(streams.topology, streams.config)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@click.argument("app", required=False)
@config_options
@click.option("-i", "--input-topics", metavar="TOPIC,...", default="", help="Input topics without committed offsets.")
@click.option(
    "--to",
    "target",
    default="earliest",
    metavar="WHERE",
    show_default=True,
    help="New offsets of input topics: earliest, latest, or a time such as 2026-11-21T10:00:00Z.",
)
@click.option(
    "--only",
    metavar="TOPIC,...",
    default="",
    help="Begin only these topics anew: input topics that were deleted and recreated, or deleted internal topics, "
    "whose content is given up. Nothing else is changed.",
)
@click.option("--keep-state", is_flag=True, help="Don't delete this machine's state directory.")
@click.option("--execute/--dry-run", "really", default=False, help="Carry out the plan. By default it is only shown.")
@verbose_option
def reset(
    app: str | None,
    file: Path | None,
    given: dict[str, str],
    input_topics: str,
    target: str,
    only: str,
    keep_state: bool,
    really: bool,
) -> int:
    """Make an application start over.

    Sets the offsets of its input topics, deletes its internal topics (changelogs, repartition topics), and deletes its
    state directory on this machine. Stop all instances before. Output topics aren't changed. State directories on other
    machines, and other state directories here, aren't deleted: delete them before you start the application.

    With APP (see `milestones run --help`) the command knows the internal topics exactly. Without APP it finds them by
    their names. Then it doesn't delete topics that may belong to another group, such as `rs-eu-counts-changelog` if
    there is a group `rs-eu`.

    \b
    Examples:
      milestones reset -a words -b localhost:9092             shows the plan
      milestones reset -a words -b localhost:9092 --execute   does it
      milestones reset words.py -a words --execute            with its exact topics
      milestones reset -c words.toml --to 2026-11-21T10:00:00Z --execute
      milestones reset -c words.toml --only lines --execute   begins the topic lines, made anew, and keeps state
      milestones reset -a words --only words-counts-changelog --execute   begins without the deleted changelog
    """
    from milestones.cli.cluster import ResetCluster

    try:
        where = Target.parse(target)
    except ValueError as error:
        raise click.BadParameter(
            f"{target!r} is neither earliest, latest nor a time: {error}", param_hint="--to"
        ) from error
    config, application = _application(app, file, given)
    cluster = ResetCluster(config)
    anew = _names(only)
    if anew:
        plan = plan_of_topics(cluster, config, anew, where)
    else:
        plan = make_plan(cluster, config, _names(input_topics), where, keep_state, application)
    show(plan)
    if plan.is_empty():
        err().print(f"nothing to reset: {config.application_id} has no offsets, internal topics or local state here")
    elif really:
        execute(cluster, plan)
    else:
        err().print("nothing was changed: this is the plan; --execute does it")
    return OK
