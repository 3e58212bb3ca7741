"""Keys: their bytes, and the partition that every client agrees on."""

from __future__ import annotations

import random
import sys

import pyarrow  # noqa: F401  # it imports numpy
import pytest
from aiokafka.partitioner import DefaultPartitioner as TheirPartitioner
from aiokafka.partitioner import murmur2 as aiokafka_murmur2

from raftlog.errors import InvalidRecord
from raftlog.records.keys import encode_key, murmur2, partition_for_key, partitions_for_keys
from tests.unit.records.samples import kafka_murmur2

# key, its murmur2, its partition of 12; written down so that clients in other languages can take them
VECTORS = [
    (b"", 275646681, 9),
    (b"a", 2731586172, 4),
    (b"21", 3321034988, 0),
    (b"foobar", 3504634814, 6),
    ("schlüssel".encode(), 331429656, 0),
]


def test_the_hash_agrees_with_two_other_clients() -> None:
    # requirement: K1
    rng = random.Random(7)
    for length in [*range(40), 255, 1000]:
        data = rng.randbytes(length)
        assert murmur2(data) == kafka_murmur2(data) & 0xFFFFFFFF == aiokafka_murmur2(data) & 0xFFFFFFFF


@pytest.mark.parametrize("partition_count", [1, 3, 12, 100])
def test_a_key_goes_where_another_client_sends_it(partition_count: int) -> None:
    # requirement: K1
    choose = TheirPartitioner()
    partitions = list(range(partition_count))
    for number in range(200):
        key = b"user-%d" % number
        assert partition_for_key(key, partition_count) == choose(key, partitions, partitions)


@pytest.mark.parametrize(("key", "hashed", "partition"), VECTORS)
def test_the_shared_vectors_hold(key: bytes, hashed: int, partition: int) -> None:
    # requirement: K4
    assert (murmur2(key), partition_for_key(key, 12)) == (hashed, partition)


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        (None, None),
        (b"\xff\0", b"\xff\0"),
        ("", b""),
        ("größe", b"gr\xc3\xb6\xc3\x9fe"),
        (0, b"0"),
        (-17, b"-17"),
        (2**70, b"1180591620717411303424"),
    ],
)
def test_text_is_utf8_and_an_integer_its_decimal_digits(
    key: bytes | str | int | None, encoded: bytes | None
) -> None:
    # requirement: K4
    assert encode_key(key) == encoded


@pytest.mark.parametrize(
    "key", [True, 1.5, "\ud800", [1], 10**5000], ids=["bool", "float", "surrogate", "list", "huge"]
)
def test_other_keys_are_refused_by_name(key: object) -> None:
    # requirement: K4
    with pytest.raises(InvalidRecord, match="key"):
        encode_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("partition_count", [1, 3, 12, 100])
def test_many_keys_go_where_each_of_them_goes(partition_count: int) -> None:
    # requirement: K1
    assert "numpy" in sys.modules, "the faster way is the one that is tested"
    rng = random.Random(partition_count)
    lengths = [0, 1, 2, 3, 4, 5, 7, 8, 9, 40, 255]
    for count in (3, 50, 900):
        keys = [rng.randbytes(rng.choice(lengths)) for _ in range(count)] + [b"\xff" * 7] * 40
        assert partitions_for_keys(keys, partition_count) == [
            partition_for_key(key, partition_count) for key in keys
        ]
