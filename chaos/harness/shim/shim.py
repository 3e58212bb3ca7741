"""Builds the library that changes a broker's system calls, and changes the faults while the broker runs.

::

    shim = Shim(cluster.data_directory(2))
    cluster.add_environment(2, shim.environment)
    cluster.start()
    shim.full(True)

Faults are passed through a small file that both processes map: without signals and locks. Its layout is that
of ``struct control`` in ``shim.c``.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
FLAGS: Final = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
FAULTS: Final = (
    "slow_ms",
    "full",
    "failing_sync",
    "lying_sync",
    "failing_read",
    "clock_offset_ms",
    "read_only",
)
EFFECTS: Final = (
    "slowed",
    "refused_writes",
    "failed_syncs",
    "lied_syncs",
    "failed_reads",
    "refused_descriptors",
    "moved_clock_reads",
    "refused_changes",
)
_FIELDS: Final = (*FAULTS, *EFFECTS)
_WORD: Final = struct.Struct("=q")
_PATTERN_AT: Final = len(_FIELDS) * _WORD.size
_PATTERN_BYTES: Final = 512
_SIZE: Final = _PATTERN_AT + _PATTERN_BYTES


class ShimFailed(Exception):
    """The library cannot be built on this machine; the message has the reason."""


def missing() -> str | None:
    """Return the reason why the shim does not work on this machine, and the remedy; None if it works."""
    if sys.platform != "linux" or sys.maxsize < 2**63 - 1 or platform.libc_ver()[0] != "glibc":
        return "changed system calls need 64-bit Linux with glibc: run chaos in Docker"
    if _compiler() is None:
        return "a C compiler is missing: install gcc"
    try:
        library()
    except ShimFailed as error:
        return f"{error}: install gcc and the headers of the C library (libc6-dev)"
    return None


@functools.cache
def library() -> Path:
    """Build the library to preload, once for each version of its source; return its path. Raises
    ``ShimFailed``.
    """
    compiler = _compiler()
    if compiler is None:
        raise ShimFailed("neither cc nor gcc is installed")
    version = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raftlog"
    target = home / f"shim-{version}.so"
    if target.exists():
        return target
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as name:
            built = Path(name, "shim.so")
            command = [compiler, *FLAGS, "-o", str(built), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True, text=True)
            built.replace(target)
    except subprocess.CalledProcessError as error:
        raise ShimFailed(f"{compiler} failed: {error.stderr.strip()}") from error
    except OSError as error:
        raise ShimFailed(f"the library cannot be built: {error}") from error
    return target


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


class Shim:
    """Controls the faults of a process that runs with ``environment``, and of its child processes.

    Only files below ``directory``, the data directory, are affected; the clock is the clock of the whole
    process. The control file is beside the data directory. Raises ``ShimFailed``.
    """

    def __init__(self, directory: Path) -> None:
        below = directory.resolve()
        below.parent.mkdir(parents=True, exist_ok=True)
        control = below.with_name(f"{below.name}.faults")
        control.write_bytes(bytes(_SIZE))
        with control.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), _SIZE)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "CHAOS_FAULTS_BELOW": str(below),
            "CHAOS_FAULTS_CONTROL": str(control),
        }

    def slow(self, delay_ms: int) -> None:
        """Delay each write and each sync by ``delay_ms``."""
        self._set("slow_ms", delay_ms)

    def full(self, is_full: bool) -> None:
        """Make writes beyond the end of a file fail with ENOSPC, and report no free bytes."""
        self._set("full", is_full)

    def failing_sync(self, pattern: str) -> None:
        """Make syncs of files whose path contains this pattern fail with EIO; an empty pattern ends the
        fault.
        """
        self._failing("failing_sync", pattern)

    def failing_read(self, pattern: str) -> None:
        """Make reads of files whose path contains this pattern fail with EIO. Cannot be combined with failing
        syncs.
        """
        self._failing("failing_read", pattern)

    def lying_sync(self, lies: bool) -> None:
        """Make syncs succeed without writing to the disk: a power loss then loses data that the process takes
        for synced.
        """
        self._set("lying_sync", lies)

    def read_only(self, is_read_only: bool) -> None:
        """Make writes, syncs, renames and deletions fail with EROFS, as after the kernel has detected an
        error of the disk.
        """
        self._set("read_only", is_read_only)

    def clock_offset(self, offset_ms: int) -> None:
        """Move the wall clock by ``offset_ms``; the monotonic clock and the timestamps of files are
        unchanged.
        """
        self._set("clock_offset_ms", offset_ms)

    def heal(self) -> None:
        """End all faults; the counts of effects are kept."""
        for field in FAULTS:
            self._set(field, 0)

    def effects(self) -> dict[str, int]:
        """Return the number of calls that each kind of fault has changed since this object was created."""
        return {name: self._get(name) for name in EFFECTS}

    def _failing(self, field: str, pattern: str) -> None:
        encoded = pattern.encode()
        if len(encoded) >= _PATTERN_BYTES:
            raise ValueError(f"a pattern has at most {_PATTERN_BYTES - 1} bytes")
        self._set(field, False)
        self._mapped[_PATTERN_AT:] = encoded.ljust(_PATTERN_BYTES, b"\0")
        self._set(field, bool(encoded))

    def _set(self, field: str, value: int) -> None:
        _WORD.pack_into(self._mapped, _FIELDS.index(field) * _WORD.size, value)

    def _get(self, field: str) -> int:
        found: int = _WORD.unpack_from(self._mapped, _FIELDS.index(field) * _WORD.size)[0]
        return found
