"""Bugs in the coordinator of transactions, and in partitions that take part."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_WORLD = "tests/properties/test_transaction_decisions.py"
_DECISIONS = "transactions.decisions:Decisions."
_PARTITION = "tests/scenarios/partitions/test_transactions.py"
_HTTP = "tests/unit/api/test_transactions_over_http.py"
_TABLE_TESTS = "tests/unit/partitions/test_transaction_table.py"
_TABLE = "partitions.replica.transaction_table:TransactionTable."
_READS = "partitions.replica.reads:Reads."


def _mutant(name: str, place: str, text: str, planted: str, script: str = _WORLD) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


TRANSACTIONS = (
    _mutant(
        "a marker is sent before its decision is committed",
        "transactions.outputs:Outputs.take",
        "taken, self.wanted = self.wanted, []",
        "taken, self.wanted = sorted(self.wanted, key=lambda each: not isinstance(each, Mark)), []",
    ),
    _mutant(
        "the epoch does not rise when a transaction ends",
        _DECISIONS + "_complete",
        "epoch=found.epoch + 1,",
        "epoch=found.epoch,",
    ),
    _mutant(
        "the late end of a former transaction ends the open one",
        _DECISIONS + "_end",
        "if not is_newest(handle, found):",
        "if False:",
    ),
    _mutant(
        "an end is answered before the partitions show it",
        _DECISIONS + "_end",
        "self._decide([(name, found)], abort=abort, answer=ask.answer)\n"
        "        self._wait(request_id, name, ask)",
        "self._decide([(name, found)], abort=abort, answer=ask.answer)\n"
        "        self._outputs.answer(\n"
        "            request_id, Ended(is_committed=ask.is_commit, next_epoch=_next_epoch(handle.epoch))\n"
        "        )",
    ),
    _mutant(
        "an end without partitions does not raise the epoch",
        _DECISIONS + "_end",
        "self._complete(name, found, is_commit=ask.is_commit)\n        self._receive(request_id, ask)",
        "self._outputs.answer(\n"
        "            request_id, Ended(is_committed=ask.is_commit, next_epoch=handle.epoch)\n"
        "        )",
    ),
    _mutant(
        "a next coordinator does not send the markers of what was decided",
        _DECISIONS + "__init__",
        "if transaction.state in ENDING:",
        "if False:",
    ),
    _mutant(
        "a next coordinator gives open transactions no time limit",
        _DECISIONS + "__init__",
        "self._schedule(name, transaction)",
        "pass",
    ),
    _mutant(
        "a transaction that exceeds its time is committed",
        _DECISIONS + "tick",
        "abort=AbortReason.TIMEOUT",
        "abort=None",
    ),
    Mutant(
        "the deadline of a transaction that has ended aborts the next one of its id",
        "raftlog.hosting.deadlines:Deadlines.take",
        "if self._times.get(key) == at_ms:",
        "if key in self._times:",
        script="tests/unit/transactions/test_deadlines.py",
    ),
    _mutant(
        "a new incarnation does not abort what the earlier one has open",
        _DECISIONS + "_open",
        "        self._decide([(name, found)], abort=AbortReason.FENCED)\n"
        "        self._wait(request_id, name, ask)",
        "        self._begin(request_id, ask, found.producer_id, found.epoch + 1, found)",
    ),
    _mutant(
        "a new incarnation begins before the markers of the earlier one are written",
        _DECISIONS + "_open",
        "if found is not None and found.state in ENDING:",
        "if False:",
    ),
    _mutant(
        "a new incarnation aborts a prepared transaction",
        _DECISIONS + "_open",
        "raise batches.still_prepared(name)",
        "self._begin(request_id, ask, found.producer_id, found.epoch + 1, found)",
    ),
    _mutant(
        "a new incarnation has the epoch of the earlier one",
        _DECISIONS + "_open",
        "self._begin(request_id, ask, found.producer_id, found.epoch + 1, found)",
        "self._begin(request_id, ask, found.producer_id, found.epoch, found)",
    ),
    _mutant(
        "how the last transaction ended is forgotten by the next incarnation",
        _DECISIONS + "_begin",
        "last=None if before is None else before.last,",
        "last=None,",
    ),
    _mutant(
        "a partition that joins replaces the others",
        _DECISIONS + "_join",
        "{*found.partitions, *ask.partitions}",
        "{*ask.partitions}",
    ),
    _mutant(
        "a partition that joins is not recorded",
        _DECISIONS + "_join",
        "if (partitions, groups) != (found.partitions, found.groups):",
        "if groups != found.groups or not found.partitions:",
    ),
    _mutant(
        "an aborted transaction takes another partition",
        "transactions.fencing:why_closed",
        "if newest.state is State.PREPARE_ABORT:",
        "if False:",
    ),
    _mutant(
        "a committed transaction takes another partition",
        "transactions.fencing:why_closed",
        "if newest.state in (State.PREPARED, State.PREPARE_COMMIT):",
        "if newest.state is State.PREPARED:",
    ),
    _mutant(
        "an end of an earlier epoch is told the outcome of the last transaction",
        "transactions.fencing:outcome_of",
        "(handle.producer_id, handle.epoch) == (last.producer_id, last.epoch)",
        "handle.producer_id == last.producer_id",
    ),
    _mutant(
        "an end that is forgotten is refused",
        "transactions.fencing:outcome_of",
        "handle.producer_id == newest.producer_id and handle.epoch >= first",
        "handle.producer_id == newest.producer_id",
    ),
    _mutant(
        "a report of another transaction completes the newest",
        _DECISIONS + "completed",
        "not is_newest(handle, found) or ",
        "",
    ),
    _mutant(
        "a batch of a sink is decided one transaction after another",
        _DECISIONS + "_decide",
        "self._outputs.write(*rows, *beside)",
        "[self._outputs.write(row) for row in (*rows, *beside)]",
    ),
    _mutant(
        "a batch of a sink takes what is not prepared",
        "transactions.batches:chosen",
        " or transaction.state is not State.PREPARED",
        "",
    ),
    _mutant(
        "the same sequence of a sink commits other handles",
        "transactions.batches:check_repeated",
        "if tuple(sorted(handles)) != before.handles:",
        "if False:",
    ),
    _mutant(
        "a repeated batch of a sink is decided again",
        _DECISIONS + "_commit_batch",
        "if before is None or sinks.is_new_batch(ask, before):",
        "if True:",
    ),
    _mutant(
        "a batch is answered before all of its transactions are complete",
        _DECISIONS + "_when_complete",
        "and found.state in ENDING",
        "and False",
    ),
    _mutant(
        "the last stable offset does not wait for open transactions",
        _TABLE + "last_stable_offset",
        "return high_watermark if oldest is None else min(oldest.first_offset, high_watermark)",
        "return high_watermark",
        _TABLE_TESTS,
    ),
    _mutant(
        "a snapshot lacks the ranges of aborted transactions",
        _TABLE + "snapshot",
        "[*self._open.values()], [*self._aborted])",
        "[*self._open.values()], [])",
        _TABLE_TESTS,
    ),
    _mutant(
        "a snapshot lacks the open transactions",
        _TABLE + "snapshot",
        "[*self._open.values()], [*self._aborted])",
        "[], [*self._aborted])",
        _TABLE_TESTS,
    ),
    _mutant(
        "a committed transaction is shown as aborted",
        _TABLE + "_end",
        "if not marker.is_commit:",
        "if marker.is_commit:",
        _PARTITION,
    ),
    _mutant(
        "a marker of an earlier epoch closes the open transaction",
        _TABLE + "_end",
        " and found.epoch == marker.producer_epoch",
        "",
        _TABLE_TESTS,
    ),
    _mutant(
        "ranges below the log start are kept on the replica that still has them",
        _TABLE + "_end",
        "self.known_from = max(self.known_from, marker.log_start)",
        "pass",
        _TABLE_TESTS,
    ),
    _mutant(
        "a marker that is not committed yet is written again",
        "partitions.replica.producers:InFlight.marked",
        "if pending.epoch > epoch:",
        "if False:",
        _PARTITION,
    ),
    _mutant(
        "a marker that is committed is written again",
        "partitions.replica.producers:InFlight.marked",
        "if tail is None or tail[0] <= epoch:",
        "if True:",
        _PARTITION,
    ),
    _mutant(
        "a marker does not fence its transaction",
        "partitions.replica.producer_table:ProducerTable._fence",
        "_ROW.pack(producer_id, epoch, self._newest_ms, 0)",
        "_ROW.pack(producer_id, epoch - 1, self._newest_ms, 0)",
        "tests/unit/partitions/test_producers.py",
    ),
    _mutant(
        "a transaction writes without joining",
        "partitions.replica.replica:PartitionReplica._join",
        "if transaction is None:",
        "if True:",
        _PARTITION,
    ),
    _mutant(
        "a transaction that has joined before a change of leaders is not asked about",
        "partitions.replica.participant:Participant.clear",
        "self._joined.clear()",
        "pass",
        "tests/unit/partitions/test_participant.py",
    ),
    _mutant(
        "an answer to a join counts after a change of leaders",
        "partitions.replica.participant:Participant.join",
        "if transaction in self._asking:",
        "if True:",
        "tests/unit/partitions/test_participant.py",
    ),
    _mutant(
        "a transaction whose marker is written still counts as joined",
        "partitions.replica.participant:Participant.ended",
        "self._joined.pop(transaction, None)",
        "pass",
        _PARTITION,
    ),
    _mutant(
        "a producer writes plain batches beside its transaction",
        "partitions.replica.participant:Participant._check_plain",
        "if header.has_producer and (",
        "if False and (",
        _PARTITION,
    ),
    _mutant(
        "batches of two transactions stand in one request",
        "partitions.replica.participant:Participant.transaction_of",
        "len(names) != 1 or not all(header.is_transactional for header in headers)",
        "False",
        _PARTITION,
    ),
    _mutant(
        "a reader of committed records sees open transactions",
        _READS + "_ends",
        "Index(stable - 1) if committed_only else newest",
        "newest",
        _PARTITION,
    ),
    _mutant(
        "a reader of committed records is not told what was aborted",
        _READS + "_fetched",
        "if request.committed_only:",
        "if False:",
        _PARTITION,
    ),
    _mutant(
        "a batch without a sequence passes the marker of its transaction",
        "partitions.replica.producers:InFlight.check",
        "_expect(header, tail)",
        "header.is_sequenced and _expect(header, tail)",
        "tests/unit/partitions/test_producers.py",
    ),
    _mutant(
        "one of several batches without a sequence passes the marker",
        "partitions.replica.producers:InFlight._check_many",
        "_expect(header, self._tail(producer_id))",
        "pass",
        "tests/unit/partitions/test_producers.py",
    ),
    _mutant(
        "a batch without a sequence is taken for the marker of the transaction before",
        "partitions.replica.producers:InFlight.check",
        "self._find(header) if header.is_sequenced else None",
        "self._find(header)",
        "tests/unit/partitions/test_producers.py",
    ),
    _mutant(
        "a batch without a sequence is remembered in flight",
        "partitions.replica.producers:InFlight.add",
        "if header.is_sequenced:",
        "if header.has_producer:",
        _PARTITION,
    ),
    _mutant(
        "a batch without a sequence is remembered by the table",
        "partitions.replica.producer_table:ProducerTable.apply",
        "if not header.is_sequenced:",
        "if False:",
        _PARTITION,
    ),
    _mutant(
        "a transaction accepts records that are not committed",
        "partitions.replica.acks:check_acks",
        "if in_transaction and acks.kind in",
        "if False and acks.kind in",
        _PARTITION,
    ),
    _mutant(
        "a produce loses its transaction on its way to the leader",
        "api.resources.produce_records:_batches_of",
        "producer=producer",
        "producer=None",
        _HTTP,
    ),
    _mutant(
        "a binary batch of another transaction is taken",
        "api.resources.produce_batches:_transaction_of",
        "first is not None and (first.producer_id, first.producer_epoch) != producer[:2]",
        "False",
        _HTTP,
    ),
    _mutant(
        "an open transaction keeps a scan of dead letters from its end",
        "api.resources.dead_letter_scan:Scan.read",
        "self._at >= result.end",
        "self._at >= result.high_watermark",
        "tests/unit/api/test_dead_letter_scan.py",
    ),
    _mutant(
        "an operator's abort does nothing",
        "api.resources.transactions:abort",
        "if handle is not None:",
        "if handle is None:\n        return await get_transaction(call)\n    if handle is not None:",
        _HTTP,
    ),
    _mutant(
        "an earlier transaction is described as the newest one",
        "api.resources.transactions:get_transaction",
        "handle is not None and not is_newest(handle, described.transaction)",
        "False",
        _HTTP,
    ),
    _mutant(
        "an aborted transaction hides the records of another producer",
        "raftlog.records.aborted:AbortedRanges.of",
        "self._of_producer.get(header.producer_id, [])",
        "self._ranges",
        _PARTITION,
    ),
    _mutant(
        "an aborted transaction hides the next one of its producer",
        "raftlog.records.aborted:AbortedRanges.of",
        "at = bisect_left(ranges, header.base_offset, key=_last_offset)",
        "at = 0",
        _PARTITION,
    ),
    _mutant(
        "a reader of committed records waits for the end of the log",
        _READS + "_newer",
        "await self.waiters.wait(Index(group.applied_index + 1))",
        "await self.waiters.wait(Index(group.commit_index + 2))",
        _PARTITION,
    ),
    _mutant(
        "records are read whose aborted ranges are forgotten",
        _READS + "_start",
        "Offset(max(first, self._transactions.known_from)) if committed_only else first",
        "first",
        _PARTITION,
    ),
    _mutant(
        "a forwarded batch loses its transaction",
        "partitions.routing.gateway:Gateway.append",
        "rpc.Append(place, str(acks), left_ms, transactional_id)",
        "rpc.Append(place, str(acks), left_ms, None)",
        _PARTITION,
    ),
    _mutant(
        "a coordinator gives up a marker that did not arrive",
        "transactions.coordinator:TransactionCoordinator._until_known",
        "pause_s = min(2 * pause_s, PAUSE_MAX_S)",
        "return",
        _PARTITION,
    ),
    _mutant(
        "a topic that this broker does not know yet counts as deleted",
        "api.broker_transactions:BrokerMarkers.write",
        "await self._controller.current_image(CONFIRM_MS)",
        "return",
        "tests/unit/api/test_broker_transactions.py",
    ),
    _mutant(
        "retention deletes what an open transaction has written",
        "raftlog.storage.retention:first_index_to_keep",
        "end = min(end, limits.kept_from)",
        "pass",
        _PARTITION,
    ),
)
