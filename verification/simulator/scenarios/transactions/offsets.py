"""Checks offsets of a group in transactions: an added offset becomes the committed offset only if its
transaction commits (T10).

Each added offset is used once, so a committed offset identifies its transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from groups.records import CommittedOffset, Key, OffsetKey, Value
from groups.requests import AddOffsets, OffsetCommit
from transactions.records import Handle, Participant
from verification.simulator.refusals import Attempts
from verification.simulator.result import Broken

GROUP: Final = "copiers"
MOVES: Final = "T10 a committed offset moves exactly if its transaction is committed"


class AddedOffsets:
    """The offsets that were added to transactions, and the committed offsets of the group."""

    def __init__(self, outcome_of: Callable[[Handle], bool | None]) -> None:
        self._outcome_of = outcome_of
        self._numbers = count(1)
        self._added: dict[int, tuple[Handle, Participant]] = {}
        self._acknowledged: dict[Handle, dict[Participant, int]] = {}  # the newest ones
        self.committed: dict[Participant, int] = {}
        self.attempts: Attempts[int] = Attempts(MOVES)  # by offset
        self._moved: dict[Handle, dict[Participant, int]] = {}

    def request(self, handle: Handle, target: Participant) -> AddOffsets:
        """Return a request that adds the next offset of a partition to this transaction."""
        offset = next(self._numbers)
        self._added[offset] = handle, target
        commit = OffsetCommit(topic=target[0], topic_id="t", partition=target[1], offset=offset)
        return AddOffsets(
            group=GROUP,
            offsets=(commit,),
            producer_id=handle.producer_id,
            epoch=handle.epoch,
            transaction=str(handle),
        )

    def acknowledged(self, request: AddOffsets) -> None:
        """Note that the group has stored an offset for the transaction."""
        offset = request.offsets[0].offset
        handle, target = self._added[offset]
        newest = self._acknowledged.setdefault(handle, {})
        newest[target] = max(newest.get(target, 0), offset)

    def take(self, key: Key, value: Value | None) -> None:
        """Process one committed record of ``__offsets``. Raises ``Broken``."""
        if not isinstance(key, OffsetKey) or key.group != GROUP or not isinstance(value, CommittedOffset):
            return
        handle, target = self._added[value.offset]
        self.committed[target] = value.offset
        self._moved.setdefault(handle, {})[target] = value.offset
        outcome = self._outcome_of(handle)
        if (key.topic, key.partition) != target or outcome is not True:
            raise Broken(MOVES, f"{key} has {value.offset} of {handle}, whose outcome is {outcome}")
        self.attempts.seen(value.offset)

    def check(self, handle: Handle) -> None:
        """Check that a committed transaction has moved the committed offsets of all acknowledged requests.

        Raises ``Broken``.
        """
        if not self._outcome_of(handle):
            return
        moved = self._moved.get(handle, {})
        for target, offset in self._acknowledged.get(handle, {}).items():
            if moved.get(target, 0) < offset:
                raise Broken(MOVES, f"{handle} is committed, and {target} has {moved}, not {offset}")
