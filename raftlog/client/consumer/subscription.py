"""The topics that a member joins with: named ones, or all whose names match a pattern."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from raftlog.client.consumer.options import ConsumerOptions
from raftlog.clock import Clock
from raftlog.errors import RaftlogError
from raftlog.wire.bodies import TopicBody

ListTopics = Callable[[], Awaitable[Iterable[TopicBody]]]


class Subscription:
    """``topics`` of a pattern are those of the last look; a pattern never matches internal topics."""

    def __init__(self, options: ConsumerOptions, list_topics: ListTopics, clock: Clock) -> None:
        self.topics = options.topics
        self._pattern = options.pattern
        self._refresh_s = options.topics_refresh_s
        self._list_topics = list_topics
        self._clock = clock
        self._looked_s = float("-inf")

    async def look(self) -> bool:
        """Find the topics of now. Whether there are any."""
        if self._pattern is not None:
            self.topics = await self._matching()
        return bool(self.topics)

    async def has_changed(self) -> bool:
        """Whether other topics match than at the last look. Asks a broker after ``topics_refresh`` only."""
        if self._pattern is None or self._clock.monotonic() < self._looked_s + self._refresh_s:
            return False
        try:
            return await self._matching() != self.topics
        except RaftlogError:
            return False  # no broker answers now; membership has its own retries

    async def _matching(self) -> tuple[str, ...]:
        assert self._pattern is not None
        self._looked_s = self._clock.monotonic()
        found = [topic.name for topic in await self._list_topics() if not topic.internal]
        return tuple(sorted(name for name in found if self._pattern.fullmatch(name)))
