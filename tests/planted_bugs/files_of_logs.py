"""Bugs that break the format of the log on disk, by section of ``docs/storage-format.md``."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit
from tests.planted_bugs.bug import PlantedBug

FILES_OF_LOGS = (
    PlantedBug(
        "offsets may jump in a log",
        "log on disk: segments",
        "raftlog.storage.batch_walk:why_not_next",
        "if header.base_offset != offset:",
        "if False:",
        seen_by=(
            "tests/unit/storage/test_recovery.py::test_a_flipped_bit_anywhere_in_what_was_prom"
            "ised_is_corruption"
        ),
    ),
    PlantedBug(
        "zeros at the end of a file are a torn tail",
        "log on disk: segments",
        "raftlog.storage.batch_walk:walk_file",
        "not is_blank(file, damage.position)",
        "True",
        seen_by=(
            "tests/unit/storage/test_filled_files.py::test_a_killed_process_leaves_zeros_and_t"
            "he_next_one_cuts_them_off"
        ),
    ),
    PlantedBug(
        "a slot that was lost at creation is not created again",
        "log on disk: hard_state slots",
        "raftlog.storage.durable_state:DurableState.open",
        "if found[1 - at] is SlotError.ABSENT:",
        "if False:",
        seen_by=(
            "tests/unit/storage/test_recovery.py::test_a_second_slot_that_was_lost_at_birth_is"
            "_there_before_it_is_written"
        ),
    ),
    PlantedBug(
        "a lost slot counts as torn",
        "log on disk: hard_state slots",
        "raftlog.storage.durable_state:doubt",
        "slot is SlotError.LOST or",
        "False or",
        seen_by=(
            "tests/unit/storage/test_slots.py::test_a_lost_slot_may_have_held_a_vote_so_the_re"
            "plica_does_not_open"
        ),
    ),
    PlantedBug(
        "terms from before a snapshot conflict with later entries",
        "log on disk: epochs and members",
        "raftlog.storage.recovery:_Opening.run",
        "self.epochs.clear()",
        "pass",
        seen_by=(
            "tests/unit/storage/test_members.py::test_an_epochs_file_from_before_a_snapshot_"
            "says_nothing_of_what_follows"
        ),
    ),
    PlantedBug(
        "the epochs file covers one entry more than it should",
        "log on disk: epochs and members",
        "raftlog.repair.verify:VerifyReport.holds",
        "entry.index < self.covers",
        "entry.index <= self.covers",
        seen_by=(
            "tests/unit/storage/test_verify.py::test_the_epochs_file_vouches_for_no_entry_that"
            "_it_does_not_cover"
        ),
    ),
    PlantedBug(
        "the state at the log start is deleted with those below it",
        "log on disk: states and snapshots",
        "raftlog.storage.state_files:StateFiles.remove_below",
        "if above < known < base]",
        "if above < known <= base]",
        seen_by=(
            "tests/unit/storage/test_members.py::test_states_below_the_log_start_go_and_a_fu"
            "ll_disk_only_puts_states_off"
        ),
    ),
    PlantedBug(
        "a state machine starts with a state that is ahead of its log",
        "log on disk: states and snapshots",
        "raftlog.storage.state_files:StateFiles.newest",
        "if state is not None and holds(state[0]):",
        "if state is not None:",
        seen_by=(
            "tests/unit/storage/test_members.py::test_a_state_counts_only_where_the_log_holds_its_entry"
        ),
    ),
    PlantedBug(
        "a snapshot's checksums are not compared",
        "log on disk: installing a snapshot",
        "raftlog.node.group.snapshot_transfer:SnapshotTransfer._fetch_chunk",
        "if crc32c(payload) != chunk.chunk_checksum or ",
        "if ",
        seen_by="tests/scenarios/node/test_memberships.py::test_a_damaged_chunk_is_refused",
        more=(
            Edit(
                "raftlog.node.group.snapshot_transfer:SnapshotTransfer._fetch_from",
                "if crc32c(self._received) != self._manifest[1]:",
                "if False:",
            ),
        ),
    ),
    PlantedBug(
        "two copies that the disk cannot read pass for none",
        "log on disk: files kept twice",
        "raftlog.storage.twin_file:_copies",
        "if unreadable and _newest(found.values()) is None:",
        "if False:",
        seen_by=(
            "tests/unit/storage/test_slots.py::test_two_files_that_the_disk_cannot_read_are_no_loss_of_both"
        ),
    ),
    PlantedBug(
        "the kernel syncs a file alone although its name is not durable",
        "log on disk: the order of writes",
        "raftlog.storage.log_sync:LogSync.begin_alone",
        "is_more = self.names_changed or self._notes_end",
        "is_more = self._notes_end",
        seen_by="log:28",
    ),
    PlantedBug(
        "an older copy that has aged alone passes for the disk itself",
        "log on disk: disk_age",
        "raftlog.storage.disk_age:Disk.continues",
        "return counted in (run.number for run in known.runs[:1])",
        "return True",
        seen_by="tests/unit/storage/test_replica_registry.py::test_an_older_copy_that_has_aged_alone_is_one_still",
    ),
    PlantedBug(
        "runs that do not reach back to a known age prove that a disk is no older copy",
        "log on disk: disk_age",
        "raftlog.storage.disk_age:Disk.continues",
        "return len(self.runs) < RUNS_MAX",
        "return True",
        seen_by=(
            "tests/unit/storage/test_replica_registry.py::"
            "test_an_older_copy_whose_runs_no_longer_reach_back_is_one_still"
        ),
    ),
    PlantedBug(
        "a lower term is no sign of an older copy",
        "log on disk: replica_progress",
        "raftlog.storage.replica_progress:Progress.missing_in",
        "if state.term < self.term:",
        "if False:",
        seen_by=(
            "tests/unit/storage/test_replica_registry.py::test_a_log_without_what_was_noted_is_an_older_copy"
        ),
    ),
    PlantedBug(
        "a damaged note of a broken group is ignored",
        "log on disk: broken",
        "raftlog.storage.broken_groups:BrokenGroups._reason",
        'return f"the replica here has broken an invariant; {damage}"',
        'return ""',
        seen_by="tests/unit/storage/test_replica_registry.py::test_a_damaged_note_counts",
    ),
    PlantedBug(
        "a sync does nothing",
        "log on disk: the order of writes",
        "raftlog.storage.os_filesystem:OsFile.sync",
        "_sync_data(descriptor)",
        "pass",
        seen_by=(
            "tests/conformance/test_filesystem_calls.py::TestOperations::test_a_file_opened_ag"
            "ain_has_its_bytes_and_size"
        ),
    ),
    PlantedBug(
        "segments are given to readers unchecked",
        "log on disk: opening",
        "raftlog.storage.log_storage:FileRange.read",
        "find_damage(data, self.first, self.last, self.terms)",
        "None",
        seen_by=(
            "tests/corruption/test_corruption.py::test_a_cluster_that_serves_what_it_does_not_"
            "check_is_convicted"
        ),
    ),
    PlantedBug(
        "garbage behind a closed segment keeps its index from being built",
        "log on disk: opening",
        "raftlog.storage.recovery:_Opening._rebuild",
        ", last=following - 1",
        "",
        seen_by=(
            "tests/unit/storage/test_filled_files.py::test_garbage_in_the_zeros_of_a_closed_se"
            "gment_costs_nothing"
        ),
    ),
    PlantedBug(
        "retention deletes the newest committed entry",
        "log on disk: retention",
        "raftlog.storage.retention:first_index_to_keep",
        "segment.last >= end",
        "segment.last > end",
        seen_by=(
            "tests/unit/storage/test_compaction.py::test_what_is_not_committed_stays_and_so_doe"
            "s_the_newest_committed_entry"
        ),
    ),
    PlantedBug(
        "entries that may still be lost take room from committed ones",
        "log on disk: retention",
        "raftlog.storage.retention:first_index_to_keep",
        "if segment.base <= commit_index",
        "if True",
        seen_by=(
            "tests/unit/storage/test_compaction.py::test_entries_that_may_still_be_lost_take_no"
            "_room_from_committed_ones"
        ),
    ),
    PlantedBug(
        "compaction takes the offset of a key's first record for its newest",
        "log on disk: compaction",
        "raftlog.storage.compaction:NewestOffsets.note",
        "self._newest[_digest(record.key)] = record.offset",
        "self._newest.setdefault(_digest(record.key), record.offset)",
        seen_by=(
            "tests/unit/storage/test_compaction.py::test_a_part_that_was_taken_before_finds_th"
            "at_the_log_has_changed"
        ),
    ),
    PlantedBug(
        "a gap batch covers two leader epochs",
        "log on disk: compaction",
        "raftlog.storage.compaction:Compaction._widen",
        "if gap_epoch == epoch and",
        "if",
        seen_by="tests/unit/storage/test_compaction.py::test_a_gap_batch_covers_one_leader_epoch",
    ),
)
