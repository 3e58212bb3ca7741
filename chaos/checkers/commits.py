"""Checks committed offsets as registers: each pair of group and partition is a register."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from chaos.checkers.anomaly import Anomaly, Severity
from chaos.checkers.evidence import Evidence
from chaos.history import Outcome
from chaos.registers import STEPS_MAX, Read, Verdict, Write, check_register


def committed_offsets(evidence: Evidence, *, steps_max: int = STEPS_MAX) -> Iterator[Anomaly]:
    """Yield an anomaly for each register whose reads cannot be explained by any order of its commits."""
    registers: defaultdict[tuple[str, int], list[Read | Write]] = defaultdict(list)
    for commit in evidence.history.commits:
        if commit.outcome is not Outcome.FAILED:
            ends_s = commit.completed_s if commit.outcome is Outcome.ACKNOWLEDGED else math.inf
            registers[commit.group, commit.partition].append(
                Write(value=commit.offset, invoked_s=commit.invoked_s, completed_s=ends_s)
            )
    for read in evidence.history.committed:
        registers[read.group, read.partition].append(
            Read(value=read.offset, invoked_s=read.invoked_s, completed_s=read.completed_s)
        )
    for (group, partition), operations in registers.items():
        found = check_register(operations, steps_max=steps_max)
        if found is Verdict.INVALID:
            yield Anomaly("committed-offset", partition, _detail(group, operations))
        elif found is Verdict.UNKNOWN:
            detail = f"group {group!r}: the search took too long and was given up"
            yield Anomaly("committed-offset", partition, detail, Severity.UNDECIDED)


def _detail(group: str, operations: Sequence[Read | Write]) -> str:
    """Describe the first operation with whose end no order is possible any more, and the newest commit before
    it began.
    """
    ended = sorted(operations, key=attrgetter("completed_s"))
    low, high = 0, len(ended) - 1  # the first operation that makes the history invalid is one of these
    while low < high:
        middle = (low + high) // 2
        if check_register(_until(ended, middle)) is Verdict.INVALID:
            high = middle
        else:
            low = middle + 1
    wrong = ended[low]
    before = [one for one in ended if isinstance(one, Write) and one.completed_s < wrong.invoked_s]
    last = f"{group} = {before[-1].value if before else None}"
    return f"{f'{group} = {wrong.value}'!r} is not linearizable; before it, {last!r} was committed"


def _until(ended: Sequence[Read | Write], last: int) -> list[Read | Write]:
    """Return the operations that ended up to ``last``, and the writes that had begun by then: they may have
    taken effect.
    """
    now_s = ended[last].completed_s
    begun = [one for one in ended[last + 1 :] if isinstance(one, Write) and one.invoked_s < now_s]
    return [*ended[: last + 1], *(replace(one, completed_s=math.inf) for one in begun)]
