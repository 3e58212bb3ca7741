"""A limit of one process's CPU, by control groups of Linux (version 1).

Decides: which group the process is in while it is limited, and how often it had to wait.
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
    """The reason why no process can be limited here, and the remedy; None if one can."""
    if sys.platform != "linux":
        return "control groups need Linux: run chaos in Docker (--privileged)"
    if os.geteuid() != 0:
        return "control groups need root: run with sudo, or in Docker (--privileged)"
    try:
        with _group("probe") as group:
            (group / QUOTA).read_text()
    except OSError as error:
        return (
            f"control groups of version 1 do not work here ({error}): boot with "
            "systemd.unified_cgroup_hierarchy=0; a container needs --privileged"
        )
    return None


@contextmanager
def limited_cpu(pid: int, percent: int) -> Iterator[Hits]:
    """The process has so many hundredths of one CPU until the block ends. Gives how often it had to wait."""
    with _group(str(pid)) as group:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / QUOTA).write_text(str(PERIOD_US * percent // 100))
        with _member(group, pid):
            yield lambda: _rows(group / "cpu.stat")["nr_throttled"]


def _rows(path: Path) -> dict[str, int]:
    """The lines of a file, each with a name and a number."""
    return {name: int(number) for name, number in map(str.split, path.read_text().splitlines())}


@contextmanager
def _group(name: str) -> Iterator[Path]:
    """A group of this process's own, which has no members in the end."""
    group = HIERARCHY / f"raftlog-chaos-{os.getpid()}-{name}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def _member(group: Path, pid: int) -> Iterator[None]:
    """The process is in this group, and in the group above it afterwards, if it still runs."""
    (group / PROCESSES).write_text(str(pid))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            (group.parent / PROCESSES).write_text(str(pid))
