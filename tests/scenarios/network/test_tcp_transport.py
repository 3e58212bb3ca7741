"""The transport over real sockets: strangers, damage, breaks, bounds, throughput, and what it leaves."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from random import Random

import pytest
import uvloop

from raftlog.node.network.framing import frame_header
from raftlog.node.network.handshake import NONCE_BYTES, Credentials, ListenerHandshake
from raftlog.node.network.tcp_connection import WRITE_BYTES
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from tests.helpers.async_tests import on_both_loops_with
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.tcp_cluster import (
    LIMITS,
    ONE,
    SECRET,
    TWO,
    Cluster,
    proven_stream,
    refused,
    tcp_cluster,
    until_closed,
)
from tests.helpers.tcp_proxy import byte_by_byte, unchanged
from tests.helpers.waiting import until

NO_REDIAL = TransportLimits(redial_ms_min=60_000, redial_ms_max=60_000)


# Peers need the secret, the cluster's id and their own id.
@pytest.mark.parametrize(
    ("secret", "cluster_id", "seen_by_listener", "seen_by_dialler"),
    [
        (b"wrong horse battery staple", "cluster", "wrong_secret", "closed_during_handshake"),
        (SECRET, "another", "other_cluster", "other_cluster"),
    ],
)
@on_both_loops_with(tcp_cluster)
async def test_a_node_that_does_not_belong_here_is_refused_and_logged(
    cluster: Cluster, secret: bytes, cluster_id: str, seen_by_listener: str, seen_by_dialler: str
) -> None:
    stranger, from_stranger = await cluster.node(ONE, secret=secret, cluster_id=cluster_id)
    two, from_two = await cluster.node(TWO)
    stranger.set_peer(TWO, "127.0.0.1", two.port)
    await refused(two, seen_by_listener)
    await refused(stranger, seen_by_dialler)
    assert not stranger.send(TWO, (b"let me in",))
    assert not from_two.events
    assert not from_stranger.events
    reasons = {entry["reason"]: entry for entry in cluster.logged if entry["direction"] == "inbound"}
    assert reasons[seen_by_listener]["claimed_node"] == ONE


@on_both_loops_with(tcp_cluster)
async def test_who_says_nothing_is_closed_when_the_handshake_takes_too_long(cluster: Cluster) -> None:
    limits = TransportLimits(handshake_ms_max=30)
    two, _ = await cluster.node(TWO, limits=limits)
    reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
    writer.write(b"RLOG")
    await until_closed(reader, writer)
    assert two.refusals == {"handshake_took_too_long": 1}


@on_both_loops_with(tcp_cluster)
async def test_a_listener_that_never_answers_is_given_up_and_dialled_again(cluster: Cluster) -> None:

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await until_closed(reader, writer)

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        limits = TransportLimits(dial_ms_max=20, redial_ms_min=1, redial_ms_max=2)
        one, from_one = await cluster.node(ONE, limits=limits)
        one.set_peer(TWO, "127.0.0.1", server.sockets[0].getsockname()[1])
        await until(lambda: one.refusals.get("handshake_took_too_long", 0) >= 2, what="two refusals")
        await one.stop()
    assert not from_one.events


@on_both_loops_with(tcp_cluster)
async def test_a_crowd_that_proves_nothing_keeps_no_node_out(cluster: Cluster) -> None:
    two, _ = await cluster.node(TWO, limits=TransportLimits(unproven_connections_max=3))
    crowd = [await asyncio.open_connection("127.0.0.1", two.port) for _ in range(10)]
    one, from_one = await cluster.node(ONE)
    one.set_peer(TWO, "127.0.0.1", two.port)
    await from_one.until(lambda: from_one.count("connected", TWO) == 1)
    assert two.refusals["too_many_unproven_connections"] >= 7
    for _, writer in crowd:
        writer.close()


@on_both_loops_with(tcp_cluster)
async def test_a_crowd_that_proves_nothing_costs_no_node_its_connection(cluster: Cluster) -> None:
    two, from_two = await cluster.node(TWO, limits=TransportLimits(unproven_connections_max=3))
    one, from_one = await cluster.node(ONE)
    one.set_peer(TWO, "127.0.0.1", two.port)
    await from_one.until(lambda: from_one.count("connected", TWO) == 1)
    crowd = [await asyncio.open_connection("127.0.0.1", two.port) for _ in range(10)]
    await until(
        lambda: two.refusals.get("too_many_unproven_connections", 0) >= 7, what="refusals of the crowd"
    )
    assert one.send(TWO, (b"still here",))
    await from_two.until(lambda: from_two.payloads() == [b"still here"])
    assert from_one.events == [("connected", TWO)]
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize("position", [0, 5, 9, 12, -1])
@on_both_loops_with(tcp_cluster)
async def test_a_flipped_bit_is_never_delivered_and_costs_the_connection(
    cluster: Cluster, position: int
) -> None:
    one, from_one, two, from_two = await cluster.through_proxy()

    def flip(data: bytes) -> Iterator[bytes]:
        changed = bytearray(data)
        changed[position] ^= 0x10
        cluster.proxy.tamper = unchanged
        yield bytes(changed)

    cluster.proxy.tamper = flip
    assert one.send(TWO, (b"damaged on the way",))
    await from_two.until(lambda: from_two.count("lost", ONE) == 1)
    await from_one.until(lambda: from_one.count("connected", TWO) == 2)
    assert one.send(TWO, (b"sound",))
    await from_two.until(lambda: len(from_two.frames) == 1)
    assert from_two.payloads() == [b"sound"]
    assert sum(two.refusals.values()) == 1


@on_both_loops_with(tcp_cluster)
async def test_handshake_and_frames_may_come_byte_by_byte(cluster: Cluster) -> None:
    cluster.proxy.tamper = byte_by_byte
    one, _, _, from_two = await cluster.through_proxy()
    sent = [b"", b"x", bytes(range(200)), b"end"]
    for frame in sent:
        assert one.send(TWO, (frame,))
    await from_two.until(lambda: len(from_two.frames) == len(sent))
    assert from_two.payloads() == sent


@on_both_loops_with(tcp_cluster)
async def test_a_break_is_told_once_to_each_end_and_order_holds_afterwards(cluster: Cluster) -> None:
    one, from_one, _, from_two = await cluster.through_proxy()
    for round_number in range(1, 4):
        cluster.proxy.cut()
        await from_one.until(lambda: from_one.count("connected", TWO) == round_number + 1)  # noqa: B023
        for number in range(50):
            assert one.send(TWO, (b"%d" % number,))
        await from_two.until(lambda: len(from_two.frames) == 50 * round_number)  # noqa: B023
    assert from_two.payloads() == [b"%d" % number for number in range(50)] * 3
    assert from_one.events == [("connected", TWO), *[("lost", TWO), ("connected", TWO)] * 3]
    assert from_two.events == [("lost", ONE)] * 3


@on_both_loops_with(tcp_cluster)
async def test_refused_redials_are_told_to_nobody(cluster: Cluster) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        one, from_one = await cluster.node(ONE, limits=TransportLimits(redial_ms_min=1, redial_ms_max=2))
        one.set_peer(TWO, "127.0.0.1", unused.getsockname()[1])
        await until(lambda: cluster.pauses[ONE].count >= 3, what="attempts to dial")
    assert not from_one.events
    assert not cluster.logged


@on_both_loops_with(tcp_cluster)
async def test_a_new_inbound_connection_of_a_peer_replaces_the_old_one(cluster: Cluster) -> None:
    two, from_two = await cluster.node(TWO)
    old_reader, old_writer = await proven_stream(two.port)
    old_writer.write(frame_header((b"old",), 3) + b"old")
    await from_two.until(lambda: len(from_two.frames) == 1)
    _, new_writer = await proven_stream(two.port)
    await from_two.until(lambda: from_two.count("lost", ONE) == 1)
    await until_closed(old_reader, old_writer)
    new_writer.write(frame_header((b"new",), 3) + b"new")
    await from_two.until(lambda: len(from_two.frames) == 2)
    assert from_two.events == [("lost", ONE)]
    new_writer.close()


# requirement: F6
@on_both_loops_with(tcp_cluster)
async def test_a_second_process_of_a_node_displaces_no_link_and_reads_where_the_first_one_is(
    cluster: Cluster,
) -> None:
    """A copy of a broker is started elsewhere: it dials the cluster, and the cluster dials the original."""
    two, from_two = await cluster.node(TWO)
    first, from_first = await cluster.node(ONE)
    first.set_peer(TWO, "127.0.0.1", two.port)
    two.set_peer(ONE, "127.0.0.1", first.port)
    await from_two.until(lambda: from_two.count("connected", ONE) == 1)
    await from_first.until(lambda: from_first.count("connected", TWO) == 1)
    assert first.send(TWO, (b"first",))
    await from_two.until(lambda: len(from_two.frames) == 1)
    first_port, (second, from_second) = first.port, await cluster.node(ONE)
    second.set_peer(TWO, "127.0.0.1", two.port)
    await until(lambda: second.refusals.get("node_id_in_use", 0) >= 3, what="refusals")
    assert first.send(TWO, (b"still",))
    await from_two.until(lambda: len(from_two.frames) == 2)
    assert (from_two.events, from_second.events) == ([("connected", ONE)], [])
    told = [each for each in cluster.logged if each["reason"] == "node_id_in_use"]
    assert {each["direction"] for each in told} == {"inbound", "outbound"}
    for each in told:
        assert re.fullmatch(
            rf"another process runs as node 1, at 127\.0\.0\.1:{first_port}; this process connects from "
            r"127\.0\.0\.1:\d+: stop one, or change its broker_id",
            str(each["detail"]),
        )
    await first.stop()
    await from_second.until(lambda: from_second.count("connected", TWO) == 1)


# requirement: F6
@on_both_loops_with(tcp_cluster)
async def test_a_process_that_cannot_be_reached_makes_room_for_one_that_can(cluster: Cluster) -> None:
    two, from_two = await cluster.node(TWO)
    copy, from_copy = await cluster.node(ONE)
    copy.set_peer(TWO, "127.0.0.1", two.port)
    await from_copy.until(lambda: from_copy.count("connected", TWO) == 1)
    original, _ = await cluster.node(ONE)
    two.set_peer(ONE, "127.0.0.1", original.port)
    original.set_peer(TWO, "127.0.0.1", two.port)
    await until(lambda: "node_id_in_use" in copy.refusals, what="a refusal of the copy")
    assert "node_id_in_use" not in original.refusals
    assert original.send(TWO, (b"original",))
    await from_two.until(lambda: b"original" in from_two.payloads())


# requirement: F6
@on_both_loops_with(tcp_cluster)
async def test_a_process_whose_frames_are_dropped_unreached_reads_why_when_it_dials_again(
    cluster: Cluster,
) -> None:
    """An older copy of a disk, for instance, at an address which the others do not know."""
    two, from_two = await cluster.node(TWO)
    two.set_peer(ONE, "127.0.0.1", 1)  # nobody listens
    copy, from_copy = await cluster.node(ONE)
    copy.set_peer(TWO, "127.0.0.1", two.port)
    await from_copy.until(lambda: from_copy.count("connected", TWO) == 1)
    two.refuse_unreached(ONE, "the disk of node 1 is an older copy")
    copy.disconnect(TWO)
    await until(lambda: copy.refusals.get("disk_refused", 0) >= 2, what="refusals")
    assert from_copy.count("connected", TWO) == 1
    told = [each for each in cluster.logged if each["reason"] == "disk_refused"]
    assert {each["direction"] for each in told} == {"inbound", "outbound"}
    for each in told:
        assert re.fullmatch(
            r"the disk of node 1 is an older copy, and node 2 dials another address, 127\.0\.0\.1:1; "
            r"this process connects from 127\.0\.0\.1:\d+",
            str(each["detail"]),
        )
    two.set_peer(ONE, "127.0.0.1", copy.port)
    await from_copy.until(lambda: from_copy.count("connected", TWO) == 2)
    await from_two.until(lambda: from_two.count("connected", ONE) == 1)


@on_both_loops_with(tcp_cluster)
async def test_a_newer_connection_of_a_peer_ends_ours_to_it(cluster: Cluster) -> None:
    two, from_two = await cluster.node(TWO)
    one, _ = await cluster.node(ONE)
    former = await proven_stream(two.port)
    await cluster.proxy.start(one.port)
    two.set_peer(ONE, "127.0.0.1", cluster.proxy.port)
    await from_two.until(lambda: from_two.count("connected", ONE) == 1)
    cluster.proxy.silence()  # half open, as if the peer had lost its power and come back
    _, newer = await proven_stream(two.port)
    await from_two.until(lambda: from_two.count("connected", ONE) == 2)
    assert from_two.count("lost", ONE) == 2  # the former connection from it, and ours
    await until_closed(*former)
    newer.close()


@on_both_loops_with(tcp_cluster)
async def test_a_connection_of_a_peer_that_breaks_ends_ours_to_it(cluster: Cluster) -> None:
    two, from_two = await cluster.node(TWO)
    one, _ = await cluster.node(ONE)
    _, of_one = await proven_stream(two.port)
    await cluster.proxy.start(one.port)
    two.set_peer(ONE, "127.0.0.1", cluster.proxy.port)
    await from_two.until(lambda: from_two.count("connected", ONE) == 1)
    cluster.proxy.silence()  # half open, and nothing but the other connection can tell
    of_one.close()
    await from_two.until(lambda: from_two.count("connected", ONE) == 2)
    assert from_two.count("lost", ONE) == 2


@on_both_loops_with(tcp_cluster)
async def test_a_moved_peer_is_dialled_at_its_new_address(cluster: Cluster) -> None:
    one, from_one, _, from_two = await cluster.through_proxy()
    _, moved = await cluster.node(TWO)
    one.set_peer(TWO, "127.0.0.1", cluster.transports[-1].port)
    await from_one.until(lambda: from_one.count("connected", TWO) == 2)
    assert one.send(TWO, (b"hello there",))
    await moved.until(lambda: len(moved.frames) == 1)
    assert not from_two.frames


@on_both_loops_with(tcp_cluster)
async def test_an_address_that_cannot_be_one_does_not_end_the_dialling(cluster: Cluster) -> None:
    one, from_one = await cluster.node(ONE)
    two, _ = await cluster.node(TWO)
    one.set_peer(TWO, "broker..local", two.port)
    await until(lambda: cluster.pauses[ONE].count >= 3, what="attempts to dial")
    one.set_peer(TWO, "127.0.0.1", two.port)
    await from_one.until(lambda: from_one.count("connected", TWO) == 1)


@on_both_loops_with(tcp_cluster)
async def test_a_listener_that_sends_on_the_diallers_connection_is_cut_off(cluster: Cluster) -> None:

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshake = ListenerHandshake(Credentials(TWO, "cluster", SECRET), bytes(NONCE_BYTES))
        while handshake.bytes_expected:
            writer.write(handshake.receive(await reader.readexactly(handshake.bytes_expected)))
        writer.write(b"!")
        await until_closed(reader, writer)

    async with await asyncio.start_server(rude, "127.0.0.1", 0) as server:
        one, from_one = await cluster.node(ONE, limits=NO_REDIAL)
        one.set_peer(TWO, "127.0.0.1", server.sockets[0].getsockname()[1])
        await refused(one, "bytes_from_the_listener")
        await from_one.until(lambda: from_one.count("lost", TWO) == 1)
        await one.stop()


@on_both_loops_with(tcp_cluster)
async def test_how_long_a_peer_is_silent_is_told_by_the_clock(cluster: Cluster) -> None:
    one, _, two, from_two = await cluster.through_proxy()
    cluster.clock.now_ms += 7_000
    assert two.seconds_since_heard(ONE) == 7.0
    one.send(TWO, (b"keepalive",))
    await from_two.until(lambda: len(from_two.frames) == 1)
    assert two.seconds_since_heard(ONE) == 0.0


@on_both_loops_with(tcp_cluster)
async def test_refusals_are_all_counted_and_seldom_logged(cluster: Cluster) -> None:
    two, _ = await cluster.node(TWO)

    async def knock() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
        writer.write(bytes(72))
        assert await until_closed(reader, writer) == b""

    for _ in range(5):
        await knock()
    cluster.clock.now_ms += LIMITS.log_interval_ms
    await knock()
    assert two.refusals == {"not_our_protocol": 6}
    assert [entry["not_logged_since_last"] for entry in cluster.logged] == [0, 4]


@on_both_loops_with(tcp_cluster)
async def test_frames_of_one_turn_of_the_loop_leave_together(cluster: Cluster) -> None:
    reads: list[int] = []

    def measure(data: bytes) -> Iterator[bytes]:
        reads.append(len(data))
        yield data

    one, _, _, from_two = await cluster.through_proxy()
    cluster.proxy.tamper = measure
    for number in range(500):
        assert one.send(TWO, (b"%03d" % number,))
    await from_two.until(lambda: len(from_two.frames) == 500)
    assert reads == [500 * (12 + 3)]


@on_both_loops_with(tcp_cluster)
async def test_what_waits_for_a_slow_peer_is_counted_until_it_has_left(cluster: Cluster) -> None:
    one, _, _, from_two = await cluster.through_proxy()
    large, small, sent = bytes(5 * WRITE_BYTES), bytes(WRITE_BYTES // 3), 0
    while one.send(TWO, (small,)) and one.send(TWO, (large, small)):
        sent += 2
    # The last pair may have gone in half.
    waiting = one.queued_bytes(TWO)
    assert LIMITS.queue_bytes_max - 6 * WRITE_BYTES < waiting <= LIMITS.queue_bytes_max
    await from_two.until(lambda: len(from_two.frames) >= sent)
    await until(lambda: not one.queued_bytes(TWO), what="the end of the queue")


Run = Callable[[Coroutine[None, None, None]], None]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("frame_bytes", "count"), [(50, 10_000), (1_000_000, 50)])
def test_all_frames_arrive(run: Run, frame_bytes: int, count: int) -> None:
    async def story() -> None:
        one, two = (TcpTransport(node, "c", bytes(16), "127.0.0.1", 0, rng=Random(1)) for node in (ONE, TWO))
        from_one, from_two = RecordingReceiver(), RecordingReceiver()
        await one.start(from_one)
        await two.start(from_two)
        one.set_peer(TWO, "127.0.0.1", two.port)
        await from_one.until(lambda: from_one.count("connected", TWO) == 1)
        payload, began = bytes(frame_bytes), time.perf_counter()
        for _ in range(count):
            while not one.send(TWO, (payload,)):
                await asyncio.sleep(0)
        await from_two.until(lambda: len(from_two.frames) == count)
        seconds = time.perf_counter() - began
        sys.stdout.write(f"{count} frames of {frame_bytes} bytes: {seconds / count * 1e6:.1f} us each, ")
        sys.stdout.write(f"{count * frame_bytes / seconds / 1e6:.0f} MB/s\n")
        await one.stop()
        await two.stop()

    run(story())
