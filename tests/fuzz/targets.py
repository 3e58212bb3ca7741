"""What is fuzzed. A target takes any bytes and lets only documented errors pass; everything else is a find.

Checksums would keep a fuzzer from everything behind them, so targets set them right.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Final

from api.connections.plain_requests import read_head
from api.resources.json_answers import View
from api.resources.json_records import decode_records, place_records
from partitions.values import FetchResult
from raftlog.clock import SystemClock
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt, RaftlogError
from raftlog.node.codec import (
    FrameKind,
    MalformedFrame,
    decode_heartbeat_replies,
    decode_heartbeats,
    decode_message,
    decode_sender,
    split_frame,
    unpack_head,
)
from raftlog.node.network.framing import FrameDamaged, FrameParser
from raftlog.records.batch import HEADER_BYTES, checksum, split_batches, validate_produced
from raftlog.records.reader import check_records, iter_records, read_records
from raftlog.repair.verify import examine
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index, Offset, Term, TopicPartition
from raftlog.wire import media_types
from tests.helpers.storage_batches import storage_batch

_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_LENGTH_AT, _MAGIC_AT, _CRC_AT = 8, 16, 17
_DIRECTORY: Final = "/log"
_SMALL: Final = LogSettings(segment_bytes=600, index_interval_bytes=200)
_VIEW: Final = View(target=TopicPartition("fuzz", 0), format="auto", limit=100, skips_undecodable=True)


def batches(data: bytes) -> None:
    """Producers' bodies: what is let in, every reader can read, all of it and alike."""
    batch = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - _LENGTH_AT - _LENGTH.size)
    batch[_MAGIC_AT] = 2
    _CRC.pack_into(batch, _CRC_AT, checksum(bytes(batch)))
    for body in (data, bytes(batch)):
        try:
            found = split_batches(body)
        except RaftlogError:
            continue
        for each in found:
            try:
                validate_produced(each, bytes_max=1 << 20, allow_append_time=False)
                check_records(each)
            except RaftlogError:
                _shown(each.data, each.header.base_offset, each.last_offset)
                continue
            assert read_records(each) == list(iter_records(each, Offset(0)))
            assert len(read_records(each)) == each.header.record_count
            _shown(each.data, each.header.base_offset, each.last_offset)


def _shown(data: bytes | memoryview, first: int, last: int) -> None:
    if first < 0 or last < first:
        return
    result = FetchResult(
        offset=Offset(first),
        data=data,
        next_offset=Offset(last + 1),
        log_start_offset=Offset(0),
        high_watermark=Offset(last + 1),
        last_stable_offset=Offset(last + 1),
        end=Offset(last + 1),
        leader_epoch=Term(1),
    )
    list(_VIEW.pages(result))


def frames(data: bytes) -> None:
    """What brokers tell one another, behind the handshake."""
    parser = FrameParser(_frame, 1 << 20, scratch_bytes=256)
    left = memoryview(data)
    try:
        while left:
            room = parser.get_buffer()
            count = min(len(room), len(left), 1 + left[0] % 61)
            room[:count] = left[:count]
            parser.buffer_updated(count)
            left = left[count:]
    except FrameDamaged:
        pass
    _frame(memoryview(data))


def _frame(frame: memoryview) -> None:
    try:
        kind, head, payload = split_frame(frame)
        match kind:
            case FrameKind.HEARTBEATS:
                decode_sender(head)
                list(decode_heartbeats(payload))
            case FrameKind.HEARTBEAT_REPLIES:
                list(decode_heartbeat_replies(payload))
            case FrameKind.RAFT:
                decode_message(head, payload)
            case _:
                unpack_head(head)
    except MalformedFrame:
        pass


def requests(data: bytes) -> None:
    """Heads of requests, and JSON records."""
    head = read_head(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    assert head is None or head.length >= 0
    for media_type in (media_types.JSON, media_types.NDJSON):
        try:
            records = decode_records(data, media_type, 100)
            place_records(records, partition_count=3, only=None, trace=None)
        except RaftlogError:
            pass


def files(data: bytes) -> None:
    """Files of a log, with bytes overwritten, cut off or added: opened, it serves nothing damaged."""
    filesystem = FakeFilesystem()
    filesystem.load(_image())
    names = sorted(path for path in _image() if path.startswith(_DIRECTORY))
    if len(data) < 4:
        return
    path, at = names[data[0] % len(names)], int.from_bytes(data[1:3], "big")
    content = bytearray(_image()[path])
    match data[3] % 3:
        case 0:
            content[at : at + len(data) - 4] = data[4:]
        case 1:
            content = content[:at] + data[4:]
        case _:
            content[at:at] = data[4:]
    filesystem.overwrite(path, bytes(content))
    examine(filesystem, _DIRECTORY)
    try:
        log = SegmentedLog.open(filesystem, _DIRECTORY, _SMALL, SystemClock())
    except LogCorrupt:
        return
    if log.last_index < log.first_index:
        return
    try:
        data = log.read(log.first_index, log.last_index, bytes_max=1 << 20).read()
    except LogCorrupt:
        return
    for batch in split_batches(data):
        assert batch.data == storage_batch(batch.base_offset, timestamp_ms=batch.base_offset).data


@cache
def _image() -> dict[str, bytes]:
    filesystem = FakeFilesystem()
    log = SegmentedLog.open(filesystem, _DIRECTORY, _SMALL, SystemClock())
    log.save_hard_state(HardState(Term(1), None))
    for base in range(12):
        log.append([storage_batch(base, timestamp_ms=base)])
    log.note_commit_index(Index(11))
    log.close()
    return filesystem.image()


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "batches": batches,
    "frames": frames,
    "requests": requests,
    "files": files,
}
