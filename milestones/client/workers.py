"""Runs a client as one of several workers, or a program as the parent of workers.

*Guarantees*: a worker has settings of its own before its start. In a worker `run` doesn't return: the process ends with
the exit code, so that what follows `run` in a program runs only in the parent.
*Assumes*: it is called in the main thread of the process.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milestones.client.logs import log_to_stderr
from milestones.client.process_runner import refuse_other_threads
from milestones.common.diagnostics import text_of
from milestones.common.errors import MilestonesError
from milestones.common.kafka.topics import Cluster
from milestones.workers.counting import cores, parse_workers
from milestones.workers.link import ParentLink
from milestones.workers.parent import WorkersParent
from milestones.workers.place import COUNTS_PARTITIONS, WorkerPlace, inherited
from milestones.workers.program import same_program
from milestones.workers.settings import place_of, worker_config, worker_folder

if TYPE_CHECKING:
    from milestones.client.streams import Streams
    from milestones.common.config import StreamsConfig
    from milestones.common.metrics import MetricsEndpoint

log: Final = logging.getLogger(__name__)


def run_with_workers(streams: Streams, workers: int | str) -> int:
    """Run the program with this number of workers, and return the exit code. An error is logged, and is set as the
    error of the client."""
    found = inherited()
    config = streams.config
    if found is not None:
        log_to_stderr(config.log_level, config.log_format, worker=str(found.place))
        try:
            become_worker(streams, found.place, ParentLink(found))
        except MilestonesError as error:
            raise SystemExit(_logged(streams, error)) from error
        raise SystemExit(streams.run())
    refuse_other_threads()
    count = parse_workers(workers)
    number = cores() if count is None else count
    if number == 1:
        return streams.run()
    command = same_program()
    log_to_stderr(config.log_level, config.log_format)
    try:
        return WorkersParent(lambda _: command, number, lambda *_: None, auto=count is None).run()
    except MilestonesError as error:
        return _logged(streams, error)


def _logged(streams: Streams, error: MilestonesError) -> int:
    streams._supervisor.error = error
    log.error("%s", text_of(error))
    return error.exit_code


def become_worker(streams: Streams, place: WorkerPlace, link: ParentLink | None) -> None:
    """Give a client that hasn't started the settings of a worker, and wait until all workers may start. Ends the
    process if it only counts partitions. `link`: None if the process has no parent."""
    given = streams.config
    if place.number == COUNTS_PARTITIONS and link is not None:
        link.report_partitions(most_partitions(streams))
        raise SystemExit(0)
    own = streams.with_config(worker_config(given, place))
    if link is not None:
        address, report = link.wait_for_go(given), link.report_port

        def served(endpoint: MetricsEndpoint) -> str | None:
            report(endpoint.port)
            return address

        own._supervisor.served = served
    streams._become(own)


def own_state_dir(config: StreamsConfig) -> str | Path:
    """Return the state directory of this process, also before `run` has given a worker its settings."""
    found = inherited() if place_of(config) is None else None
    return config.state_dir if found is None else worker_folder(config.state_dir, max(1, found.place.number))


def most_partitions(streams: Streams) -> int:
    """Ask Kafka for the inputs of the application, and return the number of partitions of the largest one."""
    config, application = streams.config, streams._application
    cluster = Cluster(config.admin_settings(f"{config.application_id}-partitions"))
    existing = cluster.partition_counts(None if application.source_patterns else application.named_topics)
    return max((existing[topic] for topic in application.external_topics(existing) if topic in existing), default=1)
