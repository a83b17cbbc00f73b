"""One look at a process and at its connections, and what all looks say.

*Guarantees*: pure, but for `seen`.
*Assumes*: client ids end as Kafka Streams names its clients: `-restore-consumer`, `-consumer`, `-producer`, `-admin`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import psutil

from benchmarks.errors import BenchmarkError
from compat_tests.network.frames import Api
from compat_tests.network.proxy import OpenConnection

ROLES = ("consumer", "membership", "restore", "producer", "admin")
OTHER = "other"
ENDINGS = (("-restore-consumer", "restore"), ("-consumer", "consumer"), ("-producer", "producer"), ("-admin", "admin"))
OF_MEMBERS = frozenset({Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT})


@dataclass(frozen=True)
class Look:
    """`sockets`: connections to the broker that the process has; `roles`: of those that the broker's proxy has."""

    sockets: int
    roles: Counter[str]
    threads: int
    rss_mb: float
    pss_mb: float

    @property
    def counts(self) -> bool:
        """Whether both sides know the same connections: none was being made or closed."""
        return self.sockets == self.roles.total()


def role_of(connection: OpenConnection) -> str:
    """What a connection is for; `other` before its first request."""
    for ending, role in ENDINGS:
        if connection.client_id.endswith(ending):
            return "membership" if role == "consumer" and connection.apis & OF_MEMBERS else role
    return OTHER


def seen(process: psutil.Process, connections: Iterable[OpenConnection], port: int) -> Look:
    """The process now. `connections`: to `port`, as the other side has them."""
    made = process.net_connections("tcp")
    memory = process.memory_full_info()
    return Look(
        sockets=sum(
            one.status == psutil.CONN_ESTABLISHED and bool(one.raddr) and one.raddr.port == port for one in made
        ),
        roles=Counter(map(role_of, connections)),
        threads=process.num_threads(),
        rss_mb=memory.rss / 1e6,
        pss_mb=memory.pss / 1e6,
    )


def figures(looks: Sequence[Look], processing: int) -> dict[str, float]:
    """What looks at a process say of which so many threads call user code. `BenchmarkError` when none of them counts,
    or a connection has no role."""
    counting = [look for look in looks if look.counts]
    if not counting:
        said = "none" if not looks else f"the last: {looks[-1].sockets} sockets, {dict(looks[-1].roles)}"
        raise BenchmarkError(f"in none of {len(looks)} looks the connections of both sides were the same ({said})")
    most = max(counting, key=lambda look: look.sockets)
    if most.roles[OTHER]:
        raise BenchmarkError(f"{most.roles[OTHER]} connections have no role that is known")
    threads = max(look.threads for look in counting)
    return {
        "connections": float(most.sockets),
        **{role: float(most.roles[role]) for role in ROLES},
        "threads": float(threads),
        "other_threads": float(threads - processing),
        "rss_mb": median(look.rss_mb for look in counting),
        "pss_mb": median(look.pss_mb for look in counting),
    }
