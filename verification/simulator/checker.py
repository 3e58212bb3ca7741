"""Checks invariants after every step, using only files, sent frames, and a few numbers that each group
reports.

Decides: what counts as a violation during a run. Invariants are numbered as in ``docs/invariants.md``. Leaves
to others: what clients saw (``chaos.checkers``), and the end of the run (``convergence``).

Checks are incremental: a group is checked when a number that it reports has changed, and only the changed
part of its files is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from typing import cast

import msgspec

from partitions.replica.machine import PartitionMachine
from partitions.replica.producer_table import _HEAD as _PRODUCERS_HEAD
from partitions.replica.transaction_table import TransactionTable
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import Role
from raftlog.node.group.raft_group import RaftGroup
from raftlog.repair.verify import examine
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index, NodeId
from verification.simulator.clocks import Clocks
from verification.simulator.log_view import Entry, durable_vote
from verification.simulator.machine import Machine
from verification.simulator.records import (
    GroupRecord,
    Lost,
    Numbers,
    ReplicaRecord,
    Seen,
    numbers_of,
    record_of,
)

_VOTE_REQUEST, _VOTE, _APPEND, _APPEND_REPLY = 1, 2, 3, 4  # tags of the codec
_HEAD = 5  # bytes before the head: kind and length

Report = Callable[[str, str], None]
"""A function that is called with the name of a violated invariant and the details."""


class Checker:
    """The checker of a run. It calls ``on_leader`` and ``on_commit`` so that faults can strike at these
    moments.
    """

    def __init__(self, clocks: Clocks, violated: Report) -> None:
        self.replicas: defaultdict[NodeId, dict[GroupId, ReplicaRecord]] = defaultdict(dict)
        self.groups: dict[GroupId, GroupRecord] = {}
        self.on_leader: Callable[[Machine, GroupId, int], None] = lambda machine, group, term: None
        self.on_commit: Callable[[Machine, GroupId, int], None] = lambda machine, group, commit: None
        self.on_opened: Callable[[Machine, GroupId, str], None] = lambda machine, group, directory: None
        self.on_log_start: Callable[[GroupRecord, ReplicaRecord], None] = lambda group, replica: None
        self.on_changed: Callable[[GroupRecord, ReplicaRecord, RaftGroup[object]], None] = lambda *changed: (
            None
        )
        self.on_vote: Callable[[Machine, GroupId, NodeId], None] = lambda machine, group, candidate: None
        self._clocks = clocks
        self._violated = violated

    def stepped(self, machine: Machine) -> None:
        """Check a broker after one of its callbacks has run."""
        broker = machine.broker
        if broker is None or machine.process is None:
            return
        groups, opened = self.replicas[machine.node], broker.host.groups
        for group_id, group in opened.items():
            core, replica = group._core, groups.get(group_id)
            terms = core.terms
            numbers = (
                core.term,
                core.role,
                core.commit_index,
                terms.last_term,
                terms.last_index,
                core.writes.durable_index,
                group.log.last_index,
            )
            if replica is None or replica.numbers != numbers or replica.group is not group:
                self._changed(machine, group_id, group, numbers)
        if len(groups) > len(opened) and not machine.is_stopping:
            for group_id, replica in list(groups.items()):
                if group_id not in opened and replica.process is machine.process:
                    self._ended(machine, group_id, replica)

    def frame(self, machine: Machine, to: NodeId, frame: bytes) -> None:
        """Check a sent Raft message: its vote or acknowledgement must be durable (I7)."""
        length = int.from_bytes(frame[1:_HEAD])
        group_id, tag, term, *fields = msgspec.msgpack.decode(frame[_HEAD : _HEAD + length])
        record = self.groups.get(group_id)
        replica = None if record is None else record.replicas.get(machine.node)
        if record is None or replica is None or record.is_retired:
            return
        if tag == _APPEND:
            self._claims(record, machine, term)
        elif tag == _APPEND_REPLY and fields[0]:
            self._check_durable(replica, term, None, f"append reply of term {term}")
            if term < replica.sent_votes.term:
                detail = f"{machine.name} accepts an append of term {term} in group {group_id}"
                self._violated(
                    "I7 write-ahead", f"{detail} after it has named term {replica.sent_votes.term}"
                )
            replica.durable.refresh()
            if (
                replica.durable.last < fields[1]
                and durable_vote(machine.disk, replica.directory).term == term
            ):
                detail = f"{machine.name} acknowledges {fields[1]} of group {group_id}"
                self._violated("I7 write-ahead", f"{detail}, {replica.durable.last} is durable")
            self._check_accepted(record, replica, term, fields[1])
            replica.acknowledged_index = max(replica.acknowledged_index, fields[1])
        elif tag == _VOTE and fields[1] and not fields[2]:
            self._check_durable(replica, term, to, f"vote of term {term}")
            self._check_vote(record, replica, term, to)
            self._votes(record, machine, term, to)
        elif tag == _VOTE_REQUEST and not fields[2]:
            self._check_durable(replica, term, machine.node, f"candidacy of term {term}")
            record.candidacies[term, machine.node] = (fields[0], fields[1])
            self._votes(record, machine, term, machine.node)

    def files_removed(self, machine: Machine, directory: str) -> None:
        """Forget the replicas in a removed folder, with their votes and acknowledgements.

        The folder belonged to a deleted topic or a moved replica.
        """
        for group_id, replica in list(self.replicas[machine.node].items()):
            if f"{replica.directory}/".startswith(f"{directory}/"):
                self._closed(machine, group_id)

    def files_lost(self, machine: Machine, path: str) -> None:
        """Note that a disk is about to lose a file or folder, with votes and acknowledgements of replicas."""
        for group_id, replica in list(self.replicas[machine.node].items()):
            if f"{replica.directory}/".startswith(f"{path}/") or path.startswith(f"{replica.directory}/"):
                replica.durable.refresh()
                view = replica.durable
                record = self.groups[group_id]
                record.lost[machine.node] = Lost(machine, replica.directory, view.start, tuple(view.entries))
                record.forget_candidacies(machine.node)
                del self.replicas[machine.node][group_id]
                record.replicas.pop(machine.node, None)

    def died(self, machine: Machine) -> None:
        """Check that a crash leaves at most a torn tail, and no damage (I27)."""
        for replica in self.replicas[machine.node].values():
            seen = examine(machine.disk, replica.directory)
            if not seen.is_clean:
                found = [f"{damage.path}: {damage.reason}" for damage in seen.damages]
                detail = f"{machine.name} {replica.directory}: {found} {seen.holes} {seen.doubt}"
                self._violated("I27 a crash damages nothing", detail)

    def lost_power(self, machine: Machine) -> None:
        """Check that committed entries are still on a quorum of disks (I6)."""
        for group_id, replica in self.replicas[machine.node].items():
            record = self.groups[group_id]
            if forgotten := replica.sent_votes.forgotten():
                self._violated("I7 write-ahead", f"{machine.name} has forgotten {forgotten}")
            hint = durable_vote(machine.disk, replica.directory).commit_hint
            held = replica.look(record, durable=True)
            if held < len(record.committed) and record.committed[held].base <= hint:
                detail = f"{machine.name} group {group_id}: {hint}, {record.committed[held]} is not durable"
                self._violated("I5 the commit hint is durable", detail)
            if not record.is_retired:
                self.check_durable_quorum(record, f"after {machine.name} lost power")

    def check_durable_quorum(self, record: GroupRecord, when: str) -> None:
        """Check that every committed entry is durable on a majority (I6); ``when`` is a text for the
        violation.
        """
        wanted = len(record.committed)
        if not wanted:
            return
        holding = {
            node for node, replica in record.replicas.items() if replica.look(record, durable=True) >= wanted
        }
        holding |= {node for node, lost in record.lost.items() if lost.holds(record)}
        if not record.is_majority(holding) and not record.is_retired:
            held = {node: replica.look(record, durable=True) for node, replica in record.replicas.items()}
            voters = [sorted(half) for half in record.halves]
            detail = (
                f"group {record.group_id} {when}: {wanted} entries are committed, durable are {held}, "
                f"a majority of each of {voters} was needed"
            )
            self._violated("I6 durable quorum", detail)

    # Inside.

    def _changed(self, machine: Machine, group_id: GroupId, group: RaftGroup[object], numbers: Seen) -> None:
        record, directory = self.groups.get(group_id), cast("SegmentedLog", group.log).directory
        if directory in machine.older_copies:
            if machine.is_on_older_copy:
                return  # other brokers must not listen to a broker on an older copy
            machine.older_copies.discard(directory)
        if record is None or (group.membership.voters and not record.initial_membership.voters):
            record = record_of(group, directory, record, self._clocks, self._violated)
            self.groups[group_id] = record
        self.on_opened(machine, group_id, directory)
        if record.is_retired:  # a restarting broker may not know it yet; its bytes are those of the group
            ReplicaRecord(machine, directory, record.originals).look(record, durable=False)
            return
        replica = self.replicas[machine.node].get(group_id)
        if replica is None:
            replica = ReplicaRecord(machine, directory, record.originals)
            self.replicas[machine.node][group_id] = record.replicas[machine.node] = replica
            if machine.node in record.lost:
                self.check_durable_quorum(record, f"as {machine.name}, which has lost files, opens it again")
        before = replica.numbers if replica.group is group else None
        if before is None:
            replica.look(record, durable=False)  # left by an earlier process, or written before a failure
        replica.numbers, replica.process, replica.group = numbers, machine.process, group
        if group.stopped is not None:
            return  # its disk has failed, and its state in memory is no longer used
        now = numbers_of(group, numbers)
        if before:
            self._check_monotonic(machine, group_id, before, now)
        replica.note_kept(before, now)
        if not (now.applied_index <= now.commit_index <= now.last_index >= now.durable_index):
            self._violated("I5 order of pointers", f"{machine.name} group {group_id}: {now}")
        if now.role is Role.LEADER and (not before or before[1] is not Role.LEADER or before[0] != now.term):
            self._claims(record, machine, now.term)
            self._check_durable(replica, now.term, machine.node, f"itself as leader of term {now.term}")
            self._check_complete(record, replica, now, group)
            self.on_leader(machine, group_id, now.term)
        had_written = before[-1] if before else 0  # less than committed if the disk is full
        if not before or before[2] != now.commit_index or had_written < now.commit_index:
            self._check_commit(record, replica, now, numbers[-1])
            self._check_state(record, replica, now, group)
        else:
            replica.look(record, durable=False)
        replica.waits = replica.seen.last < now.last_index
        if replica.seen.last == now.last_index == numbers[-1]:
            self._check_membership(record, replica, group)
        if replica.log_start != replica.seen.start:
            replica.log_start = replica.seen.start
            self.on_log_start(record, replica)
        self.on_changed(record, replica, group)

    def _check_monotonic(self, machine: Machine, group_id: GroupId, before: Seen, now: Numbers) -> None:
        term, _, commit_index, *_ = before
        if now.term < term or now.commit_index < commit_index:
            detail = f"{machine.name} group {group_id}: {before} became {now}"
            self._violated("I5 monotonic term and commit", detail)

    def _claims(self, record: GroupRecord, machine: Machine, term: int) -> None:
        known = record.leaders.setdefault(term, machine.node)
        if known != machine.node:
            detail = f"group {record.group_id} term {term}: brokers {known} and {machine.node}"
            self._violated("I2 one leader a term", detail)

    def _votes(self, record: GroupRecord, machine: Machine, term: int, candidate: NodeId) -> None:
        """Check that a broker votes once in a term, unless its replica was deleted between two
        votes (I28).
        """
        self.on_vote(machine, record.group_id, candidate)
        known = record.votes.setdefault((term, machine.node), candidate)
        if known != candidate:
            detail = f"{machine.name} group {record.group_id} term {term}: for {known} and for {candidate}"
            self._violated("I28 one vote a term", detail)

    def _check_accepted(self, record: GroupRecord, replica: ReplicaRecord, term: int, match: int) -> None:
        """Check that a follower that accepts an append has the leader's log up to the index in its response
        (I26).
        """
        leader = record.replicas.get(record.leaders.get(term, NodeId(0)))
        if leader is None or leader.numbers is None or leader.numbers[:2] != (term, Role.LEADER):
            return
        if leader.process is not leader.machine.process or leader.machine.process is None:
            return
        leader.seen.refresh()
        mine, theirs = replica.durable.entry_over(match), leader.seen.entry_over(match)
        if mine is not None and theirs is not None and mine != theirs:
            detail = f"{replica.machine.name} group {record.group_id} term {term}: {mine} for {theirs}"
            self._violated("I26 an accepted log is the leader's", detail)

    def _check_vote(self, record: GroupRecord, replica: ReplicaRecord, term: int, candidate: NodeId) -> None:
        """Check that the candidate's log is as new as all entries that the voter may have acknowledged (I4).

        Entries that become durable after the voter's term has begun are acknowledged to no leader of an
        earlier term (I7).
        """
        replica.durable.refresh()
        asked = record.candidacies.get((term, candidate))
        if asked is None or record.leaders.get(term, candidate) != candidate:
            return  # a leader has appended to the voter's log since then
        newest = replica.durable.newest_up_to(replica.kept_index)
        if newest is not None and newest.term < term and (newest.term, newest.last) > asked:
            detail = f"{replica.machine.name} votes for {candidate} in term {term} of group {record.group_id}"
            self._violated("I4 votes for complete logs only", f"{detail}: {newest} against {asked}")

    def _check_complete(
        self, record: GroupRecord, replica: ReplicaRecord, now: Numbers, group: RaftGroup[object]
    ) -> None:
        """Check that a new leader has all entries committed in earlier terms (I4)."""
        held = replica.look(record, durable=False)
        if group.log.last_index < now.last_index:
            return  # its disk is full, and the rest is in memory
        lacking = [
            place for place in range(held, len(record.committed)) if record.commit_terms[place] < now.term
        ]
        if lacking:
            entry = record.committed[lacking[0]]
            detail = (
                f"{replica.machine.name} leads group {record.group_id} in term {now.term} without {entry}"
            )
            self._violated("I4 leader completeness", detail)

    def _check_commit(self, record: GroupRecord, replica: ReplicaRecord, now: Numbers, written: int) -> None:
        """Check that committed entries are equal on every member and never change (I1)."""
        held = replica.look(record, durable=False)
        view, committed = replica.seen, record.committed
        start = 0 if view.start == 0 else record.places.get(view.start, len(committed))
        # Later entries wait for disk space or for a truncation: entries that are not truncated yet are not
        # part of the log.
        commit_index = min(now.commit_index, view.last, written)
        count = bisect_left(view.entries, commit_index, key=_last_of) + 1 if commit_index >= view.start else 0
        where = f"{replica.machine.name} group {record.group_id} commit index {commit_index}"
        if count and view.entries[count - 1].last != commit_index:
            self._violated("I1 committed prefix", f"{where} splits {view.entries[count - 1]}")
            return
        known = len(committed)
        if held < min(start + count, known):
            mine = view.entries[held - start]
            self._violated("I1 committed prefix", f"{where}: {mine} where {committed[held]} was committed")
        elif start + count > known:
            for entry in view.entries[known - start : count]:
                record.places[entry.base] = len(committed)
                committed.append(entry)
                record.commit_terms.append(now.term)
            own_term = committed[-1].term == now.term or commit_index < now.commit_index
            if now.role is Role.LEADER and not own_term:
                self._violated(
                    "I8 commits by counting its own term only", f"{where}: {committed[-1]} in {now}"
                )
            _note_membership(record, replica, commit_index)
            self.check_durable_quorum(record, f"as {where} became known")
            self.on_commit(replica.machine, record.group_id, commit_index)

    def _check_state(
        self, record: GroupRecord, replica: ReplicaRecord, now: Numbers, group: RaftGroup[object]
    ) -> None:
        """Check that replicas with equal applied indexes have equal states (I21).

        A replica that applies a compacted log has an equal state only once it has also applied the records
        that superseded the removed records. Before that it cannot lead. In its table of producers the first
        stamp may be later than on other replicas; then it forgets producers later.
        """
        machine = group._applier._machine
        state = hash(machine.snapshot())
        if record.originals is not None:
            if now.applied_index < record.originals.superseded_end:
                return
            assert isinstance(machine, PartitionMachine)
            derived = b"" if machine.derived is None else machine.derived.snapshot()
            producers = machine.producers.snapshot()[_PRODUCERS_HEAD.size :]
            state = hash((producers, machine.transactions.snapshot(), derived))
        if record.states.setdefault(now.applied_index, state) != state:
            detail = f"{replica.machine.name} group {record.group_id} at {now.applied_index}"
            self._violated("I21 equal state at an equal index", detail)
        if isinstance(machine, PartitionMachine) and len(machine.transactions) > 1:
            again = TransactionTable()
            again.restore(machine.transactions.snapshot())
            if again.open != machine.transactions.open:
                detail = (
                    f"{replica.machine.name} group {record.group_id} at {now.applied_index}: {again.open}"
                )
                self._violated("I21 a restored state is the one that was kept", detail)

    def _check_membership(
        self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]
    ) -> None:
        """Check that the newest membership in the log is in force; without one, the initial membership or
        none (I16).
        """
        view, found = replica.seen, group.membership
        expected: tuple[Membership, ...]
        if view.memberships:
            expected = (view.memberships[-1][1],)
        elif view.start == 0:
            expected = (record.initial_membership, NOBODY)
        else:
            return
        if found not in expected:
            detail = f"{replica.machine.name} group {record.group_id}: {found}, its log says {expected}"
            self._violated("I16 the newest membership counts", detail)

    def _check_durable(self, replica: ReplicaRecord, term: int, voted_for: int | None, what: str) -> None:
        missing = replica.sent_votes.name(term, voted_for)
        if missing:
            self._violated("I7 write-ahead", f"{replica.machine.name} names {what}: {missing}")

    def _ended(self, machine: Machine, group_id: GroupId, replica: ReplicaRecord) -> None:
        """Note that a broker has closed a replica.

        The files of a failed replica stay on the disk, and the broker opens them again.
        """
        if replica.group is None or replica.group.stopped is None:
            self._closed(machine, group_id)

    def _closed(self, machine: Machine, group_id: GroupId) -> None:
        """Forget a deleted replica: a committed membership does not contain it, or its topic was deleted."""
        record = self.groups[group_id]
        del self.replicas[machine.node][group_id]
        record.lost.pop(machine.node, None)
        topics = () if machine.broker is None else machine.broker.controller.image.topics.values()
        is_known = any(partition.group_id == group_id for topic in topics for partition in topic.partitions)
        if machine.node in record.membership.all_voters or not is_known:
            record.is_retired = True
        else:
            record.replicas.pop(machine.node, None)
            # Its removal is committed: a candidate that still counts its votes wins no election.
            record.votes = {key: vote for key, vote in record.votes.items() if key[1] != machine.node}


def _note_membership(record: GroupRecord, replica: ReplicaRecord, commit_index: int) -> None:
    """Note which brokers are voters once the entries up to this commit index count, according to this log.

    The leader may already have appended, and committed, the membership that follows a committed joint one. In
    a recovered group, entries before its first entry come from the survivor's log, and count as committed.
    """
    broker = replica.machine.broker
    group = None if broker is None else broker.host.groups.get(record.group_id)
    if group is None or commit_index < record.first_membership_index:
        return
    memberships = group._core.memberships
    membership = memberships.at(Index(commit_index))
    if membership.voters:
        is_last = membership != memberships.at(Index(commit_index - 1))
        record.membership = membership
        record.halves = membership.halves if is_last else (membership.voters,)


def _last_of(entry: Entry) -> int:
    return entry.last
