"""The addresses at which this broker dials the other brokers.

Decides: that the addresses in the newest metadata count, and for brokers not in the metadata yet the
addresses in the settings. Leaves to others: dialling, and authenticating the peer (the transport).

- The settings may be newer than the metadata if brokers were moved while they were stopped. So a configured
  broker that is not heard, or heard only over its own link, is dialled at both addresses in turn. A broker
  that joined later is dialled at its registered address only: its former address may belong to a process with
  a reassigned id.
- A pinned address in the settings is the only address of its broker: a proxy, or a translated address.
- A broker that has moved sends its new address to each broker that it reaches but does not hear. Each
  receiver passes the address on. The address counts only with the registered disk id, so a process with a
  reassigned id is still not dialled.
- A broker that is only in the uncommitted part of the local metadata log is dialled at its address there: its
  vote may be needed to commit the entry.
- A removed broker is not dialled, and is refused when it dials.
- A broker whose metadata is old, or lost with its disk, cannot dial brokers that it does not know, and so
  cannot answer them. So a broker sends all addresses to each peer when its link to the peer is established; a
  link without answers ends soon after, and is dialled again. A broker sends all addresses again when another
  broker has moved: a peer that hears this broker, but not the moved controller, would otherwise never learn
  the new address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Final, ParamSpec, Protocol

import msgspec

from partitions.metadata.image import MetadataImage
from raftlog.errors import RaftlogError
from raftlog.node.rpc import Calls, encode_body, handler_of
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import NodeId

SERVICE: Final = Service("peers.addresses", CallClass.METADATA)
TELL_TIMEOUT_MS: Final = 1000
TRY_OTHER_S: Final = 2.0  # enough for several attempts to connect

Arguments = ParamSpec("Arguments")
Address = tuple[str, int]
Told = tuple[str, int, str]
"""Address that a broker sends about itself: host and port at which it listens, and the id of its disk."""


class Addresses(msgspec.Struct, frozen=True, array_like=True):
    """Addresses of brokers in the metadata of ``version``: broker ids, hosts and ports."""

    version: int
    brokers: tuple[tuple[NodeId, str, int], ...]
    own: Told = ("", 0, "")  # of the sender
    moved: tuple[tuple[NodeId, Told], ...] = ()  # that moved brokers have sent to the sender


class Peers(Protocol):
    """The methods of ``GroupHost`` that this module uses."""

    calls: Calls
    on_peer_connected: Callable[[NodeId], None]

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether the peer has been heard recently."""

    def is_linked(self, peer: NodeId) -> bool:
        """Whether this broker's own link to the peer is established."""

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Send signs of life to these peers, and watch for signs of life from them."""

    def refuse_peer(self, peer: NodeId) -> None:
        """End and refuse all links with a peer that was removed from the cluster."""

    def begin_duty(
        self,
        duty: Callable[Arguments, Coroutine[None, None, None]],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> asyncio.Task[None]:
        """Run ``duty`` as a task, again after an unexpected error; the caller keeps the task."""


class PeerAddresses:
    """The addresses at which one broker dials its peers. All on the event loop's thread."""

    def __init__(
        self,
        node_id: NodeId,
        configured: Mapping[NodeId, Address],
        set_peer: Callable[[NodeId, str, int], None],
        peers: Peers,
        pinned: frozenset[NodeId] = frozenset(),
        disk_id: str = "",
    ) -> None:
        """``configured`` are the addresses in the settings; ``set_peer`` sets the address that the transport
        dials.

        ``pinned`` are the peers that are dialled at their configured addresses only. ``disk_id`` is the id of
        this broker's disk.
        """
        self._own = *configured.get(node_id, ("", 0)), disk_id
        self._configured = {peer: address for peer, address in configured.items() if peer != node_id}
        self._node_id = node_id
        self._set_peer = set_peer
        self._peers = peers
        self._pinned = pinned
        self._newest = Addresses(-1, ())  # of all brokers, this broker included
        self._registered: dict[NodeId, Address] = {}  # of the other brokers, by the metadata
        self._disks: dict[NodeId, str] = {}  # registered disk ids
        self._moved: dict[NodeId, Address] = {}  # that moved brokers with these disks have sent
        self._told: dict[NodeId, Told] = {}  # moved addresses to pass on
        self._dialled: dict[NodeId, Address] = {}
        self._forgotten: set[NodeId] = set()  # removed from the cluster
        self._telling: dict[NodeId, asyncio.Task[None]] = {}

    def begin(self) -> None:
        """Dial the brokers of the settings, and accept addresses from peers."""
        self._peers.calls.serve(SERVICE, handler_of(Addresses, self._serve))
        self._peers.on_peer_connected = self._connected
        for peer, address in self._configured.items():
            self._dial(peer, address)
        self._peers.watch_peers(frozenset(self._configured))

    def image_changed(self, image: MetadataImage) -> None:
        """Dial the brokers in ``image`` that are new or have moved; stop dialling removed brokers."""
        brokers = image.brokers.values()
        for broker in brokers:
            self._disks[broker.broker_id] = broker.disk_id
            if broker.admission_id and broker.broker_id not in self._pinned:
                self._configured.pop(broker.broker_id, None)
        for removed in image.forgotten:
            self._forget(removed)
        named = tuple((each.broker_id, each.rpc_host, each.rpc_port) for each in brokers)
        self._register(Addresses(image.version, named))

    def stands_in_log(self, image: MetadataImage) -> None:
        """Dial brokers that only the local metadata log has, perhaps in uncommitted entries
        (``image_ahead``).
        """
        for broker in image.brokers.values():
            peer = broker.broker_id
            self._disks.setdefault(peer, broker.disk_id)
            if peer != self._node_id and peer not in self._dialled and peer not in self._forgotten:
                self._dial(peer, (broker.rpc_host, broker.rpc_port))
                self._peers.watch_peers(frozenset({peer}))

    async def run(self) -> None:
        """Try other addresses of silent brokers periodically, until cancelled."""
        while True:
            await asyncio.sleep(TRY_OTHER_S)
            self.try_others()

    def _connected(self, peer: NodeId) -> None:
        """Send all addresses to a newly linked peer.

        The peer may know neither this broker nor the controller.
        """
        self._tell_all({peer} & self._dialled.keys())

    def _tell_all(self, peers: Iterable[NodeId]) -> None:
        for peer in peers:
            self._telling[peer] = self._peers.begin_duty(self._tell, peer)

    async def _tell(self, peer: NodeId) -> None:
        told = msgspec.structs.replace(self._newest, moved=tuple(self._told.items()))
        if self._is_unheard(peer):  # a peer that is heard already dials a working address
            told = msgspec.structs.replace(told, own=self._own)
        head = encode_body(told)
        with contextlib.suppress(RaftlogError):  # the next link sends them again
            await self._peers.calls.call(peer, SERVICE, head, timeout_ms=TELL_TIMEOUT_MS)

    def try_others(self) -> None:
        """Dial each broker that is not heard or not linked at its next known address, if it has several
        addresses.
        """
        for peer in sorted(self._configured.keys() | self._moved.keys()):
            known = [every.get(peer) for every in (self._registered, self._configured, self._moved)]
            addresses = list(dict.fromkeys(address for address in known if address is not None))
            if len(addresses) > 1 and not (self._peers.is_linked(peer) and self._peers.is_reachable(peer)):
                self._dial(peer, addresses[(addresses.index(self._dialled[peer]) + 1) % len(addresses)])

    async def _serve(self, sender: NodeId, told: Addresses) -> None:
        self._register(told)
        if self._believes(sender, told.own):
            self._dial(sender, self._moved[sender])  # the sender does not hear this broker
            self._pass_on(sender, told.own)
        for peer, where in told.moved:
            if not self._peers.is_linked(peer) and self._believes(peer, where):
                self._dial(peer, self._moved[peer])

    def _believes(self, peer: NodeId, told: Told) -> bool:
        host, port, disk_id = told
        is_registered = bool(disk_id) and self._disks.get(peer) == disk_id
        if peer == self._node_id or peer in self._pinned or peer in self._forgotten or not is_registered:
            return False
        self._moved[peer] = host, port
        return True

    def _pass_on(self, sender: NodeId, told: Told) -> None:
        """Pass the sender's new address on to all other peers, which may not reach the sender."""
        if self._told.get(sender) != told:
            self._told[sender] = told
            self._tell_all(self._dialled.keys() - {sender})

    def _register(self, addresses: Addresses) -> None:
        """Use these addresses, unless newer addresses are known."""
        if addresses.version < self._newest.version:
            return
        self._newest, has_moved = addresses, False
        for peer, host, port in addresses.brokers:
            if peer in self._forgotten:
                continue  # the addresses are older than the metadata that this broker has applied
            if peer in self._pinned:
                host, port = self._configured.get(peer, (host, port))
            if peer != self._node_id and self._registered.get(peer) != (host, port):
                has_moved |= peer in self._registered
                self._registered[peer] = (host, port)
                self._dial(peer, (host, port))
                self._peers.watch_peers(frozenset({peer}))
        if has_moved:
            self._tell_all(list(self._dialled))

    def _forget(self, peer: NodeId) -> None:
        if peer not in self._forgotten and peer != self._node_id:
            self._forgotten.add(peer)
            for known in (self._configured, self._registered, self._moved, self._told, self._dialled):
                known.pop(peer, None)
            self._peers.refuse_peer(peer)

    def _is_unheard(self, peer: NodeId) -> bool:
        return peer != self._node_id and not self._peers.is_reachable(peer)

    def _dial(self, peer: NodeId, address: Address) -> None:
        if self._dialled.get(peer) != address:
            self._dialled[peer] = address
            self._set_peer(peer, *address)
