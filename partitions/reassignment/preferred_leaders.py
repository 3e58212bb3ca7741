"""Transfers leaderships to preferred leaders: each broker for the partitions that it leads.

Decides: when a leadership is transferred. Leaves to others: which replica is preferred (the first replica in
the metadata; ``metadata.balancing`` balances the numbers of preferred leaders), and the transfer (Raft).

A leader that is not preferred transfers its leadership once all brokers in use have been alive, and the
preferred replica in sync, for ``after_ms``, so that an unstable broker gets no leaderships. Each time a
leadership does not stay at its preferred leader, the time before the next transfer doubles, up to a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from partitions.metadata.image import MetadataImage
from partitions.metadata.plans import missing_brokers
from partitions.replica.replica import PartitionReplica
from raftlog.node.group_host import GroupHost
from raftlog.types import GroupId, NodeId

_log = logging.getLogger("raftlog.partitions")

LOOK_S: Final = 5.0
TRANSFERS_MAX: Final = 20  # of one broker in one look, since each transfer delays clients by milliseconds
NEXT_TRANSFERS_S: Final = 1.0  # before the next look, if this look left transfers to do
DOUBLINGS_MAX: Final = 6
HELD_FACTOR: Final = 10  # a leadership that lasts this many times the patience resets the count

Key = tuple[str, int]


@dataclass(slots=True)
class _Attempts:
    """The transfers of one group's leadership from this broker to ``preferred``."""

    preferred: NodeId
    count: int = 0
    at: float = 0.0  # of the newest


class PreferredLeaders:
    """Transfers the leaderships of one broker. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        image: Callable[[], MetadataImage],
        replicas: Mapping[Key, PartitionReplica],
        after_ms: int,
    ) -> None:
        self._host = host
        self._image = image
        self._replicas = replicas
        self._after_s = after_ms / 1000
        self._since: dict[GroupId, float] = {}  # time since which another replica should lead the group
        self._attempts: dict[GroupId, _Attempts] = {}

    async def run(self) -> None:
        """Transfer leaderships that are due, periodically, until cancelled."""
        pause_s = LOOK_S
        while True:
            await asyncio.sleep(min(pause_s, max(self._after_s, 0.05)))
            has_room = self._look(self._host.clock.monotonic())
            pause_s = LOOK_S if has_room else NEXT_TRANSFERS_S

    def _look(self, now: float) -> bool:
        """Transfer the leaderships that are due; return False if the limit ``TRANSFERS_MAX`` was reached."""
        image = self._image()
        wanted = {} if missing_brokers(image) else self._wanted(image)
        here = self._host.groups
        self._attempts = {group: found for group, found in self._attempts.items() if group in here}
        self._since = {group: self._since.get(group, now) for group in wanted}
        room = TRANSFERS_MAX
        for group, (replica, preferred) in wanted.items():
            attempts = self._attempts.get(group)
            if attempts is None or attempts.preferred != preferred:
                attempts = self._attempts[group] = _Attempts(preferred)
            if now - attempts.at > HELD_FACTOR * self._patience_s(attempts):
                attempts.count = 0
            patience_s = self._patience_s(attempts)
            if room and now - self._since[group] >= patience_s:
                room -= 1
                attempts.count, attempts.at = attempts.count + 1, now
                self._since[group] = now
                _log.info("%s: leadership goes to its preferred leader, broker %s", replica.target, preferred)
                replica.group.transfer_leadership(preferred)
        return room > 0

    def _patience_s(self, attempts: _Attempts) -> float:
        return self._after_s * (1 << min(attempts.count, DOUBLINGS_MAX))

    def _wanted(self, image: MetadataImage) -> dict[GroupId, tuple[PartitionReplica, NodeId]]:
        """The partitions led here whose preferred leader is another broker that could lead now."""
        found: dict[GroupId, tuple[PartitionReplica, NodeId]] = {}
        topics, me = image.topics, self._host.node_id
        for (name, number), replica in self._replicas.items():  # thousands; nearly all are skipped
            topic = topics.get(name)
            if topic is None or number >= len(topic.partitions):
                continue
            partition = topic.partitions[number]
            preferred = partition.replicas[0]
            if preferred == me or partition.target or not replica.group.is_ready:
                continue
            is_able = self._host.is_reachable(preferred) and not self._host.declines(preferred)
            is_same = replica.group.group_id == partition.group_id
            if is_able and is_same and preferred in replica.in_sync():
                found[partition.group_id] = replica, preferred
        return found
