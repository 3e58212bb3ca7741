"""Determines the memory limit of this process: the smallest of the limits of the machine, the control group
and the process.

Decides: the defaults of settings that bound the memory for clients, so that all bounds together fit into a
small machine. A setting that the user gives is used unchanged.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path
from typing import Final

LEAST: Final = 16 << 20  # least default of one setting, in bytes
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


@cache
def memory_bytes() -> int:
    """The number of bytes that this process may use, determined at the first call."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min([physical, *(limit for limit in own if limit != resource.RLIM_INFINITY), *_limits_of_groups()])


def part_of_memory(most_bytes: int, part: int) -> int:
    """The memory limit divided by ``part``, in bytes, but ``most_bytes`` at most and ``LEAST`` at least."""
    return max(LEAST, min(most_bytes, memory_bytes() // part))


def _limits_of_groups() -> list[int]:
    """Return the memory limits of this process's control group (version 2) and its parents; empty without
    such limits.
    """
    try:
        own = _OWN_GROUP.read_text().rpartition("::")[2].strip()
    except OSError:
        return []
    inside = _GROUPS / own.lstrip("/")
    return [limit for folder in (inside, *inside.parents) if (limit := _limit_of(folder)) is not None]


def _limit_of(folder: Path) -> int | None:
    try:
        text = (folder / "memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
