"""Finds the problems of a cluster in its lists of brokers and partitions.

A broker has a problem if it is down and not decommissioned, does not answer, is not ready, has no room for
records, has closed replicas, or cannot open new replicas. A partition has a problem if it has no leader, or
if its replicas are offline or not in sync. Further problems of a partition: it belongs to an internal topic
that was created when the cluster was smaller, and waits for replicas; a transaction that should have ended
holds back its readers; or retention keeps records only because they are not archived. The module also finds
why the replicas of a broker that is down cannot be restored on other brokers. A broker's metrics and
readiness have what the broker reports about itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException

import msgspec

from api.cli.reading import Reading, answer_of, opened
from api.cli.tables import Row
from raftlog.errors import NotSent
from raftlog.units import counted
from raftlog.wire import health
from raftlog.wire.bodies import BrokerHealth, PartitionDescription, RefusedReplica
from raftlog.wire.decoding import UNREADABLE
from raftlog.wire.limits import REPLICAS_DEFAULT, TRANSACTION_MS_MAX

_TIMEOUT_S = 3.0


@dataclass(slots=True)
class Health:
    """The problems of a cluster: brokers with their free space, and partitions as topic/partition, by
    problem.
    """

    brokers: list[Row]
    down: list[int]
    without_room: list[int] = field(default_factory=list)
    partitions: int = 0
    leaderless: list[str] = field(default_factory=list)
    under_replicated: list[str] = field(default_factory=list)
    offline: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    awaiting_archive: list[str] = field(default_factory=list)
    not_restorable: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    awaiting_replicas: list[str] = field(default_factory=list)
    spare: frozenset[int] = frozenset()  # brokers that take new replicas
    in_use: int = 0  # brokers that are not decommissioned
    silent: frozenset[int] = frozenset()  # brokers that do not answer, down or not yet known to be down
    problems: list[str] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether the cluster has no problem."""
        return not self.problems

    def as_json(self) -> dict[str, object]:
        """Return all problems and counts as JSON."""
        return {
            "healthy": self.is_healthy,
            "brokers": self.brokers,
            "brokers_down": self.down,
            "brokers_without_room": self.without_room,
            "partitions": self.partitions,
            "leaderless": self.leaderless,
            "under_replicated": self.under_replicated,
            "offline_replicas": self.offline,
            "readers_held_back": self.held_back,
            "awaiting_archive": self.awaiting_archive,
            "not_restorable": self.not_restorable,
            "refused_replicas": self.refused,
            "awaiting_replicas": self.awaiting_replicas,
            "problems": self.problems,
        }

    def add_broker(self, broker: int, url: str | None, told: BrokerHealth | None) -> None:
        """Note the problems of a broker that is alive. ``told`` is its own report of its health, None if it
        does not answer.
        """
        if url is None:
            self.problems.append(
                f"broker {broker} has no listener of the scheme in use: its health is unknown"
            )
            return
        if told is None:
            self.problems.append(f"broker {broker} is alive but does not answer at {url}")
            return
        if failed := [name for name, is_met in told.checks.items() if not is_met]:
            self.problems.append(f"broker {broker} is not ready: {', '.join(failed)}")
        if (state := told.broker) is None:
            return
        if not state.takes_records:
            self.without_room.append(broker)
            self.problems.append(
                f"broker {broker} has no room and takes no records: {state.disk_free_bytes} bytes of its "
                f"disk are free, {state.disk_reserve_bytes} are reserved; add space, delete topics or "
                "records, or lower a retention"
            )
        if state.failed_replicas:
            closed = counted(state.failed_replicas, "closed replica")
            self.problems.append(f"broker {broker} has {closed}; its log says why")

    def add(self, topic: str, partition: PartitionDescription, *, is_internal: bool = False) -> None:
        """Count a partition, and note the problems of the partition."""
        name = f"{topic}/{partition.partition}"
        self.partitions += 1
        lagging = sorted({*partition.replicas} - {*partition.in_sync})
        obstacle = self._obstacle(partition)
        if obstacle:
            self.not_restorable.append(name)
            obstacle = f"; {obstacle}"
        if partition.leader is None:
            self.leaderless.append(name)
            self.problems.append(f"{name} has no leader{obstacle}")
        elif lagging:
            self.under_replicated.append(name)
            self.problems.append(
                f"{name} is under-replicated: not in sync on broker {_listed(lagging)}{obstacle}"
            )
        count = len(_wanted(partition))
        if is_internal and count < REPLICAS_DEFAULT <= self.in_use:
            self.awaiting_replicas.append(name)
            has, more = counted(count, "replica"), REPLICAS_DEFAULT - count
            self.problems.append(
                f"{name} has {has} and waits for {more} more: add this number of brokers with room"
            )
        if partition.readers_held_ms > TRANSACTION_MS_MAX:
            self.held_back.append(name)
            self.problems.append(
                f"{name} shows nothing from offset {partition.last_stable_offset} on: a transaction is open "
                f"for {partition.readers_held_ms // 60_000} minutes; see `raftlog transaction list`"
            )
        if partition.awaiting_archive_bytes:
            self.awaiting_archive.append(name)
            self.problems.append(
                f"{name} keeps {partition.awaiting_archive_bytes} bytes that retention would delete: it is "
                f"archived up to offset {partition.archived_up_to}; run its archive job"
            )
        for replica in partition.offline:
            self.offline.append(f"{name} on broker {replica.broker_id}")
            self.problems.append(f"{name} on broker {replica.broker_id} is offline: {replica.reason}")

    def add_refused(self, refused: Iterable[RefusedReplica]) -> None:
        """Note the new replicas that brokers could not open. All such replicas of a broker are one
        problem.
        """
        first: dict[int, RefusedReplica] = {}
        for one in refused:
            first.setdefault(one.broker, one)
            self.refused.append(f"{one.topic}/{one.partition} on broker {one.broker}")
        for broker, one in first.items():
            self.problems.append(
                f"broker {broker} cannot open new replicas and gets no others at the moment: "
                f"{one.topic}/{one.partition}: {one.reason}"
            )

    def _obstacle(self, partition: PartitionDescription) -> str:
        """Return why the replicas of a partition on brokers that are down cannot be restored on other
        brokers; empty if they can.
        """
        wanted = _wanted(partition)
        down = {*self.down} if partition.leader is not None else {*self.down} | self.silent
        lost = sorted({*wanted} & down)
        gone = sorted({*partition.replicas} & down)
        if lost and 2 * len(gone) >= len(partition.replicas):
            return f"without a majority it cannot be restored: start broker {_listed(gone)}"
        if lost and len(self.spare - {*wanted}) < len(lost):
            return f"no other broker can take the replica: start broker {_listed(lost)}"
        return ""


