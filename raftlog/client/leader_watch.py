"""Sends a request to a partition's leader, and stops waiting when that leader is replaced.

Decides: when to stop waiting for a silent broker. A stopped process keeps its connections open, so silence
alone proves little. But once the other brokers report another leader, or the present leader in a later term,
the response will not come: a leader answers all its requests when its term ends, so the connection must be
lost. The outcome of the request is then unknown. Leaves to others: retries.
"""

from __future__ import annotations

import asyncio

from raftlog.client.metadata import UNKNOWN_TERM, Metadata, TopicView
from raftlog.client.replies import Reply
from raftlog.client.session import ANSWER_BYTES_MAX, Session
from raftlog.errors import ConnectionLost, RaftlogError
from raftlog.wire import media_types

_ELECTION_PAUSE_S = 0.05  # between two requests for the leader while there is none


async def ask_leader(
    session: Session,
    metadata: Metadata,
    topic: str,
    partition: int,
    leader: str,
    method: str,
    path: str,
    *,
    patience_s: float,
    timeout_s: float,
    body: bytes | None = None,
    transaction: str | None = None,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
) -> Reply:
    """Return the leader's response; ask other brokers who leads after every ``patience_s`` of silence.

    If the leader's address cannot be reached, another broker forwards the request. ``path`` must already have
    a query part.
    """
    through = session.through(leader)
    url = f"{leader}{path}&route=none" if through is None else through + path
    try:
        async with asyncio.timeout(None) as scope:
            asked = leader if through is None else through
            watch = _Watch(session, metadata, topic, partition, leader, asked, scope, patience_s)
            try:
                return await session.ask(
                    method,
                    url,
                    body=body,
                    content_type=media_types.BATCH,
                    accept=media_types.JSON if method == "POST" else media_types.BATCH,
                    transaction=transaction,
                    timeout_s=timeout_s,
                    answer_bytes_max=answer_bytes_max,
                )
            finally:
                watch.stop()
    except TimeoutError:
        raise ConnectionLost(f"{leader} no longer leads {topic}/{partition} and did not answer") from None


class _Watch:
    __slots__ = (
        "_asked",
        "_leader",
        "_look_task",
        "_loop",
        "_metadata",
        "_partition",
        "_patience_s",
        "_scope",
        "_session",
        "_term",
        "_timer",
        "_topic",
    )

    def __init__(
        self,
        session: Session,
        metadata: Metadata,
        topic: str,
        partition: int,
        leader: str,
        asked: str,
        scope: asyncio.Timeout,
        patience_s: float,
    ) -> None:
        self._session = session
        self._metadata = metadata
        self._topic = topic
        self._partition = partition
        self._leader = leader
        self._asked = asked
        self._term = self._term_in(metadata.cached(topic))
        self._scope = scope
        self._patience_s = patience_s
        self._look_task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(patience_s, self._doubt)

    def stop(self) -> None:
        """Stop watching: the response has arrived."""
        if self._timer is not None:
            self._timer.cancel()
        if self._look_task is not None:
            self._look_task.cancel()

    def _term_in(self, view: TopicView | None) -> int:
        """The term of the partition's leader according to ``view``."""
        if view is None or self._partition >= view.partition_count:
            return UNKNOWN_TERM
        return view.terms[self._partition]

    def _doubt(self) -> None:
        self._timer = None
        self._look_task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        self._session.turn_away(self._asked, ConnectionLost())
        pause_s = self._patience_s
        try:
            view = await self._metadata.refresh(self._topic)
        except RaftlogError:
            view = None  # unknown; the silent broker may still answer
        if view is not None and self._partition < view.partition_count:
            now_leads, term = view.leaders[self._partition], self._term_in(view)
            if now_leads is None:
                pause_s = _ELECTION_PAUSE_S
            elif now_leads != self._leader or term > self._term:  # the term was unknown, or a later one began
                self._scope.reschedule(self._loop.time())
                return
            else:
                self._term = term
        self._timer = self._loop.call_later(pause_s, self._doubt)
