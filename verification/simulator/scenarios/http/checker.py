"""Checks that HTTP responses are true at the moment at which they leave the broker.

Decides: which check each response must pass, and the checks that all responses must pass. Leaves to others:
reads (``check_reads``), writes (``check_writes``), and the relations between several responses
(``chaos.checkers``).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec

from raftlog.errors import Unknown, from_code
from raftlog.types import METADATA_GROUP, TopicPartition
from verification.simulator.event_loop import Process
from verification.simulator.machine import Machine
from verification.simulator.scenarios.http.check_reads import (
    check_event,
    check_fetch,
    check_message,
    check_offset,
)
from verification.simulator.scenarios.http.check_writes import check_batches, check_produced
from verification.simulator.scenarios.http.known_partitions import Answered, KnownPartitions
from verification.simulator.scenarios.http.wire import Exchange, Wire
from verification.simulator.simulated_cluster import SimulatedCluster

_ANSWER: Final = "A1 every response is complete"
_RECORDS: Final = re.compile(r"/v1/topics/([^/]+)/partitions/(\d+)/(records|offsets)")
_MESSAGE: Final = re.compile(r"/v1/topics/([^/]+)/partitions/(\d+)/records/(\d+)")
_TOPIC: Final = re.compile(r"/v1/topics/([^/]+)/records")
_BATCH: Final = "application/vnd.raftlog.batch.v1"


class Checker:
    """Checks the HTTP responses of all brokers of a run."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.known = KnownPartitions(cluster)
        self._cluster = cluster
        self._request_ids: set[str] = set()

    def wire(self, machine: Machine, process: Process) -> Wire:
        """Return an observer for one connection of a broker."""
        return Wire(
            lambda: self._cluster.loop.now,
            asked=partial(self._asked, machine, process),
            answered=partial(self._answered, machine, process),
            event=partial(self._event, machine, process),
            malformed=partial(self._cluster.violated, _ANSWER),
        )

    def _asked(self, machine: Machine, process: Process, exchange: Exchange) -> None:
        """Record the least and the greatest committed end of all replicas at the time of the request."""
        target = _target_of(exchange.path)
        group = None if target is None else self.known.group_of(target)
        if group is None:
            return
        commits = [0]
        for replica in group.replicas.values():
            opened = replica.opened(group.group_id)
            if opened is not None:
                shown = min(opened.commit_index, opened.log.last_index)  # a full disk holds less
                commits.append(shown + 1)
        exchange.memory["least_end"] = min(commits[1:], default=0)
        exchange.memory["end"] = group.committed[-1].last + 1 if group.committed else 0

    def _answered(self, machine: Machine, process: Process, exchange: Exchange) -> None:
        if machine.process is not process or machine.broker is None:
            return  # the broker is dead, and nothing of this is sent
        self._cluster.checker.stepped(machine)
        self._check_common(machine, exchange)
        target = _target_of(exchange.path)
        if exchange.status >= 300 and exchange.status != 307:
            self._check_problem(machine, exchange)
        known = self._known(machine, exchange, target)
        if exchange.method == "POST":
            if known is not None and exchange.headers.get("content-type") == _BATCH:
                check_batches(known)
            elif exchange.status in (200, 207) and (
                _RECORDS.fullmatch(exchange.path) or _TOPIC.fullmatch(exchange.path)
            ):
                check_produced(self.known, machine, exchange)
        elif known is not None:
            if exchange.path.endswith("/records"):
                check_fetch(known)
            elif exchange.path.endswith("/offsets"):
                check_offset(known)
            elif (message := _MESSAGE.fullmatch(exchange.path)) is not None:
                check_message(known, int(message[3]))

    def _event(self, machine: Machine, process: Process, exchange: Exchange, event: bytes) -> None:
        if machine.process is process and machine.broker is not None:
            self._cluster.checker.stepped(machine)
            known = self._known(machine, exchange, _target_of(exchange.path))
            if known is not None:
                check_event(known, event)

    def _known(self, machine: Machine, exchange: Exchange, target: TopicPartition | None) -> Answered | None:
        group = None if target is None else self.known.group_of(target)
        if target is None or group is None or group.is_retired:
            return None
        return Answered(self.known, machine, exchange, target, group, self.known.committed_of(group))

    def _check_common(self, machine: Machine, exchange: Exchange) -> None:
        where = f"{machine.name} {exchange.method} {exchange.path} {exchange.status}"
        request_id = exchange.answer_headers.get("raftlog-request-id", "")
        if exchange.status >= 500 and exchange.status not in (503, 504, 507):
            self._cluster.violated(_ANSWER, f"{where}: {exchange.answer[:300]!r}")
        if exchange.status == 400 and not request_id:
            return  # aiohttp refuses invalid HTTP before other code gets it
        if not request_id or request_id in self._request_ids:
            self._cluster.violated(_ANSWER, f"{where}: the request id is {request_id!r}")
        self._request_ids.add(request_id)
        version = int(exchange.answer_headers.get("raftlog-metadata-version", "-1"))
        metadata = self._cluster.checker.groups.get(METADATA_GROUP)
        end = metadata.committed[-1].last + 1 if metadata is not None and metadata.committed else 0
        if not 0 <= version <= end:
            self._cluster.violated(_ANSWER, f"{where}: metadata version {version}, committed is {end}")

    def _check_problem(self, machine: Machine, exchange: Exchange) -> None:
        """Check that an error response has all fields of a problem, and that its definiteness agrees with its
        status.
        """
        where = f"{machine.name} {exchange.method} {exchange.path} {exchange.status}"
        try:
            body = msgspec.json.decode(exchange.answer)
            error = from_code(body["code"], body["detail"], {})
            is_right = body["status"] == exchange.status and body["retryable"] in (True, False)
            if exchange.status in (429, 503, 507) and error.retryable:
                is_right = is_right and int(exchange.answer_headers["retry-after"]) >= 1
            if (exchange.status == 504) is not isinstance(error, Unknown):
                is_right = False
        except (KeyError, TypeError, ValueError):
            is_right = False
        if not is_right:
            self._cluster.violated(_ANSWER, f"{where}: {exchange.answer[:300]!r}")


def _target_of(path: str) -> TopicPartition | None:
    found = _RECORDS.fullmatch(path) or _MESSAGE.fullmatch(path)
    return None if found is None else TopicPartition(found[1], int(found[2]))
