"""What must hold in every member at all times, asserted where it could break.

Each function raises ``InvariantViolated`` with the numbers that prove it: this replica's state
is wrong then, and the process must stop. None of them can be set off by a lost, repeated,
delayed or reordered message.
"""

from __future__ import annotations

from raftlog.errors import InvariantViolated
from raftlog.types import EntryId, Index, NodeId, Term, WriteId


def require_term_rises(current: Term, new: Term) -> None:
    """Terms only grow (Raft 5.1)."""
    if new <= current:
        raise InvariantViolated(f"term would go from {current} to {new}")


def require_commit_in_log(commit_index: Index, last: Index) -> None:
    """Nothing is committed here that is not in this log."""
    if commit_index > last:
        raise InvariantViolated(f"commit index {commit_index} lies after the last index {last}")


def require_commit_spared(first_removed: Index, commit_index: Index) -> None:
    """What is committed is never truncated (Raft 5.4.3)."""
    if first_removed <= commit_index:
        raise InvariantViolated(
            f"truncation from {first_removed} would remove up to commit index {commit_index}"
        )


def require_follows(first: Index, last: Index, log_last: Index) -> None:
    """Entries are appended without a gap, an overlap or an empty span."""
    if first != log_last + 1 or last < first:
        raise InvariantViolated(f"span {first}..{last} does not follow the last index {log_last}")


def require_terms_in_order(term: Term, log_last_term: Term) -> None:
    """The terms of a log never decrease from one entry to the next."""
    if term < log_last_term:
        raise InvariantViolated(f"an entry of term {term} cannot follow one of term {log_last_term}")


def require_one_leader(term: Term, known: NodeId, other: NodeId) -> None:
    """A term has at most one leader (Raft 5.2, election safety)."""
    if known != other:
        raise InvariantViolated(f"nodes {known} and {other} both lead term {term}")


def require_handed_out(write_id: WriteId, newest: WriteId) -> None:
    """Only writes that were handed out can finish."""
    if write_id > newest:
        raise InvariantViolated(f"write {write_id} finished; the newest handed out is {newest}")


def require_index_known(index: Index, snapshot: Index, last: Index) -> None:
    """Terms are known from the entry just before the log up to the last one."""
    if not snapshot <= index <= last:
        raise InvariantViolated(f"no term is known for index {index}: the log knows {snapshot}..{last}")


def require_held(entry: EntryId, term: Term) -> None:
    """A log is cut only behind an entry that it holds."""
    if entry.term != term:
        raise InvariantViolated(f"the log holds term {term} at index {entry.index}, and is cut at {entry}")


def require_settled(snapshot: EntryId, commit_index: Index, durable_index: Index) -> None:
    """Only what is committed, and durable here, leaves the log at its beginning."""
    if snapshot.index > min(commit_index, durable_index):
        raise InvariantViolated(
            f"the log is cut at {snapshot.index}, with commit index {commit_index} "
            f"and durable index {durable_index}"
        )


def require_may_install(snapshot: EntryId, *, may_install: bool) -> None:
    """A snapshot never replaces a log that holds it, nor one with writes on their way (Raft 7)."""
    if not may_install:
        raise InvariantViolated(f"snapshot {snapshot} has replaced a log that must not be replaced")
