"""Bugs in the compaction and size of transactions, metrics, lost markers, and where a new reader begins."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TWIN = "tests/properties/test_transaction_compaction.py"
_SCENARIO = "tests/scenarios/partitions/test_transaction_compaction.py"
_PARTITION = "tests/scenarios/partitions/test_transactions.py"
_METRICS = "tests/scenarios/partitions/test_transaction_metrics.py"
_PARTICIPANT = "tests/unit/partitions/test_participant.py"
_LOST = "tests/scenarios/partitions/test_lost_markers.py"
_TABLE_TESTS = "tests/unit/partitions/test_transaction_table.py"
_TABLE = "partitions.replica.transaction_table:TransactionTable."
_LOOK = "api.lost_markers:LostMarkers.look"
_SETTLED = "tests/unit/hosting/test_settled_answers.py"
_ROUND = "raftlog.storage.compaction:Round."
_COMPACTION = "raftlog.storage.compaction:Compaction."
_RANGES = "raftlog.records.aborted:AbortedRanges."

TRANSACTION_COMPACTION = (
    Mutant(
        "a record of an aborted transaction replaces older ones",
        "raftlog.storage.compaction:NewestOffsets.note",
        "if self._aborted.of(batch.header) is not None:",
        "if False:",
        script=_SCENARIO,
    ),
    Mutant(
        "records of aborted transactions stay",
        _COMPACTION + "_rest",
        "if self._round.aborted.of(header) is not None:",
        "if False:",
        script=_SCENARIO,
    ),
    Mutant(
        "compaction removes all headers of an aborted transaction",
        _ROUND + "keeps_header",
        "begins_range or ",
        "",
        script=_SCENARIO,
    ),
    Mutant(
        "compaction keeps each header of an aborted transaction",
        _ROUND + "keeps_header",
        "aborted is not None and aborted.first_offset == header.base_offset",
        "aborted is not None",
        script=_SCENARIO,
    ),
    Mutant(
        "records of committed transactions are not compacted",
        "raftlog.storage.compaction:_removable",
        "if header.is_control or",
        "if header.is_control or header.is_transactional or",
        script=_SCENARIO,
    ),
    Mutant(
        "compaction removes markers",
        _COMPACTION + "_rest",
        "if not records and header.record_count:",
        "if not records and header.record_count and not header.is_transactional:",
        script=_SCENARIO,
    ),
    Mutant(
        "an open transaction is compacted",
        "raftlog.hosting.compaction:_Compacted.compactable",
        "min(self.group.applied_index + 1, rules.last_stable_offset)",
        "self.group.applied_index + 1",
        script=_SCENARIO,
    ),
    Mutant(
        "compaction does not know the aborted ranges",
        "partitions.hosting.hosted_partition:HostedPartition.compaction",
        "machine.transactions.aborted,",
        "",
        script=_SCENARIO,
    ),
    Mutant(
        "a round looks at keys without the aborted ranges",
        "raftlog.storage.compactor:Compactor._run",
        "NewestOffsets(self._keys_max, self._aborted)",
        "NewestOffsets(self._keys_max, AbortedRanges())",
        script=_TWIN,
    ),
    Mutant(
        "a range has the batches of its producer that stand before it",
        _RANGES + "of",
        "or ranges[at].first_offset > header.base_offset",
        "",
        script=_TWIN,
    ),
    Mutant(
        "of a producer's aborted transactions the newest alone counts",
        _RANGES + "of",
        "at = bisect_left(ranges, header.base_offset, key=_last_offset)",
        "at = max(0, len(ranges) - 1)",
        script=_TWIN,
    ),
    Mutant(
        "a forgotten range hides the next one of its producer",
        _RANGES + "forget_below",
        "del of_producer[0]",
        "del of_producer[-1]",
        script=_TABLE_TESTS,
    ),
    Mutant(
        "a reader that begins at the end skips an open transaction",
        "partitions.replica.reads:Reads.offset_at",
        "offset, visible = await self._find(position, committed_only)",
        "offset, visible = await self._find(position, committed_only=False)",
        script=_PARTITION,
    ),
    Mutant(
        "another broker answers the high watermark for the end",
        "partitions.routing.local:LocalReplicas._serve_offset_at",
        "committed_only=ask.committed_only",
        "committed_only=False",
        script=_PARTITION,
    ),
    Mutant(
        "the earliest offset lies below what committed readers may read",
        "partitions.replica.reads:Reads._find",
        "max(offset, self._start(committed_only))",
        "offset",
        script=_PARTITION,
    ),
    Mutant(
        "the next oldest transaction holds readers back since the one before",
        "partitions.replica.participant:HeldBack.note",
        "if oldest != self._oldest:",
        "if (oldest is None) != (self._oldest is None):",
        script=_PARTICIPANT,
    ),
    Mutant(
        "the bytes of a transaction are not added up",
        "partitions.replica.participant:Participant.join",
        "self._joined[transaction] += size_bytes",
        "self._joined[transaction] = size_bytes",
        script=_PARTICIPANT,
    ),
    Mutant(
        "a transaction without an end is no problem",
        "api.cli.health:Health.add",
        "if partition.readers_held_ms > TRANSACTION_MS_MAX:",
        "if False:",
        script=_METRICS,
    ),
    Mutant(
        "aborts by operators count as those of producers",
        "transactions.decisions:Decisions._abort_open",
        "abort=AbortReason.OPERATOR",
        "abort=AbortReason.PRODUCER",
        script=_METRICS,
    ),
    Mutant(
        "a transaction that is complete counts as open",
        "transactions.state:TransactionsState.take",
        "self.open.pop(name, None)\n            if value",
        "if value",
        script=_METRICS,
    ),
    Mutant(
        "a marker that was given up counts as unwritten",
        "transactions.coordinator:TransactionCoordinator._counted",
        "self.tally.markers_unwritten -= 1",
        "pass",
        script=_METRICS,
    ),
    Mutant(
        "a later transaction decides about one whose marker is lost",
        _TABLE + "_end",
        "self._lost_marker(marker.producer_id, marker.producer_epoch, offset)",
        "if found := self._open.get(marker.producer_id):\n"
        "        self._open[marker.producer_id] = found._replace(epoch=marker.producer_epoch)",
        script=_TABLE_TESTS,
    ),
    Mutant(
        "a transaction whose marker is lost is taken for the next one of its producer",
        _TABLE + "_lost_marker",
        "if found is not None and found.epoch < epoch:",
        "if False:",
        script=_LOST,
    ),
    Mutant(
        "a leader ends transactions that their coordinator has open",
        _LOOK,
        "number not in known.open and ",
        "",
        script=_LOST,
    ),
    Mutant(
        "a transaction whose marker is lost is aborted although it was committed",
        _LOOK,
        "number in known.committed",
        "False",
        script=_LOST,
    ),
    Mutant(
        "an aborted transaction whose marker is lost is committed",
        "transactions.outcomes:known",
        "last is not None and last.is_committed and",
        "last is not None and",
        script=_LOST,
    ),
    Mutant(
        "coordinators are asked about each transaction",
        _LOOK,
        "if key in self._before",
        "if True",
        script=_LOST,
    ),
    Mutant(
        "a commit is answered when the record is stored that it is complete",
        "transactions.decisions:Decisions.completed",
        "is_settled=True",
        "is_settled=False",
        script=_SETTLED,
    ),
    Mutant(
        "each answer of a coordinator leaves before the records before it are committed",
        "raftlog.hosting.coordinator:_is_settled",
        "isinstance(wanted, Answer) and wanted.is_settled",
        "isinstance(wanted, Answer)",
        script=_SETTLED,
    ),
)
