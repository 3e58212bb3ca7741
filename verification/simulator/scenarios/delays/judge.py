"""Compares the committed records about delayed messages with the records in the target topics, and with the
answers to clients.

Decides: whether rules D1 to D6 hold. Leaves to others: the checks at the end of a run (``part``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from delayed.records import (
    KINDS,
    OUTCOME_HEADER,
    TOPIC,
    Change,
    ChangeKey,
    Lane,
    LaneKey,
    Message,
    MessageKey,
)
from raftlog.errors import RaftlogError
from raftlog.types import GroupId
from verification.simulator.clocks import RIGHT_MS
from verification.simulator.machine import Machine
from verification.simulator.originals import Original
from verification.simulator.patient_judge import PatientJudge, Place
from verification.simulator.refusals import Attempts
from verification.simulator.result import Broken
from verification.simulator.scenarios.delays.odds import FLEETING, REMINDERS, SHRINKING
from verification.simulator.simulated_cluster import SimulatedCluster

ONCE: Final = "D1 a message is in its topic once"
EARLY: Final = "D2 no message is early"
CANCELLED: Final = "D3 a cancelled message is never in its topic"
LEFT: Final = "D4 a message leaves when it is in its topic"
ASSIGNED: Final = "D5 a batch is stored as an assignment before it is sent"
ANSWERED: Final = "D6 answers about a message agree with what is committed"
REFUSED: Final = "D6 a message whose addition or cancellation is refused as not done has none"
REDIRECTED: Final = "D4 a message for a decommissioned partition goes to another one, and only such a message"


Asked = tuple[Literal["add", "cancel"], bytes]
"""A request about a message: the kind of request, and the message's id."""


@dataclass(slots=True)
class Known:
    """The state of one message according to the committed records."""

    message: Message
    due_ms: int
    partition: int  # its target
    times: set[int] = field(default_factory=set)  # all that it has had
    changes: list[int] = field(default_factory=list)  # the times that it has got since it was accepted
    failed: str = ""
    outcome: str = ""
    was_assigned: bool = False
    redirections: int = 0


