"""The content of a frame between brokers: one kind byte, a msgpack head, raw bytes.

::

    u8 kind | u32 length of head | head | payload

Heartbeats and their replies are the exception: the heartbeats of all groups for one peer are
one frame of fixed-size entries, so that a thousand groups cost one message. The head of heartbeats
is the sender's clock (``cluster_time``), and whether it declines leadership. Nothing is pickled.
Malformed content raises ``MalformedFrame`` and ends the sender's connection.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.membership import Membership
from raftlog.core.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    Message,
    RejoinResponse,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.errors import CorruptBatch
from raftlog.node.cluster_time import ClockReading
from raftlog.records.batch import CONTROL_BIT, Batch, check_batch, split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.members import membership_in
from raftlog.types import EntryId, GroupId, Index, NodeId, Term


class MalformedFrame(Exception):
    """A peer that passed the handshake sent a malformed frame."""


class FrameKind(enum.IntEnum):
    """The kind of a frame, its first byte."""

    HEARTBEATS = 1
    HEARTBEAT_REPLIES = 2
    RAFT = 3
    CALL = 4
    ANSWER = 5
    FAILURE = 6
    DISK = 7


_KINDS: Final = {kind.value: kind for kind in FrameKind}
_PREFIX: Final = struct.Struct(">BI")
_SENDER: Final = struct.Struct(
    ">qqB"
)  # wall clock, the time that the broker uses, whether it declines leadership
_HEARTBEAT: Final = struct.Struct(">QQqQBQ")  # group, term, commit index, round, quiesces, commit term
_HEARTBEAT_REPLY: Final = struct.Struct(">QQQQ")  # group, term, round, rejoining


def encode_heartbeats(
    clock: ClockReading, beats: Sequence[tuple[GroupId, Heartbeat]], *, declines_leadership: bool = False
) -> bytes:
    """Encode one frame with the broker's clock and the heartbeats of many groups.

    A frame without heartbeats shows that the connection works. A broker that ``declines_leadership`` is
    stopping, or lacks room on its disk.
    """
    body = bytearray(
        _PREFIX.pack(FrameKind.HEARTBEATS, _SENDER.size) + _SENDER.pack(*clock, declines_leadership)
    )
    for group, beat in beats:
        body += _HEARTBEAT.pack(
            group, beat.term, beat.commit_index, beat.round, beat.quiesces, beat.commit_term
        )
    return bytes(body)


def encode_heartbeat_replies(replies: Sequence[tuple[GroupId, HeartbeatReply]]) -> bytes:
    """Encode one frame with the heartbeat replies of many groups."""
    body = bytearray(_PREFIX.pack(FrameKind.HEARTBEAT_REPLIES, 0))
    for group, reply in replies:
        body += _HEARTBEAT_REPLY.pack(group, reply.term, reply.round, reply.rejoining)
    return bytes(body)


def decode_sender(head: memoryview) -> tuple[ClockReading, bool]:
    """Decode the head of a ``HEARTBEATS`` frame: the sender's clock, and whether it declines leadership."""
    if len(head) != _SENDER.size:
        raise MalformedFrame(f"heartbeats: the head has {len(head)} bytes instead of {_SENDER.size}")
    wall_ms, time_ms, declines_leadership = _SENDER.unpack(head)
    return ClockReading(wall_ms, time_ms), bool(declines_leadership)


def decode_heartbeats(payload: memoryview) -> Iterator[tuple[GroupId, Heartbeat]]:
    """Decode the entries of a ``HEARTBEATS`` frame."""
    if len(payload) % _HEARTBEAT.size:
        raise MalformedFrame("heartbeats: the last entry is truncated")
    for group, term, commit, round_, silent, commit_term in _HEARTBEAT.iter_unpack(payload):
        beat = Heartbeat(
            term=Term(term),
            commit_index=Index(commit),
            round=round_,
            quiesces=bool(silent),
            commit_term=Term(commit_term),
        )
        yield GroupId(group), beat


def decode_heartbeat_replies(payload: memoryview) -> Iterator[tuple[GroupId, HeartbeatReply]]:
    """Decode the entries of a ``HEARTBEAT_REPLIES`` frame."""
    if len(payload) % _HEARTBEAT_REPLY.size:
        raise MalformedFrame("heartbeat replies: the last entry is truncated")
    for group, term, round_, rejoining in _HEARTBEAT_REPLY.iter_unpack(payload):
        yield GroupId(group), HeartbeatReply(term=Term(term), round=round_, rejoining=rejoining)


