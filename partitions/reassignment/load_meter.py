"""Measures the load of the partitions that this broker leads, for the active controller.

Decides: the interval over which records are counted. Leaves to others: collecting the loads of all brokers
(``metadata.loads``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from partitions.metadata.balancing import Loads, PartitionLoad
from partitions.metadata.loads import LOADS
from partitions.replica.replica import PartitionReplica
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import encode_body
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, Index, NodeId

MEASURED_S: Final = 10.0


class LoadMeter:
    """Measures one broker's partitions. All on the event loop's thread."""

    def __init__(self, host: GroupHost, replicas: Mapping[tuple[str, int], PartitionReplica]) -> None:
        self._host = host
        self._replicas = replicas
        self._ends: dict[GroupId, Index] = {}  # of the logs led here, at the last look
        self._looked_at = host.clock.monotonic()
        self._records_per_s: dict[GroupId, float] = {}
        host.calls.serve(LOADS, self._serve)

    async def run(self) -> None:
        """Measure the appended records per second of each partition led here, until cancelled."""
        while True:
            await asyncio.sleep(MEASURED_S)
            now = self._host.clock.monotonic()
            ends = {replica.group.group_id: replica.group.last_index for replica in self._led()}
            self._records_per_s = {
                group: max(end - self._ends[group], 0) / max(now - self._looked_at, 1.0)
                for group, end in ends.items()
                if group in self._ends
            }
            self._ends, self._looked_at = ends, now

    def loads(self) -> Loads:
        """The loads of the partitions that this broker leads, by group."""
        return {
            group.group_id: PartitionLoad(group.log.size_bytes, self._records_per_s.get(group.group_id, 0.0))
            for group in (replica.group for replica in self._led())
        }

    def _led(self) -> list[PartitionReplica]:
        return [replica for replica in self._replicas.values() if replica.group.is_leader]

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        return encode_body(self.loads()), ()
