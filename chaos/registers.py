"""Checks whether the operations on a register are linearizable: searches for an order that explains their
results.

The algorithm was published by Wing and Gong, and its memory of tried states by Lowe ("Testing for
linearizability", 2017); Porcupine uses both. An operation is placed next if it may come next, and a state is
tried once for each set of operations that came before. The search takes exponential time in the number of
concurrent operations, so it is bounded.

Committed offsets are registers, one for each group and partition. Registers are checked one by one, because
operations on different registers do not affect each other.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

STEPS_MAX: Final = 2_000_000


class Verdict(enum.Enum):
    """Verdict of a search. ``UNKNOWN`` means that the search was given up."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. Its times are from one clock; ``completed_s`` is infinite if the outcome is unknown."""

    invoked_s: float
    completed_s: float = math.inf

    def next_state(self, state: Hashable) -> tuple[bool, Hashable]:
        """Return whether the operation's result is possible in this state of the register, and the state
        after the operation.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Operation):
    """Operation that sets the value of the register."""

    value: Hashable

    def next_state(self, state: Hashable) -> tuple[bool, Hashable]:
        """Return True and the written value; see ``Operation``."""
        return True, self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Operation):
    """Operation that read ``value`` from the register."""

    value: Hashable

    def next_state(self, state: Hashable) -> tuple[bool, Hashable]:
        """Return whether the state is the value that was read, and the unchanged state; see ``Operation``."""
        return self.value == state, state


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareAndSet(Operation):
    """Operation that sets the register to ``new`` if its value is ``old``.

    ``was_set`` is the result; None if it is unknown.
    """

    old: Hashable
    new: Hashable
    was_set: bool | None

    def next_state(self, state: Hashable) -> tuple[bool, Hashable]:
        """Return whether ``was_set`` is possible in this state, and the state after the operation; see
        ``Operation``.
        """
        sets = state == self.old
        return self.was_set is None or self.was_set is sets, self.new if sets else state


def check_register(
    operations: Sequence[Operation], initial: Hashable = None, *, steps_max: int = STEPS_MAX
) -> Verdict:
    """Search for an order in which every operation takes effect between its start and its end.

    An operation that begins exactly when another one ends counts as concurrent with it.
    """
    return _Search(operations).run(initial, steps_max)


class _Search:
    """The starts and ends of operations in order of time, as a linked list. Placed operations are removed
    from the list.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        count = len(operations)
        events = [(operation.invoked_s, 0, number) for number, operation in enumerate(operations)]
        events += [(operation.completed_s, 1, number) for number, operation in enumerate(operations)]
        events.sort()
        self._next_states = [operation.next_state for operation in operations]
        self._ends = [0] * count  # the place of each operation's end
        self._numbers = [-1] * (2 * count + 2)  # number of the operation that begins at a place; -1 for ends
        self._after = list(range(1, 2 * count + 3))
        self._before = list(range(-1, 2 * count + 1))
        for place, (_, is_end, number) in enumerate(events, 1):
            if is_end:
                self._ends[number] = place
            else:
                self._numbers[place] = number
        self._last = 2 * count + 1

    def run(self, state: Hashable, steps_max: int) -> Verdict:
        """Search depth first. In ``placed``, each operation has a bit."""
        after, numbers, next_states = self._after, self._numbers, self._next_states
        placed, tried = 0, set[tuple[int, Hashable]]()
        path: list[tuple[int, Hashable]] = []
        place = after[0]
        for _ in range(steps_max):
            if after[0] == self._last:
                return Verdict.VALID
            number = numbers[place]
            if number >= 0:
                fits, new = next_states[number](state)
                key = placed | 1 << number, new
                if fits and key not in tried:
                    tried.add(key)
                    path.append((place, state))
                    placed, state = key
                    self._take_out(place, self._ends[number])
                    place = after[0]
                else:
                    place = after[place]
            elif path:  # an operation ended that could not be placed: undo the newest choice
                place, state = path.pop()
                number = numbers[place]
                placed &= ~(1 << number)
                self._put_back(place, self._ends[number])
                place = after[place]
            else:
                return Verdict.INVALID
        return Verdict.UNKNOWN

    def _take_out(self, *places: int) -> None:
        for place in places:
            before, after = self._before[place], self._after[place]
            self._after[before], self._before[after] = after, before

    def _put_back(self, begin: int, end: int) -> None:
        for place in (end, begin):
            self._after[self._before[place]] = self._before[self._after[place]] = place
