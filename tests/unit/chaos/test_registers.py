"""The search for linearizable orders: small histories, and every order of a few operations."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.registers import CompareAndSet, Operation, Read, Verdict, Write, check_register


def write(value: int, begin: float, end: float = math.inf) -> Operation:
    return Write(value=value, invoked_s=begin, completed_s=end)


def read(value: int | None, begin: float, end: float = math.inf) -> Operation:
    return Read(value=value, invoked_s=begin, completed_s=end)


def cas(old: int, new: int, was_set: bool | None, begin: float, end: float = math.inf) -> Operation:
    return CompareAndSet(old=old, new=new, was_set=was_set, invoked_s=begin, completed_s=end)


VALID = {
    "nothing": [],
    "one after the other": [write(1, 0, 1), read(1, 2, 3)],
    "a read beside a write sees either": [write(1, 0, 1), write(2, 2, 9), read(1, 3, 4), read(2, 5, 6)],
    "an unknown write may have happened": [write(1, 0, 1), write(2, 2), read(2, 3, 4)],
    "an unknown write may never happen": [write(1, 0, 1), write(2, 2), read(1, 3, 4)],
    "an unknown write may happen late": [write(1, 0, 1), write(2, 2), read(1, 3, 4), read(2, 5, 6)],
    "operations at the same moment are concurrent": [write(1, 0, 1), read(None, 1, 2)],
    "a comparison that held": [write(1, 0, 1), cas(1, 2, True, 2, 3), read(2, 4, 5)],
    "an unknown comparison": [write(1, 0, 1), cas(1, 2, None, 2), read(2, 4, 5)],
}
INVALID = {
    "a read that is stale": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "a read of nothing after a write": [write(1, 0, 1), read(None, 2, 3)],
    "a value that nobody wrote": [write(1, 0, 1), read(3, 2, 3)],
    "a value that goes back": [write(1, 0, 1), write(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
    "a read before the write begins": [read(1, 0, 1), write(1, 2, 3)],
    "a comparison that could not hold": [write(1, 0, 1), cas(2, 3, True, 2, 3)],
    "a comparison that had to hold": [write(1, 0, 1), cas(1, 3, False, 2, 3)],
    "two comparisons of the same value": [write(1, 0, 1), cas(1, 2, True, 2, 9), cas(1, 3, True, 3, 9)],
}


@pytest.mark.parametrize("name", VALID)
def test_an_innocent_history_is_valid(name: str) -> None:
    # requirement: ST2
    assert check_register(VALID[name]) is Verdict.VALID


@pytest.mark.parametrize("name", INVALID)
def test_a_guilty_history_is_invalid(name: str) -> None:
    # requirement: ST2
    assert check_register(INVALID[name]) is Verdict.INVALID


values = st.integers(1, 2)
begins = st.integers(0, 6)
ends = st.integers(1, 4) | st.just(math.inf)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    begin = draw(begins)
    end = begin + draw(ends)
    kind = draw(st.sampled_from(["write", "read", "cas"]))
    if kind == "write":
        return write(draw(values), begin, end)
    if kind == "read":
        return read(draw(st.none() | values), begin, end)
    return cas(draw(values), draw(values), draw(st.booleans()) if end < math.inf else None, begin, end)


def has_order(history: Sequence[Operation]) -> bool:
    """Try every order of every choice of what happened; operations without an end may be left out."""
    for order in permutations(history):
        if any(
            late.completed_s < early.invoked_s for i, early in enumerate(order) for late in order[i + 1 :]
        ):
            continue
        state: Hashable = None
        for operation in order:
            fits, new = operation.next_state(state)
            if not fits:
                break
            state = new
        else:
            return True
    return False


@given(st.lists(operations(), max_size=5))
def test_the_search_finds_what_trying_every_order_finds(history: list[Operation]) -> None:
    # requirement: ST2
    assert (check_register(history) is Verdict.VALID) is has_order(history)


def test_a_search_that_takes_too_long_is_no_verdict() -> None:
    history = [write(number, 0, 9) for number in range(12)] + [read(99, 10, 11)]
    assert check_register(history, steps_max=1000) is Verdict.UNKNOWN
