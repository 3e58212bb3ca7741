"""Messages that were sent: some arrive once more, much later.

Decides: which are still known, and which come again. Each kind is as likely as any other, however seldom it
is sent: an old call to stand for election does more harm than the heartbeats that fill every step.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from raftlog.core.messages import Message
from raftlog.types import NodeId

Sent = tuple[NodeId, NodeId, Message]

OF_A_KIND_MAX: Final = 50


class Remembered:
    """The newest messages of each kind."""

    def __init__(self) -> None:
        self._kinds: dict[type[Message], deque[Sent]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def note(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """A message leaves."""
        kind = type(message)
        kept = self._kinds.get(kind)
        if kept is None:
            kept = self._kinds[kind] = deque(maxlen=OF_A_KIND_MAX)
        kept.append((sender, to, message))

    def of_kind(self, kind: type[Message]) -> list[Sent]:
        """Those of one kind that may come again."""
        return [*self._kinds.get(kind, ())]

    def forget(self, node: NodeId) -> None:
        """What a node has sent or got comes no more."""
        for kind, kept in list(self._kinds.items()):
            left = [item for item in kept if node not in item[:2]]
            if left:
                self._kinds[kind] = deque(left, maxlen=OF_A_KIND_MAX)
            else:
                del self._kinds[kind]

    def drawn(self, rng: random.Random, count: int) -> list[Sent]:
        """So many that come again, in any order."""
        kinds = list(self._kinds.values())
        return [rng.choice(rng.choice(kinds)) for _ in range(count)] if kinds else []
