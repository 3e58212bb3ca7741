"""Freed memory is returned to the system, whenever the checks happen."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAK = """
import asyncio, mmap
from pathlib import Path
from broker.process.freed_memory import Returning, use_again

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE >> 20

async def looks(returning, count):
    wanted = returning.looks + count
    while returning.looks < wanted:
        await asyncio.sleep(0.01)

async def main():
    use_again()
    returning = Returning(0.01)
    await looks(returning, 5)
    before = resident_mib()
    blocks = [bytearray(1 << 20) for _ in range(100)]
    above = [bytearray(100 << 10) for _ in range(5)]  # glibc returns by itself what is free above them
    await looks(returning, 5)  # returns nothing: all is in use
    assert resident_mib() - before >= 100
    blocks.clear()
    for _ in range(100):
        await looks(returning, 5)
        if resident_mib() - before < 10:
            print("returned")
            break
    returning.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_that_was_in_use_during_a_return_is_returned_afterwards() -> None:
    shown = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert shown.stdout == "returned\n"
