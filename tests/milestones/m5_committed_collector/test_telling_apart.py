"""How the outputs of an interval are sent after Kafka has refused some of them: so that few more tries tell which."""

from __future__ import annotations

import pytest

from milestones.common.errors import RefusedTogetherError
from milestones.common.kafka.batch_isolation import BatchIsolation, suspects
from milestones.common.kafka.refusals import RefusedInTransactionError
from milestones.common.records import Output
from milestones.common.steps import to_the_end
from milestones.m5_committed_collector.recovery import MOST_SUSPECTS, SMALL_BATCH, ResendingRecovery
from tests.milestones.fakes import A, World
from tests.milestones.m5_committed_collector.collecting import ALOS, EXACTLY_ONCE, CollectorWorld


def batch(number: int, size: int = SMALL_BATCH) -> list[Output]:
    return [Output("out", 0, b"%d" % number, b"%d" % at, 5, None, "sink") for at in range(size)]


def sent_next(world: World, *batches: list[Output]) -> BatchIsolation | None:
    """How it is sent after Kafka has refused each of these batches, one try after the other."""
    recovery = ResendingRecovery(world.context, world.clients)
    for outputs in batches:
        to_the_end(recovery.recovery(RefusedTogetherError("refused", [A], outputs)))
    return world.producer.isolation


def test_a_transaction_of_which_nothing_is_known_is_sent_in_small_batches() -> None:
    world = CollectorWorld()
    recovery = ResendingRecovery(world.context, world.clients)
    to_the_end(recovery.recovery(RefusedInTransactionError("refused", single=True)))
    assert world.producer.isolation == BatchIsolation(SMALL_BATCH)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, ALOS])
def test_what_has_been_refused_together_is_sent_alone_next_all_of_it(guarantee: str) -> None:
    world = CollectorWorld(processing_guarantee=guarantee)
    both = suspects([*batch(1), *batch(2)])
    assert sent_next(world, batch(1), batch(2)) == BatchIsolation(SMALL_BATCH, both)


def test_where_all_batches_are_too_large_every_output_is_sent_alone() -> None:
    many = [batch(number) for number in range(1 + MOST_SUSPECTS // SMALL_BATCH)]
    assert sent_next(CollectorWorld(), *many) == BatchIsolation()
