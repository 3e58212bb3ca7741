"""A snapshot of many pending messages is copied once on the event loop, and once where it is stored.

A copy of a million messages, 41 MB, takes tens of milliseconds in which the broker does nothing else.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from delayed.pending import Waiting
from delayed.state import DelayedState
from partitions.replica.machine import PartitionMachine
from raftlog.storage.sealed import seal
from tests.helpers.decided_delays import id_of
from tests.helpers.instant_delays import instant_coordinator
from tests.helpers.virtual_time import VirtualClock

# requirement: A3

COUNT = 20_000


def peak_bytes(make: Callable[[], bytes]) -> tuple[bytes, int]:
    """What it makes, and the most memory that was allocated meanwhile."""
    tracemalloc.start()
    try:
        made = make()
        return made, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_columns_are_copied_once_into_the_state_of_the_replica() -> None:
    coordinator = instant_coordinator(VirtualClock())
    for number in range(COUNT):
        coordinator.state.waiting.put(id_of(number), Waiting(number, number, 200, "orders", number % 6))
    machine = PartitionMachine(coordinator)
    snapshot, peak = peak_bytes(machine.snapshot)
    assert len(snapshot) > 40 * COUNT
    assert peak < 1.25 * len(snapshot), "1,500 columns and their heads take some more"
    restored = DelayedState()
    restored.restore(coordinator.snapshot())
    assert restored.snapshot() == coordinator.snapshot()
    assert snapshot.endswith(coordinator.snapshot())


def test_the_state_is_copied_once_into_its_file() -> None:
    state = bytes(1 << 20)
    sealed, peak = peak_bytes(lambda: seal(b"RLC2", b"head", state))
    assert sealed.startswith(b"RLC2head")
    assert peak < 1.1 * len(sealed)
