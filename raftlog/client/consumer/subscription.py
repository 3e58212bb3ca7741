"""Finds the topics with which a member joins: named topics, or all whose names match a pattern.

Decides: when a topic counts as missing, and how that is reported. Leaves to others: waiting for a topic.
Brokers wait for a named topic, and the member waits for topics that match a pattern (``core``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raftlog.client.consumer.options import ConsumerOptions
from raftlog.client.logs import client_logger
from raftlog.client.topic_names import suggestion
from raftlog.clock import Clock
from raftlog.errors import RaftlogError, TopicNotFound
from raftlog.wire.bodies import TopicDescription

_log = client_logger()


class TopicsPort(Protocol):
    """The topics of the cluster."""

    async def list(self) -> Sequence[TopicDescription]:
        """All topics."""

    async def describe(self, name: str) -> TopicDescription:
        """The description of a topic. Raises ``TopicNotFound``."""


class Subscription:
    """The topics of a consumer: given names, or the topics that matched a pattern at the last call of
    ``look``. A pattern never matches internal topics.
    """

    def __init__(self, options: ConsumerOptions, topics: TopicsPort, clock: Clock) -> None:
        self.topics = options.topics
        self._group = options.group
        self._pattern = options.pattern
        self._raises = options.missing == "raise"
        self._refresh_s = options.topics_refresh_s
        self._known = topics
        self._clock = clock
        self._looked_s = float("-inf")
        self.missing: TopicNotFound | None = None  # the error that was raised
        self._told = set[str]()  # names and patterns reported as missing

    async def look(self) -> bool:
        """Find the topics that exist now. True if there is at least one topic to read.

        A missing topic is logged once, or with ``missing="raise"`` raised as ``TopicNotFound``.
        """
        if self._pattern is None:
            for name in self.topics:
                await self._check(name)
        else:
            self.topics = await self._matching()
            if not self.topics:
                text = f"no topic matches {self._pattern.pattern!r}"
                self._report(TopicNotFound(text, topic=self._pattern.pattern))
        return bool(self.topics)

    async def has_changed(self) -> bool:
        """Whether the matching topics have changed. Asks a broker only every ``topics_refresh``."""
        if self._pattern is None or self._clock.monotonic() < self._looked_s + self._refresh_s:
            return False
        try:
            return await self._matching() != self.topics
        except RaftlogError:
            return False  # no broker answers now; membership has its own retries

    async def _check(self, name: str) -> None:
        if name in self._told:
            return
        try:
            await self._known.describe(name)
        except TopicNotFound:
            hint = suggestion(name, [topic.name for topic in await self._known.list()])
            self._report(TopicNotFound(f"there is no topic {name!r}{hint}", topic=name))
        except RaftlogError:
            if self._raises:
                raise

    def _report(self, missing: TopicNotFound) -> None:
        """Raise the error with ``missing="raise"``; otherwise log it, once."""
        if self._raises:
            self.missing = missing
            raise missing
        name = str(missing.details["topic"])
        if name not in self._told:
            self._told.add(name)
            _log.warning("%s; group %s waits until it exists", missing, self._group)

    async def _matching(self) -> tuple[str, ...]:
        assert self._pattern is not None
        self._looked_s = self._clock.monotonic()
        found = [topic.name for topic in await self._known.list() if not topic.internal]
        return tuple(sorted(name for name in found if self._pattern.fullmatch(name)))
