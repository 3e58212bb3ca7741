"""Bugs that break an invariant of the storage level (D1 to D7)."""

from __future__ import annotations

from tests.planted_bugs.bug import PlantedBug

STORAGE = (
    PlantedBug(
        "every torn tail is taken for damage",
        "storage D1",
        "raftlog.storage.recovery:_Opening._damaged",
        "if offset <= self.durable_index:",
        "if True:",
        seen_by="log:1",
    ),
    PlantedBug(
        "a state includes one entry more than was applied",
        "storage D1",
        "raftlog.storage.state_files:StateFiles.save",
        "_encode(at, state)",
        "_encode(EntryId(at.term, base), state)",
        seen_by="log:0",
    ),
    PlantedBug(
        "a sync does not write the hard state",
        "storage D2",
        "raftlog.storage.log_sync:LogSync.run",
        "has_voted = self._state.flush()",
        "has_voted = False",
        seen_by="log:5",
    ),
    PlantedBug(
        "a truncated log keeps its bytes",
        "storage D2",
        "raftlog.storage.log_changes:LogChanges.cut_change",
        "cut.file.truncate(cut.place.position)",
        "pass",
        seen_by="log:3",
    ),
    PlantedBug(
        "a replaced log keeps the old term before it",
        "storage D3",
        "raftlog.storage.durable_state:DurableState.restart",
        "self.state.before = durable_end.last.term",
        "pass",
        seen_by="log:3",
    ),
    PlantedBug(
        "a file is synced in place of a vote",
        "storage D3",
        "raftlog.storage.log_sync:LogSync.begin_alone",
        "self._state.is_dirty or ",
        "",
        seen_by="log:52",
    ),
    PlantedBug(
        "a restart forgets the memberships in the log",
        "storage D4",
        "raftlog.storage.segmented_log:SegmentedLog.restored",
        "memberships=self._members.in_log()",
        "memberships=()",
        seen_by="log:5",
    ),
    PlantedBug(
        "the membership at the old log start is dropped before the slot has the new start",
        "storage D4",
        "raftlog.storage.members:LogMembers.keep_base",
        "[base] if present is None else [present, base]",
        "[base]",
        seen_by="log:17",
    ),
    PlantedBug(
        "a state that is ahead of its log stays",
        "storage D5",
        "raftlog.storage.state_files:StateFiles.drop_unless",
        "if not holds(_peek(self._filesystem, path))",
        "if False",
        seen_by="log:0",
    ),
    PlantedBug(
        "a torn tail is left in the file",
        "storage D6",
        "raftlog.storage.recovery:_Opening._cut",
        "file.truncate(position)",
        "pass",
        seen_by="log:4",
    ),
    PlantedBug(
        "compaction removes records without a key",
        "storage D7",
        "raftlog.storage.compaction:Round.keeps",
        "return True",
        "return False",
        seen_by="log:3",
    ),
)
