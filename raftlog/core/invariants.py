"""Assertions that hold in every member at all times, each called at the place where a bug could break it.

Each function raises ``InvariantViolated`` with the numbers that prove the violation. The state of this
replica is then wrong, and the process must stop. A lost, repeated, delayed or reordered message never causes
a violation. The numbers in parentheses are those of ``docs/invariants.md``.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.core.membership import Membership
from raftlog.errors import InvariantViolated
from raftlog.types import EntryId, Index, NodeId, Term, WriteId

# Terms, votes and leaders


def require_term_rises(current: Term, new: Term) -> None:
    """Check that the new term is higher: terms never fall (I5, Raft 5.1)."""
    if new <= current:
        raise InvariantViolated(f"term would go from {current} to {new}")


def require_one_vote(term: Term, known: NodeId | None, candidate: NodeId) -> None:
    """Check that a member votes for one candidate only in each term (I28, Raft 5.2)."""
    if known not in (None, candidate):
        raise InvariantViolated(f"a vote for {candidate} in term {term}, after a vote for {known}")


def require_one_leader(term: Term, known: NodeId, other: NodeId) -> None:
    """Check that a term has at most one leader (I2, Raft 5.2)."""
    if known != other:
        raise InvariantViolated(f"nodes {known} and {other} both lead term {term}")


def require_elected(term: Term, node: NodeId, voted_for: NodeId | None, *, is_durable: bool) -> None:
    """Check that a new leader has voted for itself, and that its term and vote are durable (I7)."""
    if voted_for != node or not is_durable:
        raise InvariantViolated(
            f"node {node} would lead term {term}: it voted for {voted_for}, durably: {is_durable}"
        )


# The log and its durable part


def require_follows(first: Index, last: Index, log_last: Index) -> None:
    """Check that entries are appended without a gap, an overlap or an empty span (I3)."""
    if first != log_last + 1 or last < first:
        raise InvariantViolated(f"span {first}..{last} does not follow the last index {log_last}")


def require_terms_in_order(term: Term, log_last_term: Term) -> None:
    """Check that the terms of a log never fall from one entry to the next (I3)."""
    if term < log_last_term:
        raise InvariantViolated(f"an entry of term {term} cannot follow one of term {log_last_term}")


def require_index_known(index: Index, snapshot: Index, last: Index) -> None:
    """Check that the term of an index is known: of an entry of the log, or of the entry just
    before the log.
    """
    if not snapshot <= index <= last:
        raise InvariantViolated(f"no term is known for index {index}: the log knows {snapshot}..{last}")


def require_held(entry: EntryId, term: Term) -> None:
    """Check that the log holds the entry up to which its prefix is removed."""
    if entry.term != term:
        raise InvariantViolated(f"the log holds term {term} at index {entry.index}, and is cut at {entry}")


def require_handed_out(write_id: WriteId, newest: WriteId) -> None:
    """Check that a finished write was handed out before (I7)."""
    if write_id > newest:
        raise InvariantViolated(f"write {write_id} finished; the newest handed out is {newest}")


def require_durable_in_log(durable_index: Index, last: Index) -> None:
    """Check that the durable index is not above the last index of the log (I5)."""
    if durable_index > last:
        raise InvariantViolated(f"durable index {durable_index} lies after the last index {last}")


# Commit


def require_commit_in_log(commit_index: Index, last: Index) -> None:
    """Check that the commit index is not above the last index of the log (I5)."""
    if commit_index > last:
        raise InvariantViolated(f"commit index {commit_index} lies after the last index {last}")


def require_commit_spared(first_removed: Index, commit_index: Index) -> None:
    """Check that a truncation removes no committed entry (I1, Raft 5.4.3)."""
    if first_removed <= commit_index:
        raise InvariantViolated(
            f"truncation from {first_removed} would remove up to commit index {commit_index}"
        )


def require_settled(snapshot: EntryId, commit_index: Index, durable_index: Index) -> None:
    """Check that a prefix truncation removes only entries that are committed, and durable on this
    disk (I22).
    """
    if snapshot.index > min(commit_index, durable_index):
        raise InvariantViolated(
            f"the log is cut at {snapshot.index}, with commit index {commit_index} "
            f"and durable index {durable_index}"
        )


def require_may_install(snapshot: EntryId, *, may_install: bool) -> None:
    """Check that a snapshot replaces no log that holds its entry, and no log with writes in
    flight (Raft 7).
    """
    if not may_install:
        raise InvariantViolated(f"snapshot {snapshot} has replaced a log that must not be replaced")


# Membership and quiescence


def require_safe_change(before: Membership, index: Index, commit_index: Index, after: Membership) -> None:
    """Check that a leader changes a committed membership only, and that quorums intersect (I16)."""
    if index > commit_index or not {*before.halves} & {*after.halves}:
        raise InvariantViolated(f"{after} would follow {before} at {index}, with commit index {commit_index}")


def require_nothing_open(last: Index, match_indexes: Iterable[Index], *, writes_finished: bool) -> None:
    """Check that before a member becomes quiescent, its disk has its whole log (I29).

    For a leader, also check that every reachable peer has the whole log.
    """
    if not writes_finished or any(match_index < last for match_index in match_indexes):
        raise InvariantViolated(f"quiescent at {last}, with unfinished writes or peers that lack entries")
