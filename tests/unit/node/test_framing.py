"""Frames come out of a byte stream whole, checked, and however it was cut."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.node.network.framing import HEADER_BYTES, FrameDamaged, FrameParser, frame_header

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
