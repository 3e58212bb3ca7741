"""Bugs in the transactions of the client."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TRANSACTIONS = "tests/unit/client/test_transactions.py"
_EXACTLY_ONCE = "tests/unit/client/test_exactly_once.py"
_INCARNATION = "raftlog.client.incarnation:Incarnation."
_TRANSACTION = "raftlog.client.transaction:AsyncTransaction."
_PIPELINE = "raftlog.client.pipeline:Pipeline."
_BATCH = "raftlog.client.consumer.batch_transaction:BatchTransactionCore."
_CONSUMER = "raftlog.client.consumer.core:ConsumerCore."
_FORGOTTEN = "a_commit_whose_outcome_is_forgotten_is_unknown_if_it_may_have_been_carried_out"


def _mutant(name: str, place: str, text: str, planted: str, script: str) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


def _seen_by(file: str, test: str) -> str:
    return f"{file}::test_{test}"


TRANSACTION_CLIENT = (
    _mutant(
        "a failed batch of a transaction begins an epoch of its own",
        _PIPELINE + "settle",
        "self._give_up_others() if self._in_transaction else self._begin_epoch()",
        "self._begin_epoch()",
        "tests/unit/client/test_pipeline.py",
    ),
    _mutant(
        "the next transaction begins before the outcome of the one before is known",
        _INCARNATION + "begin",
        "await self.settle()",
        "pass",
        _seen_by(_TRANSACTIONS, "the_next_transaction_ends_the_one_before_as_it_was_to_end"),
    ),
    _mutant(
        "an abort without an answer is repeated as a commit",
        _INCARNATION + "settle",
        "is_commit=self._unanswered",
        "is_commit=True",
        _seen_by(_TRANSACTIONS, "the_next_transaction_ends_the_one_before_as_it_was_to_end"),
    ),
    _mutant(
        "a fenced producer asks for its id again",
        _INCARNATION + "_check_free",
        "if self._fenced is not None:",
        "if False:",
        _seen_by(_TRANSACTIONS, "another_process_with_the_same_id_fences_this_one_within_one_call"),
    ),
    _mutant(
        "a zombie opens its id again and fences its successor",
        _INCARNATION + "_open",
        "after = None if self._newest is None else self._newest.id",
        "after = None",
        _seen_by(_TRANSACTIONS, _FORGOTTEN),
    ),
    _mutant(
        "a forgotten outcome counts as aborted although a commit may have been carried out",
        _INCARNATION + "_end",
        "may_repeat=False",
        "may_repeat=True",
        _seen_by(_TRANSACTIONS, _FORGOTTEN),
    ),
    _mutant(
        "two transactions of a producer are open at a time",
        _INCARNATION + "_check_free",
        "if self._is_open:",
        "if False:",
        _seen_by(_TRANSACTIONS, "misuse_is_refused_with_a_remedy"),
    ),
    _mutant(
        "an id that brokers have forgotten is not opened again",
        _INCARNATION + "forget",
        "self._newest = self._next = self._unanswered = None",
        "pass",
        _seen_by(_TRANSACTIONS, "an_id_that_brokers_have_forgotten_is_opened_again"),
    ),
    _mutant(
        "an incarnation that begins with the next epoch is taken for the end of this one",
        "raftlog.client.incarnation:_is_of_another",
        'or newest.state != "complete"',
        "",
        _seen_by(_TRANSACTIONS, "a_process_that_is_fenced_before_its_first_record_knows"),
    ),
    _mutant(
        "a transaction that exceeds its time counts as fenced",
        "raftlog.client.incarnation:_is_of_another",
        "return found != (one.producer_id, one.epoch + 1)",
        "return True",
        _seen_by(_TRANSACTIONS, "a_transaction_that_exceeds_its_time_may_be_repeated"),
    ),
    _mutant(
        "a transaction is committed without a record that was not stored",
        _TRANSACTION + "_flush",
        "if self.records.failure is not None:",
        "if False:",
        _seen_by(_TRANSACTIONS, "a_record_that_is_refused_aborts_and_the_block_raises_why"),
    ),
    _mutant(
        "an exception commits",
        _TRANSACTION + "__aexit__",
        "if error is None:",
        "if True:",
        _seen_by(_TRANSACTIONS, "an_exception_aborts_and_the_next_transaction_goes_on"),
    ),
    _mutant(
        "a block that is cancelled at its end leaves its transaction open",
        _TRANSACTION + "__aexit__",
        "if self._outcome is None:",
        "if False:",
        _seen_by(_TRANSACTIONS, "a_block_that_is_cancelled_at_its_end_leaves_no_transaction_open"),
    ),
    _mutant(
        "a commit without an answer is not unknown",
        _TRANSACTION + "_end",
        "if not error.retryable:",
        "if True:",
        _seen_by(_TRANSACTIONS, "a_commit_without_an_answer_is_unknown_until_it_is_asked_again"),
    ),
    _mutant(
        "a transaction whose record has no outcome is not definitely aborted",
        _TRANSACTION + "_abandoned",
        "isinstance(failure, Unknown | OutOfOrderSequence)",
        "isinstance(failure, OutOfOrderSequence)",
        _seen_by(_TRANSACTIONS, "a_record_whose_outcome_is_unknown_aborts_and_is_never_visible"),
    ),
    _mutant(
        "a prepared transaction is aborted with its block",
        _TRANSACTION + "prepare",
        'self._outcome = "prepared"',
        "self._outcome = None",
        _seen_by(_TRANSACTIONS, "prepared_transactions_are_committed_together"),
    ),
    _mutant(
        "a closed producer begins transactions",
        _INCARNATION + "_check_free",
        "if self.is_closed:",
        "if False:",
        _seen_by(_TRANSACTIONS, "misuse_is_refused_with_a_remedy"),
    ),
    _mutant(
        "the results of a batch are committed without its offset",
        _BATCH + "end",
        "and not await self._add_offset()",
        "and False",
        _seen_by(_EXACTLY_ONCE, "results_and_offsets_are_committed_together"),
    ),
    _mutant(
        "the offset of a batch is that of its last record",
        _BATCH + "__init__",
        "last.offset + 1",
        "last.offset",
        _seen_by(_EXACTLY_ONCE, "results_and_offsets_are_committed_together"),
    ),
    _mutant(
        "a consumer goes on behind a batch that was aborted",
        _CONSUMER + "note_begun",
        "if epoch == self.epoch:",
        "if False:",
        _seen_by(_EXACTLY_ONCE, "the_records_of_an_aborted_batch_come_again"),
    ),
    _mutant(
        "a committed batch is read again from the start",
        _CONSUMER + "_rewind",
        "if target in targets}",
        "if False}",
        _seen_by(_EXACTLY_ONCE, "each_record_has_one_result_whatever_is_lost"),
    ),
    _mutant(
        "offsets without an answer are not definitely aborted",
        _TRANSACTION + "add_offsets",
        "UnknownTransaction, Unknown)",
        "UnknownTransaction)",
        _seen_by(_EXACTLY_ONCE, "a_batch_whose_offset_has_no_answer_is_definitely_aborted"),
    ),
    _mutant(
        "a batch that may be committed is handled again",
        _BATCH + "begin",
        'outcome != "aborted"',
        'outcome == "committed"',
        _seen_by(_EXACTLY_ONCE, "a_commit_without_an_answer_neither_loses_nor_repeats_records"),
    ),
    _mutant(
        "a seek is committed by a later commit of the consumer",
        _CONSUMER + "seek",
        "if self.options.is_exactly_once:",
        "if False:",
        _seen_by(_EXACTLY_ONCE, "a_seek_is_committed_at_once"),
    ),
    _mutant(
        "the loss of the partitions ends the loop of the user",
        _BATCH + "_add_offset",
        "await transaction.abort()\n        return False",
        "await transaction.abort()\n        raise",
        _seen_by(_EXACTLY_ONCE, "a_member_that_has_lost_its_partitions_aborts_silently"),
    ),
    _mutant(
        "members of two groups share a transactional id",
        "raftlog.client.consumer.options:transactional_id_of",
        '{group}~consumer~{member}"\n    if',
        '{group}.{member}"\n    if',
        _seen_by(_EXACTLY_ONCE, "no_two_members_share_a_transactional_id"),
    ),
)
