"""Changed system calls: each fault of the preloaded library, on a small process with real files."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.harness.shim import shim as shims
from chaos.harness.shim.shim import EFFECTS, Shim
from raftlog.testing.waits import LIMIT_S

pytestmark = pytest.mark.e2e

PROGRAM = """
import errno, json, os, sys, threading, time
for line in sys.stdin:
    call, *arguments = json.loads(line)
    begun_s = time.monotonic()
    try:
        value = eval(call, globals())(*arguments)
        answer = [0, value if isinstance(value, (int, float)) else 0]
    except OSError as error:
        answer = [error.errno, 0]
    print(json.dumps([*answer, time.monotonic() - begun_s]), flush=True)
"""


class Process:
    """A Python process under the library; ``call`` runs one function there."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def call(self, function: str, *arguments: object) -> tuple[int, float, float]:
        """The error number, the result, and the duration in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([function, *arguments]), file=self._process.stdin, flush=True)
        code, value, seconds = json.loads(self._process.stdout.readline())
        return code, value, seconds

    def code(self, function: str, *arguments: object) -> int:
        """The error number; 0 for success."""
        return self.call(function, *arguments)[0]

    def open(self, path: Path) -> int:
        """A new descriptor there, for reading and writing."""
        return int(self.call("os.open", str(path), os.O_RDWR | os.O_CREAT)[1])

    def end(self) -> None:
        """It ends with its input."""
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture
def data(directory: Path) -> Path:
    path = directory / "broker-1" / "data"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def shim(data: Path) -> Shim:
    if reason := shims.missing():
        pytest.skip(reason)
    return Shim(data)


@pytest.fixture
def process(shim: Shim) -> Iterator[Process]:
    process = Process(shim.environment)
    yield process
    process.end()


WRITES = (
    "lambda file, at: os.pwrite(file, b'x', at)",
    "lambda file, at: os.pwritev(file, [b'x', b'y'], at)",
    "lambda file, at: (os.lseek(file, at, 0), os.write(file, b'x'))",
    "lambda file, at: (os.lseek(file, at, 0), os.writev(file, [b'x', b'y']))",
)


@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_refuses_to_extend_files(shim: Shim, process: Process, data: Path, write: str) -> None:
    file = process.open(data / "a")
    assert process.code("lambda file: os.pwrite(file, bytes(8), 0)", file) == 0
    shim.full(True)
    assert process.code(write, file, 8) == errno.ENOSPC
    assert process.code(write, file, 7 if "pwrite(" in write else 6) == 0  # within the file
    elsewhere = process.open(data.parent / "b")
    assert process.code(write, elsewhere, 0) == 0
    assert shim.effects()["refused_writes"] == 1
    shim.full(False)
    assert process.code(write, file, 8) == 0


def test_a_full_disk_reports_no_free_bytes(shim: Shim, process: Process, data: Path) -> None:
    free = "lambda path: os.statvfs(path).f_bavail"
    assert process.call(free, str(data))[1] > 0
    shim.full(True)
    assert process.call(free, str(data))[1] == 0
    assert process.call(free, str(data.parent))[1] > 0


CHANGES = (
    *("os.mkdir({data} + '/sub')", "os.unlink({data} + '/a')", "os.rename({data} + '/a', {data} + '/b')"),
    *("os.rmdir({data} + '/empty')", "os.link({data} + '/a', {data} + '/b')"),
    *("os.open({data} + '/new', os.O_CREAT | os.O_RDWR)", "os.open({data} + '/a', os.O_WRONLY)"),
    *("os.pwrite(file, b'x', 0)", "os.pwritev(file, [b'x'], 0)", "os.write(file, b'x')"),
    *("os.ftruncate(file, 0)", "os.fsync(file)", "os.fdatasync(file)"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_read_only_disk_refuses_changes_and_serves_reads(
    shim: Shim, process: Process, data: Path, change: str
) -> None:
    file = process.open(data / "a")
    (data / "empty").mkdir()
    assert process.code("lambda file: os.pwrite(file, b'kept', 0)", file) == 0
    function = f"lambda file: {change.format(data=repr(str(data)))}"
    shim.read_only(True)
    assert process.code(function, file) == errno.EROFS
    assert process.call("lambda file: os.pread(file, 4, 0) == b'kept'", file)[:2] == (0, True)
    assert process.code("lambda path: os.open(path, os.O_RDONLY)", str(data / "a")) == 0
    assert process.code("lambda path: os.mkdir(path)", str(data.parent / "elsewhere")) == 0
    assert shim.effects()["refused_changes"] == 1
    shim.read_only(False)
    assert process.code(function, file) == 0


BEGINS_A_SYNC = (
    "lambda file: __import__('raftlog.storage.linux_aio').storage.linux_aio.LinuxAio().begin(file, print)"
)


def test_the_kernel_takes_no_syncs_while_they_have_a_fault(shim: Shim, process: Process, data: Path) -> None:
    """Else they would have none: brokers that are refused call ``fdatasync``."""
    file = process.open(data / "a")
    code, is_begun, _ = process.call(BEGINS_A_SYNC, file)
    if code:
        pytest.skip(f"the kernel syncs no files here: {os.strerror(code)}")
    assert is_begun
    for begins, ends in (
        (lambda: shim.slow(1), lambda: shim.slow(0)),
        (lambda: shim.failing_sync("a"), lambda: shim.failing_sync("")),
        (lambda: shim.lying_sync(True), lambda: shim.lying_sync(False)),
        (lambda: shim.read_only(True), lambda: shim.read_only(False)),
    ):
        begins()
        assert process.call(BEGINS_A_SYNC, file)[:2] == (0, False)
        ends()
        assert process.call(BEGINS_A_SYNC, file)[:2] == (0, True)


@pytest.mark.parametrize("sync", ["os.fsync", "os.fdatasync"])
def test_syncs_fail_where_the_path_matches(shim: Shim, process: Process, data: Path, sync: str) -> None:
    bad, good = process.open(data / "orders-0.log"), process.open(data / "other-0.log")
    assert process.code(sync, bad) == 0
    shim.failing_sync("data/orders-")
    assert (process.code(sync, bad), process.code(sync, good)) == (errno.EIO, 0)
    assert shim.effects()["failed_syncs"] == 1
    shim.failing_sync("")
    assert process.code(sync, bad) == 0


READS = (
    "lambda file: os.pread(file, 1, 0)",
    "lambda file: os.preadv(file, [bytearray(1)], 0)",
    "lambda file: os.read(file, 1)",
    "lambda file: os.readv(file, [bytearray(1)])",
    "lambda file: open(file, 'rb', closefd=False).read()",
)


@pytest.mark.parametrize("read", READS)
def test_reads_fail_where_the_path_matches(shim: Shim, process: Process, data: Path, read: str) -> None:
    bad, good = process.open(data / "orders-0.log"), process.open(data / "other-0.log")
    assert process.code(read, bad) == 0
    shim.failing_read("data/orders-")
    assert (process.code(read, bad), process.code(read, good)) == (errno.EIO, 0)
    assert shim.effects()["failed_reads"] >= 1
    shim.heal()
    assert process.code(read, bad) == 0


@pytest.mark.parametrize("opens", ["lambda: open('/dev/null')", "socket.socket"])
def test_descriptors_that_the_kernel_refuses_are_counted(shim: Shim, process: Process, opens: str) -> None:
    assert process.code("lambda: exec('import socket', globals())") == 0
    assert process.code(opens) == 0
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, 1024))
    assert process.code(opens) == errno.EMFILE
    assert shim.effects()["refused_descriptors"] == 1
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    assert process.code(opens) == 0


def test_a_lying_sync_succeeds(shim: Shim, process: Process, data: Path) -> None:
    shim.lying_sync(True)
    assert process.code("os.fdatasync", process.open(data / "a")) == 0
    assert process.code("lambda path: os.fsync(os.open(path, os.O_RDONLY))", str(data)) == 0
    assert process.code("os.fsync", process.open(data.parent / "b")) == 0
    assert shim.effects()["lied_syncs"] == 2  # the last one is not below the data directory


def test_a_slow_disk_delays_writes_and_syncs(shim: Shim, process: Process, data: Path) -> None:
    file, elsewhere = process.open(data / "a"), process.open(data.parent / "b")
    shim.slow(200)
    for write in WRITES:
        assert process.call(write, file, 0)[2] >= 0.2
    assert process.call("os.fdatasync", file)[2] >= 0.2
    assert process.code(WRITES[0], elsewhere, 0) == 0
    assert shim.effects()["slowed"] == 5  # none of them elsewhere


@pytest.mark.parametrize("offset_ms", [3_600_000, -3_600_000, 200, -200, -1, 86_400_000_999])
def test_the_wall_clock_moves_and_the_monotonic_does_not(
    shim: Shim, process: Process, offset_ms: int
) -> None:
    shim.clock_offset(offset_ms)
    before, earliest = process.call(MONOTONIC)[1], time.time()
    moved = [process.call(f"lambda: {clock} - {offset_ms} / 1000")[1] for clock in CLOCKS]
    latest = time.time()
    shim.clock_offset(0)
    after = process.call(MONOTONIC)[1]
    assert all(earliest - 0.01 < clock < latest + 0.01 for clock in moved), (earliest, moved, latest)
    assert abs(after - before) < 0.1
    assert shim.effects()["moved_clock_reads"] >= len(CLOCKS)


# The clock against one that nothing moves; the greatest of some, since a process may be stopped in between.
MONOTONIC = (
    "lambda: max(time.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW) for _ in range(1_000))"
)
CLOCKS = ("time.time()", "time.time_ns() / 1e9", "__import__('datetime').datetime.now().timestamp()")


def test_waits_do_not_follow_the_moved_clock(shim: Shim, process: Process) -> None:
    shim.clock_offset(-3_600_000)
    assert process.call("lambda: threading.Event().wait(0.05)")[2] < LIMIT_S  # and not an hour
    shim.clock_offset(3_600_000)
    assert process.call("lambda: threading.Event().wait(0.05)")[2] >= 0.05


def test_healing_ends_all_faults(shim: Shim, process: Process, data: Path) -> None:
    shim.slow(1000)
    shim.full(True)
    shim.failing_sync("a")
    shim.lying_sync(True)
    shim.clock_offset(1000)
    shim.heal()
    file = process.open(data / "a")
    assert process.code("lambda file: (os.pwrite(file, b'x', 0), os.fsync(file))", file) == 0
    assert shim.effects() == dict.fromkeys(EFFECTS, 0)


def test_a_process_without_a_data_directory_is_unchanged(shim: Shim, data: Path) -> None:
    process = Process({"LD_PRELOAD": shim.environment["LD_PRELOAD"]})
    shim.full(True)
    assert process.code(WRITES[0], process.open(data / "a"), 0) == 0
    process.end()
