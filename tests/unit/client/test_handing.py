"""Records on their way from the client's loop to the user's thread, where a rebalance comes in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.handing import Handed, Taken
from raftlog.client.delivery import Delivery
from raftlog.client.messages import Message
from raftlog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Rebalancing:
    """The part of ``ConsumerCore`` that the user's thread sees. A rebalance comes before one use of it.

    It drops what was handed out, and waits only for what is being handled then.
    """

    def __init__(self, before_use: int) -> None:
        self.options = SimpleNamespace(delivery=Delivery.AT_LEAST_ONCE, is_exactly_once=False)
        self.has_waited = self._is_handling = False
        self.epoch = self.generation = 0
        self._uses, self._before_use = 0, before_use

    def _used(self) -> None:
        if self._uses == self._before_use:
            self.has_waited, self.epoch = self._is_handling, self.epoch + 1
        self._uses += 1

    @property
    def version(self) -> int:
        """Rises with each rebalance."""
        self._used()
        return self.epoch

    @property
    def is_handling(self) -> bool:
        """Whether a rebalance waits."""
        return self._is_handling

    @is_handling.setter
    def is_handling(self, is_handling: bool) -> None:
        self._used()
        self._is_handling = is_handling

    def is_paused(self, target: TopicPartition) -> bool:
        """Nothing is."""
        return False

    def place(self, target: TopicPartition) -> tuple[int, int]:
        """Another one after each rebalance."""
        return self.epoch, 0

    def acknowledge(self, message: Message) -> None:
        """Not looked at."""


@pytest.mark.parametrize("before_use", range(8))
@pytest.mark.parametrize("kind", ["next", "batch"])
def test_what_is_handed_out_was_due_when_a_rebalance_waits_for_it(kind: str, before_use: int) -> None:
    # requirement: C2
    core = Rebalancing(before_use)
    handed = Handed(cast("ConsumerCore", core))
    messages = [Message("orders", 0, offset, 0, None, b"v", (), 0) for offset in range(3)]
    handed.put(Taken(ORDERS, (0, 0), messages))
    found = handed.next() if kind == "next" else handed.batch(10)
    is_revoked = core.epoch > 0
    assert found is None or not is_revoked or core.has_waited, "handed out though nobody waits for it"
    assert core.is_handling is (found is not None)
