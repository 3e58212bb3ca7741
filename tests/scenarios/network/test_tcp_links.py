"""Links of the transport: how they are kept, cut, and ended on silence."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest

from chaos.kit.network import CuttableTransport
from raftlog.errors import ConnectionLost
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.node.network.handshake import Credentials
from raftlog.node.network.rejected_connections import LogEvent, Refusals
from raftlog.node.network.tcp_links import LinkContext, OutboundLink, TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import Sync
from raftlog.testing.syncs import in_a_task
from raftlog.types import NodeId
from tests.helpers.async_tests import on_both_loops
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.tcp_cluster import ONE, SECRET, TWO
from tests.helpers.tcp_proxy import TcpProxy, byte_by_byte, unchanged
from tests.helpers.virtual_time import VirtualClock, clock_of_loop
from tests.helpers.waiting import until

LIMITS = TransportLimits(dial_ms_max=150, redial_ms_min=10, redial_ms_max=100)


def new_link(log: LogEvent = lambda event, **fields: None, host: str = "127.0.0.1") -> OutboundLink:
    """It begins to dial."""
    clock = VirtualClock()
    context = LinkContext(
        Credentials(ONE, "cluster", SECRET),
        LIMITS,
        clock,
        random.Random(1),
        Refusals(log, clock, LIMITS.log_interval_ms),
        log,
        RecordingReceiver(),
        frozenset(),
    )
    return OutboundLink(context, TWO, host, 1)


# requirement: ST4
async def test_a_dial_whose_packets_are_lost_is_given_up_and_begun_again() -> None:
    """The kernel repeats the first packet of a connection after one second, three and seven."""
    loop = asyncio.get_running_loop()
    dialled: list[float] = []

    async def lost(*arguments: object) -> None:
        dialled.append(loop.time())
        await asyncio.Event().wait()

    loop.create_connection = lost  # type: ignore[method-assign, assignment]
    link = new_link()
    await asyncio.sleep(2)
    await link.stop()
    pauses = [later - earlier for earlier, later in pairwise(dialled)]
    assert len(pauses) >= 5
    assert max(pauses) <= (LIMITS.dial_ms_max + 1.5 * LIMITS.redial_ms_max) / 1000


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("Name or service not known"), "Name or service not known"),
        (TimeoutError(), "no answer in time"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
)
async def test_a_peer_that_cannot_be_dialled_is_logged_after_a_while_and_seldom(
    error: Exception, reason: str
) -> None:
    loop, logged = asyncio.get_running_loop(), list[tuple[float, str, dict[str, object]]]()

    async def fails(*arguments: object, **options: object) -> None:
        raise error

    loop.create_connection = loop.getaddrinfo = fails  # type: ignore[method-assign, assignment]
    link = new_link(lambda event, **fields: logged.append((loop.time(), event, fields)), "wrong.invalid")
    began = loop.time()
    await asyncio.sleep(130)
    await link.stop()
    first, second, third = logged
    assert 5 <= first[0] - began < 7
    assert first[1] == "peer_cannot_be_dialled"
    fields = {"peer": TWO, "host": "wrong.invalid", "port": 1, "reason": reason, "failing_for_s": 5}
    assert first[2] == fields
    assert all(later[0] - earlier[0] >= 60 for earlier, later in ((first, second), (second, third)))


def answer_of(*hosts: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    """Return addresses in the form of ``getaddrinfo``."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 1)) for host in hosts]


# requirement: ST4
async def test_each_address_of_a_name_is_dialled_though_the_first_one_answers_nothing() -> None:
    loop, dialled = asyncio.get_running_loop(), list[object]()

    async def resolves(host: str, port: int, **_: object) -> list[object]:
        return [*answer_of("198.51.100.1", "192.0.2.1", "192.0.2.2", "192.0.2.1")]

    async def connects(factory: object, host: str, port: int) -> None:
        dialled.append(host)
        if host == "198.51.100.1":
            await asyncio.Event().wait()
        raise OSError("refused")

    loop.create_connection, loop.getaddrinfo = connects, resolves  # type: ignore[method-assign, assignment]
    link = new_link(host="peer.example")
    await asyncio.sleep(0.45)
    await link.stop()
    silent, one, two = "198.51.100.1", "192.0.2.1", "192.0.2.2"
    assert dialled[:6] == [silent, one, two, silent, two, silent]


