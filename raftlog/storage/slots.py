"""One slot of the hard state as bytes: encoding, decoding, and the diagnosis of damage.

Decides: whether an unreadable slot was being written when power was lost (nothing depended on it) or was
damaged later (it may have held a vote that counts). The sequence number is written again after the sealed
values: an interrupted write leaves two different numbers, damage leaves equal numbers. A single flipped bit
is found by trying all bits, and is corrected.

Leaves to others: which of two slots counts, and the consequences of a lost slot (``durable_state``).
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from msgspec import Struct

from raftlog.core.ready import HardState
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.sealed import OVERHEAD_BYTES, seal, unseal
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

SLOT_NAMES = ("hard_state.a", "hard_state.b")
_MAGIC = b"RLH3"
_SLOT = struct.Struct(">QqqqqqqqQ?")
_SEQUENCE = struct.Struct(">Q")
_SEALED_BYTES = _SLOT.size + OVERHEAD_BYTES
SLOT_BYTES = _SEALED_BYTES + _SEQUENCE.size
_SEQUENCE_MAX = (1 << 63) - 1  # no greater number is ever written
_NO_VOTE = -1
UNKNOWN_TERMS = 1 << 32  # the checksum of terms that were not read; no real checksum has so many bits


class DurableEnd(Struct, frozen=True):
    """The durable end: all entries up to ``last`` were durable; ``terms`` is a checksum of the
    terms' starts.
    """

    last: EntryId
    terms: int

    @property
    def index(self) -> Index:
        """The newest index of the durable end."""
        return self.last.index


INDEX_MAX = Index((1 << 62) - 1)


def given_up(term: Term) -> DurableEnd:
    """The durable end of a log that a log of a leader of ``term`` or later is replacing: it is
    above any log.
    """
    return DurableEnd(EntryId(term, INDEX_MAX), UNKNOWN_TERMS)


NOTHING_DURABLE = DurableEnd(BEFORE_LOG, UNKNOWN_TERMS)


@dataclass(slots=True)
class ReplicaState:
    """The values of a slot. ``before`` is the term of the entry just before ``log_start``."""

    hard_state: HardState
    log_start: Index
    before: Term
    durable_end: DurableEnd
    commit_index: Index

    @property
    def durable_index(self) -> Index:
        """The newest index that was durable when the slot was written."""
        return self.durable_end.last.index

    @property
    def is_given_up(self) -> bool:
        """Whether a leader's log is replacing this log, so that no file in the directory counts."""
        return self.durable_index == INDEX_MAX


class SlotError(enum.Enum):
    """The reason why a slot holds no values."""

    ABSENT = "the file is missing"
    TORN = "was being written when power was lost"
    LOST = "is damaged"


@dataclass(frozen=True, slots=True)
class Slot:
    """The content of one slot file."""

    sequence: int
    state: ReplicaState
    was_repaired: bool = False  # a flipped bit was turned back


def initial_state(*, is_rejoining: bool = False) -> ReplicaState:
    """The values of a new replica."""
    hard_state = HardState(Term(0), None, is_rejoining)
    return ReplicaState(hard_state, Index(0), Term(0), NOTHING_DURABLE, Index(-1))


def encode_slot(sequence: int, state: ReplicaState) -> bytes:
    """Encode the bytes of a slot."""
    vote = state.hard_state.voted_for
    return seal(
        _MAGIC,
        _SLOT.pack(
            sequence,
            state.hard_state.term,
            _NO_VOTE if vote is None else vote,
            state.log_start,
            state.before,
            state.durable_end.last.index,
            state.durable_end.last.term,
            state.commit_index,
            state.durable_end.terms,
            state.hard_state.is_rejoining,
        ),
    ) + _SEQUENCE.pack(sequence)


def read_slot(filesystem: Filesystem, path: str) -> Slot | SlotError:
    """The content of a slot's file, or the reason why it has none."""
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return SlotError.ABSENT
    slot = _decode(data)
    if slot is not None:
        return slot
    if len(data) != SLOT_BYTES:
        return SlotError.LOST
    repaired = _with_a_bit_turned_back(data)
    if repaired is not None:
        return repaired
    if data[:4] != _MAGIC:
        return SlotError.LOST
    (head,), (tail,) = _SEQUENCE.unpack_from(data, 4), _SEQUENCE.unpack_from(data, _SEALED_BYTES)
    return SlotError.TORN if head != tail and max(head, tail) <= _SEQUENCE_MAX else SlotError.LOST


def highest_number(filesystem: Filesystem, path: str) -> int:
    """The highest sequence number in a torn slot.

    If it were used again, two torn writes could look like damage.
    """
    data = filesystem.read_file(path)
    return max(int.from_bytes(data[at : at + _SEQUENCE.size]) for at in (4, _SEALED_BYTES))


def _with_a_bit_turned_back(data: bytes) -> Slot | None:
    changed = bytearray(data)
    for bit in range(8 * _SEALED_BYTES):
        changed[bit >> 3] ^= 1 << (bit & 7)
        slot = _decode(changed)
        if slot is not None:
            return Slot(slot.sequence, slot.state, was_repaired=True)
        changed[bit >> 3] ^= 1 << (bit & 7)
    return None


def _decode(data: bytes | bytearray) -> Slot | None:
    payload = unseal(_MAGIC, data[:_SEALED_BYTES])
    if payload is None or len(payload) != _SLOT.size:
        return None
    sequence, term, vote, start, before, durable_index, durable_term, commit, terms, is_rejoining = (
        _SLOT.unpack(payload)
    )
    if sequence > _SEQUENCE_MAX:
        return None
    durable_end = DurableEnd(EntryId(Term(durable_term), Index(durable_index)), terms)
    hard_state = HardState(Term(term), None if vote == _NO_VOTE else NodeId(vote), is_rejoining)
    return Slot(sequence, ReplicaState(hard_state, Index(start), Term(before), durable_end, Index(commit)))
