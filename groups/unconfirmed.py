"""Offsets in transactions of which it is not known yet whether they are open.

A group keeps nothing of a transaction that has ended. Before it keeps the first offsets of a transaction, the
coordinator of the transaction confirms that it is open, and that the group has joined it. The question leaves
after the offsets have arrived: an end that the group has heard before, however long ago, is known there. An
end that comes before the answer refuses the offsets, and one that comes later finds them.

Decides: which offsets an end refuses. Leaves to others: asking (``coordinator``). What waits here is known to
one leader, as the requests that wait for it are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from groups.requests import AddOffsets, EndOffsets
from raftlog.hosting.decisions import Effect, RequestId

NONE: Final[Mapping[RequestId, AddOffsets]] = {}

CheckOpen = Callable[[AddOffsets], Awaitable[None]]
"""Returns if the transaction of these offsets is open and their group takes part in it.

Raises what a transaction that is not open is refused with, and ``UNANSWERED`` errors where nobody can know.
"""


@dataclass(frozen=True, slots=True)
class Confirm(Effect):
    """Find out whether the transaction of these offsets is open, then report it."""

    is_settled: ClassVar[bool] = True  # nothing that is being written makes a difference

    request_id: RequestId
    ask: AddOffsets


class Unconfirmed:
    """The offsets that wait, by group and producer id."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], dict[RequestId, AddOffsets]] = {}

    def add(self, request_id: RequestId, ask: AddOffsets) -> Confirm:
        """Have them wait; gives what must be asked."""
        self._waiting.setdefault((ask.group, ask.producer_id), {})[request_id] = ask
        return Confirm(request_id, ask)

    def take(self, request_id: RequestId, ask: AddOffsets) -> bool:
        """Whether they have waited until now: neither has their transaction ended nor their caller gone."""
        key = ask.group, ask.producer_id
        waiting = self._waiting.get(key, {})
        has_waited = waiting.pop(request_id, None) is not None
        if has_waited and not waiting:
            del self._waiting[key]
        return has_waited

    def ended(self, end: EndOffsets) -> list[tuple[RequestId, AddOffsets]]:
        """Take the waiting offsets of a producer, up to the transaction that has ended."""
        waiting = self._waiting.get((end.group, end.producer_id), NONE)
        late = [(request_id, ask) for request_id, ask in waiting.items() if ask.epoch <= end.epoch]
        for request_id, ask in late:
            self.take(request_id, ask)
        return late
