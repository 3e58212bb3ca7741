"""Bytes on the wire: handshakes, frames of a byte stream, and messages in frames."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.core.membership import Membership
from raftlog.core.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    Message,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.node.cluster_time import ClockReading
from raftlog.node.codec import (
    FrameKind,
    MalformedFrame,
    decode_heartbeat_replies,
    decode_heartbeats,
    decode_message,
    decode_sender,
    encode_frame,
    encode_heartbeat_replies,
    encode_heartbeats,
    encode_message,
    spans_of,
    split_frame,
    unpack_head,
)
from raftlog.node.network.framing import HEADER_BYTES, FrameDamaged, FrameParser, frame_header
from raftlog.node.network.handshake import (
    DISK_REFUSED,
    NODE_ID_IN_USE,
    NONCE_BYTES,
    REMOVED_NODE,
    Credentials,
    DiallerHandshake,
    Handshake,
    HandshakeRefused,
    ListenerHandshake,
)
from raftlog.records.batch import Batch
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.storage_batches import storage_batch

ONE = Credentials(NodeId(1), "cluster", b"correct horse battery staple")
TWO = replace(ONE, node_id=NodeId(2), process=b"process2")
NONCE_ONE, NONCE_TWO = b"1" * NONCE_BYTES, b"2" * NONCE_BYTES


def pair(one: Credentials = ONE, two: Credentials = TWO) -> tuple[DiallerHandshake, ListenerHandshake]:
    return DiallerHandshake(one, NodeId(2), NONCE_ONE), ListenerHandshake(two, NONCE_TWO)


def talk(
    dialler: DiallerHandshake, listener: ListenerHandshake, flipped: tuple[int, int] = (-1, 0)
) -> list[bytes]:
    """Let both speak until nobody has anything to say; return all that was said.

    ``flipped``: in which message, and which bit of it, changes on the way.
    """
    said = [dialler.greeting()]
    sides: list[Handshake] = [listener, dialler]
    while said[-1]:
        turn = len(said) - 1
        heard = bytearray(said[-1])
        if turn == flipped[0]:
            heard[flipped[1] // 8] ^= 1 << flipped[1] % 8
        assert sides[turn % 2].bytes_expected == len(heard)
        said.append(sides[turn % 2].receive(bytes(heard)))
    return said[:-1]


def refusal(dialler: DiallerHandshake, listener: ListenerHandshake) -> HandshakeRefused:
    with pytest.raises(HandshakeRefused) as caught:
        talk(dialler, listener)
    return caught.value


def test_two_nodes_of_a_cluster_prove_themselves_to_each_other() -> None:
    dialler, listener = pair()
    said = talk(dialler, listener)
    assert [len(message) for message in said] == [72, 72, 32, 32]
    assert (dialler.bytes_expected, listener.bytes_expected) == (0, 0)
    assert (dialler.peer, listener.peer) == (2, 1)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        (replace(ONE, secret=b"another secret of enough bytes"), TWO, "wrong_secret"),
        (replace(ONE, cluster_id="another"), TWO, "other_cluster"),
        (replace(ONE, node_id=NodeId(2)), TWO, "node_id_is_ours"),
        (ONE, replace(TWO, node_id=NodeId(3)), "meant_for_another_node"),
    ],
)
def test_who_does_not_belong_here_is_refused_with_the_reason(
    one: Credentials, two: Credentials, reason: str
) -> None:
    assert refusal(*pair(one, two)).reason == reason


def test_a_listener_of_another_cluster_says_hello_so_that_the_dialler_can_log_why() -> None:
    dialler, listener = pair(two=replace(TWO, cluster_id="another"))
    with pytest.raises(HandshakeRefused) as caught:
        listener.receive(dialler.greeting())
    with pytest.raises(HandshakeRefused, match="other cluster"):
        dialler.receive(caught.value.answer)


def test_a_listener_without_the_secret_is_refused_by_the_dialler() -> None:
    dialler, listener = pair()
    dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        dialler.receive(bytes(32))


def test_a_dialler_that_reaches_another_node_refuses_it() -> None:
    dialler, _ = pair()
    three = replace(ONE, node_id=NodeId(3))
    with pytest.raises(HandshakeRefused, match="another node answered"):
        dialler.receive(three.hello(NodeId(1), NONCE_TWO))


def test_garbage_gets_no_answer() -> None:
    _, listener = pair()
    with pytest.raises(HandshakeRefused, match="not our protocol") as caught:
        listener.receive(b"GET / HTTP/1.1\r\n".ljust(72))
    assert caught.value.answer == b""


def test_another_version_is_refused_with_the_version_of_ours() -> None:
    dialler, listener = pair()
    hello = bytearray(dialler.greeting())
    hello[5] += 1
    with pytest.raises(HandshakeRefused, match="other protocol version") as caught:
        listener.receive(bytes(hello))
    assert caught.value.answer[:6] == dialler.greeting()[:6]


def test_a_proof_that_was_overheard_is_of_no_use_in_another_connection() -> None:
    said = talk(*pair())
    listener = ListenerHandshake(TWO, b"3" * NONCE_BYTES)
    listener.receive(said[0])
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        listener.receive(said[2])


def test_a_proof_cannot_be_sent_back_to_who_made_it() -> None:
    dialler, listener = pair()
    proof = dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        dialler.receive(proof)


def test_any_changed_bit_of_any_message_ends_the_handshake() -> None:
    for turn, message in enumerate(talk(*pair())):
        for bit in range(8 * len(message)):
            with pytest.raises(HandshakeRefused):
                talk(*pair(), flipped=(turn, bit))


def test_the_secret_stands_in_no_text() -> None:
    assert "horse" not in repr(ONE)
    assert "horse" not in repr(pair())
    assert "horse" not in str(refusal(*pair(replace(ONE, secret=b"wrong horse battery staple"))))


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "secret", "message"),
    [
        (0, "cluster", b"x" * 16, "node_id"),
        (1, "", b"x" * 16, "cluster_id"),
        (1, "cluster", b"x" * 15, "secret"),
    ],
)
def test_unusable_credentials_are_named(node_id: int, cluster_id: str, secret: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Credentials(NodeId(node_id), cluster_id, secret)


# requirement: F3
@pytest.mark.parametrize("reason", [REMOVED_NODE, NODE_ID_IN_USE, DISK_REFUSED])
def test_a_refused_node_is_told_why_by_a_node_that_proves_itself(reason: str) -> None:
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    why = {(NodeId(1), ONE.process): (reason, "stop it\n\u2028")}
    listener = ListenerHandshake(TWO, NONCE_TWO, lambda *dialler: why.get(dialler))
    hello = listener.receive(dialler.greeting())
    proof = dialler.receive(hello)
    with pytest.raises(HandshakeRefused) as refused:
        listener.receive(proof)
    assert (refused.value.reason, refused.value.claimed) == (reason, 1)
    assert listener.bytes_expected > 0, "the dialler is not let in"
    assert dialler.receive(refused.value.answer[:32]) == b""
    assert dialler.bytes_expected == len(refused.value.answer[32:])
    with pytest.raises(HandshakeRefused) as told:
        dialler.receive(refused.value.answer[32:])
    assert (told.value.reason, told.value.detail) == (reason, "stop it\n\\u2028")


def test_each_side_learns_the_process_of_the_other() -> None:
    dialler, listener = pair()
    talk(dialler, listener)
    assert (dialler.process, listener.process) == (TWO.process, ONE.process)
    assert ONE.process != Credentials(ONE.node_id, ONE.cluster_id, ONE.secret).process


def test_only_a_holder_of_the_secret_says_that_a_node_was_removed() -> None:
    stranger = replace(TWO, secret=b"something else entirely")
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    listener = ListenerHandshake(stranger, NONCE_TWO, lambda peer, process: (REMOVED_NODE, ""))
    proof = dialler.receive(listener.receive(dialler.greeting()))
    with pytest.raises(HandshakeRefused, match="wrong secret"):
        listener.receive(proof)
    lie = stranger.proof(b"raftlog removed\0", dialler.greeting(), b"x" * 72)
    with pytest.raises(HandshakeRefused) as told:
        dialler.receive(lie)
    assert told.value.reason == "wrong_secret"


def test_other_nodes_are_let_in_beside_a_removed_one() -> None:
    dialler = DiallerHandshake(ONE, NodeId(2), NONCE_ONE)
    listener = ListenerHandshake(
        TWO, NONCE_TWO, lambda peer, process: (REMOVED_NODE, "") if peer == 3 else None
    )
    talk(dialler, listener)
    assert (dialler.bytes_expected, listener.bytes_expected) == (0, 0)


FRAME_BYTES_MAX = 5000
SCRATCH_BYTES = 256  # so small that a frame of 100 bytes may get memory of its own


def framed(*payloads: bytes) -> bytes:
    return b"".join(frame_header((payload,), len(payload)) + payload for payload in payloads)


class Reader:
    """Feeds a parser as an event loop does: into the memory that the parser lends."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []
        self.parser = FrameParser(self.views.append, FRAME_BYTES_MAX, scratch_bytes=SCRATCH_BYTES)

    @property
    def frames(self) -> list[bytes]:
        return [bytes(view) for view in self.views]

    def feed(self, data: bytes) -> None:
        while data:
            buffer = self.parser.get_buffer()
            assert buffer, "a loop takes an empty buffer for a broken protocol"
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.parser.buffer_updated(count)
            data = data[count:]


