"""The partition of a key, equal for every client and for the brokers.

Decides: a key's bytes (text as UTF-8, integers in decimal) and the partition of those bytes, which is
Kafka's default: murmur2 without its sign, modulo the number of partitions. Leaves to others: the partition of
records without a key.
"""

from __future__ import annotations

import operator
import struct

from raftlog.errors import InvalidRecord

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WITHOUT_SIGN = 0x7FFFFFFF


def encode_key(key: bytes | str | int | None) -> bytes | None:
    """The bytes of a key. Raises ``InvalidRecord`` for other types and text that UTF-8 cannot encode."""
    if key is None or isinstance(key, bytes):
        return key
    try:
        if isinstance(key, str):
            return key.encode()
        if isinstance(key, bool):
            raise TypeError("a bool is not a key; use bytes, a string or an integer")
        return b"%d" % operator.index(key)
    except (TypeError, ValueError) as error:
        raise InvalidRecord(f"key: {error}", errors=[f"/key: {error}"]) from error


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key, the same as long as the number of partitions stays."""
    return (murmur2(key) & _WITHOUT_SIGN) % partition_count


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, without a sign (Java's is the same bits with one)."""
    length = len(data)
    words = length >> 2
    result = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _MULTIPLIER & _MASK
        result = (result * _MULTIPLIER ^ (word ^ word >> 24) * _MULTIPLIER) & _MASK
    if length & 3:
        result = (result ^ int.from_bytes(data[words << 2 :], "little")) * _MULTIPLIER & _MASK
    result = (result ^ result >> 13) * _MULTIPLIER & _MASK
    return result ^ result >> 15
