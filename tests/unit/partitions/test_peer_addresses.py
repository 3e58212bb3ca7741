"""At which address a broker dials another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import cast

import pytest

from partitions.hosting.peer_addresses import Addresses, PeerAddresses
from partitions.metadata.commands import AdmitBroker, FenceBroker, ForgetBroker
from partitions.metadata.image import MetadataImage
from raftlog.errors import ConnectionLost
from raftlog.node.rpc import Calls, Handler, decode_body, encode_body
from raftlog.node.rpc_classes import Service
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster

ONE, TWO, FOUR = NodeId(1), NodeId(2), NodeId(4)


class Links:
    """Calls that reach some peers. What they are told is kept."""

    def __init__(self) -> None:
        self.linked: set[NodeId] = set()
        self.told: list[tuple[NodeId, Addresses]] = []
        self.handlers: dict[str, Handler] = {}

    def serve(self, service: Service, handler: Handler) -> None:
        self.handlers[service.name] = handler

    async def call(
        self, peer: NodeId, service: Service, head: bytes, *, timeout_ms: int
    ) -> tuple[bytes, memoryview]:
        if peer not in self.linked:
            raise ConnectionLost("it is down", sent=False)
        self.told.append((peer, decode_body(head, Addresses)))
        raise ConnectionLost("it cannot answer", sent=True)


class Known:
    """A host that hears some of its peers."""

    def __init__(self) -> None:
        self.links = Links()
        self.calls = cast("Calls", self.links)
        self.heard: set[NodeId] = set()
        self.unlinked: set[NodeId] = set()  # heard over their own links only
        self.watched: set[NodeId] = set()
        self.refused: list[NodeId] = []
        self.on_peer_connected: Callable[[NodeId], None] = lambda peer: None

    def begin_duty(
        self, duty: Callable[..., Coroutine[None, None, None]], *args: object, **kwargs: object
    ) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(duty(*args, **kwargs))

    def is_reachable(self, peer: NodeId) -> bool:
        return peer in self.heard

    def is_linked(self, peer: NodeId) -> bool:
        return peer in self.heard - self.unlinked

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        self.watched |= peers

    def refuse_peer(self, peer: NodeId) -> None:
        self.refused.append(peer)


class Dialler:
    """The addresses of broker 1, and where it dials."""

    def __init__(self, port: int = 9002, pinned: frozenset[NodeId] = frozenset()) -> None:
        self.known = Known()
        self.dialled: list[tuple[int, str, int]] = []
        configured = {ONE: ("127.0.0.1", 9001), TWO: ("127.0.0.1", port)}
        self.addresses = PeerAddresses(
            ONE, configured, lambda peer, host, at: self.dialled.append((peer, host, at)), self.known, pinned
        )
        self.addresses.begin()


def moved(image: MetadataImage, broker: NodeId, port: int) -> MetadataImage:
    brokers = {**image.brokers, broker: replace(image.brokers[broker], rpc_port=port)}
    return replace(image, brokers=brokers)


def test_the_settings_count_until_the_metadata_names_a_broker() -> None:
    one = Dialler()
    assert one.dialled == [(2, "127.0.0.1", 9002)]
    one.addresses.image_changed(cluster(brokers=2))
    assert one.dialled == [(2, "127.0.0.1", 9002)], "the same address is not dialled again"


# requirement: F2
def test_a_broker_that_joins_is_dialled_and_watched_without_a_restart() -> None:
    one = Dialler()
    image, _ = applied(AdmitBroker("a" * 32, FOUR, "http://h:1", "log4", 7170), to=cluster(brokers=2))
    one.addresses.image_changed(image)
    assert one.dialled[-1] == (4, "log4", 7170)
    assert one.known.watched == {TWO, FOUR}


# requirement: F2
async def test_a_broker_that_only_the_log_names_is_dialled_until_the_metadata_know_better() -> None:
    one = Dialler()
    admit = AdmitBroker("a" * 32, FOUR, "http://h:1", "log4", 7170)
    ahead, _ = applied(admit, to=moved(cluster(brokers=2), TWO, 9333))
    one.addresses.stands_in_log(ahead)
    assert one.dialled == [(2, "127.0.0.1", 9002), (4, "log4", 7170)], "the settings name broker 2"
    assert one.known.watched == {TWO, FOUR}
    one.addresses.image_changed(ahead)
    one.addresses.stands_in_log(applied(admit, to=cluster(brokers=2))[0])
    assert one.dialled[2:] == [(2, "127.0.0.1", 9333)]


def test_a_broker_that_was_removed_is_not_dialled_for_standing_in_the_log() -> None:
    one = Dialler()
    ahead, _ = applied(AdmitBroker("a" * 32, FOUR, "http://h:1", "log4", 7170), to=cluster(brokers=2))
    gone, _ = applied(ForgetBroker(FOUR, ""), to=ahead)
    one.addresses.image_changed(gone)
    one.addresses.stands_in_log(ahead)
    assert one.dialled == [(2, "127.0.0.1", 9002)]


async def test_a_broker_that_has_moved_is_dialled_at_its_new_address() -> None:
    one = Dialler()
    image = cluster(brokers=2)
    one.addresses.image_changed(image)
    one.addresses.image_changed(moved(image, TWO, 9333))
    one.addresses.image_changed(moved(image, TWO, 9333))
    assert one.dialled == [(2, "127.0.0.1", 9002), (2, "127.0.0.1", 9333)]


async def test_a_stale_file_does_not_take_a_broker_away_that_is_heard() -> None:
    one = Dialler(port=9555)
    one.addresses.image_changed(cluster(brokers=2))
    one.known.heard.add(TWO)
    one.addresses.try_others()
    assert one.dialled == [(2, "127.0.0.1", 9555), (2, "127.0.0.1", 9002)]


async def test_a_file_that_is_newer_than_the_metadata_is_tried_in_turns() -> None:
    one = Dialler(port=9555)
    one.addresses.image_changed(cluster(brokers=2))
    for _ in range(3):
        one.addresses.try_others()
    assert [port for _, _, port in one.dialled] == [9555, 9002, 9555, 9002, 9555]


# requirement: F2
def test_a_broker_that_is_heard_and_not_reached_is_tried_at_its_other_address() -> None:
    """It has moved, and dials this broker: nothing that it is sent arrives."""
    one = Dialler(port=9555)
    one.addresses.image_changed(cluster(brokers=2))
    one.known.heard, one.known.unlinked = {TWO}, {TWO}
    one.addresses.try_others()
    assert one.dialled[-1] == (2, "127.0.0.1", 9555)


async def test_a_pinned_address_is_the_only_one() -> None:
    """It is that of a proxy, past which the metadata would lead."""
    one = Dialler(port=9555, pinned=frozenset({TWO}))
    image = cluster(brokers=3)
    one.addresses.image_changed(image)
    one.addresses.image_changed(moved(image, TWO, 9333))
    for _ in range(3):
        one.addresses.try_others()
    assert [(peer, port) for peer, _, port in one.dialled if peer == TWO] == [(TWO, 9555)]
    assert [peer for peer, _, _ in one.dialled] == [2, 3], "the others are dialled as ever"


async def test_the_former_address_of_a_broker_that_was_replaced_is_never_dialled_again() -> None:
    one = Dialler()
    image = cluster(brokers=2)
    one.addresses.image_changed(image)
    image, _ = applied(
        FenceBroker(TWO, "first"),
        AdmitBroker("a" * 32, TWO, "http://h:1", "log9", 7170, replaces=True),
        to=image,
    )
    one.addresses.image_changed(image)
    for _ in range(3):
        one.addresses.try_others()
    assert one.dialled == [(2, "127.0.0.1", 9002), (2, "log9", 7170)]


# requirement: F2
async def test_a_broker_is_told_all_addresses_when_its_link_stands() -> None:
    """Also where it is heard: it may not know the new address of the controller."""
    one = Dialler()
    image = cluster(brokers=4)
    one.addresses.image_changed(image)
    one.known.links.linked = {TWO, NodeId(3)}
    one.known.heard = {NodeId(3)}
    for linked in (TWO, NodeId(3), NodeId(7)):
        one.known.on_peer_connected(linked)
    await asyncio.sleep(0)
    assert [(peer, told.version) for peer, told in one.known.links.told] == [
        (2, image.version),
        (3, image.version),
    ]
    numbers = [number for number, _, _ in one.known.links.told[0][1].brokers]
    assert numbers == [1, 2, 3, 4], "its own is among them"
    assert [told.own[1] for _, told in one.known.links.told] == [9001, 0], "who is heard has its address"


# requirement: F2
async def test_a_broker_with_a_link_is_told_where_the_controller_has_moved() -> None:
    """Broker 3 hears this broker only: the controller, broker 2, is at an address unknown to it."""
    one = Dialler()
    image = cluster(brokers=3)
    one.addresses.image_changed(image)
    one.known.links.linked = {NodeId(3)}
    one.addresses.image_changed(replace(image, version=image.version + 1))
    await asyncio.sleep(0)
    assert not one.known.links.told, "nothing has moved"
    one.addresses.image_changed(replace(moved(image, TWO, 9333), version=image.version + 2))
    await asyncio.sleep(0)
    [(peer, told)] = one.known.links.told
    assert (peer, told.brokers[1]) == (NodeId(3), (TWO, "127.0.0.1", 9333))


async def test_what_a_broker_is_told_counts_until_its_own_metadata_is_as_new() -> None:
    one = Dialler()
    handler = one.known.links.handlers["peers.addresses"]
    head = encode_body(Addresses(50, ((FOUR, "log4", 7170), (ONE, "log1", 1), (TWO, "127.0.0.1", 9002))))
    await handler(FOUR, head, memoryview(b""))
    assert one.dialled == [(2, "127.0.0.1", 9002), (4, "log4", 7170)]
    old = moved(cluster(brokers=2), TWO, 9333)
    one.addresses.image_changed(old)
    assert one.dialled[-1] == (4, "log4", 7170), "older metadata does not count"
    one.addresses.image_changed(replace(old, version=50))
    assert one.dialled[-1] == (2, "127.0.0.1", 9333)


def test_no_broker_dials_itself() -> None:
    one = Dialler()
    one.addresses.image_changed(cluster(brokers=3))
    assert {peer for peer, _, _ in one.dialled} == {2, 3}


# requirement: F3
async def test_a_removed_broker_is_refused_once_and_dialled_no_more() -> None:
    one = Dialler(port=9999)  # the settings have another address of broker 2
    image = cluster(brokers=2)
    one.addresses.image_changed(image)
    image, _ = applied(FenceBroker(TWO, "first"), ForgetBroker(TWO, "first"), to=image)
    one.addresses.image_changed(image)
    one.addresses.image_changed(replace(image, version=image.version + 1))
    assert one.known.refused == [TWO]
    dialled = list(one.dialled)
    one.addresses.try_others()
    one.known.links.linked = {TWO}
    one.known.on_peer_connected(TWO)
    await asyncio.sleep(0)
    assert one.dialled == dialled
    assert not one.known.links.told


# requirement: F3
async def test_a_broker_with_old_metadata_does_not_bring_a_removed_one_back() -> None:
    one = Dialler()
    image, _ = applied(FenceBroker(TWO, "first"), ForgetBroker(TWO, "first"), to=cluster(brokers=2))
    one.addresses.image_changed(image)
    told = encode_body(Addresses(image.version, ((TWO, "127.0.0.1", 9002),)))
    dialled = list(one.dialled)
    await one.known.links.handlers["peers.addresses"](FOUR, told, memoryview(b""))
    assert one.dialled == dialled


def registered(disk_id: str, admission: str = "", brokers: int = 2) -> MetadataImage:
    """Broker 2 has registered from this disk."""
    image = cluster(brokers=brokers)
    two = replace(image.brokers[TWO], disk_id=disk_id, admission_id=admission)
    return replace(image, brokers={**image.brokers, TWO: two})


async def tell(one: Dialler, own: tuple[str, int, str]) -> None:
    body = encode_body(Addresses(-1, (), own))
    await one.known.links.handlers["peers.addresses"](TWO, body, memoryview(b""))


# requirement: F2
async def test_a_broker_that_has_moved_with_its_disk_is_dialled_where_it_says() -> None:
    """All addresses of a cluster change while it is stopped, and the settings here do not name broker 2."""
    one = Dialler()
    one.addresses.image_changed(registered("d", admission="a" * 32))
    await tell(one, ("127.0.0.1", 9777, "d"))
    assert one.dialled[-1] == (2, "127.0.0.1", 9777)
    one.addresses.try_others()
    assert one.dialled[-1] == (2, "127.0.0.1", 9002), "it is not heard: it may have moved back"
    one.addresses.try_others()
    assert one.dialled[-1] == (2, "127.0.0.1", 9777)
    one.known.heard.add(TWO)
    one.addresses.try_others()
    assert one.dialled[-1] == (2, "127.0.0.1", 9777)


# requirement: F2
async def test_a_process_whose_id_was_given_away_is_not_dialled_where_it_says() -> None:
    one = Dialler()
    one.addresses.image_changed(registered("d"))
    for disk_id in ("e", ""):
        await tell(one, ("127.0.0.1", 9777, disk_id))
    one.addresses.try_others()
    assert one.dialled == [(2, "127.0.0.1", 9002)]


# requirement: F2
async def test_a_pinned_broker_that_joined_is_dialled_at_its_pinned_address_only() -> None:
    one = Dialler(port=9888, pinned=frozenset({TWO}))
    one.addresses.image_changed(registered("d", admission="a" * 32))
    await tell(one, ("127.0.0.1", 9777, "d"))
    one.addresses.try_others()
    assert one.dialled == [(2, "127.0.0.1", 9888)]


# requirement: F2
@pytest.mark.parametrize("image", [cluster(brokers=2), MetadataImage()])
async def test_a_broker_tells_its_own_address_and_disk_to_a_peer_that_it_does_not_hear(
    image: MetadataImage,
) -> None:
    """Also where it knows no metadata yet."""
    known = Known()
    known.links.linked.add(TWO)
    settings = {ONE: ("new", 9001), TWO: ("127.0.0.1", 9002)}
    addresses = PeerAddresses(ONE, settings, lambda *address: None, known, disk_id="mine")
    addresses.begin()
    addresses.image_changed(image)
    known.on_peer_connected(TWO)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    [(peer, told)] = known.links.told
    assert (peer, told.own) == (TWO, ("new", 9001, "mine"))


# requirement: F2
async def test_what_a_broker_tells_of_its_move_is_passed_on_to_those_that_it_does_not_reach() -> None:
    """Two brokers that have joined move at once: neither knows where the other one is."""
    one, four = Dialler(), Dialler()
    for each in (one, four):
        each.addresses.image_changed(registered("d", brokers=3))
    one.known.links.linked = one.known.heard = {TWO, NodeId(3)}
    await tell(one, ("127.0.0.1", 9777, "d"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    [(peer, told)] = one.known.links.told
    assert peer == NodeId(3)
    await four.known.links.handlers["peers.addresses"](NodeId(3), encode_body(told), memoryview(b""))
    assert four.dialled[-1] == (2, "127.0.0.1", 9777)
    one.known.links.told.clear()
    await tell(one, ("127.0.0.1", 9777, "d"))
    await asyncio.sleep(0)
    assert one.known.links.told == [], "it is passed on once"
