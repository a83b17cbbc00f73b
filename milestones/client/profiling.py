"""`ClientProfile` measures on what the tasks and threads of a client spend their time.

*Guarantees*: any thread may ask for the results at any time, also after the client's end.
*Assumes*: it is made before the client's start.
"""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, NamedTuple

from milestones.common.metrics import ClientMetrics
from milestones.common.task.profile import Profile
from milestones.common.task.timings import Timings, measured_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milestones.client.streams import Streams
    from milestones.instance.application import Application


class RunTimes(NamedTuple):
    """Times so far. `wall_ns`: the duration of the run. `cpu_ns`: the CPU time of the process. `threads`: for each
    thread, under its name without the client's, the times of its own work.
    """

    wall_ns: int
    cpu_ns: int
    tasks: Timings
    threads: Mapping[str, Timings]


class ClientProfile:
    """Measures the times of a client from its start on."""

    application: Application

    def __init__(self, streams: Streams) -> None:
        streams._before_start("a profile")
        self.application = streams._application
        self._metrics = streams._supervisor.metrics
        self._profile = self._metrics.profile = Profile()
        self._costs = measured_costs()
        self._began = perf_counter_ns(), process_time_ns()

    def times(self) -> RunTimes:
        wall_ns, cpu_ns = self._began
        clients = [f"{one.tags['client-id']}-" for one in self._metrics.scopes() if isinstance(one, ClientMetrics)]
        client = clients[0] if clients else ""
        return RunTimes(
            perf_counter_ns() - wall_ns,
            process_time_ns() - cpu_ns,
            Timings(self._profile.edges(), self._costs),
            {name.removeprefix(client): Timings(edges) for name, edges in self._profile.threads().items()},
        )