def examine(ask: Reading) -> Health:
    """Ask the cluster for all brokers and all partitions, and find the problems."""
    brokers = ask(ask.brokers.list())
    told = {each.broker_id: _told(ask.url_of(each.http)) for each in brokers if each.alive}
    down = [broker.broker_id for broker in brokers if not broker.alive]
    missed = [broker.broker_id for broker in brokers if not broker.alive and not broker.decommissioned]
    rows: list[Row] = [
        {
            "broker_id": broker.broker_id,
            "http": broker.http,
            "rack": broker.rack,
            "alive": broker.alive,
            "draining": broker.draining,
            "decommissioned": broker.decommissioned,
            "disk_free_bytes": None
            if (known := told.get(broker.broker_id)) is None or known.broker is None
            else known.broker.disk_free_bytes,
        }
        for broker in brokers
    ]
    spare = frozenset(broker.broker_id for broker in brokers if broker.alive and not broker.draining)
    silent = frozenset(broker.broker_id for broker in brokers if told.get(broker.broker_id) is None)
    problems = [f"broker {broker} is down" for broker in missed]
    in_use = sum(not broker.decommissioned for broker in brokers)
    found = Health(rows, down, spare=spare, in_use=in_use, silent=silent, problems=problems)
    for broker in brokers:
        if broker.broker_id in told:
            found.add_broker(broker.broker_id, ask.url_of(broker.http), told[broker.broker_id])
    if ask(ask.cluster.describe()).controller is not None:
        found.add_refused(ask(ask.cluster.controller()).refused_replicas or ())
    for topic in ask(ask.topics.list()):
        for partition in ask(ask.topics.partitions(topic.name)):
            found.add(topic.name, partition, is_internal=topic.internal)
    return found


def _told(url: str | None) -> BrokerHealth | None:
    """Ask a broker for its health, whether it is ready or not; None if it does not answer."""
    if url is None:
        return None
    try:
        with closing(opened(url, _TIMEOUT_S)) as http:
            answer = answer_of(http, health.READY.path, _TIMEOUT_S)
            return msgspec.json.decode(answer.body, type=BrokerHealth)
    except (OSError, NotSent, HTTPException, *UNREADABLE):
        return None


def _wanted(partition: PartitionDescription) -> list[int]:
    """Return the brokers that have the replicas of a partition, or will have them after the current move."""
    return partition.replicas if partition.reassignment is None else partition.reassignment.target


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
