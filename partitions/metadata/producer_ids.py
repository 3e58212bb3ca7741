"""Producer ids that cannot be guessed: the metadata counts producers, and a cipher encrypts the numbers.

Any client that knows a producer id can fence that producer, so ids must not be small numbers. An id is its
number encrypted with the cluster's secret: a broker can tell without a list whether an id was allocated.

The cipher is a balanced Feistel network over 62 bits (Luby and Rackoff, 1988) with keyed BLAKE2b as its round
function. The network has eight rounds; four are enough for a strong pseudorandom permutation.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_ROUNDS: Final = 8
_HALF_BITS: Final = 31
_HALF_MASK: Final = (1 << _HALF_BITS) - 1


class ProducerIdCipher:
    """Converts numbers of producers to producer ids of one cluster, and back."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, digest_size=32, person=b"producer ids").digest()

    def id_of(self, number: int) -> int:
        """The id of the producer with this number, 0 to 2^62 - 1."""
        left, right = number >> _HALF_BITS, number & _HALF_MASK
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, right)
        return left << _HALF_BITS | right

    def number_of(self, producer_id: int) -> int:
        """The number of a producer id.

        An id that was never allocated gives an arbitrary number up to 2^62 - 1.
        """
        left, right = producer_id >> _HALF_BITS, producer_id & _HALF_MASK
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._mixed(turn, left), left
        return left << _HALF_BITS | right

    def _mixed(self, turn: int, half: int) -> int:
        digest = blake2b(half.to_bytes(4, "big"), digest_size=4, key=self._key, salt=bytes([turn])).digest()
        return int.from_bytes(digest, "big") & _HALF_MASK
