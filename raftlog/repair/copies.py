"""Checks whether the disks of several brokers are from one moment.

At any moment a majority of a group's voters knows the term of each entry, and holds each entry that is known
to be committed. With copies of different times neither may be true. Brokers that start from such copies elect
leaders in terms that were used before: different entries get an equal index and term, and no broker notices.

Decides: which logs of a group cannot be from one moment, and which logs have different entries. Copies that
pass these checks may still be from different moments. Leaves to others: which parts of a log are sound
(``verify``), and printing the result (the command line).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from raftlog.repair.verify import VerifyReport
from raftlog.storage.batch_walk import walk_headers
from raftlog.storage.filesystem import Filesystem
from raftlog.types import EntryId, Index, NodeId, Term

Voters = Collection[NodeId]


@dataclass(frozen=True, slots=True)
class Misfit:
    """A log that contradicts the other logs of its group: its directory, and the contradiction as text."""

    directory: str
    reason: str


def misfit(copies: Mapping[NodeId, VerifyReport], memberships: Collection[Voters]) -> Misfit | None:
    """Find a log whose indexes and terms contradict the group's other logs; None without one.

    ``memberships``: the voters that each log names.
    """
    sound = {
        node: seen
        for node, seen in sorted(copies.items())
        if seen.is_clean and not seen.state.hard_state.is_rejoining
    }
    committed = {node: entry for node, seen in sound.items() if (entry := _committed(seen)) is not None}
    if not committed:
        return None
    node = max(committed, key=lambda each: committed[each].index)
    newest = committed[node]
    lacking = [each for each, seen in sound.items() if not _holds(seen, newest)]
    if _is_too_many(lacking, memberships):
        reason = f"entry {newest.index} of term {newest.term} is committed, but brokers {lacking} lack it"
        return Misfit(sound[node].directory, reason)
    node = max(sound, key=lambda each: _last_term(sound[each]))
    term = _last_term(sound[node])
    behind = [each for each, seen in sound.items() if seen.state.hard_state.term < term]
    if _is_too_many(behind, memberships):
        return Misfit(sound[node].directory, f"an entry has term {term}, which brokers {behind} do not know")
    return None


def difference(filesystem: Filesystem, copies: Mapping[NodeId, VerifyReport]) -> Misfit | None:
    """Find a log with an entry whose checksum differs from the group's other logs; None without one.

    Entries that compaction has changed are not compared.
    """
    walks = (_whole_batches(filesystem, node, seen) for node, seen in copies.items())
    for (index, term, _), found in groupby(heapq.merge(*walks), lambda row: row[:3]):
        checksums = {node: crc for *_, node, crc in found}
        if len({*checksums.values()}) > 1:
            nodes = sorted(checksums)
            reason = f"entry {index} of term {term} differs between brokers {nodes}"
            return Misfit(copies[nodes[0]].directory, reason)
    return None


def _whole_batches(
    filesystem: Filesystem, node: NodeId, seen: VerifyReport
) -> Iterator[tuple[int, int, int, NodeId, int]]:
    for run in seen.runs:
        file = filesystem.open(run.path)
        try:
            for _, header in walk_headers(file, run.position, run.end):
                if header.record_count == header.last_offset_delta + 1:
                    yield header.base_offset, header.leader_epoch, header.last_offset, node, header.crc
        finally:
            file.close()


def _is_too_many(nodes: Collection[NodeId], memberships: Collection[Voters]) -> bool:
    """Whether the voters outside ``nodes`` are no majority in any membership.

    All memberships count, since the newest may be in one log only.
    """
    return bool(memberships) and all(
        2 * len(set(nodes).intersection(voters)) >= len(voters) for voters in memberships
    )


def _committed(seen: VerifyReport) -> EntryId | None:
    index = min(seen.state.commit_index, seen.last)
    terms = (run.term for run in seen.runs if run.first <= index <= run.last)
    return next((EntryId(Term(term), Index(index)) for term in terms), None)


def _holds(seen: VerifyReport, entry: EntryId) -> bool:
    return entry.index < seen.state.log_start or seen.holds(entry)


def _last_term(seen: VerifyReport) -> int:
    return seen.runs[-1].term if seen.runs else 0
