"""Keeps sent messages, some of which arrive again much later.

Decides: which messages are kept, and which arrive again. Each kind of message is equally likely to arrive
again, even if it is rarely sent: an old *timeout now* does more harm than an old heartbeat.
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
    """The newest sent messages of each kind."""

    def __init__(self) -> None:
        self._kinds: dict[type[Message], deque[Sent]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def note(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Note a message that is sent."""
        kind = type(message)
        kept = self._kinds.get(kind)
        if kept is None:
            kept = self._kinds[kind] = deque(maxlen=OF_A_KIND_MAX)
        kept.append((sender, to, message))

    def of_kind(self, kind: type[Message]) -> list[Sent]:
        """Return the messages of one kind that may arrive again."""
        return [*self._kinds.get(kind, ())]

    def forget(self, node: NodeId) -> None:
        """Forget the messages from or to a node, so that they do not arrive again."""
        for kind, kept in list(self._kinds.items()):
            left = [item for item in kept if node not in item[:2]]
            if left:
                self._kinds[kind] = deque(left, maxlen=OF_A_KIND_MAX)
            else:
                del self._kinds[kind]

    def drawn(self, rng: random.Random, count: int) -> list[Sent]:
        """Draw up to ``count`` messages that arrive again, in any order."""
        kinds = list(self._kinds.values())
        return [rng.choice(rng.choice(kinds)) for _ in range(count)] if kinds else []
