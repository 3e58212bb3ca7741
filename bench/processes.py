"""Reads the cost of processes from the kernel: CPU seconds and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used: all its threads, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cpu_s_of(pids: Iterable[int]) -> float:
    """The sum of ``cpu_s`` over several processes."""
    return sum(cpu_s(pid) for pid in pids)


def private_bytes(pid: int) -> int:
    """The memory that a process shares with no other process, in bytes: without the code of libraries."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
