"""Frames survive the way there and back; what is no frame is refused by one error."""

from __future__ import annotations

import random

import msgspec
import pytest

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
from raftlog.records.batch import Batch
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.storage_batches import storage_batch

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
