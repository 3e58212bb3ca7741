"""Bugs in what a log leaves on the disk, which a log alone shows: see ``chaos.simulator.storage_level``."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

LOGS = (
    Mutant(
        "the name of a snapshot's first segment is not synced",
        "raftlog.storage.log_changes:LogChanges._resync_fully",
        "self._epochs_due, self._names_changed = files, False, True",
        "self._epochs_due, self._names_changed = files, False, False",
    ),
    Mutant(
        "of two syncs that overlap the later one trusts the earlier",
        "raftlog.storage.segmented_log:SegmentedLog.take_sync",
        "[*(files | dict.fromkeys(self._unsynced))]",
        "[*dict.fromkeys(self._unsynced)]",
    ),
    Mutant(
        "the membership at the old log start is dropped before the slot has the new start",
        "raftlog.storage.members:LogMembers.keep_base",
        "[base] if present is None else [present, base]",
        "[base]",
    ),
    Mutant(
        "the epochs of truncated segments stay",
        "raftlog.storage.log_changes:LogChanges._remove_later",
        'self._filesystem.remove(f"{self._directory}/{EPOCHS_NAME}")\n',
        "pass\n",
    ),
    Mutant(
        "the term of the truncated entry stays",
        "raftlog.storage.epochs:Epochs.truncate_suffix",
        "self._starts[-1] >= first_removed",
        "self._starts[-1] > first_removed",
    ),
    Mutant(
        "a replaced log keeps the old term before it",
        "raftlog.storage.durable_state:DurableState.restart",
        "self.state.before = durable_end.last.term",
        "pass",
    ),
    Mutant(
        "a promise of another log start counts",
        "raftlog.storage.durable_state:DurableState.raise_durable_end",
        "and log_start == self.state.log_start",
        "",
    ),
)
