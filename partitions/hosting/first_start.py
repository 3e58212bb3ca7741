"""Decides whether a broker with an empty metadata log is at its cluster's first start, or must rejoin.

The log is empty at the first start of a cluster, or after a broker has lost its files. In the second case the
broker's votes and acknowledgements are lost, too, and it must not vote before it has rejoined
(``HardState.is_rejoining``). So a broker without a metadata log first asks all other brokers. If any of them
knows the cluster, the broker rejoins. This is the first start only if all of them answer that they do not
know the cluster. A broker that has joined a cluster never has a first start.

Leaves to others: opening the log (``hosted_metadata``), and rejoining (``core``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from raftlog.errors import RaftlogError
from raftlog.node.blocking import RunBlocking
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.durable_state import found_slots, newest_slot
from raftlog.storage.filesystem import Buffer, Filesystem
from raftlog.storage.recovery import has_lived
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.types import METADATA_GROUP, NodeId

_log = logging.getLogger("raftlog.broker")

SERVICE: Final = Service("knows-cluster", CallClass.METADATA)
ASK_TIMEOUT_MS: Final = 1000
ASK_AGAIN_S: Final = 0.1
SAY_AGAIN_S: Final = 5.0


class FirstStart:
    """Asks the peers of a broker whether they know the cluster, and answers peers that ask."""

    def __init__(
        self,
        host: GroupHost,
        peers: Sequence[NodeId],
        filesystem: Filesystem,
        directory: str,
        registry: ReplicaRegistry,
        run_blocking: RunBlocking,
        *,
        has_joined: bool = False,
        listens_s: float = 0.0,
    ) -> None:
        """``directory`` holds the metadata log; ``peers`` are all other brokers of the configuration.

        With ``has_joined`` the cluster existed before this broker. ``listens_s`` is the time in seconds
        during which this broker listens for brokers that joined later, before it begins a cluster.
        """
        self._host = host
        self._peers = peers
        self._filesystem = filesystem
        self._directory = directory
        self._registry = registry
        self._run_blocking = run_blocking
        self._has_joined = has_joined
        self._listens_s = listens_s
        self.trouble = ""  # a sentence that names the brokers whose answers are missing

    def offer(self) -> None:
        """Register the handler that tells peers whether this broker knows the cluster."""
        self._host.calls.serve(SERVICE, self._serve)

    async def is_over(self) -> bool:
        """Whether this broker must rejoin with a new metadata log. False if its metadata log exists.

        Returns once a broker has answered that it knows the cluster, or all have answered that they do not.
        """
        if await self._run_blocking(lambda: has_lived(self._filesystem, self._directory)):
            return False
        if self._registry.has_held(METADATA_GROUP):
            _log.warning(
                "%s does not exist any more: this broker rejoins the metadata group", self._directory
            )
            return True
        if self._has_joined:
            return True
        try:
            return await self._others_know()
        finally:
            self.trouble = ""

    async def _others_know(self) -> bool:
        unheard = {*self._peers}
        began = said_at = self._host.clock.monotonic()
        while unheard or self._host.clock.monotonic() - began < self._listens_s:
            answers = await asyncio.gather(*(self._ask(peer) for peer in sorted(unheard)))
            if any(answers) or self._hears_an_admitted_broker():
                _log.warning("%s is empty, but the cluster exists: this broker rejoins", self._directory)
                return True
            unheard -= {
                peer for peer, answer in zip(sorted(unheard), answers, strict=True) if answer is not None
            }
            self.trouble = _waits_for(unheard) if unheard else ""
            if unheard and self._host.clock.monotonic() - said_at > SAY_AGAIN_S:
                said_at = self._host.clock.monotonic()
                _log.warning("%s", self.trouble)
            await asyncio.sleep(ASK_AGAIN_S if unheard or self._listens_s else 0)
        return self._hears_an_admitted_broker()

    def _hears_an_admitted_broker(self) -> bool:
        """Whether this broker hears a broker outside the configuration: only an existing cluster admits
        brokers.
        """
        return not self._host.reachable_peers <= {*self._peers}

    async def _ask(self, peer: NodeId) -> bool | None:
        try:
            answer, _ = await self._host.calls.call(peer, SERVICE, b"", timeout_ms=ASK_TIMEOUT_MS)
            return decode_body(answer, bool)
        except RaftlogError:
            return None

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        group = self._host.groups.get(METADATA_GROUP)
        if group is None:
            knows = await self._run_blocking(self._knows_by_files)
        else:
            knows = group.term > 0 or group.is_rejoining
        return encode_body(knows), ()

    def _knows_by_files(self) -> bool:
        """Whether the files show that an election took place, or do not exclude an election."""
        if not has_lived(self._filesystem, self._directory):
            return self._registry.has_held(METADATA_GROUP)
        newest = newest_slot(found_slots(self._filesystem, self._directory))
        return newest is None or newest.state.hard_state.term > 0 or newest.state.hard_state.is_rejoining


def _waits_for(unheard: Iterable[NodeId]) -> str:
    return (
        f"this broker has no metadata log: waiting for brokers {sorted(unheard)} to answer whether the "
        "cluster exists; start these brokers"
    )
