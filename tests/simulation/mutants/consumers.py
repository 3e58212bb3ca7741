"""Bugs of the client's consumer where it meets its caller: waits, cancelled calls, seeks, pauses, errors."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_CORE = "raftlog.client.consumer.core:ConsumerCore."
_FETCHING = "raftlog.client.consumer.fetching:Fetching."
_HANDING = "raftlog.client.consumer.handing:"
_TESTS = "tests/unit/client/test_consuming.py::test_"

CONSUMERS = (
    Mutant(
        "a member without partitions does not wait",
        _CORE + "take",
        "if await self._rewind(left_s):",
        "if self._assignment and await self._rewind(left_s):",
        script=_TESTS + "a_member_without_partitions_waits_in_poll",
    ),
    Mutant(
        "the records of a cancelled poll are lost",
        _HANDING + "Takes.next",
        "if self._task is not None:",
        "if False and self._task is not None:",
        script=_TESTS + "the_records_of_a_cancelled_poll_come_with_the_next_one",
    ),
    Mutant(
        "a part of a batch is handed out that a transaction has not committed",
        _HANDING + "Handed.batch",
        "len(self._messages) if self._core.options.is_exactly_once else count_max",
        "count_max",
        script=_TESTS + "the_records_of_a_cancelled_batch_come_with_the_next_one",
    ),
    Mutant(
        "a poll waits as long as the one that was cancelled",
        _HANDING + "Takes.next",
        "timeout=wait_s",
        "timeout=None",
        script=_TESTS + "a_poll_waits_no_longer_than_it_says_for_a_cancelled_one",
    ),
    Mutant(
        "a consumer that nobody has stays in its group",
        _HANDING + "Making._undo",
        "if self._core is not None:",
        "if False and self._core is not None:",
        script=_TESTS + "a_consumer_that_nobody_has_leaves_its_group",
    ),
    Mutant(
        "a seek drops the records of all partitions",
        _CORE + "_continue_at",
        "self._seeks[target] = self._seeks.get(target, 0) + 1",
        "self.epoch += 1",
        script=_TESTS + "a_seek_leaves_the_records_of_other_partitions",
    ),
    Mutant(
        "records from before a seek are handed out",
        _CORE + "_continue_at",
        "self._seeks[target] = self._seeks.get(target, 0) + 1",
        "pass",
        script=_TESTS + "a_seek_drops_what_a_cancelled_poll_has_taken",
    ),
    Mutant(
        "records of a paused partition are handed out",
        _HANDING + "Handed._are_due",
        "or self._core.is_paused(self._taken.target)",
        "",
        script=_TESTS + "records_of_a_paused_partition_are_kept_back_until_it_is_resumed",
    ),
    Mutant(
        "records that a pause keeps back are lost",
        _HANDING + "Takes.next",
        "if unread is not None:",
        "if False and unread is not None:",
        script=_TESTS + "records_of_a_paused_partition_are_kept_back_until_it_is_resumed",
    ),
    Mutant(
        "a pause does not reach what a cancelled poll has taken",
        _HANDING + "Takes._is_due",
        "await self._core.read_again(taken.target, taken.place, taken.messages[0].offset)",
        "pass",
        script=_TESTS + "what_a_cancelled_poll_has_taken_is_kept_back_by_a_pause",
    ),
    Mutant(
        "of two partitions that fail one is never read again",
        _FETCHING + "fail",
        "self.failures.append((source, error))",
        "self.failures = [(source, error)]",
        script=_TESTS + "each_partition_that_fails_raises_its_error",
    ),
    Mutant(
        "a seek leaves the error of the place before",
        _FETCHING + "seek",
        "if each[0] is not before",
        "",
        script=_TESTS + "a_seek_takes_back_the_error_of_its_partition",
    ),
    Mutant(
        "a partition that was not read yet has no lag",
        _CORE + "lag",
        "if ends.get(target, -1) >= 0",
        "",
        script=_TESTS + "each_partition_that_fails_raises_its_error",
    ),
    Mutant(
        "a commit that is on its way undoes a seek",
        _CORE + "_commit",
        " if self.place(target) == places[target]",
        "",
        script=_TESTS + "a_seek_back_outlasts_a_commit_that_is_on_its_way",
    ),
    Mutant(
        "an exception of an assignor is seen by nobody",
        _CORE + "_or_fail",
        "self._fail(error)",
        "raise",
        script=_TESTS + "poll_raises_what_an_assignor_raises",
    ),
    Mutant(
        "an unexpected error of a read is seen by nobody",
        _FETCHING + "_read",
        "except Exception as error:",
        "except RaftlogError as error:",
        script=_TESTS + "an_unexpected_error_of_a_read_is_raised",
    ),
    Mutant(
        "a poll that waits does not see the end of its consumer",
        _CORE + "_fail",
        "self._fetching.fail(self._failure)",
        "pass",
        script=_TESTS + "a_poll_that_waits_ends_with_its_consumer",
    ),
    Mutant(
        "a client keeps consumers that are closed",
        "raftlog.client.client:AsyncClient.consumer_core",
        "if not consumer.is_closed",
        "",
        script=_TESTS + "a_client_forgets_a_closed_consumer",
    ),
    Mutant(
        "a consumer that is closed twice leaves twice",
        _CORE + "close",
        "if self._closing is None:",
        "if True:",
        script=_TESTS + "a_client_does_not_leave_again_for_a_closed_consumer",
    ),
)