class Judge(PatientJudge):
    """Receives every committed batch in order, and every answer to a client, and checks D1 to D6."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, TOPIC, REMINDERS, FLEETING, SHRINKING)
        self.known: dict[bytes, Known] = {}
        self.lanes: dict[tuple[int, LaneKey], Lane] = {}
        self.arrived: dict[bytes, Place] = {}
        self.on_assigned: Callable[[Machine, Place], None] = lambda machine, target: None
        self.on_arrived: Callable[[int], None] = lambda partition: None
        self._asked: Attempts[Asked] = Attempts(REFUSED)
        self._owner: dict[bytes, int] = {}  # which partition of ``__delayed`` has a message

    # What is committed.

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Process newly committed batches of a group."""
        record = self._cluster.checker.groups[group_id]
        place = self.place_of(record)
        if place is None:
            return
        for batch in self.newly_committed(place, record):
            if place[0] == TOPIC:
                self.checked(partial(self._take, machine, place[1], batch))
            else:
                self.checked(partial(self._arrive, place, batch))
        self.check_waiting()

    def _take(self, machine: Machine, partition: int, batch: Original) -> None:
        """Process the records of a batch of ``__delayed``. After a violation the remaining records are still
        processed.
        """
        broken: Broken | None = None
        for record in batch.records:
            row = KINDS.decoded(record.key, record.value)
            assert row is not None
            self._cluster.trace.note(None, f"{row[0]} {row[1]}")
            outcome = dict(record.headers).get(OUTCOME_HEADER) or b""
            try:
                match row:
                    case MessageKey(id_), Message() as message:
                        self._accept(partition, id_, message)
                    case MessageKey(id_), _:
                        self._leave(id_, outcome.decode())
                    case ChangeKey(id_), Change() as change:
                        self._change(id_, change)
                    case LaneKey() as key, lane:
                        assert lane is None or isinstance(lane, Lane)
                        self._assign(machine, partition, key, lane, record.timestamp_ms)
            except Broken as found:
                broken = broken or found
        if broken is not None:
            raise broken

    def _accept(self, partition: int, id_: bytes, message: Message) -> None:
        if id_ in self.known:
            raise Broken(ONCE, f"{id_.hex()} is accepted again: {self.known[id_]}")
        self.known[id_] = Known(message, message.due_ms, message.partition, {message.due_ms})
        self._owner[id_] = partition
        self._asked.seen(("add", id_))

    def _change(self, id_: bytes, change: Change) -> None:
        known, is_on_its_way = self.known[id_], self._is_on_its_way(id_)
        is_redirected = change.partition not in (-1, known.partition)
        known.due_ms, known.failed = change.due_ms, change.failed
        known.times.add(change.due_ms)
        if is_redirected:
            known.partition = change.partition
            known.redirections += 1
        elif not change.failed:
            known.changes.append(change.due_ms)
        if known.outcome:
            raise Broken(LEFT, f"{id_.hex()} is changed after it has left: {known}")
        if is_redirected and known.message.topic != SHRINKING:
            raise Broken(REDIRECTED, f"{id_.hex()} gets another partition: {known}")
        if change.failed and known.message.topic == SHRINKING:
            raise Broken(REDIRECTED, f"{id_.hex()} has failed in place of another partition: {known}")
        if not change.failed and not is_redirected and is_on_its_way:
            raise Broken(ASSIGNED, f"{id_.hex()} gets another time on its way: {known}")

    def _leave(self, id_: bytes, outcome: str) -> None:
        known = self.known[id_]
        before, known.outcome = known.outcome, outcome
        if before:
            raise Broken(LEFT, f"{id_.hex()} leaves as {outcome}, and has left as {before}")
        if outcome == "cancelled":
            if self._is_on_its_way(id_):
                raise Broken(CANCELLED, f"{id_.hex()} is cancelled on its way")
            self.when_known(partial(self._check_absent, id_))
            self._asked.seen(("cancel", id_))
            return

        def check() -> None:
            if id_ not in self.arrived and known.message.topic != FLEETING:
                raise Broken(LEFT, f"{id_.hex()} has left as {outcome}, and its topic does not have it")

        self.when_known(check)

    def _check_absent(self, id_: bytes) -> None:
        # What has failed because its topic was deleted may have been there before.
        if id_ in self.arrived and not self.known[id_].failed:
            raise Broken(CANCELLED, f"{id_.hex()} is cancelled, and is in {self.arrived[id_]}")

    def _assign(
        self, machine: Machine, partition: int, key: LaneKey, lane: Lane | None, stamp_ms: int
    ) -> None:
        before = self.lanes.pop((partition, key), None)
        if lane is not None:
            self.lanes[partition, key] = lane
        self._check_goes_on(key, before, lane)
        if lane is None or not lane.ids:
            return
        for id_ in lane.ids:
            known = self.known[id_]
            known.was_assigned = True
            if known.outcome:
                raise Broken(ASSIGNED, f"{id_.hex()} is assigned, and has left: {known}")
            if known.due_ms > stamp_ms + RIGHT_MS:
                raise Broken(EARLY, f"{id_.hex()} is assigned at {stamp_ms}, and due at {known.due_ms}")
        if before is not None and before.ids and before.epoch == lane.epoch:
            raise Broken(ASSIGNED, f"{key}: {lane} while {before} is on its way")
        self.on_assigned(machine, (key.topic, key.partition))

    def _check_goes_on(self, key: LaneKey, before: Lane | None, after: Lane | None) -> None:
        """Check that the coordinator uses each sequence of an epoch for one delivery to the target, while the
        target exists.

        A lane may be removed when its target was deleted. Then the messages that were being delivered must
        have failed.
        """
        on_its_way = () if before is None else before.ids
        if after is None:
            lost = [id_ for id_ in on_its_way if not self.known[id_].failed]
            may_go = key.topic == FLEETING or (key.topic == SHRINKING and key.partition > 0)
            if not may_go or lost:
                raise Broken(ASSIGNED, f"{key}: {before} is removed, and {lost} have not failed")
        elif key.topic != FLEETING:
            known = before or Lane(0, 0)
            following = (known.epoch, known.sequence + (0 if after.ids else len(on_its_way)))
            is_next_epoch = (after.epoch, after.sequence) == (known.epoch + 1, 0)
            if (after.epoch, after.sequence) != following and not is_next_epoch:
                raise Broken(ASSIGNED, f"{key}: {after} follows {before}")

    def _is_on_its_way(self, id_: bytes) -> bool:
        known = self.known[id_]
        lane = self.lanes.get((self._owner[id_], LaneKey(known.message.topic, known.partition)))
        return lane is not None and id_ in lane.ids

    def _arrive(self, place: Place, batch: Original) -> None:
        """Process the records of a batch of a target topic; the value of a record is the id of its
        message.
        """
        broken: Broken | None = None
        for record in batch.records:
            id_ = record.value or b""
            again, self.arrived[id_] = self.arrived.get(id_), place
            if again is not None:
                broken = Broken(ONCE, f"{id_.hex()} is in {again}, and again in {place}")
            self.when_known(partial(self._check_arrival, id_, place))
            if id_ in self._owner:
                self.on_arrived(self._owner[id_])
        if broken is not None:
            raise broken

    def _check_arrival(self, id_: bytes, place: Place) -> None:
        known = self.known.get(id_)
        if known is None or not known.was_assigned:
            raise Broken(ASSIGNED, f"{id_.hex()} is in {place}, and was not assigned: {known}")
        if (known.message.topic, known.partition) != place:
            raise Broken(ONCE, f"{id_.hex()} is in {place}, and not for it: {known}")
        if known.outcome == "cancelled":
            raise Broken(CANCELLED, f"{id_.hex()} is in {place}, and is cancelled")

    # Requests and answers.

    def asks(self, *asked: Asked) -> None:
        """Note requests before they are first sent."""
        for each in asked:
            self._asked.sends(each)

    def refused(self, error: RaftlogError, *asked: Asked) -> None:
        """Note requests that were answered with an error."""
        for each in asked:
            self.checked(partial(self._asked.refused, each, error))

    def accepted(self, ids: tuple[bytes, ...], due_ms: tuple[int, ...]) -> None:
        """Check an accepted addition: all of its messages are committed with these due times."""

        def check() -> None:
            for id_, at_ms in zip(ids, due_ms, strict=True):
                known = self.known.get(id_)
                if known is None or at_ms not in known.times:
                    raise Broken(ANSWERED, f"{id_.hex()} is accepted for {at_ms}, committed is {known}")

        self.when_known(check)

    def cancelled(self, id_: bytes) -> None:
        """Check an accepted cancellation: the message must be committed as cancelled."""
        self._told(id_, "it is cancelled", lambda known: known.outcome == "cancelled")

    def too_late(self, id_: bytes) -> None:
        """Check an answer that a message is delivered or being delivered, which refuses a request to change
        it.
        """
        self._told(id_, "it is delivered", lambda known: known.was_assigned and known.outcome != "cancelled")

    def changes_of(self, id_: bytes) -> int:
        """Return how many changes of a message's due time are known to be committed."""
        known = self.known.get(id_)
        return 0 if known is None else len(known.changes)

    def changed(self, id_: bytes, due_ms: int, before: int) -> None:
        """Check an accepted change of a message's due time. ``before`` is the number of its changes before
        the request.
        """
        self._told(id_, f"it is due at {due_ms}", lambda known: due_ms in known.changes[before:])

    def unknown(self, id_: bytes) -> None:
        """Check that an added message is cancelled if a broker answers that it does not know the message."""
        self._told(id_, "it is unknown", lambda known: known.outcome == "cancelled")

    def _told(self, id_: bytes, what: str, holds: Callable[[Known], bool]) -> None:
        def check() -> None:
            known = self.known.get(id_)
            if known is None or not holds(known):
                raise Broken(ANSWERED, f"{id_.hex()}: {what}, as was answered; committed is {known}")

        self.when_known(check)
