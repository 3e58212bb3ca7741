"""Bugs in the storage of logs and hard states."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

_RETENTION = "tests/scenarios/partitions/test_retention.py"
_SNAPSHOTS = "tests/unit/storage/test_snapshots.py"

STORAGE = (
    Mutant(
        "readers open the file of a segment that is being truncated",
        "raftlog.storage.segment:Segment.open_to_cut",
        "self._hold(file)",
        "pass",
        script="tests/unit/storage/test_checked_reads.py",
    ),
    Mutant(
        "entries that may still be lost take room from committed ones",
        "raftlog.storage.retention:first_index_to_keep",
        "if segment.base <= commit_index",
        "if True",
        script="tests/unit/storage/test_retention.py",
    ),
    Mutant(
        "indexes of segments that were read stay in memory",
        "raftlog.storage.segment_list:SegmentList._note_loaded",
        "self._loaded.pop(0).release_index()",
        "self._loaded.pop(0)",
        script="tests/unit/storage/test_checked_reads.py",
    ),
    Mutant(
        "names of new segments are not synced",
        "raftlog.storage.log_sync:LogSync.run",
        "names_changed:",
        "names_changed and False:",
        more=(
            Edit("raftlog.storage.log_sync:LogSync._note_success", "if valid:", "if False:"),
        ),  # syncs them too
    ),
    Mutant(
        "a sync does not write the hard state",
        "raftlog.storage.log_sync:LogSync.run",
        "has_voted = self._state.flush()",
        "has_voted = False",
    ),
    Mutant(
        "a sync does not sync the segments",
        "raftlog.storage.log_sync:LogSync.run",
        "file.sync()",
        "pass",
    ),
    Mutant(
        "only the newest segment is synced",
        "raftlog.storage.log_sync:LogSync.run",
        "files:",
        "files[-1:]:",
    ),
    Mutant(
        "a sync covers entries that were appended after its start",
        "raftlog.storage.segmented_log:SegmentedLog.sync_finished",
        "self._syncs.pop(0).covers)",
        "(self._syncs.pop(0), self._last)[1])",
        equivalent="the core counts its writes; only checkpoints and truncate_prefix ask the log",
    ),
    Mutant(
        "the hard state is written over the only good slot",
        "raftlog.storage.durable_state:DurableState._write",
        "target = 1 - self._durable",
        "target = self._durable",
    ),
    Mutant(
        "the hard state is written and not synced",
        "raftlog.storage.durable_state:DurableState.save",
        "self._write(sync=True)",
        "self._write(sync=False)",
    ),
    Mutant(
        "the older slot counts",
        "raftlog.storage.durable_state:newest_slot",
        "max(whole, key",
        "min(whole, key",
    ),
    Mutant(
        "a slot that was lost at creation is not created again",
        "raftlog.storage.durable_state:DurableState.open",
        "if found[1 - at] is SlotError.ABSENT:",
        "if False:",
        script="tests/unit/storage/test_recovery.py",
    ),
    Mutant(
        "the promise stays when the log is truncated",
        "raftlog.storage.durable_state:DurableState.withdraw",
        "if self.state.durable_index > durable_end.index:",
        "if False:",
    ),
    Mutant(
        "a lost slot counts as torn",
        "raftlog.storage.durable_state:doubt",
        "slot is SlotError.LOST or",
        "False or",
        script="tests/unit/storage/test_slots.py",
    ),
    Mutant(
        "a vote is written to one slot only",
        "raftlog.storage.log_sync:LogSync._note_success",
        "or has_voted",
        "",
        script="tests/unit/storage/test_slots.py",
    ),
    Mutant(
        "leader epochs are not compared with the promise",
        "raftlog.storage.recovery:_Opening._check_terms",
        "found != state.durable_end",
        "False",
        script="tests/unit/storage/test_slots.py",
    ),
    Mutant(
        "a truncated log keeps its bytes",
        "raftlog.storage.log_changes:LogChanges.cut_change",
        "cut.file.truncate(cut.place.position)",
        "pass",
    ),
    Mutant(
        "batches are not checked when a log opens",
        "raftlog.storage.batch_walk:walk_batches",
        "check_batch(batch)",
        "pass",
    ),
    Mutant(
        "offsets may jump in a log",
        "raftlog.storage.batch_walk:why_not_next",
        "if header.base_offset != offset:",
        "if False:",
        script="tests/unit/storage/test_recovery.py",
    ),
    Mutant(
        "a torn tail is left in the file",
        "raftlog.storage.recovery:_Opening._cut",
        "file.truncate(position)",
        "pass",
    ),
    Mutant(
        "data found on opening is used without a sync",
        "raftlog.storage.recovery:_Opening._make_durable",
        "file.sync()",
        "pass",
    ),
    Mutant(
        "every torn tail is taken for damage",
        "raftlog.storage.recovery:_Opening._damaged",
        "if offset <= self.durable_index:",
        "if True:",
    ),
    Mutant(
        "retention deletes one segment too many",
        "raftlog.storage.retention:first_index_to_keep",
        "size > limits.retention_bytes",
        "size + segment.size_bytes > limits.retention_bytes",
    ),
    Mutant(
        "a log begins where it has no state",
        "raftlog.node.group.applier:Applier.prefix_change",
        "log.prefix_change(sound[0]) if sound else None",
        "log.prefix_change(Index(log.last_index))",
    ),
    Mutant(
        "a snapshot does not restore the state machine",
        "raftlog.node.group.applier:Applier.installed",
        "self._machine.restore(state)",
        "pass",
    ),
    Mutant(
        "a state includes one entry more than was applied",
        "raftlog.storage.state_files:StateFiles.save",
        "_encode(at, state)",
        "_encode(EntryId(at.term, base), state)",
    ),
    Mutant(
        "an old state is taken for the newest",
        "raftlog.storage.state_files:StateFiles.newest",
        "(newest[0].index, newest[1])",
        "(newest[0].index, min(found)[1])",
    ),
    Mutant(
        "retention deletes the newest committed entry",
        "raftlog.storage.retention:first_index_to_keep",
        "segment.last >= end",
        "segment.last > end",
        script="tests/unit/storage/test_retention.py",
    ),
    Mutant(
        "a member that never catches up holds retention back for ever",
        "raftlog.hosting.retention:RetentionManager._held_back",
        " and epoch.waited < GRACE_LOOKS",
        "",
        script=_RETENTION,
    ),
    Mutant(
        "retention deletes a segment of one entry that must be kept",
        "raftlog.hosting.retention:_segment_start",
        "s.last < limit)",
        "s.last <= limit)",
        script=_RETENTION,
    ),
    Mutant(
        "retention deletes the segment with the newest durable entry",
        "raftlog.storage.log_changes:LogChanges.prefix_change",
        "min(first_kept, self._durable)",
        "min(first_kept, self._last)",
        more=(
            Edit(
                "raftlog.node.group.applier:Applier.prefix_change",
                "min(first_kept, self.applied_index + 1, durable_index)",
                "min(first_kept, self.applied_index + 1)",
            ),
        ),
        script="tests/unit/node/test_applier.py",
    ),
    Mutant(
        "the state at the log start is deleted with those below it",
        "raftlog.storage.state_files:StateFiles.remove_below",
        "if above < known < base]",
        "if above < known <= base]",
        script=_SNAPSHOTS,
    ),
    Mutant(
        "a state machine starts with a state that is ahead of its log",
        "raftlog.storage.state_files:StateFiles.newest",
        "if state is not None and holds(state[0]):",
        "if state is not None:",
        script=_SNAPSHOTS,
    ),
    Mutant(
        "a sync in progress covers entries that replaced truncated ones",
        "raftlog.storage.log_changes:LogChanges._forget_syncs",
        "sync.covers = Index(min(sync.covers, last))",
        "pass",
    ),
    Mutant(
        "one copy that the disk cannot read stops a start",
        "raftlog.storage.twin_file:_copies",
        "if error.errno != errno.EIO:",
        "if True:",
        script="tests/unit/storage/test_twin_file.py",
    ),
    Mutant(
        "two copies that the disk cannot read pass for none",
        "raftlog.storage.twin_file:_copies",
        "if unreadable and _newest(found.values()) is None:",
        "if False:",
        script="tests/unit/storage/test_twin_file.py",
    ),
)
