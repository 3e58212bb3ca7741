"""Changes a log, and waits for the disk in the same call. In brokers the flusher waits for the disk."""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.storage.log_storage import LogStorage, after, carry_out
from raftlog.types import EntryId, Index


def truncate_suffix(log: LogStorage, first_removed: Index) -> None:
    """Remove this entry and all later ones, durably on return."""
    log.cut(first_removed)
    carry_out(log.cut_change())


def truncate_prefix(log: LogStorage, first_kept: Index) -> Index:
    """Delete the closed segments that end below ``first_kept``; return the new ``first_index``."""
    carry_out(after(log.prefix_change(first_kept), log.removal_change))
    return log.first_index


def install(log: LogStorage, snapshot: EntryId, membership: Membership, state: bytes) -> None:
    """Empty the log and let it start after ``snapshot``, durably on return."""
    carry_out(after(log.install_change(snapshot, membership, state), log.removal_change))


def save_checkpoint(log: LogStorage, index: Index, state: bytes) -> None:
    """Save the state machine's snapshot as of ``index``, which must be durable."""
    log.states.save_checkpoint(EntryId(log.term_at(index), index), state)
