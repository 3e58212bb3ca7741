"""Committed offsets: each group and partition is a register."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.anomaly import Anomaly, Severity
from chaos.checkers.evidence import Evidence
from chaos.history import Outcome
from chaos.registers import STEPS_MAX, Operation, Read, Verdict, Write, check_register


def committed_offsets(evidence: Evidence, *, steps_max: int = STEPS_MAX) -> Iterator[Anomaly]:
    """No order of the commits explains the committed offsets that were read."""
    registers: defaultdict[tuple[str, int], list[Operation]] = defaultdict(list)
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
        if found is not Verdict.VALID:
            is_unknown = found is Verdict.UNKNOWN
            detail = f"group {group!r}: {'the search was given up' if is_unknown else 'not linearizable'}"
            severity = Severity.UNDECIDED if is_unknown else Severity.BAD
            yield Anomaly("committed-offset", partition, detail, severity)
