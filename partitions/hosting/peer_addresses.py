"""The addresses at which this broker dials the other brokers.

Decides: that the newest metadata names them, and the settings for brokers that no metadata has named here.
Leaves to others: dialling, and proving who answers (the transport).

- The settings may be newer, where brokers were moved while they were stopped: one of the first brokers that
  is not heard, or only over its own link, is dialled at both addresses in turns. One that was let in later is
  not: at its address of former times may be a process whose id was given away.
- A pinned address in the settings is the only one for its broker: a proxy, or an address that is translated.
- A broker that has moved and reaches another one, which cannot answer it at its former address, tells it the
  new address, which passes it on. That counts where its disk is the registered one: so a process whose id was
  given away is still not dialled.
- A broker that no committed metadata has named yet is dialled at the address that stands in the metadata log
  here: its vote may be needed to commit it.
- A broker that was removed for good is not dialled, and is refused when it dials.
- A broker whose metadata is old, or lost with its disk, cannot dial those that it does not know, and so
  cannot answer them. A broker tells all addresses to each other one when its link to it stands: soon after, a
  link on which nothing comes back is ended, and dialled again. It tells them again when a broker has moved:
  a peer that hears this broker, and not the controller at its new address, would never learn that address.
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
TRY_OTHER_S: Final = 2.0  # several attempts to connect

Arguments = ParamSpec("Arguments")
Address = tuple[str, int]
Told = tuple[str, int, str]
"""Host and port at which a broker listens, and the id of its disk."""


class Addresses(msgspec.Struct, frozen=True, array_like=True):
    """The addresses in metadata of this version: ids, hosts and ports."""

    version: int
    brokers: tuple[tuple[NodeId, str, int], ...]
    own: Told = ("", 0, "")  # by the broker that tells
    moved: tuple[tuple[NodeId, Told], ...] = ()  # what others have told it of themselves


class Peers(Protocol):
    """The part of ``GroupHost`` that is needed here."""

    calls: Calls
    on_peer_connected: Callable[[NodeId], None]

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether the peer has been heard lately."""

    def is_linked(self, peer: NodeId) -> bool:
        """Whether this broker's own link to the peer stands."""

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Keep these informed that this broker is alive, and watch them."""

    def refuse_peer(self, peer: NodeId) -> None:
        """Have no more to do with a peer that was removed from the cluster."""

    def begin_duty(
        self,
        duty: Callable[Arguments, Coroutine[None, None, None]],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> asyncio.Task[None]:
        """Run this beside the rest, again after an unexpected error; the caller keeps the task."""


class PeerAddresses:
    """One broker's. All on the event loop's thread."""

    def __init__(
        self,
        node_id: NodeId,
        configured: Mapping[NodeId, Address],
        set_peer: Callable[[NodeId, str, int], None],
        peers: Peers,
        pinned: frozenset[NodeId] = frozenset(),
        disk_id: str = "",
    ) -> None:
        """``configured`` are the addresses in the settings; ``set_peer`` is the transport's.

        ``pinned`` are the peers that are dialled at their configured addresses only. ``disk_id`` is that of
        this broker.
        """
        self._own = *configured.get(node_id, ("", 0)), disk_id
        self._configured = {peer: address for peer, address in configured.items() if peer != node_id}
        self._node_id = node_id
        self._set_peer = set_peer
        self._peers = peers
        self._pinned = pinned
        self._newest = Addresses(-1, ())  # this broker's own is among them
        self._registered: dict[NodeId, Address] = {}  # those of the others
        self._disks: dict[NodeId, str] = {}  # registered ones
        self._moved: dict[NodeId, Address] = {}  # what brokers with these disks have told of themselves
        self._told: dict[NodeId, Told] = {}  # the same, to be passed on
        self._dialled: dict[NodeId, Address] = {}
        self._forgotten: set[NodeId] = set()  # removed for good
        self._telling: dict[NodeId, asyncio.Task[None]] = {}

    def begin(self) -> None:
        """Dial the brokers of the settings, and listen to what others tell."""
        self._peers.calls.serve(SERVICE, handler_of(Addresses, self._serve))
        self._peers.on_peer_connected = self._connected
        for peer, address in self._configured.items():
            self._dial(peer, address)
        self._peers.watch_peers(frozenset(self._configured))

    def image_changed(self, image: MetadataImage) -> None:
        """Dial brokers that are new or have moved."""
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
        """Dial brokers that only the log names; it may not be committed (``image_ahead``)."""
        for broker in image.brokers.values():
            peer = broker.broker_id
            self._disks.setdefault(peer, broker.disk_id)
            if peer != self._node_id and peer not in self._dialled and peer not in self._forgotten:
                self._dial(peer, (broker.rpc_host, broker.rpc_port))
                self._peers.watch_peers(frozenset({peer}))

    async def run(self) -> None:
        """Look for brokers that are not heard, until cancelled."""
        while True:
            await asyncio.sleep(TRY_OTHER_S)
            self.try_others()

    def _connected(self, peer: NodeId) -> None:
        """A link to it stands. It may not know this broker, or the controller, and is told all addresses."""
        self._tell_all({peer} & self._dialled.keys())

    def _tell_all(self, peers: Iterable[NodeId]) -> None:
        for peer in peers:
            self._telling[peer] = self._peers.begin_duty(self._tell, peer)

    async def _tell(self, peer: NodeId) -> None:
        told = msgspec.structs.replace(self._newest, moved=tuple(self._told.items()))
        if self._is_unheard(peer):  # one that is heard dials this broker where it can be reached
            told = msgspec.structs.replace(told, own=self._own)
        head = encode_body(told)
        with contextlib.suppress(RaftlogError):  # it is told again with the next link
            await self._peers.calls.call(peer, SERVICE, head, timeout_ms=TELL_TIMEOUT_MS)

    def try_others(self) -> None:
        """Dial each broker that is not heard, or not reached, at its next address, if it has several."""
        for peer in sorted(self._configured.keys() | self._moved.keys()):
            known = [every.get(peer) for every in (self._registered, self._configured, self._moved)]
            addresses = list(dict.fromkeys(address for address in known if address is not None))
            if len(addresses) > 1 and not (self._peers.is_linked(peer) and self._peers.is_reachable(peer)):
                self._dial(peer, addresses[(addresses.index(self._dialled[peer]) + 1) % len(addresses)])

    async def _serve(self, sender: NodeId, told: Addresses) -> None:
        self._register(told)
        if self._believes(sender, told.own):
            self._dial(sender, self._moved[sender])  # it hears nothing from where it was dialled
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
        """Pass the new address of the sender on to all other peers, which may not reach the sender."""
        if self._told.get(sender) != told:
            self._told[sender] = told
            self._tell_all(self._dialled.keys() - {sender})

    def _register(self, addresses: Addresses) -> None:
        """Use these, unless newer ones are known."""
        if addresses.version < self._newest.version:
            return
        self._newest, has_moved = addresses, False
        for peer, host, port in addresses.brokers:
            if peer in self._forgotten:
                continue  # of metadata that are older than what this broker has applied
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
