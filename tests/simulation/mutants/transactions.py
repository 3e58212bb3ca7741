"""Bugs in the coordinator of transactions."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_WORLD = "tests/properties/test_transaction_decisions.py"
_DECISIONS = "transactions.decisions:Decisions."


def _mutant(name: str, place: str, text: str, planted: str) -> Mutant:
    return Mutant(name, place, text, planted, script=_WORLD)


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
        "self._decide([(name, found)], is_commit=ask.is_commit)\n        self._wait(request_id, name, ask)",
        "self._decide([(name, found)], is_commit=ask.is_commit)\n"
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
        "is_commit=False",
        "is_commit=True",
    ),
    _mutant(
        "each further partition gives a transaction its whole time again, and the old deadline counts",
        _DECISIONS + "tick",
        "if self._due.get(name) == due_ms:",
        "if name in self.state.transactions:",
    ),
    _mutant(
        "a new incarnation does not abort what the earlier one has open",
        _DECISIONS + "_open",
        "        self._decide([(name, found)], is_commit=False)\n        self._wait(request_id, name, ask)",
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
        "if partitions != found.partitions:",
        "if not found.partitions:",
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
        "self._outputs.write(*rows, *([sink] if sink else []))",
        "[self._outputs.write(row) for row in (*rows, *([sink] if sink else []))]",
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
        "if before is None or before.sequence < ask.sequence:",
        "if True:",
    ),
    _mutant(
        "a batch is answered before all of its transactions are complete",
        _DECISIONS + "_when_complete",
        "and found.state in ENDING",
        "and False",
    ),
)
