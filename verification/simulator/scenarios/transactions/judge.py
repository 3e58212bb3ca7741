"""Compares the committed records about transactions with one another, with the answers to clients, and with
replicas.

Decides: whether T2 and T4 to T6 hold, and which client requested which outcome (T1). Leaves to others: how
records follow one another (``decided``, ``partition_log``), and the end of a run (``ending``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.broker import Broker
from groups.records import KINDS as GROUP_KINDS
from groups.records import TOPIC as OFFSETS
from partitions.values import FetchResult
from raftlog.errors import RaftlogError
from raftlog.records.batch import split_batches
from raftlog.types import GroupId, NodeId, TopicPartition
from transactions.records import KINDS, TOPIC, Handle, Key, Participant, Value
from transactions.requests import BeginRun, CommitBatch, RunBegun
from verification.simulator.machine import Machine
from verification.simulator.originals import Original
from verification.simulator.patient_judge import PatientJudge
from verification.simulator.result import Broken
from verification.simulator.scenarios.transactions.decided import ONE_OUTCOME, Decided
from verification.simulator.scenarios.transactions.odds import JOURNAL, LEDGER, PASSING
from verification.simulator.scenarios.transactions.offsets import AddedOffsets
from verification.simulator.scenarios.transactions.partition_log import Numbers, PartitionLog
from verification.simulator.scenarios.transactions.sink_log import Batch
from verification.simulator.simulated_cluster import SimulatedCluster

OnRow = Callable[[NodeId, float, Key, Value | None], None]
"""A function that gets each committed row of ``__transactions``: the leader that appended it, the time of the
append, its key and value.
"""

MARKED: Final = "T2 markers follow their decision, in every partition that takes part"
VISIBLE: Final = "T4 readers of committed records see what is committed, and nothing else"
STABLE: Final = "T5 the last stable offset follows from the log, and never falls"
KEPT: Final = "T2 a partition is kept while a transaction is open in it"
ANSWERED: Final = "T6 answers about a transaction agree with its outcome"
LATE_S: Final = 10.0  # a request that nobody waits for may still have an effect
EARLY: Final = 0.8  # of its time limit, by the fastest clock


@dataclass(slots=True)
class Asked:
    """The requests of clients; each is noted before the coordinator can get it."""

    commits: set[Handle] = field(default_factory=set)
    aborts: set[Handle] = field(default_factory=set)
    began_s: dict[Handle, tuple[float, int]] = field(default_factory=dict)  # first request, limit in ms
    ended_by_name_s: dict[str, float] = field(default_factory=dict)  # opened, or aborted by an operator
    refused: dict[Handle, RaftlogError] = field(default_factory=dict)  # a commit, for good
    told_aborted: set[Handle] = field(default_factory=set)  # an answer said so
    attempts: Counter[Handle] = field(default_factory=Counter)  # to commit, that may be done


class Judge(PatientJudge):
    """Receives every committed batch in order, and every answer to a client, and checks the rules."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, TOPIC, OFFSETS, LEDGER, JOURNAL, PASSING)
        self.asked = Asked()
        self.decided = Decided(self._is_decided, self._is_complete, self._is_batch)
        self.offsets = AddedOffsets(self.decided.outcomes.get)
        self.logs: dict[Participant, PartitionLog] = {}
        self.former: list[PartitionLog] = []  # of partitions that were removed, and added again
        self.on_decided: Callable[[Handle, Machine], None] = lambda handle, machine: None
        self.on_batch: Callable[[Batch, tuple[Handle, ...]], None] = lambda batch, handles: None
        self.on_marked: Callable[[Handle, Participant], None] = lambda handle, target: None
        self.on_row: OnRow = lambda writer, at_s, key, value: None
        self._newly_decided: list[Handle] = []
        self._appended_s: dict[tuple[Participant, int, int], float] = {}  # batches of ``__transactions``

    # What is committed.

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Process newly committed batches of a group."""
        record = self._cluster.checker.groups[group_id]
        target = self.place_of(record)
        if target is None:
            return
        assert record.originals is not None
        known = self.records.get(target, record)
        if record.group_id < known.group_id:
            return  # the partition was removed, and added again
        if record is not known:
            self.checked(partial(self._is_another, target))
        record.originals.on_new = partial(self._appended, target)
        for batch in self.newly_committed(target, record):
            self.checked(partial(self._take, target, batch))
        self.check_replica(machine, target)
        newly, self._newly_decided = self._newly_decided, []
        for handle in newly:
            self.on_decided(handle, machine)
        self.check_waiting()

    def _is_another(self, target: Participant) -> None:
        """Begin a new log for a partition that was added again under the number of a removed partition."""
        removed = self.logs.pop(target, None)
        if removed is not None:
            self.former.append(removed)
            if removed.last_stable_offset < removed.end:
                raise Broken(KEPT, f"{target} was removed at {removed.end}: {removed.last_stable_offset}")

    def _take(self, target: Participant, batch: Original) -> None:
        if target[0] == TOPIC:
            rows = [KINDS.decoded(record.key, record.value) for record in batch.records]
            known = [row for row in rows if row is not None]
            for key, value in known:
                self._cluster.trace.note(None, f"{key} {value}")
            self.decided.take(known)
            writer = self.records[target].leaders[batch.entry.term]
            at_s = self._appended_s.get((target, batch.entry.base, batch.entry.term), self._cluster.loop.now)
            for key, value in known:
                self.on_row(writer, at_s, key, value)
            return
        if target[0] == OFFSETS:
            for record in batch.records:
                row = GROUP_KINDS.decoded(record.key, record.value)
                if row is not None:
                    self.offsets.take(*row)
            return
        header = batch.header
        if header.is_transactional and batch.marker is None:
            self._joined(target, (header.producer_id, header.producer_epoch))
        self.log_of(target).take(batch)
        if batch.marker is not None:
            handle = self.decided.handle_of((batch.marker.producer_id, batch.marker.producer_epoch))
            if handle in self.decided.outcomes:
                self.on_marked(handle, target)

    def log_of(self, target: Participant) -> PartitionLog:
        """Return the log of a partition that may take part in transactions."""
        return self.logs.setdefault(target, PartitionLog(f"{target[0]}/{target[1]}"))

    def _joined(self, target: Participant, numbers: Numbers) -> None:
        """Check that the coordinator has recorded that a partition with a batch takes part in the transaction
        (T2).
        """

        def check() -> None:
            handle = self.decided.handle_of(numbers)
            if handle is None or target not in self.decided.partitions[handle]:
                raise Broken(MARKED, f"{target} has batches of {handle or numbers}, and is not recorded")

        self.when_known(check)

    def _appended(self, target: Participant, batch: Original) -> None:
        """Check a new batch of some replica: if it is a marker, the outcome must be committed
        already (T2).
        """
        marker = batch.marker
        if target[0] == TOPIC:
            self._appended_s[target, batch.entry.base, batch.entry.term] = self._cluster.loop.now
        if marker is None:
            return
        numbers = marker.producer_id, marker.producer_epoch
        where = TopicPartition(*target)  # its leader's log begins there, or later by now
        self._cluster.loop.later(0.0, self._cluster.log_starts.reported, where, marker.log_start)

        def check() -> None:
            handle = self.decided.handle_of(numbers)
            outcome = None if handle is None else self.decided.outcomes.get(handle)
            if outcome is not marker.is_commit:
                detail = f"{target}: {marker} is written, and {handle} is decided as {outcome}"
                raise Broken(MARKED, detail)

        if self.is_behind():
            self.waiting.append(check)
        else:
            self.checked(check)

    def _is_decided(self, handle: Handle, is_commit: bool) -> None:
        """Check that a client requested the outcome, or that the timeout of the transaction has
        passed (T1).
        """
        self._newly_decided.append(handle)
        asked, now = self.asked, self._cluster.loop.now
        if is_commit:
            if handle not in asked.commits:
                raise Broken(ONE_OUTCOME, f"{handle} is committed, but no client has requested it")
            if handle in asked.told_aborted:
                raise Broken(ANSWERED, f"{handle} is committed; it was answered as aborted")
            if handle in asked.refused:
                raise Broken(
                    ANSWERED, f"{handle} is committed; its commit was refused: {asked.refused[handle]!r}"
                )
            if asked.attempts.get(handle) == 0:
                raise Broken(ANSWERED, f"{handle} is committed; all its requests were refused as not done")
            return
        began_s, limit_ms = asked.began_s.get(handle, (now, 0))
        is_late = now - began_s >= EARLY * limit_ms / 1000
        is_named = now - asked.ended_by_name_s.get(handle.transactional_id, -LATE_S) < LATE_S
        if handle not in asked.aborts and not is_late and not is_named:
            detail = f"{handle} is aborted {now - began_s:.3f} s after it began, of {limit_ms} ms"
            raise Broken(ONE_OUTCOME, f"{detail}, but no client has requested it")

    def _is_batch(self, batch: Batch, handles: tuple[Handle, ...]) -> None:
        self.on_batch(batch, handles)

    def _is_complete(self, handle: Handle) -> None:
        """Check that all partitions have the marker, because the next transaction of the id begins (T2)."""
        self.when_known(partial(self.check_marked, MARKED, handle, self.decided.partitions[handle]))
        self.when_known(partial(self.offsets.check, handle))

    def check_marked(self, invariant: str, handle: Handle, targets: Iterable[Participant]) -> None:
        """Check that these partitions have the marker of a decided transaction. Raises ``Broken``."""
        numbers, outcome = (handle.producer_id, handle.epoch), self.decided.outcomes.get(handle)
        for target in targets:
            shown = self.log_of(target).outcomes.get(numbers)
            if target[0] == PASSING and shown is None and numbers not in self.log_of(target).written:
                continue  # it took part in a partition that was removed, or that took no batch
            if shown is None or shown is not outcome:
                raise Broken(invariant, f"{handle} has outcome {outcome}, and {target} shows {shown}")

    # Replicas.

    def check_replica(self, machine: Machine, target: Participant) -> None:
        """Check that the transaction table of a replica agrees with the log that the replica has applied
        (T5).
        """
        replica = None if machine.broker is None else machine.broker.manager.replicas.get(target)
        log = self.logs.get(target)
        if replica is None or log is None or self.records[target].is_retired:
            return
        group = machine.broker.host.groups.get(self.records[target].group_id) if machine.broker else None
        if group is None or group.applied_index not in log.stable:
            return
        table, applied = replica.machine.transactions, group.applied_index
        if table.known_from != (known_from := log.known_from_at(applied)):
            detail = f"{machine.name} {target} at {applied}: known from {table.known_from}, not {known_from}"
            self._cluster.violated(STABLE, detail)
        found = table.last_stable_offset(applied + 1)
        if found != log.stable[applied]:
            detail = f"{machine.name} {target} at {applied}: {found} for {log.stable[applied]}"
            self._cluster.violated(STABLE, detail)
        aborted = sorted(tuple(one) for one in table.aborted())
        if aborted != sorted(tuple(one) for one in log.aborted_at(applied)):
            detail = f"{machine.name} {target} at {applied}: {aborted}, not {log.aborted_at(applied)}"
            self._cluster.violated(STABLE, detail)

    # Answers.

    def ended(self, handle: Handle, is_committed: bool, written: Iterable[Participant]) -> None:
        """Check an answer with an outcome: the outcome is committed, and all partitions have its
        marker (T6).
        """

        def check() -> None:
            outcome = self.decided.outcomes.get(handle)
            if outcome is not is_committed:
                raise Broken(ANSWERED, f"{handle} is answered as {is_committed}, and is decided as {outcome}")
            recorded = self.decided.partitions.get(handle, ())
            self.check_marked(ANSWERED, handle, dict.fromkeys((*recorded, *written)))
            self.offsets.check(handle)

        self.when_known(check)

    def aborted(self, handle: Handle) -> None:
        """Check an answer that a batch is aborted: its transaction is not committed now or later (T6)."""
        self.asked.told_aborted.add(handle)

        def check() -> None:
            if self.decided.outcomes.get(handle):
                raise Broken(ANSWERED, f"{handle} is answered as aborted, and is committed")

        self.when_known(check)

    def run_begun(self, ask: BeginRun, reply: RunBegun) -> None:
        """Check the answer to a run of a sink: its epoch, and whether its batch is already
        committed (T11).
        """
        answer = ask.owner, ask.sequence, reply.epoch, reply.is_committed
        self.when_known(partial(self.decided.sinks.check_begun, ask.key, ask.run, *answer))

    def batch_committed(self, ask: CommitBatch) -> None:
        """Check an answer that a batch of a sink is committed (T7)."""
        self.when_known(partial(self.decided.sinks.check_committed, ask.key, ask.run, ask.sequence))

    def refused(self, handle: Handle, error: RaftlogError) -> None:
        """Check that a transaction whose commit was refused permanently is not committed (T6)."""
        self.asked.refused.setdefault(handle, error)

        def check() -> None:
            if self.decided.outcomes.get(handle):
                raise Broken(ANSWERED, f"{handle} is committed, and its commit is refused: {error!r}")

        self.when_known(check)

    def in_vain(self, handle: Handle, error: RaftlogError) -> None:
        """Note that an attempt to commit was refused as not done. If all attempts were refused so, the
        transaction must not be committed (T6).
        """
        self.asked.attempts[handle] -= 1
        if not self.asked.attempts[handle] and self.decided.outcomes.get(handle):
            self.when_known(partial(_committed_in_vain, handle, error))

    def closed(self, handle: Handle, error: RaftlogError) -> None:
        """Check that a transaction is over if a broker answers that it accepts no more batches (T6)."""

        def check() -> None:
            if not self.decided.is_over(handle):
                newest = self.decided.state.transactions.get(handle.transactional_id)
                raise Broken(ANSWERED, f"{handle} is refused, and it is open: {newest}; {error!r}")

        self.when_known(check)

    def read(self, target: TopicPartition, committed_only: bool, broker: Broker, result: FetchResult) -> None:
        """Check that a fetch returns the committed log up to the reported end, with gaps in place of aborted
        batches (T4).
        """
        log, where = self.log_of((target.topic, target.partition)), f"broker {broker.node_id} {target}"
        self.look()
        stable: int = result.last_stable_offset
        if stable > log.last_stable_offset:
            self._cluster.violated(STABLE, f"{where}: {stable}, at most {log.last_stable_offset}")
        end = stable if committed_only else result.high_watermark
        following: int = result.offset
        for number, batch in enumerate(split_batches(result.data)):
            header = batch.header
            begins, following_batch = header.base_offset, header.last_offset + 1
            if begins != following and not (number == 0 and begins < following < following_batch):
                self._cluster.violated(VISIBLE, f"{where}: {header} where {following} comes next")
            following = following_batch
            problem = _shown(log, committed_only, batch.header.is_gap, begins, header.last_offset, header.crc)
            if problem is not None:
                self._cluster.violated(VISIBLE, f"{where}: {problem}")
        is_beyond = following > max(end, result.offset)  # it may have read further at another leader
        if result.next_offset != following or is_beyond or result.end != end:
            detail = f"{result.next_offset} comes next, {following} is shown, {result.end} is the end: {end}"
            self._cluster.violated(VISIBLE, f"{where}: {detail} of {log.end}")


def _shown(
    log: PartitionLog, committed_only: bool, is_gap: bool, base: int, last: int, checksum: int
) -> str | None:
    """Describe the error in one batch that a reader gets; None if the batch is right."""
    known = log.by_base.get(base)
    if known is None or known.entry.last != last:
        return f"{base} to {last} is shown; the committed entry is {known and known.entry}"
    outcome = log.outcome_at(base)
    if is_gap:
        is_right = committed_only and outcome is False
        return None if is_right else f"a gap at {base}, where {known.header} has outcome {outcome}"
    if checksum != known.entry.checksum:
        return f"{base} to {last} has another checksum than {known.entry}"
    if committed_only and outcome is not True:
        return f"{known.header} is shown, and its transaction has outcome {outcome}"
    return None


def _committed_in_vain(handle: Handle, error: RaftlogError) -> None:
    raise Broken(ANSWERED, f"{handle} is committed, and all its requests were refused as not done: {error!r}")
