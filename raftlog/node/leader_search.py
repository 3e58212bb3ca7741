"""The search of one request for the leader of a Raft group that any broker may lead.

Decides: which broker to ask next, when to repeat a request, and when to give up. Leaves to others: how a
broker is asked, and the answer to the user (``partitions.routing.gateway``, ``partitions.metadata.service``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from typing import Final, NamedTuple, TypeVar

from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    NoLeader,
    NotLeader,
    RaftlogError,
    Rejected,
)
from raftlog.tracebacks import release
from raftlog.types import NodeId

Answer = TypeVar("Answer")

PATIENCE_S: Final = 2.0  # the time that a group may be without a leader before its users get an error
PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.1
UNANSWERED: Final = (NotLeader, NoLeader, ConnectionLost, CommitUnknown)  # the broker may not lead any more
SERVED_S: Final = 0.25  # an answer that took longer came from a leader: the patience starts again


class LeaderNotFound(Exception):
    """No leader was found in time, and the request had no effect."""

    def __init__(self, last: RaftlogError | None) -> None:
        super().__init__(str(last))
        self.last = last  # the last refusal


class InDoubt(Exception):
    """The request may have been carried out, but no leader has confirmed it."""

    def __init__(self, last: RaftlogError | None) -> None:
        super().__init__(str(last))
        self.last = last  # the last refusal


class Refused(NamedTuple):
    """The refusal of a broker that was asked before the search, and its time on the event loop's clock."""

    node: NodeId
    asked_at: float
    error: RaftlogError


class LeaderSearch:
    """Asks brokers: first known candidates, then the brokers that refusals name; pauses before asking one
    again.

    ``deadline`` is a time of the event loop; the search ends after ``patience_s`` without a leader.
    """

    def __init__(
        self,
        deadline: float,
        *,
        patience_s: float = PATIENCE_S,
        pause_s: float = PAUSE_MIN_S,
        leaders: MutableMapping[Hashable, NodeId] | None = None,
        group: Hashable = None,
    ) -> None:
        """Start a search.

        ``leaders`` has the broker that last answered for each ``group``; the search updates it.
        """
        self._deadline = deadline
        self._patience_s = patience_s
        self._pause_s = pause_s
        self._leaders = {} if leaders is None else leaders
        self._group = group
        self._gives_up_at: float | None = None
        self._asked: set[NodeId] = set()
        self._hint: NodeId | None = None
        self._began = 0.0

    async def ask(
        self,
        candidates: Callable[[], Iterable[NodeId | None]],
        ask: Callable[[NodeId], Awaitable[Answer]],
        *,
        is_repeatable: Callable[[], bool] | None,
        refused: Refused | None = None,
    ) -> Answer:
        """Ask until the leader answers; repeat a request that may have had an effect only if that is
        harmless.

        ``candidates`` are the brokers that may lead, the most likely first. ``is_repeatable`` is None for
        requests that change nothing. ``refused`` is the refusal of a broker that was asked before the search.
        Raises ``LeaderNotFound``, ``InDoubt``, and the leader's refusals.
        """
        last: RaftlogError | None = None
        is_in_doubt = False
        while True:
            error: RaftlogError | None = None
            try:
                if refused is not None:
                    raise self._noted(refused)
                node = self._choose(candidates())
                if node is not None:
                    answer = await ask(node)
                    self._leaders[self._group] = node
                    return answer
            except UNANSWERED as refusal:
                self._leaders.pop(self._group, None)
                last = error = refusal
                release(refusal)  # its traceback refers to this frame, which holds the error and the request
                if is_repeatable is not None and may_have_happened(refusal):
                    is_in_doubt = True
                    if refusal.details.get("committed") is True or not is_repeatable():
                        raise InDoubt(refusal) from refusal
            except Rejected as refusal:
                if is_in_doubt:
                    raise InDoubt(refusal) from refusal
                raise
            refused = None
            if not await self._continues(error):
                raise InDoubt(last) if is_in_doubt else LeaderNotFound(last)

    def _noted(self, refused: Refused) -> RaftlogError:
        self._began = refused.asked_at
        self._asked.add(refused.node)
        return refused.error

    def _choose(self, candidates: Iterable[NodeId | None]) -> NodeId | None:
        """The next broker to ask; None when all known brokers have been asked."""
        self._began = asyncio.get_running_loop().time()
        for node in (self._hint, *candidates):
            if node is not None and node not in self._asked:
                self._asked.add(node)
                return node
        return None

    async def _continues(self, error: RaftlogError | None) -> bool:
        """Note a refusal, or pause if it is None; return False when the search must end."""
        now = asyncio.get_running_loop().time()
        if self._gives_up_at is None or now - self._began > SERVED_S:
            self._gives_up_at = min(now + self._patience_s, self._deadline)
        if now >= self._gives_up_at:
            return False
        if error is None:
            await asyncio.sleep(min(self._pause_s, self._gives_up_at - now))
            self._pause_s = max(self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S))
            self._asked.clear()
            self._hint = None
            return True
        hint = error.details.get("leader")
        self._hint = NodeId(hint) if isinstance(hint, int) else None
        return True


def may_have_happened(refusal: RaftlogError) -> bool:
    """Whether a request with this refusal may have been carried out, or may still be carried out."""
    return isinstance(refusal, CommitUnknown) or (
        isinstance(refusal, ConnectionLost) and refusal.details.get("sent") is not False
    )
