"""The command `milestones broker`: runs an embedded broker until it is stopped.

*Guarantees*: SIGINT and SIGTERM end the broker cleanly. The next run can use the same data directory.
*Assumes*: the main thread calls `run_broker`, because only the main thread can handle signals.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from milestones.common.kafka.embedded.broker import EmbeddedKafka
from milestones.common.kafka.embedded.errors import BrokerDiedError
from milestones.common.kafka.embedded.jars import Log


def run_broker(
    data_dir: Path | None = None,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    log: Log = print,
) -> int:
    """Run a broker until SIGINT or SIGTERM arrives. Returns 0.

    `data_dir`: the directory for the data, which is kept. None means a temporary directory. Raises
    `EmbeddedKafkaError` if the broker can't start, or ends by itself.
    """
    try:
        with sigterm_interrupts(), EmbeddedKafka(data_dir, port, properties, log=log) as broker:
            log(f"bootstrap.servers={broker.bootstrap_servers} - Ctrl-C ends it")
            code = broker.wait()
            raise BrokerDiedError(f"the broker ended by itself with exit code {code}; its log was {broker.log_file}")
    except KeyboardInterrupt:
        log("the broker has ended")
        return 0


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise `KeyboardInterrupt` in the main thread inside the block, as Ctrl-C does."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