# requirement: ST4
async def test_a_resolver_that_stops_answering_is_asked_once_and_costs_no_link() -> None:
    loop, asked, dialled = asyncio.get_running_loop(), list[float](), list[object]()
    is_silent = False

    async def resolves(host: str, port: int, **_: object) -> list[object]:
        asked.append(loop.time())
        if is_silent:
            await asyncio.Event().wait()
        return [*answer_of("192.0.2.1")]

    async def refuses(factory: object, host: str, port: int) -> None:
        dialled.append(host)
        raise OSError("refused")

    loop.create_connection, loop.getaddrinfo = refuses, resolves  # type: ignore[method-assign, assignment]
    link = new_link(host="peer.example")
    await asyncio.sleep(1)
    is_silent = True
    asked_before, dialled_before = len(asked), len(dialled)
    await asyncio.sleep(10)
    await link.stop()
    assert len(asked) == asked_before + 1
    assert len(dialled) > dialled_before + 20


# requirement: ST4
async def test_a_slow_resolver_is_waited_for_by_several_attempts() -> None:
    loop, dialled = asyncio.get_running_loop(), list[float]()

    async def resolves(host: str, port: int, **_: object) -> list[object]:
        await asyncio.sleep(2)
        return [*answer_of("192.0.2.1")]

    async def refuses(factory: object, host: str, port: int) -> None:
        dialled.append(loop.time())
        raise OSError("refused")

    loop.create_connection, loop.getaddrinfo = refuses, resolves  # type: ignore[method-assign, assignment]
    began, link = loop.time(), new_link(host="peer.example")
    await asyncio.sleep(10)
    await link.stop()
    assert 2 <= dialled[0] - began < 3
    assert len(dialled) > 10


async def test_a_peer_is_dialled_again_where_no_memory_is_left_to_log_a_failure() -> None:
    loop, dialled = asyncio.get_running_loop(), list[float]()

    def log(event: str, **fields: object) -> None:
        raise MemoryError

    async def fails(*arguments: object) -> None:
        dialled.append(loop.time())
        raise OSError

    loop.create_connection = fails  # type: ignore[method-assign, assignment]
    link = new_link(log)
    await asyncio.sleep(20)
    await link.stop()
    pauses = [later - earlier for earlier, later in pairwise(dialled)]
    assert sum(pauses) > 15
    assert max(pauses) <= 1.5 * LIMITS.redial_ms_max / 1000


