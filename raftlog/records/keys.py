"""The partition of a key, equal for every client and for the brokers.

Decides: the bytes of a key (text as UTF-8, integers in decimal) and the partition of those bytes, which is
Kafka's default: the murmur2 hash without its sign, modulo the number of partitions. Leaves to others: the
partition of records without a key.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftlog.errors import InvalidRecord

if TYPE_CHECKING:
    from numpy import uint32
    from numpy.typing import NDArray

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WITHOUT_SIGN = 0x7FFFFFFF
_MANY_KEYS = 32  # keys of equal length; fewer keys are hashed faster one by one


def encode_key(key: bytes | str | int | None) -> bytes | None:
    """The bytes of a key. Raises ``InvalidRecord`` for other types and text that UTF-8 cannot encode."""
    if key is None or type(key) is bytes:
        return key
    try:
        if isinstance(key, bytes):
            return bytes(memoryview(key))  # ignores methods that the subclass overrides
        if isinstance(key, str):
            return str.encode(key)
        if isinstance(key, bool):
            raise TypeError("a bool is not a key; send bytes, a string or an integer")
        return b"%d" % operator.index(key)
    except (TypeError, ValueError) as error:
        raise InvalidRecord(f"key: {error}", errors=[f"/key: {error}"]) from error


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key; it changes only if the number of partitions changes."""
    return (murmur2(key) & _WITHOUT_SIGN) % partition_count


def partitions_for_keys(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """The partition of each key; much faster if numpy is loaded, as in every process that uses pyarrow."""
    if "numpy" not in sys.modules or len(keys) < _MANY_KEYS:
        return [partition_for_key(key, partition_count) for key in keys]
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(map(len, keys)):
        places[length].append(place)
    found = [0] * len(keys)
    for length, some in places.items():
        if not length or len(some) < _MANY_KEYS:
            partitions = [partition_for_key(keys[place], partition_count) for place in some]
        else:
            hashes = _murmur2_of_many(b"".join([keys[place] for place in some]), length)
            partitions = ((hashes & _WITHOUT_SIGN) % partition_count).tolist()
        for place, partition in zip(some, partitions, strict=True):
            found[place] = partition
    return found


def _murmur2_of_many(data: bytes, length: int) -> NDArray[uint32]:
    """The ``murmur2`` hashes of many keys of ``length`` bytes each, back to back in ``data``."""
    import numpy

    keys = numpy.frombuffer(data, dtype=numpy.uint8).reshape(-1, length)
    whole = length & ~3
    words = numpy.ascontiguousarray(keys[:, :whole]).view("<u4")
    multiplier, by_24, by_13, by_15 = map(numpy.uint32, (_MULTIPLIER, 24, 13, 15))
    result: NDArray[uint32] = numpy.full(len(keys), _SEED ^ length, dtype=numpy.uint32)
    for column in range(whole >> 2):
        word = words[:, column] * multiplier
        result = result * multiplier ^ (word ^ word >> by_24) * multiplier
    if length & 3:
        rest: NDArray[uint32] = numpy.zeros(len(keys), dtype=numpy.uint32)
        for at in range(length - whole):
            rest |= keys[:, whole + at].astype(numpy.uint32) << numpy.uint32(8 * at)
        result = (result ^ rest) * multiplier
    result = (result ^ result >> by_13) * multiplier
    return result ^ result >> by_15


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed: the bits of Java's hash, as an unsigned number."""
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
