"""Bytes that no broker sends, at each stage of a connection: a host ends it and says so in one line."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from crc32c import crc32c

from raftlog.core.membership import Membership
from raftlog.core.messages import AppendReply, Message, SnapshotOffer, TimeoutNow, VoteReply, VoteRequest
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame, encode_message
from raftlog.node.group_host import GroupHost
from raftlog.node.network.framing import SCRATCH_BYTES, frame_header
from raftlog.node.network.handshake import NONCE_BYTES, Credentials, DiallerHandshake
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import Sync
from raftlog.testing.syncs import in_a_task
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.async_tests import on_both_loops
from tests.helpers.tcp_cluster import ONE, SECRET, TWO, proven_stream, until_closed
from tests.helpers.virtual_time import clock_of_loop
from tests.helpers.waiting import until

COUNTED = Service("counted", CallClass.READ)
CONTENT = b"content-of-a-peer"
NOT_MSGPACK = b"\xc1" + CONTENT


class Host:
    """A real host on a real transport, and everything that it or its event loop has to say."""

    def __init__(self) -> None:
        self.logged: list[dict[str, object]] = []
        self.fatal: list[BaseException] = []
        self.troubles: list[dict[str, object]] = []
        self.transport = TcpTransport(
            TWO,
            "cluster",
            SECRET,
            "127.0.0.1",
            0,
            rng=random.Random(1),
            limits=TransportLimits(handshake_ms_max=60_000),
            log=self._log,
        )
        self.host = GroupHost(
            TWO,
            self.transport,
            clock_of_loop(),
            random.Random(2),
            in_a_task(_syncs),
            on_fatal=self.fatal.append,
        )

    def _log(self, event: str, **fields: object) -> None:
        self.logged.append({"event": event, **fields})

    async def refused(self, reason: str, times: int = 1) -> None:
        """Wait until so many connections were refused for this reason."""
        await until(lambda: self.transport.refusals.get(reason, 0) >= times, what=f"refusals: {reason}")


async def _syncs(syncs: Sequence[Sync]) -> list[OSError | None]:
    return [None for _ in syncs]


@asynccontextmanager
async def started_host() -> AsyncIterator[Host]:
    """In the end nothing has broken, and no line holds what was sent."""
    host = Host()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: host.troubles.append(context))
    await host.host.start()
    try:
        yield host
    finally:
        await host.host.stop()
    assert host.fatal == []
    assert host.troubles == []
    assert CONTENT.decode() not in repr(host.logged)


def framed(payload: bytes) -> bytes:
    """A frame that is whole, whatever is in it."""
    return frame_header([payload], len(payload)) + payload


def joined(frame: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """The payload of a frame."""
    return b"".join(bytes(part) for part in frame)


def oversized() -> bytes:
    """A header that announces more than a frame may hold."""
    checked = struct.pack(">II", 0xFFFFFFFF, 0)
    return checked + struct.pack(">I", crc32c(checked))


MALFORMED = [
    b"",
    b"\x03",
    b"\x00" + bytes(4) + CONTENT,
    b"\xff" + bytes(4) + CONTENT,
    struct.pack(">BI", FrameKind.RAFT, 1 << 31) + CONTENT,
    struct.pack(">BI", FrameKind.RAFT, len(NOT_MSGPACK)) + NOT_MSGPACK,
    struct.pack(">BI", FrameKind.CALL, len(NOT_MSGPACK)) + NOT_MSGPACK,
    struct.pack(">BI", FrameKind.RAFT, 500) + b"\x91" * 500,
    joined(encode_frame(FrameKind.RAFT, {"content": CONTENT})),
    joined(encode_frame(FrameKind.RAFT, [1])),
    joined(encode_frame(FrameKind.RAFT, [1, 99, CONTENT])),
    joined(encode_frame(FrameKind.RAFT, [1, [], CONTENT])),
    joined(encode_frame(FrameKind.RAFT, ["group", 3, 1, 1, 1, 1], [CONTENT])),
    joined(encode_frame(FrameKind.RAFT, [1, 3, 1, 1, 1, 1], [CONTENT])),
    joined(encode_frame(FrameKind.HEARTBEATS, [CONTENT])),
    joined(encode_frame(FrameKind.HEARTBEAT_REPLIES, [], [CONTENT])),
    joined(encode_frame(FrameKind.CALL, [CONTENT])),
    joined(encode_frame(FrameKind.CALL, [1, CONTENT, {}])),
]


@pytest.mark.parametrize("stage", ["hello", "half_a_hello", "proof", "half_a_proof"])
@on_both_loops
async def test_garbage_before_the_proof(stage: str) -> None:
    async with started_host() as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.transport.port)
        handshake = DiallerHandshake(Credentials(ONE, "cluster", SECRET), TWO, bytes(NONCE_BYTES))
        if "proof" in stage:
            writer.write(handshake.greeting())
            await reader.readexactly(handshake.bytes_expected)
        if "half" in stage:
            writer.write(CONTENT[:10])
            writer.close()
            await host.refused("closed_during_handshake")
            return
        writer.write(CONTENT * 100)
        await until_closed(reader, writer)
        await host.refused("not_our_protocol" if stage == "hello" else "wrong_secret")
        assert len(host.logged) == 1


def flipped(payload: bytes) -> bytes:
    """A frame of which the last bit was flipped on its way."""
    frame = bytearray(framed(payload))
    frame[-1] ^= 1
    return bytes(frame)


# requirement: A9
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (CONTENT * 100, "header_checksum_wrong"),
        (oversized(), "frame_too_large"),
        (flipped(b"\x03"), "payload_checksum_wrong"),
        (flipped(bytes(2 * SCRATCH_BYTES)), "payload_checksum_wrong"),
    ],
    ids=["no_frame", "oversized", "flipped", "flipped_and_large"],
)
@on_both_loops
async def test_garbage_in_place_of_a_frame(sent: bytes, reason: str) -> None:
    async with started_host() as host:
        reader, writer = await proven_stream(host.transport.port)
        writer.write(sent)
        await until_closed(reader, writer)
        await host.refused(reason)
        assert [entry["reason"] for entry in host.logged] == [reason]


@on_both_loops
async def test_frames_that_mean_nothing_cost_the_connection_and_one_line() -> None:
    async with started_host() as host:
        for number, payload in enumerate(MALFORMED, 1):
            reader, writer = await proven_stream(host.transport.port)
            writer.write(framed(payload))
            await until_closed(reader, writer)
            await host.refused("malformed_frame", number)
        assert [(entry["reason"], entry["claimed_node"]) for entry in host.logged] == [
            ("malformed_frame", ONE)
        ]


@on_both_loops
async def test_no_frame_behind_a_malformed_one_is_taken() -> None:
    async with started_host() as host:
        asked: list[bytes] = []

        async def answer(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
            asked.append(head)
            return b"", ()

        host.host.calls.serve(COUNTED, answer)
        before, after = (
            framed(joined(encode_frame(FrameKind.CALL, [1, COUNTED.name, head])))
            for head in (b"before", b"after")
        )
        reader, writer = await proven_stream(host.transport.port)
        writer.write(before + framed(MALFORMED[0]) + after)
        await until_closed(reader, writer)
        assert asked == [b"before"]


MESSAGES: list[Message] = [
    VoteRequest(term=Term(3), last=EntryId(Term(2), Index(7)), is_pre_vote=True, is_transfer=False),
    VoteReply(term=Term(3), asked=Term(3), granted=True, is_pre_vote=False),
    AppendReply(
        term=Term(3), accepted=False, match_index=Index(4), hint=EntryId(Term(1), Index(2)), rejoining=0
    ),
    TimeoutNow(term=Term(3)),
    SnapshotOffer(
        term=Term(3),
        snapshot=EntryId(Term(2), Index(9)),
        membership=Membership(frozenset({ONE, TWO})),
    ),
]


async def test_whatever_a_frame_holds_is_taken_or_malformed() -> None:
    rng = random.Random(7)
    transport = TcpTransport(TWO, "cluster", SECRET, "127.0.0.1", 0, rng=rng)
    fatal: list[BaseException] = []
    host = GroupHost(TWO, transport, clock_of_loop(), rng, in_a_task(_syncs), on_fatal=fatal.append)
    frames = [joined(encode_message(GroupId(1), message)) for message in MESSAGES] + MALFORMED[:4]
    values = [None, True, -1, 1 << 63, 2.5, "", b"", [], [[]], {}, {"": 1}, [None] * 3]
    for _ in range(3000):
        if rng.random() < 0.5:
            content = bytearray(rng.choice(frames) + rng.randbytes(rng.choice((0, 0, 8, 40))))
            for _ in range(rng.randrange(4)):
                if content:
                    content[rng.randrange(len(content))] = rng.randrange(256)
            frame = bytes(content)
        else:
            head = [1, rng.randrange(9), *rng.choices(values, k=rng.randrange(7))]
            kind = rng.choice(list(FrameKind))
            frame = struct.pack(">BI", kind, len(packed := msgspec.msgpack.encode(head))) + packed
        try:
            host.frame_received(ONE, memoryview(frame))
        except MalformedFrame:
            continue
    await host.stop()
    assert fatal == []
