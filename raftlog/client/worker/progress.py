"""How far a partition is handled, when its records are handled in any order."""

from __future__ import annotations

from collections import deque

from raftlog.client.messages import Message


class Progress:
    """One partition: a record counts as handled for commits only if all before it are handled, too."""

    def __init__(self) -> None:
        self._begun: deque[Message] = deque()  # from the first one that is not handled
        self._handled: set[int] = set()  # offsets behind it

    def add(self, message: Message) -> None:
        """The next record of the partition."""
        self._begun.append(message)

    def handled(self, offset: int) -> Message | None:
        """A record is handled. Returns the last one before which all are handled, if that changed."""
        self._handled.add(offset)
        last = None
        while self._begun and self._begun[0].offset in self._handled:
            last = self._begun.popleft()
            self._handled.discard(last.offset)
        return last
