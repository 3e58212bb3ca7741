"""Bugs in transactions that whole brokers must see: seeds of ``brokers-transactions`` look for them.

``SEEN_BY_SEEDS`` names those of ``transactions`` that such a seed sees, beside the test that is faster.
"""

from __future__ import annotations

from typing import Final

from chaos.simulator.levels import BROKERS_TRANSACTIONS
from tests.helpers.planted_bugs import Mutant

_DECISIONS = "transactions.decisions:Decisions."


def _mutant(name: str, place: str, text: str, planted: str) -> Mutant:
    return Mutant(name, place, text, planted, level=BROKERS_TRANSACTIONS)


TRANSACTION_SEEDS = (
    Mutant(
        "a deposed coordinator denies what its successor has begun",
        "raftlog.hosting.coordinator:Coordinator.ask",
        "not refusal.retryable and",
        "False and",
        script="tests/scenarios/partitions/test_deposed_coordinators.py",  # seeds see it in minutes
    ),
    _mutant(
        "a replica that restarts has forgotten its transactions",
        "partitions.replica.machine:PartitionMachine.restore",
        "self.transactions.restore(transactions)",
        "self.transactions.restore(b'')",
    ),
    _mutant(
        "a replica that restarts has forgotten what was aborted",
        "partitions.replica.transaction_table:TransactionTable.restore",
        "AbortedRanges(found.aborted)",
        "AbortedRanges()",
    ),
    _mutant(
        "a marker does not fence before it is committed",
        "partitions.replica.producers:InFlight.add_marker",
        "_Pending(epoch + 1, batch, handle)",
        "_Pending(epoch, batch, handle)",
    ),
    _mutant(
        "a marker is acknowledged before it is committed",
        "partitions.replica.replica:PartitionReplica.mark",
        "await asyncio.shield(proposal.outcome)",
        "pass",
    ),
    _mutant(
        "a marker names a log start above that of its leader",
        "partitions.replica.replica:PartitionReplica.mark",
        "log_start=int(self.group.log.first_index)",
        "log_start=int(self.group.last_index)",
    ),
    _mutant(
        "one of several partitions gets its marker",
        "transactions.coordinator:TransactionCoordinator._send",
        "for target in mark.partitions)",
        "for target in mark.partitions[:1])",
    ),
    _mutant(
        "a group is not told how a transaction ended",
        "transactions.coordinator:TransactionCoordinator._send",
        "gather(*partitions, *groups)",
        "gather(*partitions)",
    ),
    _mutant(
        "a fenced incarnation goes on behind its last transaction",
        _DECISIONS + "_open",
        "not _goes_on(ask.after, found)",
        "False",
    ),
    _mutant(
        "a new incarnation commits what the earlier one has left open",
        _DECISIONS + "_open",
        "self._decide([(name, found)], abort=AbortReason.FENCED)",
        "self._decide([(name, found)], abort=None)",
    ),
    _mutant(
        "a repeated end is answered before the partitions show it",
        _DECISIONS + "_end",
        "elif found.state in ENDING:\n        self._wait(request_id, name, ask)",
        "elif found.state in ENDING:\n"
        "        is_commit = found.state is State.PREPARE_COMMIT\n"
        "        self._outputs.answer(request_id, Ended(is_committed=is_commit, next_epoch=found.epoch + 1))",
    ),
    _mutant(
        "a coordinator decides in the state that its log has not reached",
        "transactions.state:TransactionsState.copy",
        "dict(self.transactions)",
        "self.transactions",
    ),
)

SEEN_BY_SEEDS: Final = (
    "a marker is sent before its decision is committed",
    "the epoch does not rise when a transaction ends",
    "the late end of a former transaction ends the open one",
    "an end is answered before the partitions show it",
    "an end without partitions does not raise the epoch",
    "a next coordinator does not send the markers of what was decided",
    "a new incarnation begins before the markers of the earlier one are written",
    "a partition that joins is not recorded",
    "a snapshot lacks the ranges of aborted transactions",
    "a snapshot lacks the open transactions",
    "the last stable offset does not wait for open transactions",
    "a transaction writes without joining",
    "a marker that is committed is written again",
    "a marker does not fence its transaction",
    "a reader of committed records sees open transactions",
    "a reader of committed records is not told what was aborted",
)
SEEDS: Final = 4  # the first ones, one of which sees each of them
