"""Pages of a list, one request after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from raftlog.wire import bodies, paths

if TYPE_CHECKING:
    from raftlog.client.replies import Reply
    from raftlog.client.session import Session

_TIMEOUT_S: Final = 5.0
ATTEMPT_TIMEOUT_S: Final = 2.0  # do not wait for a silent broker; ask another


async def asked(session: Session, path: str) -> Reply:
    """The response of any broker, soon or not at all."""
    return await session.ask_any("GET", path, retry_timeout_s=_TIMEOUT_S, attempt_timeout_s=ATTEMPT_TIMEOUT_S)


async def partitions_of(session: Session, topic: str) -> list[bodies.PartitionBody]:
    """The partitions of a topic as their leaders describe them. Raises ``UnknownTopic``."""
    found: list[bodies.PartitionBody] = []
    path = paths.partitions(topic)
    while True:
        page = (await asked(session, path)).read(bodies.PartitionList)
        found += page.items
        if page.next_page_token is None:
            return found
        path = f"{paths.partitions(topic)}?page_token={quote(page.next_page_token, safe='')}"