def test_the_header_is_as_documented() -> None:
    header = frame_header((b"two ", b"buffers"), 11)
    assert len(header) == HEADER_BYTES == 12
    assert header[:8] == struct.pack(">II", 11, crc32c(b"two buffers"))
    assert header[8:] == struct.pack(">I", crc32c(header[:8]))


@pytest.mark.parametrize("payload_bytes", [0, 1, 40, 100, 1000])
def test_a_stream_may_be_cut_at_any_byte(payload_bytes: int) -> None:
    payloads = [b"first", bytes(range(256)) * 4, b"", b"last"]
    payloads[1] = payloads[1][:payload_bytes]
    stream = framed(*payloads)
    for cut in range(len(stream) + 1):
        reader = Reader()
        reader.feed(stream[:cut])
        reader.feed(stream[cut:])
        assert reader.frames == payloads


def test_a_stream_may_come_byte_by_byte() -> None:
    payloads = [b"", b"small", bytes(60), bytes(64), bytes(65), bytes(1000), b"end"]
    reader = Reader()
    for byte in framed(*payloads):
        reader.feed(bytes([byte]))
    assert reader.frames == payloads


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=400), max_size=12),
    st.lists(st.integers(min_value=1, max_value=600), min_size=1, max_size=20),
)
def test_any_frames_in_any_pieces_come_out_the_same(payloads: list[bytes], sizes: list[int]) -> None:
    stream, reader, position, turn = framed(*payloads), Reader(), 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert reader.frames == payloads