def encode_frame(kind: FrameKind, head: object, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode one frame as buffers; ``head`` is any value that msgspec encodes."""
    packed = msgspec.msgpack.encode(head)
    return [_PREFIX.pack(kind, len(packed)) + packed, *payload]


def split_frame(frame: memoryview) -> tuple[FrameKind, memoryview, memoryview]:
    """Split a frame into kind, packed head and payload. Raises ``MalformedFrame``."""
    if len(frame) < _PREFIX.size:
        raise MalformedFrame("the frame is shorter than its prefix")
    number, head_length = _PREFIX.unpack_from(frame)
    start, kind = _PREFIX.size + head_length, _KINDS.get(number)
    if start > len(frame) or kind is None:
        raise MalformedFrame(f"the frame has kind {number} and announces a head of {head_length} bytes")
    return kind, frame[_PREFIX.size : start], frame[start:]


def unpack_head(head: memoryview) -> list[object]:
    """Decode the fields in the head of a frame. Raises ``MalformedFrame``."""
    try:
        fields = msgspec.msgpack.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(f"head: {error}") from error
    if not isinstance(fields, list):
        raise MalformedFrame("head is not a list")
    return fields


def encode_message(group: GroupId, message: Message, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode one Raft message as buffers. ``payload`` holds the batches of an ``AppendRequest``."""
    tag, fields = _PACK[type(message)]
    return encode_frame(FrameKind.RAFT, [group, tag, *fields(message)], payload)


def decode_message(head: memoryview, payload: memoryview) -> tuple[GroupId, Message, list[Batch]]:
    """Decode a group, its message and the checked batches of the message. Raises ``MalformedFrame``.

    Batches are checked although the frame has a checksum: the checksum of the frame is computed from the
    sender's memory, the checksum of a batch by its producer.
    """
    fields = unpack_head(head)
    if len(fields) < 2:
        raise MalformedFrame(f"message {fields!r}")
    group, tag, *fields = fields
    if type(group) is not int or type(tag) is not int:
        raise MalformedFrame(f"message {tag!r} of group {group!r}")
    try:
        if tag == _APPEND:
            batches = split_batches(payload) if len(payload) else []
            for batch in batches:
                check_batch(batch)
            return GroupId(group), _append_request(fields, batches), batches
        return GroupId(group), _UNPACK[tag](fields), []
    except (KeyError, ValueError, TypeError, CorruptBatch) as error:
        raise MalformedFrame(f"message {tag}: {error}") from error


def spans_of(batches: Sequence[Batch]) -> tuple[EntrySpan, ...]:
    """The spans of batches in log order: one span for each membership, and one for other batches of one term
    in a row.
    """
    spans: list[EntrySpan] = []
    for batch in batches:
        header = batch.header
        term, first, last = (
            Term(header.leader_epoch),
            Index(header.base_offset),
            Index(header.base_offset + header.last_offset_delta),
        )
        membership = membership_in(batch) if header.attributes & CONTROL_BIT else None
        if membership is not None:
            spans.append(EntrySpan(term, first, last, EntryKind.MEMBERSHIP, membership))
        elif spans and (end := spans[-1]).term == term and end.last + 1 == first and end.membership is None:
            spans[-1] = EntrySpan(term, end.first, last)
        else:
            spans.append(EntrySpan(term, first, last))
    return tuple(spans)


def _append_request(fields: list[object], batches: Sequence[Batch]) -> AppendRequest:
    term, previous_term, previous_index, commit_index = msgspec.convert(fields, _AppendFields)
    previous, spans = EntryId(previous_term, previous_index), spans_of(batches)
    at = previous
    for span in spans:
        if span.first != at.index + 1 or not at.term <= span.term <= term:
            raise ValueError(f"{span} does not follow {at} in an append of term {term}")
        at = EntryId(span.term, span.last)
    return AppendRequest(term=term, previous=previous, spans=spans, commit_index=commit_index)


def _vote_request(fields: list[object]) -> VoteRequest:
    term, last_term, last_index, pre_vote, transfer = msgspec.convert(fields, _VoteFields)
    return VoteRequest(
        term=term, last=EntryId(last_term, last_index), is_pre_vote=pre_vote, is_transfer=transfer
    )


def _snapshot_offer(fields: list[object]) -> SnapshotOffer:
    term, snapshot_term, snapshot_index, *members = msgspec.convert(fields, _OfferFields)
    return SnapshotOffer(
        term=term, snapshot=EntryId(snapshot_term, snapshot_index), membership=Membership(*members)
    )


def _pack_snapshot_offer(m: SnapshotOffer) -> list[object]:
    parts = (m.membership.voters, m.membership.learners, m.membership.outgoing)
    return [m.term, m.snapshot.term, m.snapshot.index, *[sorted(nodes) for nodes in parts]]


def _pack_vote_request(m: VoteRequest) -> list[object]:
    return [m.term, m.last.term, m.last.index, m.is_pre_vote, m.is_transfer]


_AppendFields = tuple[Term, Term, Index, Index]
_VoteFields = tuple[Term, Term, Index, bool, bool]
_Nodes = frozenset[NodeId]
_OfferFields = tuple[Term, Term, Index, _Nodes, _Nodes, _Nodes]
_APPEND: Final = 3
_AS_IT_IS: Final[dict[int, type[Message]]] = {
    2: VoteReply,
    4: AppendReply,
    5: TimeoutNow,
    7: RejoinResponse,
}
"""Messages whose fields are sent in their declared order, by the number of the message type."""
_PACK: Final[dict[type, tuple[int, Callable[..., Sequence[object]]]]] = {
    VoteRequest: (1, _pack_vote_request),
    AppendRequest: (_APPEND, lambda m: [m.term, m.previous.term, m.previous.index, m.commit_index]),
    SnapshotOffer: (6, _pack_snapshot_offer),
    **{kind: (tag, msgspec.structs.astuple) for tag, kind in _AS_IT_IS.items()},
}
_UNPACK: Final[dict[int, Callable[[list[object]], Message]]] = {
    1: _vote_request,
    6: _snapshot_offer,
    **{tag: partial(msgspec.convert, type=kind) for tag, kind in _AS_IT_IS.items()},
}
