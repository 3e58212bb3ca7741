"""Lists the partitions of a topic, as their leaders describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.wire import bodies, partitions

if TYPE_CHECKING:
    from raftlog.client.session import Session

TIMEOUT_S: Final = 5.0  # of lists that name leaders: a late answer is of no use
ATTEMPT_TIMEOUT_S: Final = 2.0  # do not wait for a silent broker; ask another


async def partitions_of(session: Session, topic: str) -> list[bodies.PartitionDescription]:
    """Return the partitions of a topic, each as its leader describes it. Raises ``TopicNotFound``."""
    return await session.all_items(
        partitions.LIST, retry_timeout_s=TIMEOUT_S, attempt_timeout_s=ATTEMPT_TIMEOUT_S, topic=topic
    )