def test_a_delivered_view_is_read_only_and_never_reused() -> None:
    reader = Reader()
    reader.feed(framed(b"keep", b"l" * 1000))
    reader.feed(framed(*[b"x" * 50] * 100, b"y" * 1000))
    assert reader.frames[:2] == [b"keep", b"l" * 1000]
    assert all(view.readonly for view in reader.views)


@pytest.mark.parametrize("payload", [b"payload", b"p" * 1000])
def test_every_flipped_bit_is_found_once_the_frame_is_there(payload: bytes) -> None:
    good = framed(payload)
    for bit in range(0, 8 * len(good), 1 if len(good) < 100 else 7):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        reader = Reader()
        with pytest.raises(FrameDamaged):
            reader.feed(bytes(bad))
        assert not reader.frames


# Bounds are checked before memory is allocated.
def test_a_length_above_the_bound_is_refused_by_its_header_alone() -> None:
    checked = struct.pack(">II", FRAME_BYTES_MAX + 1, 0)
    reader = Reader()
    with pytest.raises(FrameDamaged) as caught:
        reader.feed(checked + struct.pack(">I", crc32c(checked)))
    assert caught.value.reason == "frame_too_large"


def test_frames_before_the_damage_are_delivered_and_none_behind_it() -> None:
    damaged = bytearray(framed(b"damaged"))
    damaged[-1] ^= 1
    reader = Reader()
    with pytest.raises(FrameDamaged):
        reader.feed(framed(b"good") + damaged + framed(b"behind"))
    assert reader.frames == [b"good"]


