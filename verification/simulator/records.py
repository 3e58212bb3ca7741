"""Records the state of the groups of a run and of their replicas: from the disks, the messages and the
brokers.

Decides: whether a replica's files agree with committed entries (I3). Leaves to others: the other invariants
(``checker``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raftlog.core.membership import Membership
from raftlog.core.ready import Role
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import BatchHeader
from raftlog.storage.recovery import has_lived
from raftlog.types import GroupId, NodeId
from verification.simulator.clocks import Clocks
from verification.simulator.log_view import Entry, LogView, durable_vote
from verification.simulator.machine import Machine
from verification.simulator.originals import INVARIANT, Originals, originals_of
from verification.simulator.sent_votes import SentVotes

Seen = tuple[int, Role, int, int, int, int, int]
"""A replica's state at its last check: term, role, commit index, term and index of the last entry, durable
index, and the position at which the files of its log end.
"""


@dataclass(slots=True)
class GroupRecord:
    """The state of one group, from the disks, the messages and the brokers."""

    group_id: GroupId
    initial_membership: Membership  # the membership before the first entry
    membership: Membership  # the newest committed one
    halves: tuple[frozenset[NodeId], ...]  # a majority of each holds all committed entries
    first_membership_index: int  # the index of its first membership
    clocks: Clocks
    violated: Callable[[str, str], None]
    replicas: dict[NodeId, ReplicaRecord] = field(default_factory=dict)
    leaders: dict[int, NodeId] = field(default_factory=dict)  # by term
    entries: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    committed: list[Entry] = field(default_factory=list)
    commit_terms: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # in ``committed``, by base offset
    votes: dict[tuple[int, NodeId], NodeId] = field(default_factory=dict)  # by term and voter
    # the last entries of their logs
    candidacies: dict[tuple[int, NodeId], tuple[int, int]] = field(default_factory=dict)
    lost: dict[NodeId, Lost] = field(default_factory=dict)  # lost logs by node
    # of entries, by a broker that knew cluster time
    stored_s: dict[tuple[int, int], float] = field(default_factory=dict)
    states: dict[int, int] = field(default_factory=dict)  # hash of the machine's state, by applied index
    originals: Originals | None = None  # of a compacted topic: its batches as they were appended
    is_retired: bool = False  # its topic was deleted, and so are its files

    def is_majority(self, nodes: set[NodeId]) -> bool:
        """True if the nodes are more than half of the voters; in a joint membership, of both halves."""
        return all(2 * len(half & nodes) > len(half) for half in self.halves)

    def forget_candidacies(self, node: NodeId) -> None:
        """Note that a node loses its disk.

        Candidacies of the node that elected no leader have ended with its process (I28).
        """
        for (term, voter), candidate in list(self.votes.items()):
            if voter == candidate == node and term not in self.leaders:
                del self.votes[term, voter]


@dataclass(frozen=True, slots=True)
class Lost:
    """A log that a disk has lost, and the folder in which the replica's next log begins."""

    machine: Machine
    directory: str
    start: int
    entries: tuple[Entry, ...]

    def holds(self, group: GroupRecord) -> bool:
        """Return whether the lost log had all committed entries and the replica does not vote yet, so that
        its next log may lack some.
        """
        first = 0 if self.start == 0 else group.places.get(self.start, len(group.committed))
        wanted = group.committed[first:]
        if list(self.entries[: len(wanted)]) != wanted:
            return False
        return not may_vote(self.machine, self.directory)


@dataclass(slots=True)
class Numbers:
    """Indexes, term and role of a replica, as its broker reports them."""

    term: int
    role: Role
    commit_index: int
    applied_index: int
    last_index: int
    durable_index: int


