"""The interfaces through which queues use topics and the groups that own them. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from queues.effects import Bury, Look, Looked
from queues.records import Job, Queue
from queues.requests import QueueReply
from queues.tally import Tally
from raftlog.errors import RaftlogError
from raftlog.hosting.budget import Usage
from raftlog.hosting.decisions import RequestId

Row = tuple[Any, Any]
"""Key and value as the groups write them. All rows of one step are one write."""


class Groups(Protocol):
    """The groups of one partition of ``__offsets`` as they are once all records are committed."""

    @property
    def queues(self) -> Mapping[str, Mapping[tuple[str, int], Queue]]:
        """Rows of queues by group, and by topic and partition."""

    @property
    def jobs(self) -> Mapping[str, Mapping[tuple[str, int], Job]]:
        """Rows of open jobs by group, and by topic and slot."""

    @property
    def reasons(self) -> Usage:
        """Bytes of what is said of failures, by group."""

    @property
    def tally(self) -> Tally:
        """The counters of jobs."""

    @property
    def is_time_known(self) -> bool:
        """Whether brokers agree on a time, which wall clocks here are then near."""

    def has_group(self, group: str) -> bool:
        """Whether a group has a row of its own."""

    def committed(self, group: str, topic: str, topic_id: str, partition: int) -> int | None:
        """The committed offset of a group in this very topic; None without one."""

    def group_row(self, group: str, client: str, wall_ms: int) -> Row:
        """The row of a new group, which belongs to the client."""

    def offset_row(
        self, group: str, topic: str, topic_id: str, partition: int, offset: int, wall_ms: int
    ) -> Row:
        """The row of a committed offset."""

    def answer(self, request_id: RequestId, reply: QueueReply | RaftlogError) -> None:
        """Answer one request once all rows before are committed."""

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write rows; the state has them at once."""

    def perform(self, effect: Look | Bury) -> None:
        """Have something done once all rows before are committed."""


class Jobs(Protocol):
    """The records that groups work off as queues, and where those go that are given up."""

    async def look(self, look: Look) -> Looked:
        """The next jobs of a partition. Raises ``RaftlogError``."""

    async def bury(self, bury: Bury) -> None:
        """Store one in the dead-letter topic of its group; nothing if its record or topic is gone.

        Raises ``RaftlogError``, and then is tried again.
        """