def test_a_receiver_that_stops_gets_nothing_more_even_of_what_was_read() -> None:
    got: list[bytes] = []

    def deliver(frame: memoryview) -> None:
        got.append(bytes(frame))
        parser.stop()

    parser = FrameParser(deliver, FRAME_BYTES_MAX)
    stream = framed(b"one", b"two")
    parser.get_buffer()[: len(stream)] = stream
    parser.buffer_updated(len(stream))
    parser.get_buffer()[:1] = b"x"
    parser.buffer_updated(1)
    assert got == [b"one"]


GROUP = GroupId(3)
CLOCK = ClockReading(1_700_000_000_000, -1)
ID = EntryId(Term(2), Index(9))
MEMBERSHIP = Membership(
    frozenset({NodeId(1), NodeId(4)}), frozenset({NodeId(5)}), frozenset({NodeId(1), NodeId(2)})
)


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(term=Term(4), last=ID, is_pre_vote=True, is_transfer=False),
        VoteRequest(term=Term(4), last=ID, is_pre_vote=False, is_transfer=True),
        VoteReply(term=Term(3), asked=Term(4), granted=True, is_pre_vote=True),
        AppendReply(term=Term(4), accepted=True, match_index=Index(-1)),
        AppendReply(term=Term(4), accepted=False, match_index=Index(7), hint=ID),
        TimeoutNow(term=Term(4)),
        TimeoutNow(term=Term(4), commit_index=Index(8)),
        SnapshotOffer(term=Term(4), snapshot=ID, membership=MEMBERSHIP),
    ],
)
def test_messages_survive_the_way_there_and_back(message: Message) -> None:
    kind, head, payload = split_frame(memoryview(b"".join(encode_message(GROUP, message))))
    assert kind is FrameKind.RAFT
    assert decode_message(head, payload) == (GROUP, message, [])


def test_an_append_request_carries_its_batches_and_gets_its_spans_from_them() -> None:
    batches = [storage_batch(10, 3, epoch=2), storage_batch(13, 1, epoch=2), storage_batch(14, 2, epoch=4)]
    request = AppendRequest(term=Term(5), previous=ID, spans=(), commit_index=Index(8))
    frame = b"".join(encode_message(GROUP, request, [batch.data for batch in batches]))
    _, head, payload = split_frame(memoryview(frame))
    group, message, found = decode_message(head, payload)
    assert group == GROUP
    assert message == AppendRequest(term=Term(5), previous=ID, spans=spans_of(batches), commit_index=Index(8))
    assert [bytes(batch.data) for batch in found] == [batch.data for batch in batches]


