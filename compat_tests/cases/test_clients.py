"""The Kafka clients of an instance: how many there are, however many threads it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.cases.steps import TIDY, proxy_of
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

LIBRDKAFKA = "rdk:main"
"""The name of the thread that each client of librdkafka has one of."""


def librdkafka_clients(app: Instance) -> int:
    names = [task.read_text().strip() for task in Path(f"/proc/{app.pid}/task").glob("*/comm")]
    return names.count(LIBRDKAFKA)


@pytest.mark.broker_faults
@pytest.mark.short_under("at_least_once")
def test_an_instance_that_leads_its_group_has_one_admin_client_however_many_threads_it_has(world: World) -> None:
    """It makes topics, asks for lags, purges, looks at topics and, at least once, asks for the ends of changelogs."""
    proxy = proxy_of(world)
    world.input("in", 4, out=4).send(world.groups(500, 100, 50))
    settings: Settings = {"num_stream_threads": 4, "bootstrap_servers": proxy.bootstrap_servers, **TIDY}
    app = world.instance("count-by-value", **settings).start()
    world.processed([BY_VALUE_REPARTITION])

    world.feeds["in"].send(world.groups(500, 100, 50))
    world.processed([BY_VALUE_REPARTITION])

    def one_admin_client() -> object:
        """Besides a consumer, a producer and a restore consumer per thread that polls; their ids may hide no other
        client."""
        ids, clients = {one.client_id for one in proxy.connections()}, librdkafka_clients(app)
        polling = sum(client.endswith("-producer") for client in ids)
        admins = [client for client in ids if client.endswith("-admin")]
        right = len(admins) == 1 and admins[0].endswith("-housekeeper-admin") and clients <= 3 * polling + 1
        return right or NotYet(f"{clients} clients of librdkafka, connections of {sorted(ids)}")

    world.wait(one_admin_client, "one admin client is left of all that were")
    print(f"{librdkafka_clients(app)} clients, {len(proxy.connections())} connections")
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])
