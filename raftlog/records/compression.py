"""The codecs of a batch's body, with a bound on the decompressed size.

Decides: the level of each codec, the framing of snappy, and the bound of a decompression.

Kafka has two peculiarities: snappy uses the blocks of the xerial library (this module also reads snappy
without these blocks), and lz4 frames must have independent blocks, which Java clients require.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam

from raftlog.errors import CorruptBatch
from raftlog.records.batch import Buffer, Codec

_GZIP_LEVEL = 1  # ten times as fast as the usual 6, for one percent more bytes on JSON
_LZ4_LEVEL = 1  # the high-compression mode, seven times as slow, begins above 2
_ZSTD_LEVEL = 3  # the default of Kafka's clients

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY_RATIO_MAX = 64  # the format reaches 22; a block that claims a higher ratio is invalid

_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4
# The messages by which the codecs report an output that is too large.
_OUTPUT_FULL = "failed to write whole buffer"
_OUT_OF_MEMORY = ("not enough memory", "allocation_failed")  # of zstd and of lz4: the body may be sound


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress the body of a batch with this codec."""
    return _COMPRESS[codec](data)


def decompress(codec: Codec, data: Buffer, *, bytes_max: int) -> Buffer:
    """Decompress the body of a batch.

    Raises ``CorruptBatch`` if the bytes are damaged or would decompress to more than ``bytes_max``, and
    ``MemoryError``. Never more than ``bytes_max`` are reserved, whatever lengths the data claims.
    """
    try:
        return _DECOMPRESS[codec](data, bytes_max)
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        if any(told in str(error) for told in _OUT_OF_MEMORY):
            raise MemoryError(f"to decompress a {codec.name.lower()} body") from error
        raise CorruptBatch(
            f"records: the {codec.name.lower()} body cannot be decompressed: {error}"
        ) from error


def _compress_lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _compress_snappy(data: bytes) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bytes_max: int) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(view, bytes_max)
    parts: list[bytes] = []
    at = len(_XERIAL_HEADER)
    while at < len(view):
        (length,) = _BLOCK_LENGTH.unpack_from(view, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - at:
            raise CorruptBatch(f"records: a snappy block of {length} bytes does not fit into the body")
        part = _decompress_block(view[at : at + length], bytes_max)
        bytes_max -= len(part)
        parts.append(part)
        at += length
    return b"".join(parts)


def _decompress_block(block: memoryview, bytes_max: int) -> bytes:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > min(bytes_max, len(block) * _SNAPPY_RATIO_MAX):
        raise CorruptBatch(f"records: a snappy block of {len(block)} bytes claims to hold {claimed}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _growing(decompress_into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], Buffer]:
    """A function that decompresses data into buffers, each larger than the last, until the result fits.

    Data in these formats need not contain the decompressed size, and a size that it contains may be wrong.
    """

    def decompress_bounded(data: Buffer, bytes_max: int) -> Buffer:
        size = min(bytes_max, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
        while True:
            output = bytearray(size)
            try:
                written = decompress_into(data, output)
                return memoryview(output)[:written]
            except cramjam.DecompressionError as error:
                if _OUTPUT_FULL not in str(error):
                    raise
                if size >= bytes_max:
                    raise CorruptBatch(
                        f"records: the body has more than {bytes_max} bytes decompressed; send less per batch"
                    ) from error
            size = min(bytes_max, size * _GROWTH)

    return decompress_bounded


_COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: lambda data: bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL)),
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL)),
}

_DECOMPRESS: dict[Codec, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: lambda data, bytes_max: data,
    Codec.GZIP: _growing(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _growing(cramjam.lz4.decompress_into),
    Codec.ZSTD: _growing(cramjam.zstd.decompress_into),
}
