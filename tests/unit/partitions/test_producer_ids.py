"""Ids of producers: each number has one, and nobody can tell the next."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from partitions.metadata.producer_ids import ProducerIdCipher

IDS = ProducerIdCipher(b"secret")
NUMBERS = st.integers(0, (1 << 62) - 1)


@given(NUMBERS)
def test_an_id_stands_for_one_number_and_a_number_for_one_id(number: int) -> None:
    # requirement: D3
    assert IDS.number_of(IDS.id_of(number)) == number
    assert IDS.id_of(IDS.number_of(number)) == number
    assert 0 <= IDS.id_of(number) < 1 << 62


def test_ids_tell_nothing_of_one_another() -> None:
    ids = [IDS.id_of(number) for number in range(2000)]
    for bit in range(62):
        ones = sum(found >> bit & 1 for found in ids)
        assert 850 < ones < 1150, f"bit {bit} is set in {ones} of 2000 ids"
    assert not {ProducerIdCipher(b"another").id_of(number) for number in range(2000)} & set(ids)


def test_who_guesses_finds_none() -> None:
    rng = random.Random(1)
    assert min(IDS.number_of(rng.getrandbits(62)) for _ in range(20_000)) > 1_000_000
    assert IDS.number_of((1 << 63) - 1) > 1_000_000
