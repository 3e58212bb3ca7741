"""Bugs in what finds damage and mends it."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

_REPAIRER = "tests/unit/partitions/test_repairer.py"
_FRESH_START = "tests/unit/partitions/test_fresh_start.py"
_VERIFY = "tests/unit/storage/test_verify.py"
_CORRUPTION = "tests/corruption/test_corruption.py"
_CHECKED = "tests/unit/storage/test_checked_reads.py"
_READS = "tests/unit/partitions/test_reads_of_files.py"
_REPLICATION = "tests/unit/node/test_replication.py"
_IN_USE = "tests/corruption/test_damage_in_use.py"

REPAIR = (
    Mutant(
        "segments are given to readers unchecked",
        "raftlog.storage.log_storage:FileRange.read",
        "find_damage(data, self.first, self.last, self.terms)",
        "None",
        script=_CORRUPTION,
    ),
    Mutant(
        "a read does not compare epochs, which a checksum leaves out",
        "raftlog.records.batch:find_damage",
        "base != expected or epoch != term or",
        "base != expected or",
        script=_CHECKED,
    ),
    Mutant(
        "a search by time believes timestamps that it has not checked",
        "raftlog.storage.segment:Segment.locate_time",
        "self._checked(file, offset, position)",
        "(header for _, header in self._walk(file, offset, position))",
        script=_CHECKED,
    ),
    Mutant(
        "a part is made of a log that begins behind it",
        "raftlog.storage.log_reads:LogReads.part",
        "self._require(first, first)",
        "pass",
        script=_CHECKED,
    ),
    Mutant(
        "a scrub leaves the active segment out",
        "raftlog.storage.scrub:rested_in",
        "segments.append((log.durable_part_of_active, False))",
        "pass",
        script=_IN_USE,
    ),
    Mutant(
        "what a scrub does not find since it was removed passes for damage",
        "partitions.scrubber:Scrubber._segment",
        "if not is_removed and replica.group.stopped is None:",
        "if True:",
        script=_IN_USE,
    ),
    Mutant(
        "what a scrub does not find while the log is cut passes for damage",
        "partitions.scrubber:Scrubber._segment",
        " or replica.log.is_changing",
        "",
        script=_IN_USE,
    ),
    Mutant(
        "what a thread does not find since retention removed it passes for damage",
        "raftlog.node.reading:read_part",
        "if log.removals != removals or log.is_changing:",
        "if False:",
        script=_READS,
    ),
    Mutant(
        "what a thread does not find while the log is cut passes for damage",
        "raftlog.node.reading:read_part",
        " or log.is_changing",
        "",
        script=_READS,
    ),
    Mutant(
        "a read that has outlived its office is answered",
        "partitions.reads:Reads._from_log",
        "serving.check_leads()  # a thread may have taken its time",
        "pass",
        script=_READS,
    ),
    Mutant(
        "a read that the disk refuses is no reason to stop",
        "partitions.serving:Serving.healthy_log",
        "except (LogCorrupt, OSError) as error:",
        "except LogCorrupt as error:",
        script=_READS,
    ),
    Mutant(
        "entries that were read for one office are sent in another",
        "raftlog.node.replication:Replication._send_from_disk",
        "if not group.is_leader or group.term != order.term:",
        "if False:",
        script=_REPLICATION,
    ),
    Mutant(
        "newer entries overtake those that are read from the disk",
        "raftlog.node.replication:Replication.carry_out",
        "elif order.to not in self._reading:",
        "else:",
        script=_REPLICATION,
    ),
    Mutant(
        "what was ordered behind a cut append counts as sent",
        "raftlog.core.progress:Progress.cut",
        "while in_flight and in_flight[-1] > last:",
        "if in_flight and in_flight[-1] > last:",
        script="tests/paper/test_raft_logs.py",
    ),
    Mutant(
        "a follower takes batches whose checksum is wrong",
        "raftlog.node.codec:decode_message",
        "check_batch(batch)",
        "pass",
        script="tests/unit/node/test_codec.py",
    ),
    Mutant(
        "a log is mended from one that does not hold its anchor",
        "raftlog.storage.verify:Examination.holds",
        "if entry == self.anchor:",
        "if True:",
        script=_REPAIRER,
    ),
    Mutant(
        "what a peer sends is not checked",
        "raftlog.storage.mend:SegmentWriter.checked",
        "check_batch(batch)",
        "pass",
        script=_REPAIRER,
    ),
    Mutant(
        "any leader's log replaces a damaged one",
        "partitions.repairer:Repairer._take_from_leader",
        "term, margin = self._newest_term(patient, seen, told)",
        "term, margin = Term(0), 0",
        script=_REPAIRER,
    ),
    Mutant(
        "a lost vote is forgotten without asking everybody",
        "partitions.repairer:Repairer._newest_term",
        "if silent:",
        "if False:",
        script=_REPAIRER,
    ),
    Mutant(
        "who has forgotten its terms is believed",
        "partitions.repairer:Repairer._newest_term",
        "answer.is_sure for",
        "True for",
        script=_REPAIRER,
    ),
    Mutant(
        "what stood behind the damage is not taken from the leader",
        "partitions.leaders_log:owed",
        "max(end, seen.state.promised, seen.covers - 1, seen.last)",
        "end",
        script=_REPAIRER,
    ),
    Mutant(
        "who votes without the metadata knowing is not asked for terms",
        "partitions.repairer:Repairer._ask_everybody",
        "named.update(*(answer.voters for answer in told.values()))",
        "pass",
        script=_REPAIRER,
    ),
    Mutant(
        "a replaced log's later segments stay",
        "raftlog.storage.mend:forget_from",
        "if base > first:",
        "if False:",
        script=_REPAIRER,
    ),
    Mutant(
        "a log begins anew with any leader's",
        "partitions.leaders_log:leader_of",
        "answer.is_leader and answer.term >= term",
        "answer.is_leader",
        script=_FRESH_START,
    ),
    Mutant(
        "a log that begins anew is short of what was acknowledged",
        "partitions.leaders_log:owed",
        "min(leader.last, max(end, seen.state.promised, seen.covers - 1, seen.last))",
        "leader.first - 1",
        script=_FRESH_START,
    ),
    Mutant(
        "a log is replaced without being given up before",
        "raftlog.storage.new_log:NewLog.replace",
        "given_up(term)",
        "old.promise",
        script=_FRESH_START,
    ),
    Mutant(
        "another log's state is taken for this one's",
        "partitions.fresh_start:_lacks_only_a_state",
        "start == own or seen.holds(begin.end)",
        "True",
        script=_FRESH_START,
    ),
    Mutant(
        "a state that is missing is not missed",
        "raftlog.storage.verify:_Examiner._check_checkpoint",
        "if not damaged and not is_state_known(self._filesystem, self._directory, start):",
        "if False:",
        script=_FRESH_START,
    ),
    Mutant(
        "an end that is gone is not missed",
        "raftlog.storage.verify:_Examiner._note_holes",
        "if end < promised:",
        "if False:",
        script=_VERIFY,
    ),
    Mutant(
        "what a scrub finds is not acted upon",
        "partitions.scrubber:Scrubber._found",
        "replica.group.stop(error)",
        "pass",
        script=_IN_USE,
    ),
    Mutant(
        "what a repair is about to fetch is not promised before the old entries go",
        "raftlog.storage.mend:forget_from",
        "promised = max(state.promised, seen.covers - 1, last)",
        "promised = state.promised",
        script="tests/unit/partitions/test_repair_cut_short.py",
    ),
    Mutant(
        "a metadata log comes back while its broker still takes part by the failed one",
        "partitions.metadata_ward:MetadataWard.run",
        "await self._member.leave()",
        "pass",
        script="tests/corruption/test_damage_in_use.py",
    ),
    Mutant(
        "a torn tail is taken for nothing that was acknowledged",
        "partitions.leaders_log:owed",
        " or seen.torn",
        "",
        script="tests/unit/partitions/test_repair_cut_short.py",
    ),
)
