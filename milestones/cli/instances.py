"""`InstancesObserver`: makes a status from the instances' `metrics_port` only, for times when Kafka can't be reached.

*Guarantees*: nothing is changed, and Kafka isn't asked. If an address doesn't answer, the status contains a note.
*Assumes*: one thread uses the object.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from milestones.cli.application_status import THREAD, ApplicationStatus, Member, Scraped, application_status
from milestones.cli.observing import SCRAPES_AT_ONCE, fetched, read_metrics, with_page
from milestones.common.assignment.machines import WORKER_TAG
from milestones.common.assignment.model import Assignment, Subscription
from milestones.common.errors import MilestonesError
from milestones.common.kafka.groups import DescribedGroup, DescribedMember
from milestones.common.records import GLOBAL, TaskId

NOT_ASKED = DescribedGroup("Kafka isn't asked", "consumer", "", ())
APPLICATION = re.compile(r'application_id="([^"]*)"')
STANDBY = "standby"


class InstancesObserver:
    """Asks instances for their metrics. *Owns*: the threads that ask. `addresses`: `HOST:PORT` of each instance, or the
    URL of one of its pages."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = [address.partition("://")[2] or address for address in addresses]
        self._addresses = [address.partition("/")[0] for address in self._addresses]
        self._pool = ThreadPoolExecutor(SCRAPES_AT_ONCE, thread_name_prefix="metrics")

    def first(self) -> ApplicationStatus:
        """Returns a status with at least one instance. Raises `MilestonesError` if no instance answers."""
        found = self.refresh()
        if not found.instances:
            raise MilestonesError(f"no instance answers: {'; '.join(found.notes)}")
        return found

    def refresh(self) -> ApplicationStatus:
        """Returns a status of the instances that answer now, which may be none."""
        members: list[Member] = []
        scraped: dict[str, Scraped | str] = {}
        applications: set[str] = set()
        notes: list[str] = []
        addresses = [one for found in self._pool.map(_of_workers, self._addresses) for one in found]
        for address, answer in zip(addresses, self._pool.map(_look, addresses), strict=True):
            if isinstance(answer, str):
                notes.append(answer)
                continue
            application, seen, page = answer
            member = _member(address, seen, page)
            scraped[address] = seen
            members.append(member)
            applications.add(application)
            notes.append(_lag(member.name, page["lags"]))
        return application_status(", ".join(sorted(applications)), NOT_ASKED, members, {}, scraped, notes)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _of_workers(address: str) -> list[str]:
    """Returns the addresses of the workers if a command with workers answers at this address, otherwise the address."""
    try:
        workers = orjson.loads(fetched(address, "/status"))["workers"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return [address]
    return [f"{address}/workers/{number}" for number in workers]


def _look(address: str) -> tuple[str, Scraped, dict[str, Any]] | str:
    """Returns the application's id, the values of the instance's metrics and its page `/status`. If they can't be read,
    returns the reason."""
    try:
        metrics, status = fetched(address, "/metrics"), fetched(address, "/status")
        seen = with_page(read_metrics(metrics), status)
        application = APPLICATION.search(metrics)
        if application is None or not seen.client_id:
            return f"no metrics at {address}: the address belongs to another program"
        return application[1], seen, orjson.loads(status)
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException) as error:
        return f"no metrics at {address}: {error}"


def _member(address: str, seen: Scraped, page: Mapping[str, Any]) -> Member:
    """Returns the instance as one member with the tasks of all its threads, because the page doesn't list tasks per
    thread."""
    polls = [name for name in page["threads"] if THREAD.fullmatch(name)]
    name = polls[0] if len(polls) == 1 else seen.client_id
    roles = {TaskId.parse(task): role for task, role in page["tasks"].items() if task != str(GLOBAL)}
    standby = frozenset(task for task, role in roles.items() if role == STANDBY)
    active = (roles.keys() | {TaskId.parse(task) for task in page["ended"]}) - standby
    described = DescribedMember(address, name, address.rpartition(":")[0], None, b"", b"")
    _, of_worker, worker = address.partition("/workers/")
    tags = {WORKER_TAG: worker} if of_worker else {}
    said = Subscription(address, page["stage"], len(polls), (), "", client_tags=tags)
    return Member(described, said, Assignment(frozenset(active), standby=standby))


def _lag(name: str, lags: Mapping[str, int]) -> str:
    return f"{name}: input lag {sum(lags.values()):,} in {len(lags)} partitions, as it was last known"
