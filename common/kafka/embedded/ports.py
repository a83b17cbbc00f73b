"""Finds free ports on the loopback interface.

*Guarantees*: a returned port was free a moment ago. It lies below the range from which the system takes ports for
outgoing connections. Otherwise a client that tries to reach a stopped broker might get the broker's own port, connect
to itself, and so prevent the broker's restart.
*Assumes*: another process may take the port before the broker's start. Then the caller tries another port.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Container
from pathlib import Path

from milestones.common.kafka.embedded.errors import EmbeddedKafkaError
from milestones.common.kafka.embedded.properties import HOST

_LOWEST, _HIGHEST = 15_000, 32_000
_TRIES = 200


def is_free(port: int) -> bool:
    """True if a server could listen on `port` of the loopback interface now. Raises `EmbeddedKafkaError` if this
    process isn't allowed to listen on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise EmbeddedKafkaError(f"port {port} of {HOST} can't be listened on: {error.strerror}") from error
    return True


def free_port(taken: Container[int] = ()) -> int:
    highest = min(_HIGHEST, _first_outgoing_port() - 1)
    for _ in range(_TRIES):
        port = random.SystemRandom().randint(min(_LOWEST, highest - 1000), highest)
        if port not in taken and is_free(port):
            return port
    raise EmbeddedKafkaError(f"no free port found on {HOST} below {highest}: name one yourself (`port`)")


def _first_outgoing_port() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
        if first > 3000:
            return first
    return _HIGHEST
