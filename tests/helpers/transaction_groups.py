"""Consumer groups that take part in random transactions: their real coordinator, and what must hold.

Each offset is sent once, so that it names the transaction that has committed it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

from groups.requests import AddOffsets, Done, EndOffsets, OffsetCommit
from groups.unconfirmed import Confirm
from raftlog.errors import RaftlogError
from tests.helpers.group_coordination import CoordinatedGroups
from transactions.records import Handle

GROUPS = ("copiers", "sums")
PARTITIONS = 2
Place = tuple[str, int]  # group and partition
CheckOpen = Callable[[Handle, str, Callable[[RaftlogError | None], None]], None]


class TransactionGroups:
    """``outcome_of`` says how a transaction was decided; None before that.

    ``check_open`` asks whether a transaction is open, and is answered later, perhaps, or more than once.
    """

    def __init__(self, outcome_of: Callable[[Handle], bool | None], check_open: CheckOpen) -> None:
        self._outcome_of = outcome_of
        self._check_open = check_open
        self._groups = CoordinatedGroups({"in": PARTITIONS})
        self._groups.holds_questions = True
        self._waiting: dict[int, tuple[Handle, Place, int, Callable[[bool], None]]] = {}
        self._numbers = count(1)
        self._sent: dict[int, Handle] = {}
        self._kept: dict[tuple[Handle, Place], int] = {}  # the highest that was accepted
        self._shown: dict[Place, list[int]] = {}
        self._ended: set[tuple[Handle, str]] = set()

    def next_offset(self, handle: Handle) -> int:
        """One that nobody else sends."""
        offset = next(self._numbers)
        self._sent[offset] = handle
        return offset

    def add(self, handle: Handle, place: Place, offset: int, told: Callable[[bool], None]) -> None:
        """An offset arrives, perhaps not for the first time; ``told`` whether it was taken, some time."""
        group, partition = place
        request = AddOffsets(
            group=group,
            offsets=(OffsetCommit(topic="in", topic_id="t", partition=partition, offset=offset),),
            producer_id=handle.producer_id,
            epoch=handle.epoch,
            transaction=str(handle),
        )
        self._waiting[self._groups.send(request)] = handle, place, offset, told
        self._take_answers()

    def _take_answers(self) -> None:
        answers = self._groups.answers
        for request_id in [each for each in self._waiting if each in answers]:
            handle, place, offset, told = self._waiting.pop(request_id)
            is_taken = isinstance(answers[request_id], Done)
            if is_taken:
                assert (handle, place[0]) not in self._ended, f"{place} takes {handle} behind its end"
                self._kept[handle, place] = max(offset, self._kept.get((handle, place), 0))
            told(is_taken)
        questions, self._groups.asked = self._groups.asked, []
        for question in questions:
            handle = self._sent[question.ask.offsets[0].offset]
            self._check_open(handle, question.ask.group, partial(self._confirm, question))
        self._check()

    def _confirm(self, question: Confirm, refusal: RaftlogError | None) -> None:
        self._groups.confirm(question, refusal)
        self._take_answers()

    def end(self, handle: Handle, group: str, is_commit: bool) -> None:
        """An end, perhaps not for the first time."""
        assert self._outcome_of(handle) is is_commit, f"{group} hears of {handle} before its decision"
        request = EndOffsets(
            group=group, producer_id=handle.producer_id, epoch=handle.epoch, is_commit=is_commit
        )
        self._groups.ask(request, Done)
        self._ended.add((handle, group))
        self._take_answers()

    def take_over(self, place: Place) -> None:
        """A consumer asks where it begins: nothing that was accepted before may count later."""
        group, partition = place
        if partition in (number for number, _ in self._groups.pending(group)):
            return
        for handle, kept in self._kept:
            is_over = (handle, group) in self._ended
            assert is_over or kept != place, f"{place} is taken over while {handle} is open"

    def fail_over(self) -> None:
        """Another broker coordinates the groups from now on."""
        self._groups.fail_over()
        self._waiting.clear()

    def is_ended(self, handle: Handle, group: str) -> bool:
        """Whether the group knows the outcome."""
        return (handle, group) in self._ended

    def check_ended(self, handle: Handle, is_committed: bool, added: dict[Place, int]) -> None:
        """A producer hears of the end of its transaction, for which these offsets were accepted."""
        for place, offset in added.items():
            kept = self._kept[handle, place]
            assert kept >= offset, f"{place} has lost {offset} of {handle}"
            assert (kept in self._shown.get(place, ())) is is_committed, f"{handle} is torn in {place}"

    def check_all(self) -> int:
        """Everything has ended. Returns how many offsets became visible."""
        for group in GROUPS:
            assert not self._groups.committed.pending.get(group), f"offsets of {group} wait for ever"
        assert not self._groups.committed.transactions, "something is kept of transactions that have ended"
        for (handle, place), offset in self._kept.items():
            is_shown = offset in self._shown.get(place, ())
            assert is_shown == self._outcome_of(handle), f"{handle} is torn in {place}"
        return sum(map(len, self._shown.values()))

    def _check(self) -> None:
        """No offset is visible before its transaction is committed."""
        for group, offsets in self._groups.committed.offsets.items():
            for (_, partition), committed in offsets.items():
                place, handle = (group, partition), self._sent[committed.offset]
                shown = self._shown.setdefault(place, [])
                if not shown or shown[-1] != committed.offset:
                    assert self._outcome_of(handle), f"{place} shows {handle} before its commit"
                    assert committed.offset == self._kept[handle, place], f"{place} shows an older offset"
                    shown.append(committed.offset)
