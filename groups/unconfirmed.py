"""Offsets of transactions that are not confirmed to be open yet.

A group must not keep offsets of an ended transaction. So before a group stores the first offsets of a
transaction, the coordinator of the transaction confirms that the transaction is open and that the group has
joined it. The question is sent after the offsets have arrived, so the transaction's coordinator knows every
end that the group has seen before. An end that arrives before the answer refuses the offsets. An end that
arrives after the answer finds the offsets stored.

Decides: which offsets an end refuses. Leaves to others: asking (``coordinator``). Only the current leader
knows the waiting offsets, because only the current leader has the waiting requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from groups.requests import AddOffsets, EndOffsets
from raftlog.hosting.decisions import Effect, RequestId

NONE: Final[Mapping[RequestId, AddOffsets]] = {}

CheckOpen = Callable[[AddOffsets], Awaitable[None]]
"""Asks whether the transaction of these offsets is open and their group takes part; returns if it is so.

Raises the refusal for a transaction that is not open, and ``UNANSWERED`` errors if the answer is unknown.
"""


@dataclass(frozen=True, slots=True)
class Confirm(Effect):
    """Find out whether the transaction of these offsets is open, then report the answer."""

    is_settled: ClassVar[bool] = True  # it may start before earlier records are committed

    request_id: RequestId
    ask: AddOffsets


class Unconfirmed:
    """The offsets whose transactions are not confirmed yet, by group and producer id."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], dict[RequestId, AddOffsets]] = {}

    def add(self, request_id: RequestId, ask: AddOffsets) -> Confirm:
        """Add waiting offsets; return the effect that asks about their transaction."""
        self._waiting.setdefault((ask.group, ask.producer_id), {})[request_id] = ask
        return Confirm(request_id, ask)

    def take(self, request_id: RequestId, ask: AddOffsets) -> bool:
        """Remove offsets; return whether they were waiting. Ended or abandoned offsets do not wait."""
        key = ask.group, ask.producer_id
        waiting = self._waiting.get(key, {})
        has_waited = waiting.pop(request_id, None) is not None
        if has_waited and not waiting:
            del self._waiting[key]
        return has_waited

    def ended(self, end: EndOffsets) -> list[tuple[RequestId, AddOffsets]]:
        """Take the waiting offsets of a producer for the ended transaction and for earlier transactions."""
        waiting = self._waiting.get((end.group, end.producer_id), NONE)
        late = [(request_id, ask) for request_id, ask in waiting.items() if ask.epoch <= end.epoch]
        for request_id, ask in late:
            self.take(request_id, ask)
        return late