class SilentlyClosed(asyncio.Transport):
    """What uvloop makes of a connection when its making is cancelled: the protocol hears nothing."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As uvloop does."""
        if self.is_closed:
            raise RuntimeError("the handler is closed")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here."""

    def abort(self) -> None:
        """It may be closed already."""
        self.is_closed = True


# requirement: ST4
async def test_frames_for_a_connection_that_was_made_too_late_are_dropped() -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))

    async def made_too_late(factory: Callable[[], asyncio.Protocol], *address: object) -> None:
        transport = SilentlyClosed()
        try:
            factory().connection_made(transport)
            await asyncio.Event().wait()
        finally:
            transport.is_closed = True
            transport.get_extra_info("socket").close()

    loop.create_connection = made_too_late  # type: ignore[method-assign, assignment]
    link = new_link()
    for _ in range(100):
        await asyncio.sleep(0.01)
        link.connection.send([b"frame"], 5, 1 << 20)
    await link.stop()
    assert errors == []


CUT_LIMITS = TransportLimits(redial_ms_min=5, redial_ms_max=20)


class End:
    """One of two brokers."""

    def __init__(self, node_id: NodeId) -> None:
        self.tcp = TcpTransport(
            node_id,
            "cluster",
            b"a secret of the cluster",
            "127.0.0.1",
            0,
            rng=Random(1),
            clock=VirtualClock(),
            limits=CUT_LIMITS,
        )
        self.links = CuttableTransport(self.tcp)
        self.receiver = RecordingReceiver()

    async def start(self) -> None:
        await self.links.start(self.receiver)


async def connected_pair() -> tuple[End, End]:
    one, two = End(ONE), End(TWO)
    await one.start()
    await two.start()
    one.links.set_peer(TWO, "127.0.0.1", two.tcp.port)
    two.links.set_peer(ONE, "127.0.0.1", one.tcp.port)
    await one.receiver.until(lambda: one.receiver.count("connected", TWO) == 1)
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 1)
    return one, two


async def test_nothing_passes_a_cut_link_and_nobody_is_told() -> None:
    one, two = await connected_pair()
    two.links.cut(frozenset({ONE}))
    assert one.links.send(TWO, (b"lost on arrival",))
    assert two.links.send(ONE, (b"lost at once",))
    one.links.disconnect(TWO)  # as after a long silence
    await one.receiver.until(lambda: one.receiver.count("connected", TWO) >= 2)
    assert one.links.send(TWO, (b"lost, too",))
    two.links.cut(frozenset())
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 2)
    while not two.receiver.frames:  # a connection from before may be the one that breaks
        one.links.send(TWO, (b"arrives",))
        await asyncio.sleep(0.01)
    assert {*two.receiver.frames, *one.receiver.frames} == {(ONE, b"arrives")}
    await one.links.stop()
    await two.links.stop()


async def test_a_peer_behind_a_cut_link_is_silent() -> None:
    one, two = await connected_pair()
    one.links.cut(frozenset({TWO}))
    at_first = one.links.seconds_since_heard(TWO)
    two.tcp.send(ONE, (b"lost",))
    two.links.disconnect(ONE)
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 2)
    assert one.links.seconds_since_heard(TWO) > at_first
    await one.links.stop()
    await two.links.stop()


SETTINGS = HostSettings(tick_ms=10, heartbeat_ticks=3, election_ticks=15, quiesce_ticks=40)
ELECTION_TICKS = 2 * SETTINGS.election_ticks  # the longest time-out that is drawn
ELECTION_S = SETTINGS.tick_ms * ELECTION_TICKS / 1000
LENGTH, WAITS = Service("length", CallClass.READ), Service("waits", CallClass.READ)
HANDSHAKE_MESSAGES = (72, 32)
HALF_OPEN_LIMITS = TransportLimits(dial_ms_max=150, redial_ms_min=10, redial_ms_max=100)


class Pair:
    """Two hosts, and a proxy for each direction."""

    def __init__(self, limits: TransportLimits) -> None:
        self.to_two, self.to_one = TcpProxy(), TcpProxy()
        self.transports = [
            TcpTransport(
                node,
                "cluster",
                b"a secret of the cluster",
                "127.0.0.1",
                0,
                rng=random.Random(1),
                clock=clock_of_loop(),
                limits=limits,
            )
            for node in (ONE, TWO)
        ]
        self.one, self.two = (
            GroupHost(
                node,
                transport,
                clock_of_loop(),
                random.Random(node),
                in_a_task(_syncs),
                on_fatal=_fatal,
                settings=SETTINGS,
            )
            for node, transport in zip((ONE, TWO), self.transports, strict=True)
        )

    async def start(self) -> None:
        """Return once each has heard the other."""
        for host, peer in ((self.one, TWO), (self.two, ONE)):
            host.watch_peers(frozenset({peer}))
            await host.start()
        await self.to_two.start(self.transports[1].port)
        await self.to_one.start(self.transports[0].port)
        self.transports[0].set_peer(TWO, "127.0.0.1", self.to_two.port)
        self.transports[1].set_peer(ONE, "127.0.0.1", self.to_one.port)
        await self.until(self.talk)

    def talk(self) -> bool:
        """Whether each hears the other."""
        return self.one.is_reachable(TWO) and self.two.is_reachable(ONE)

    async def until(self, holds: Callable[[], bool]) -> int:
        """Wait for something; how many ticks it took."""
        began = self.one._watch.ticks
        await until(holds, what="the hosts")
        return self.one._watch.ticks - began

    async def stop(self) -> None:
        """Close everything."""
        for host in (self.one, self.two):
            await host.stop()
        for proxy in (self.to_one, self.to_two):
            await proxy.stop()


async def _syncs(syncs: Sequence[Sync]) -> list[OSError | None]:
    return [None for _ in syncs]


def _fatal(error: BaseException) -> None:
    raise AssertionError(repr(error))


@asynccontextmanager
async def started_pair(limits: TransportLimits = HALF_OPEN_LIMITS) -> AsyncIterator[Pair]:
    pair = Pair(limits)
    try:
        await pair.start()
        yield pair
    finally:
        await pair.stop()


# requirement: ST4
@pytest.mark.parametrize("directions", ["to two", "to one", "both"])
async def test_a_silent_link_is_ended_and_dialled_again(directions: str) -> None:
    async with started_pair() as pair:
        chosen = {"to two": [pair.to_two], "to one": [pair.to_one], "both": [pair.to_two, pair.to_one]}
        dialled = [(proxy, proxy.accepted) for proxy in chosen[directions]]
        for proxy, _ in dialled:
            proxy.silence()
        ended_ticks = await pair.until(lambda: all(proxy.accepted > before for proxy, before in dialled))
        heard_ticks_ago = SETTINGS.heartbeat_ticks  # at most, when the silence begins
        assert SETTINGS.election_ticks - heard_ticks_ago <= ended_ticks < 2 * ELECTION_TICKS
        assert await pair.until(pair.talk) < ELECTION_TICKS


# requirement: L9
@pytest.mark.parametrize("direction", ["to two", "to one"])
async def test_a_caller_whose_question_is_dropped_for_silence_is_told(direction: str) -> None:
    """A caller whose own direction is silent hears the other broker all the time."""
    async with started_pair() as pair:
        is_asked = asyncio.Event()

        async def waits(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
            is_asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        pair.two.calls.serve(WAITS, waits)
        asked = asyncio.create_task(pair.one.calls.call(TWO, WAITS, b"", timeout_ms=60_000))
        await is_asked.wait()
        (pair.to_two if direction == "to two" else pair.to_one).silence()
        with pytest.raises(ConnectionLost, match="lost broker 2 before it answered") as caught:
            async with asyncio.timeout(10 * ELECTION_S):
                await asked
        assert caught.value.details["sent"] is True


async def test_a_link_that_is_silent_from_its_beginning_is_ended() -> None:
    async with started_pair() as pair:

        def handshake_only(data: bytes) -> Iterator[bytes]:
            if len(data) in HANDSHAKE_MESSAGES:
                yield data

        pair.to_two.tamper = handshake_only
        before = pair.to_two.accepted
        pair.transports[0].disconnect(TWO)
        await pair.until(lambda: pair.to_two.accepted > before)
        await pair.until(lambda: pair.one.is_reachable(TWO) and TWO in pair.one._watch._connected)
        assert not pair.two.is_reachable(ONE)
        pair.to_two.silence()  # what was swallowed never comes, and only a new connection works
        pair.to_two.tamper = unchanged
        assert await pair.until(pair.talk) < 2 * ELECTION_TICKS


# requirement: ST4
@pytest.mark.parametrize("directions", ["to two", "both"])
async def test_hosts_talk_within_an_election_timeout_of_the_healing(directions: str) -> None:
    async with started_pair() as pair:
        proxies = [pair.to_two] if directions == "to two" else [pair.to_two, pair.to_one]
        for proxy in proxies:
            proxy.black_hole()
        assert await pair.until(lambda: not pair.two.is_reachable(ONE)) < 2 * ELECTION_TICKS
        await asyncio.sleep(3 * ELECTION_S)  # attempts to dial are swallowed, too
        assert not pair.two.is_reachable(ONE)
        for proxy in proxies:
            proxy.heal()
        # An attempt that was swallowed, the pause behind it, and a heartbeat.
        assert await pair.until(pair.talk) < ELECTION_TICKS + SETTINGS.heartbeat_ticks


async def test_a_frame_that_takes_longer_than_silence_may_last_is_heard() -> None:
    async with started_pair() as pair:

        async def length(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
            return b"%d" % len(payload), ()

        pair.two.calls.serve(LENGTH, length)
        pair.to_two.tamper = byte_by_byte
        pair.to_two.piece_s = 100e-6
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer, _ = await pair.one.calls.call(TWO, LENGTH, b"", [bytes(6_000)], timeout_ms=30_000)
        assert answer == b"6000"
        took_ticks = (loop.time() - began) * 1000 / SETTINGS.tick_ms
        assert took_ticks > SETTINGS.election_ticks, "not slow enough to prove anything"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this platform has no TCP_USER_TIMEOUT")
@on_both_loops
async def test_the_kernel_ends_connections_whose_bytes_are_not_acknowledged() -> None:
    async with started_pair() as pair:
        for transport in pair.transports:
            inbound = transport._inbound
            assert inbound is not None
            for connection in (*inbound._all, *(link.connection for link in transport._links.values())):
                assert connection._transport is not None
                connected = connection._transport.get_extra_info("socket")
                assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1_500
                assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
