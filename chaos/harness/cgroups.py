"""Limits the CPU time of one process, by control groups of Linux (version 1).

Decides: the control group of the process while it is limited, and how often it had to wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HIERARCHY: Final = Path("/sys/fs/cgroup/cpu")
QUOTA: Final = "cpu.cfs_quota_us"
PROCESSES: Final = "cgroup.procs"
PERIOD_US: Final = 50_000

Hits = Callable[[], int]


def missing() -> str | None:
    """Return the reason why no process can be limited on this machine, and the remedy; None if processes can
    be limited.
    """
    if sys.platform != "linux":
        return "control groups need Linux: run chaos in Docker (--privileged)"
    if os.geteuid() != 0:
        return "control groups need root: run with sudo, or in Docker (--privileged)"
    try:
        with _group("probe") as group:
            (group / QUOTA).read_text()
    except OSError as error:
        return (
            f"control groups of version 1 do not work on this machine ({error}): boot with "
            "systemd.unified_cgroup_hierarchy=0; a container needs --privileged"
        )
    return None


@contextmanager
def limited_cpu(pid: int, percent: int) -> Iterator[Hits]:
    """Limit a process to a percentage of one CPU during the block.

    Yields a function that returns how often the process had to wait.
    """
    with _group(str(pid)) as group:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / QUOTA).write_text(str(PERIOD_US * percent // 100))
        with _member(group, pid):
            yield lambda: _rows(group / "cpu.stat")["nr_throttled"]


def _rows(path: Path) -> dict[str, int]:
    """Return the numbers in a file by name; each line has a name and a number."""
    return {name: int(number) for name, number in map(str.split, path.read_text().splitlines())}


@contextmanager
def _group(name: str) -> Iterator[Path]:
    """Create a control group for this process, and remove it after the block, when it has no members."""
    group = HIERARCHY / f"raftlog-chaos-{os.getpid()}-{name}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def _member(group: Path, pid: int) -> Iterator[None]:
    """Move the process into this control group during the block, and into the parent group afterwards if it
    still runs.
    """
    (group / PROCESSES).write_text(str(pid))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            (group.parent / PROCESSES).write_text(str(pid))
