"""Interfaces through which queues use topics, and use the groups that own the queues."""

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
"""Key and value of a row of a group. All rows of one step are written together."""


class Groups(Protocol):
    """The groups of one partition of ``__offsets``, once all written records are committed."""

    @property
    def queues(self) -> Mapping[str, Mapping[tuple[str, int], Queue]]:
        """Rows of queues by group, and by topic and partition."""

    @property
    def jobs(self) -> Mapping[str, Mapping[tuple[str, int], Job]]:
        """Rows of open jobs by group, and by topic and slot."""

    @property
    def reasons(self) -> Usage:
        """Bytes of the reasons of failures of open jobs, by group."""

    @property
    def tally(self) -> Tally:
        """The counters of jobs."""

    @property
    def is_time_known(self) -> bool:
        """Whether the brokers agree on a time, so that their wall clocks are close."""

    def has_group(self, group: str) -> bool:
        """Whether a group exists."""

    def committed(self, group: str, topic: str, topic_id: str, partition: int) -> int | None:
        """The committed offset of a group in the topic with this id; None without a committed offset."""

    def group_row(self, group: str, client: str, wall_ms: int) -> Row:
        """Make the row of a new group, which counts for the client's limit."""

    def offset_row(
        self, group: str, topic: str, topic_id: str, partition: int, offset: int, wall_ms: int
    ) -> Row:
        """Make the row of a committed offset."""

    def answer(self, request_id: RequestId, reply: QueueReply | RaftlogError) -> None:
        """Answer one request once all earlier rows are committed."""

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write rows. All other methods and properties reflect the rows at once."""

    def perform(self, effect: Look | Bury) -> None:
        """Start an effect once all earlier rows are committed."""


class Jobs(Protocol):
    """Reads jobs from topics, and stores dead letters."""

    async def look(self, look: Look) -> Looked:
        """Read the next jobs of a partition. Raises ``RaftlogError``."""

    async def bury(self, bury: Bury) -> None:
        """Store a job in the dead-letter topic of its group, unless its record or topic was deleted.

        Raises ``RaftlogError``; the caller retries.
        """
