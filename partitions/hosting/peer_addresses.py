"""The addresses at which this broker dials the others.

Decides: that the metadata names them, and the settings for brokers that the metadata here does not know yet.
The settings may be newer, where brokers were moved while they were stopped: one of the first brokers that is
not heard is dialled at both addresses in turns. One that was let in later is not: at its address of former
times may be a process whose id was given away. Leaves to others: dialling, and proving who answers (the
transport).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from partitions.metadata.image import MetadataImage
from raftlog.types import NodeId

TRY_OTHER_S: Final = 2.0  # several attempts to connect

Address = tuple[str, int]


class Peers(Protocol):
    """The part of ``GroupHost`` that is needed here."""

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether the peer has been heard lately."""

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Keep these informed that this broker is alive, and watch them."""


class PeerAddresses:
    """One broker's. All on the event loop's thread."""

    def __init__(
        self,
        node_id: NodeId,
        configured: Mapping[NodeId, Address],
        set_peer: Callable[[NodeId, str, int], None],
        peers: Peers,
    ) -> None:
        """``configured`` are the addresses in the settings; ``set_peer`` is the transport's."""
        self._configured = {peer: address for peer, address in configured.items() if peer != node_id}
        self._node_id = node_id
        self._set_peer = set_peer
        self._peers = peers
        self._registered: dict[NodeId, Address] = {}  # by the newest metadata
        self._dialled: dict[NodeId, Address] = {}

    def begin(self) -> None:
        """Dial the brokers of the settings."""
        for peer, address in self._configured.items():
            self._dial(peer, address)
        self._peers.watch_peers(frozenset(self._configured))

    def image_changed(self, image: MetadataImage) -> None:
        """Dial brokers that are new or have moved."""
        for broker in image.brokers.values():
            peer, address = broker.broker_id, (broker.rpc_host, broker.rpc_port)
            if broker.admission_id:
                self._configured.pop(peer, None)
            if peer != self._node_id and self._registered.get(peer) != address:
                self._registered[peer] = address
                self._dial(peer, address)
                self._peers.watch_peers(frozenset({peer}))

    async def run(self) -> None:
        """Look for brokers that are not heard, until cancelled."""
        while True:
            await asyncio.sleep(TRY_OTHER_S)
            self.try_others()

    def try_others(self) -> None:
        """Dial each of the first brokers that is not heard at its other address, if it has two."""
        for peer, configured in self._configured.items():
            registered = self._registered.get(peer, configured)
            if registered != configured and not self._peers.is_reachable(peer):
                self._dial(peer, configured if self._dialled[peer] == registered else registered)

    def _dial(self, peer: NodeId, address: Address) -> None:
        if self._dialled.get(peer) != address:
            self._dialled[peer] = address
            self._set_peer(peer, *address)
