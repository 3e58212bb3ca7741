"""What a broker answers over HTTP must be true when it leaves the broker.

Decides: which check an answer goes through, and what every answer must carry. Leaves to others: reads
(``judge_reads``), writes (``judge_writes``), and what several answers say together (``chaos.checkers``).
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from chaos.simulator.http.committed import Committed
from chaos.simulator.http.judge_reads import judge_event, judge_fetch, judge_message, judge_offset
from chaos.simulator.http.judge_writes import judge_batches, judge_produced
from chaos.simulator.http.wire import Exchange, Wire
from raftlog.errors import Unknown, from_code
from raftlog.types import METADATA_GROUP, GroupId, TopicPartition

if TYPE_CHECKING:
    from chaos.simulator.event_loop import Process
    from chaos.simulator.machine import Machine
    from chaos.simulator.records import GroupRecord
    from chaos.simulator.simulation import Simulation

_ANSWER: Final = "A1 every answer is complete"
_RECORDS: Final = re.compile(r"/v1/topics/([^/]+)/partitions/(\d+)/(records|offsets)")
_MESSAGE: Final = re.compile(r"/v1/topics/([^/]+)/messages/(\d+)/(\d+)")
_TOPIC: Final = re.compile(r"/v1/topics/([^/]+)/records")
_BATCH: Final = "application/vnd.raftlog.batch.v1"


class Answered(NamedTuple):
    """An exchange, and what is known of its partition as the answer leaves."""

    judge: Judge
    machine: Machine
    exchange: Exchange
    target: TopicPartition
    group: GroupRecord
    committed: Committed

    def wrong(self, invariant: str, detail: str) -> None:
        """Report what the answer should not say."""
        asked = self.exchange
        where = f"{self.machine.name} {asked.method} {asked.path} {dict(asked.query)} {asked.status}"
        self.judge.simulation.violated(invariant, f"{where}: {detail}")

    @property
    def end(self) -> int:
        """One past the last committed record."""
        return self.group.committed[-1].last + 1 if self.group.committed else 0


class Judge:
    """One run's. ``committed`` has the records of each partition that clients use."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.committed: dict[int, Committed] = {}  # by group
        self._request_ids: set[str] = set()
        self._groups: dict[TopicPartition, GroupId] = {}

    def wire(self, machine: Machine, process: Process) -> Wire:
        """Looks on at one connection of a broker."""
        return Wire(
            lambda: self.simulation.loop.now,
            asked=partial(self._asked, machine, process),
            answered=partial(self._answered, machine, process),
            event=partial(self._event, machine, process),
            malformed=partial(self.simulation.violated, _ANSWER),
        )

    def group_of(self, target: TopicPartition) -> GroupRecord | None:
        """What is known of a partition's group."""
        if target not in self._groups:
            for machine in self.simulation.machines:
                topics = {} if machine.broker is None else machine.broker.controller.image.topics
                if target.topic in topics:
                    self._groups[target] = topics[target.topic].partitions[target.partition].group_id
        group_id = self._groups.get(target)
        return None if group_id is None else self.simulation.oracles.groups.get(group_id)

    def committed_of(self, group: GroupRecord) -> Committed:
        """Its records, up to now."""
        committed = self.committed.setdefault(group.group_id, Committed())
        committed.extend(group)
        return committed

    def committed_to(self, group_id: int) -> None:
        """A commit index has moved; what retention deletes later must be read by then."""
        group = self.simulation.oracles.groups.get(group_id)  # type: ignore[call-overload]
        if group is not None and group_id != METADATA_GROUP:
            self.committed_of(group)

    def _asked(self, machine: Machine, process: Process, exchange: Exchange) -> None:
        """Remember where committed records ended for everybody, and for anybody, when the request came."""
        target = _target_of(exchange.path)
        group = None if target is None else self.group_of(target)
        if group is None:
            return
        commits = [0]
        for replica in group.replicas.values():
            opened = replica.opened(group.group_id)
            if opened is not None:
                commits.append(opened.commit_index + 1)
        exchange.memory["least_end"] = min(commits[1:], default=0)
        exchange.memory["end"] = group.committed[-1].last + 1 if group.committed else 0

    def _answered(self, machine: Machine, process: Process, exchange: Exchange) -> None:
        if machine.process is not process or machine.broker is None:
            return  # it is dead, and nothing of this leaves
        self.simulation.oracles.stepped(machine)
        self._check_common(machine, exchange)
        target = _target_of(exchange.path)
        if exchange.status >= 300 and exchange.status != 307:
            self._check_problem(machine, exchange)
        known = self._known(machine, exchange, target)
        if exchange.method == "POST":
            if known is not None and exchange.headers.get("content-type") == _BATCH:
                judge_batches(known)
            elif exchange.status in (200, 207) and (
                _RECORDS.fullmatch(exchange.path) or _TOPIC.fullmatch(exchange.path)
            ):
                judge_produced(self, machine, exchange)
        elif known is not None:
            if exchange.path.endswith("/records"):
                judge_fetch(known)
            elif exchange.path.endswith("/offsets"):
                judge_offset(known)
            elif (message := _MESSAGE.fullmatch(exchange.path)) is not None:
                judge_message(known, int(message[3]))

    def _event(self, machine: Machine, process: Process, exchange: Exchange, event: bytes) -> None:
        if machine.process is process and machine.broker is not None:
            self.simulation.oracles.stepped(machine)
            known = self._known(machine, exchange, _target_of(exchange.path))
            if known is not None:
                judge_event(known, event)

    def _known(self, machine: Machine, exchange: Exchange, target: TopicPartition | None) -> Answered | None:
        group = None if target is None else self.group_of(target)
        if target is None or group is None or group.is_retired:
            return None
        return Answered(self, machine, exchange, target, group, self.committed_of(group))

    def _check_common(self, machine: Machine, exchange: Exchange) -> None:
        where = f"{machine.name} {exchange.method} {exchange.path} {exchange.status}"
        request_id = exchange.answer_headers.get("raftlog-request-id", "")
        if exchange.status >= 500 and exchange.status not in (503, 504, 507):
            self.simulation.violated(_ANSWER, f"{where}: {exchange.answer[:300]!r}")
        if exchange.status == 400 and not request_id:
            return  # aiohttp refuses what is no HTTP before anybody else sees it
        if not request_id or request_id in self._request_ids:
            self.simulation.violated(_ANSWER, f"{where}: the request id is {request_id!r}")
        self._request_ids.add(request_id)
        version = int(exchange.answer_headers.get("raftlog-metadata-version", "-1"))
        metadata = self.simulation.oracles.groups.get(METADATA_GROUP)
        end = metadata.committed[-1].last + 1 if metadata is not None and metadata.committed else 0
        if not 0 <= version <= end:
            self.simulation.violated(_ANSWER, f"{where}: metadata version {version}, committed is {end}")

    def _check_problem(self, machine: Machine, exchange: Exchange) -> None:
        """A refusal says what it is, and whether it is final, as its status does."""
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
            self.simulation.violated(_ANSWER, f"{where}: {exchange.answer[:300]!r}")


def _target_of(path: str) -> TopicPartition | None:
    found = _RECORDS.fullmatch(path) or _MESSAGE.fullmatch(path)
    return None if found is None else TopicPartition(found[1], int(found[2]))
