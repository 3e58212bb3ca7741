"""The memory of large reads: used again by the next one, returned to the system when there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from broker.process.freed_memory import GROWN_BYTES
from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.real_cluster import create_topic, eventually, records_path, settled

pytestmark = pytest.mark.e2e

MIB = 1 << 20
PAGE_BYTES = 4096
HEAP_BYTES = 64 * MIB
WARM_UP, READS, READ_BYTES = 3, 20, 4 * MIB


def page_faults(pid: int) -> int:
    """Pages that a process was given so far, without those read from a disk."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7])


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def further_heaps(pid: int) -> list[int]:
    """Addresses of the heaps that glibc made for some threads only: ``malloc_trim`` returns them in part.

    Each reserves the 64 MiB from a multiple of 64 MiB on, of which the first part can be written.
    """
    ranges = [line.split()[:2] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    parts = [(*(int(address, 16) for address in addresses.split("-")), mode) for addresses, mode in ranges]
    return [
        start
        for (start, _, mode), (_, end, rest_mode) in pairwise(parts)
        if start % HEAP_BYTES == 0 and end == start + HEAP_BYTES and (mode, rest_mode) == ("rw-p", "---p")
    ]


def test_all_threads_share_a_heap(unbroken: Cluster) -> None:
    # requirement: L7
    assert [further_heaps(unbroken.pid(broker)) for broker in unbroken.running] == [[], [], []]


def test_large_reads_use_memory_again_and_leave_none_behind(unbroken: Cluster) -> None:
    # requirement: L7
    create_topic(unbroken.urls[0], "large", 1)
    leader = unbroken.leader("large", 0)
    url, pid = unbroken.url(leader), unbroken.pid(leader)
    batch = build_batch([Record(b"x" * 1024)] * 1000, codec=Codec.NONE, timestamp_ms=0)
    for _ in range(5):
        answer = settled(url, "POST", records_path("large"), batch, {"Content-Type": media_types.BATCH})
        assert answer.status == 200, answer

    def read() -> None:
        path = f"{records_path('large')}?offset=0&max_bytes={READ_BYTES}"
        found = settled(url, "GET", path, headers={"Accept": media_types.BATCH})
        assert found.status == 200
        assert READ_BYTES - MIB * 2 < len(found.body) <= READ_BYTES

    before = resident_bytes(pid)
    for _ in range(WARM_UP):
        read()

    def fresh_bytes() -> int:
        """New pages for some reads. Between two that are seconds apart, a broker returns its memory."""
        faults = page_faults(pid)
        for _ in range(READS):
            read()
        return (page_faults(pid) - faults) * PAGE_BYTES

    eventually(lambda: fresh_bytes() < READS * READ_BYTES / 4, what="reads that use memory again")
    # Growth by less is not returned. Threads and caches of the first reads stay, too: two megabytes.
    kept_max = before + GROWN_BYTES + 2 * MIB

    def grow(readers: ThreadPoolExecutor) -> bool:
        """Read in all threads at the same time; tell whether the broker keeps more memory than it may."""
        for ended in [readers.submit(read) for _ in range(READS)]:
            ended.result()
        return resident_bytes(pid) > kept_max

    with ThreadPoolExecutor(4) as readers:
        eventually(partial(grow, readers), what="freed memory of reads at the same time")
    eventually(lambda: resident_bytes(pid) <= kept_max, what="the memory is returned")