@pytest.mark.parametrize(
    "batches",
    [
        [storage_batch(11, epoch=2)],  # a gap
        [storage_batch(10, epoch=1)],  # an epoch that falls
        [storage_batch(10, epoch=6)],  # an epoch of the future
        [storage_batch(10, 2, epoch=2), storage_batch(11, epoch=2)],  # an overlap
    ],
)
def test_an_append_whose_batches_do_not_follow_one_another_is_malformed(batches: list[Batch]) -> None:
    request = AppendRequest(term=Term(5), previous=ID, spans=(), commit_index=Index(8))
    frame = b"".join(encode_message(GROUP, request, [batch.data for batch in batches]))
    _, head, payload = split_frame(memoryview(frame))
    with pytest.raises(MalformedFrame):
        decode_message(head, payload)


def test_heartbeats_of_many_groups_share_a_frame() -> None:
    beats = [
        (GroupId(n), Heartbeat(term=Term(n), commit_index=Index(n - 1), round=n, quiesces=bool(n % 2)))
        for n in range(5)
    ]
    replies = [(GroupId(n), HeartbeatReply(term=Term(n), round=n)) for n in range(5)]
    _, head, payload = split_frame(memoryview(encode_heartbeats(CLOCK, beats)))
    assert decode_sender(head) == (CLOCK, False)
    _, declining, _ = split_frame(memoryview(encode_heartbeats(CLOCK, [], declines_leadership=True)))
    assert decode_sender(declining) == (CLOCK, True)
    assert list(decode_heartbeats(payload)) == beats
    _, _, payload = split_frame(memoryview(encode_heartbeat_replies(replies)))
    assert list(decode_heartbeat_replies(payload)) == replies
    with pytest.raises(MalformedFrame):
        decode_sender(head[:-1])
    with pytest.raises(MalformedFrame):
        list(decode_heartbeats(payload[:-1]))
    with pytest.raises(MalformedFrame):
        list(decode_heartbeat_replies(payload[:-1]))


def test_whatever_comes_is_decoded_or_malformed() -> None:
    rng = random.Random(1)
    pieces: list[object] = [0, 1, 2, 3, 4, 5, -1, 1 << 63, "x", b"x", None, True, [1, 2], {}, 1.5]
    request = AppendRequest(term=Term(5), previous=ID, spans=(), commit_index=Index(8))
    sound = b"".join(encode_message(GROUP, request, [storage_batch(10, epoch=2).data]))
    for _ in range(5000):
        manner = rng.randrange(3)
        if manner == 0:
            frame = rng.randbytes(rng.randrange(40))
        elif manner == 1:
            fields = [rng.choice(pieces) for _ in range(rng.randrange(8))]
            frame = b"".join(encode_frame(FrameKind.RAFT, fields, [rng.randbytes(rng.choice([0, 70]))]))
        else:
            damaged = bytearray(sound)
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            frame = bytes(damaged)
        try:
            kind, head, payload = split_frame(memoryview(frame))
            if kind is FrameKind.HEARTBEATS:
                decode_sender(head)
                list(decode_heartbeats(payload))
            elif kind is FrameKind.HEARTBEAT_REPLIES:
                list(decode_heartbeat_replies(payload))
            else:
                decode_message(head, payload)
        except MalformedFrame:
            pass


def test_a_head_that_is_no_list_is_malformed() -> None:
    for head in (
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode(1),
        b"",
        b"\x93\x01",
        msgspec.msgpack.encode([1]) + b"\x00",
    ):
        with pytest.raises(MalformedFrame):
            unpack_head(memoryview(head))


# requirement: M3
def test_an_append_with_a_damaged_batch_is_malformed_though_its_frame_is_sound() -> None:
    batch = storage_batch(10, epoch=2)
    damaged = bytearray(batch.data)
    damaged[-1] ^= 1
    append = AppendRequest(term=Term(2), previous=ID, spans=(), commit_index=Index(9))
    frame = memoryview(b"".join(encode_message(GROUP, append, [damaged])))
    _, head, payload = split_frame(frame)
    with pytest.raises(MalformedFrame, match="crc"):
        decode_message(head, payload)
