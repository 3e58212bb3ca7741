"""Defaults that follow from the memory of the machine, in a process of its own with a limit."""

# requirement: N2

from __future__ import annotations

import subprocess
import sys

import pytest

SHOW = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({0}, {0}))
from broker.process.memory import memory_bytes
from broker.settings import Groups, QueueSettings, TransactionSettings
groups, queues, transactions = Groups(), QueueSettings(), TransactionSettings(state_bytes_max=99 << 20)
print(memory_bytes(), groups.state_bytes_max, queues.open_jobs_bytes_max, transactions.state_bytes_max,
      transactions.keys_bytes_max)
"""


@pytest.mark.parametrize(
    ("memory_mib", "expected_mib"), [(1024, (64, 128, 99, 128)), (200, (16, 25, 99, 25))]
)
def test_defaults_are_parts_of_the_memory(memory_mib: int, expected_mib: tuple[int, ...]) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW.format(memory_mib << 20)], capture_output=True, text=True, check=True
    )
    assert [int(word) for word in shown.stdout.split()] == [
        size << 20 for size in (memory_mib, *expected_mib)
    ]
