"""Bugs in the compaction of logs."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TWIN = "tests/properties/test_compaction.py"
_UNIT = "tests/unit/storage/test_compaction.py"
_SCENARIO = "tests/scenarios/partitions/test_compaction.py"
_TOMBSTONES = "tests/unit/hosting/test_tombstones.py"
_REPAIR = "tests/scenarios/repair/test_repair_of_compacted.py"

COMPACTION = (
    Mutant(
        "compaction removes the newest record of a key",
        "raftlog.storage.compaction:Round.keeps",
        "record.offset >= self.newest.newest(record.key)",
        "record.offset > self.newest.newest(record.key)",
    ),
    Mutant(
        "compaction removes records without a key",
        "raftlog.storage.compaction:Round.keeps",
        "return True",
        "return False",
    ),
    Mutant(
        "compaction takes the offset of a key's first record for its newest",
        "raftlog.storage.compaction:NewestOffsets.note",
        "self._newest[_digest(record.key)] = record.offset",
        "self._newest.setdefault(_digest(record.key), record.offset)",
        script=_UNIT,
    ),
    Mutant(
        "a gap batch covers two leader epochs",
        "raftlog.storage.compaction:Compaction._widen",
        "if gap_epoch == epoch and",
        "if",
        script=_UNIT,
    ),
    Mutant(
        "compaction removes control batches",
        "raftlog.storage.compaction:_removable",
        "if header.is_control or",
        "if",
    ),
    Mutant(
        "headers that no producer needs stay",
        "raftlog.storage.compaction:Compaction._rest",
        "if not records and header.record_count:",
        "if not records:",
        script=_UNIT,
    ),
    Mutant(
        "compaction removes headers that a producer needs",
        "raftlog.storage.compaction:Round.keeps_header",
        "header.base_offset in self.headers_kept",
        "False",
        script=_UNIT,
    ),
    Mutant(
        "the gap at the end of a segment is not written",
        "raftlog.storage.compactor:Compactor._rewrite",
        "self._rewriter.add(work.flush())",
        "pass",
    ),
    Mutant(
        "a round forgets where it ended",
        "raftlog.storage.compactor:Compactor._run",
        "self.clean_end = Index(max(self.clean_end, end))",
        "self.clean_end = Index(self._segments[-1].last + 1)",
        script=_TWIN,
    ),
    Mutant(
        "a compacted file is not synced",
        "raftlog.storage.segment_rewriter:SegmentRewriter.finish",
        "self._file.sync()",
        "pass",
    ),
    Mutant(
        "a half-written compacted file stays",
        "raftlog.storage.recovery:_Opening.run",
        "for name in compacted_files(names):",
        "for name in ():",
        script=_UNIT,
    ),
    Mutant(
        "a compacted file replaces a segment that has changed",
        "raftlog.storage.log_changes:LogChanges.replace_change",
        "if each.is_same_as(old)",
        "if True",
        script=_UNIT,
    ),
    Mutant(
        "readers do not hear that a segment was replaced",
        "raftlog.storage.log_changes:LogChanges.replace_change",
        "self.removals += 1",
        "pass",
        script=_UNIT,
    ),
    Mutant(
        "entries that are not durable are compacted",
        "raftlog.storage.log_reads:LogReads.compactable_segments",
        "min(self._durable, self._commit)",
        "self._commit",
        script=_UNIT,
    ),
    Mutant(
        "compaction copies a leader epoch without a check",
        "raftlog.storage.segment_rewriter:SegmentReader._check_term",
        "if batch.leader_epoch != self._terms[max(at, 0)].term:",
        "if False:",
        script=_UNIT,
    ),
    Mutant(
        "a compacted batch loses the headers of its records",
        "raftlog.records.compaction:retain",
        "parts.append(encoded)",
        "parts.append(encoded[:-1])",
        script=_UNIT,
    ),
    Mutant(
        "a compacted batch keeps the newest time of what is removed",
        "raftlog.records.compaction:retain",
        "keeps_time = header.is_append_time or header.has_producer",
        "keeps_time = True",
        script=_UNIT,
    ),
    Mutant(
        "a repair takes a whole gap batch for a part of it",
        "raftlog.repair.segment_writer:SegmentWriter.checked",
        "cut_gap(batch, self.following, last)",
        "batch",
        script=_REPAIR,
    ),
    Mutant(
        "a closed log gives no part of a gap batch",
        "raftlog.repair.service:_from_runs",
        "cut_gap(found, ask.first, ask.last)",
        "found",
        script=_REPAIR,
    ),
    Mutant(
        "a follower writes a gap batch again from its beginning",
        "raftlog.node.group.log_writer:LogWriter.write",
        "cut_gap(batch, first, last)",
        "batch",
        script="tests/unit/node/test_log_writer.py",
    ),
    Mutant(
        "a leader sends a gap batch from its beginning",
        "raftlog.node.reading:_bytes_of",
        "starting_at(found.read(), first)",
        "found.read()",
        script="tests/scenarios/node/test_node_stories.py",
    ),
    Mutant(
        "a gap batch is applied beyond the commit index",
        "raftlog.node.group.recent_entries:RecentEntries.next_to_apply",
        "if entry.last > commit_index and entry.batch.header.is_gap:",
        "if False:",
        script="tests/unit/node/test_applier.py",
    ),
    Mutant(
        "a compacted topic takes records without a key",
        "raftlog.records.reader:check_records",
        "if requires_keys:",
        "if False:",
        script="tests/scenarios/partitions/test_compaction.py",
    ),
    Mutant(
        "compaction forgets the sequences of producers",
        "partitions.replica.producer_table:ProducerTable.base_offsets",
        "in self._rows.values()",
        "in ()",
        script="tests/scenarios/node/test_node_stories.py",
    ),
    Mutant(
        "a tombstone goes before its time",
        "raftlog.hosting.compaction:CompactionManager._agree",
        "min(end, old_end)",
        "end",
        script=_SCENARIO,
    ),
    Mutant(
        "a tombstone goes while a replica has older records",
        "raftlog.hosting.compaction:CompactionManager._agree",
        "min(end, old_end)",
        "old_end",
        script=_SCENARIO,
    ),
    Mutant(
        "answers of a log that was opened again count at once",
        "raftlog.hosting.tombstones:Agreement.heard",
        "and all(before[node].opening == now[node].opening for node in now)",
        "",
        script=_TOMBSTONES,
    ),
    Mutant(
        "a member that does not answer is left out of an agreement",
        "raftlog.hosting.tombstones:Agreement.heard",
        "now if len(now) == len(answers) else None",
        "now",
        script=_TOMBSTONES,
    ),
    Mutant(
        "an agreement takes the newest answers",
        "raftlog.hosting.tombstones:Agreement.heard",
        "for clean in before.values()",
        "for clean in now.values()",
        script=_TOMBSTONES,
    ),
    Mutant(
        "a young segment does not hold later tombstones",
        "raftlog.hosting.tombstones:old_enough",
        "break",
        "continue",
        script=_TOMBSTONES,
    ),
    Mutant(
        "a replica that is added again keeps its log",
        "partitions.hosting.hosted_partition:HostedPartition.must_begin_empty",
        "return has_log and",
        "return False and has_log and",
        script=_SCENARIO,
    ),
    Mutant(
        "an index that is replaced during a scrub counts as damage",
        "raftlog.repair.scrubber:Scrubber._segment",
        "if replica.log.removals == removals and not replica.log.is_changing:",
        "if True:",
        script="tests/corruption/test_damage_in_use.py",
    ),
)
