"""Running out of memory, descriptors or threads is neither damage nor a broken invariant."""

from __future__ import annotations

import asyncio
import errno
import resource
import subprocess
import sys

import pytest

from broker.process.freed_memory import Returning
from raftlog.errors import MachineFailed, Overloaded
from raftlog.exhaustion import exhaustion, refuse_exhausted
from raftlog.node.threads import in_thread

NO_THREAD = "can't start new thread"
LACKS = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENFILE, "Too many open files in system"),
    RuntimeError(NO_THREAD),
]


@pytest.mark.parametrize("error", LACKS, ids=repr)
def test_what_runs_out_is_refused_for_now(error: Exception) -> None:
    assert exhaustion(error) is not None
    with pytest.raises(Overloaded, match=r"cannot do it for now: no .*retry") as refused:
        refuse_exhausted(error, "the broker cannot do it")
    assert refused.value.is_definite


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ValueError(), RuntimeError("x")])
def test_other_errors_are_no_exhaustion(error: Exception) -> None:
    assert exhaustion(error) is None
    refuse_exhausted(error, "the broker cannot do it")


async def test_a_thread_raises_an_exhaustion_as_an_error_of_the_system() -> None:
    def breaks(error: Exception) -> None:
        raise error

    for lack in LACKS:
        with pytest.raises(OSError):  # noqa: PT011 - any of them, which callers try again
            await in_thread(lambda lack=lack: breaks(lack))
    with pytest.raises(RuntimeError, match="another"):
        await in_thread(lambda: breaks(RuntimeError("another")))
    assert await in_thread(lambda: 1) == 1


async def test_memory_is_returned_again_after_a_time_without_descriptors() -> None:
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    returning = Returning(0.0)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        looks = returning.looks
        while returning.looks < looks + 2:
            await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        returning.stop()
    assert failed == []


LITTLE_MEMORY = """
import resource
from raftlog.errors import CorruptBatch
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records

[batch] = split_batches(build_batch([Record(bytes(15 << 20))], codec=Codec.{codec}, timestamp_ms=0))
read_records(batch)
used = 1024 * int(open("/proc/self/statm").read().split()[0]) * (resource.getpagesize() // 1024)
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)
try:
    kept = [read_records(batch) for _ in range(64)]
except MemoryError:
    print("no memory")
except CorruptBatch as error:
    print("damaged", error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds the memory of a process")
@pytest.mark.parametrize("codec", ["NONE", "ZSTD", "LZ4", "GZIP"])
def test_a_sound_batch_that_there_is_no_memory_to_open_is_not_corrupt(codec: str) -> None:
    program = LITTLE_MEMORY.replace("{codec}", codec)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "no memory\n", done


def test_a_state_machine_that_lacked_memory_has_nothing_to_repair() -> None:
    failed = MachineFailed("the state machine could not apply the batch at 3")
    assert exhaustion(failed) is None
    failed.__cause__ = ValueError("a bug")
    assert exhaustion(failed) is None
    failed.__cause__ = MemoryError()
    assert isinstance(exhaustion(failed), OSError)