class ReplicaRecord:
    """The files of one replica, and the newest votes and acknowledgements that it sent."""

    def __init__(self, machine: Machine, directory: str, originals: Originals | None = None) -> None:
        self.machine = machine
        self.directory = directory
        self._originals = originals
        note = None if originals is None else originals.note
        self.seen = LogView(machine.disk, directory, durable=False, note=note)
        self.durable = LogView(machine.disk, directory, durable=True, note=note)
        self.numbers: Seen | None = None
        self.process: object = None
        self.group: RaftGroup[object] | None = None  # the one of these numbers; it may have ended since
        self.log_start = 0
        self.kept_index = 0  # its durable index as its term began: it has acknowledged no more
        self.acknowledged_index = 0  # the highest that it has acknowledged since the last look
        self.waits = False  # for disk space, or for a change of the log: entries have arrived before
        self.sent_votes = SentVotes(machine.disk, directory)
        self._agreed = {False: 0, True: 0}

    def opened(self, group_id: GroupId) -> RaftGroup[object] | None:
        """Return the group that the broker has open for this replica, or None."""
        broker = self.machine.broker
        return None if broker is None else broker.host.groups.get(group_id)

    def note_kept(self, before: Seen | None, now: Numbers) -> None:
        """Update ``kept_index``, whenever the replica is looked at.

        A busy broker handles several inputs between two looks, so an entry may have become durable after the
        term began. An entry counts as durable before if it was durable at the last look, was acknowledged, or
        is committed.
        """
        if before is None:
            self.kept_index = now.durable_index
        elif before[0] < now.term:
            known = max(before[5], self.acknowledged_index, now.commit_index)
            self.kept_index = min(known, now.durable_index)
        self.acknowledged_index = 0

    def look(self, group: GroupRecord, *, durable: bool) -> int:
        """Parse the replica's files; return how many committed entries, counted from the first, its log
        agrees with.
        """
        view = self.durable if durable else self.seen
        kept = view.refresh()
        if self._originals is not None:
            self._originals.looked(group.committed)
        if not durable and kept < len(view.entries):
            is_new = self.process is self.machine.process and not self.waits
            _note_entries(group, view, kept, self.machine, is_new=is_new)
            originals = self._originals
            if originals is not None and view.last >= originals.superseded_end and view.is_rewritten:
                self.check_records(group, durable=False)  # the leader sends shorter logs the rest
        agreed = min(self._agreed[durable], kept)
        start = 0 if view.start == 0 else group.places.get(view.start, len(group.committed))
        entries, committed = view.entries, group.committed
        limit = min(len(entries), len(committed) - start)
        while agreed < limit and entries[agreed] == committed[start + agreed]:
            agreed += 1
        self._agreed[durable] = agreed
        return start + agreed

    def headers(self) -> list[BatchHeader]:
        """The headers of all entries of the log, in the form in which they were appended."""
        originals = self._originals
        if originals is None:
            return self.seen.headers()
        return [originals.of(entry).header for entry in self.seen.entries if originals.has(entry)]

    def check_records(self, group: GroupRecord, *, durable: bool) -> None:
        """Check that a compacted log has the newest record of each key (I33)."""
        view = self.durable if durable else self.seen
        if self._originals is None:
            return
        problem = self._originals.problem(view.entries, view.stored())
        if problem is not None:
            where = f"group {group.group_id} on {self.machine.name}, durable={durable}"
            group.violated(INVARIANT, f"{where}: {problem}")


def _note_entries(group: GroupRecord, view: LogView, first: int, machine: Machine, *, is_new: bool) -> None:
    """Check log matching by induction (I3): an entry id belongs to one entry with one predecessor.

    With ``is_new``, record when the entries were stored: they were neither written by an earlier process nor
    in memory for long.
    """
    entries, clocks = view.entries, group.clocks
    before = entries[first - 1].term if first else 0
    for entry, stamp_ms in zip(entries[first:], view.stamps_ms[first:], strict=True):
        found = (entry.last, entry.checksum, before if entry.base else 0)
        if entry is entries[0] and entry.base:  # the log has a later start
            found = (*found[:2], group.entries.get((entry.base, entry.term), found)[2])
        if (entry.base, entry.term) not in group.entries:
            clocks.check_stamp(group.group_id, entry, stamp_ms)
            if is_new and clocks.are_right and clocks.knows(machine):
                group.stored_s[entry.base, entry.term] = clocks.now_s
        known = group.entries.setdefault((entry.base, entry.term), found)
        if known != found:
            group.violated("I3 log matching", f"{entry} on {machine.name}: {found} and {known}")
        before = entry.term


def may_vote(machine: Machine, directory: str) -> bool:
    """True if the replica's disk has lost no votes, so that the replica may vote."""
    if directory in machine.older_copies:
        return False
    return has_lived(machine.disk, directory) and not durable_vote(machine.disk, directory).is_rejoining


def record_of(
    group: RaftGroup[object],
    directory: str,
    before: GroupRecord | None,
    clocks: Clocks,
    violated: Callable[[str, str], None],
) -> GroupRecord:
    """Return the record of a group whose first membership is known now.

    Added replicas, which know no members, may open before the first initial replica does: ``before`` is the
    record with their state.
    """
    began, first_membership_index = group.membership, group.status().membership_index
    replicas = {} if before is None else before.replicas
    originals = originals_of(directory) if before is None else before.originals
    record = GroupRecord(
        group.group_id, began, began, began.halves, first_membership_index, clocks, violated, replicas
    )
    record.originals = originals
    return record


def numbers_of(group: RaftGroup[object], seen: Seen) -> Numbers:
    """Return the current numbers of a replica; ``seen`` has the numbers of its core."""
    term, role, commit_index, _, last_index, durable_index, _ = seen
    return Numbers(term, role, commit_index, group.applied_index, last_index, durable_index)
