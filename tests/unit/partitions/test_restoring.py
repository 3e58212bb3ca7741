"""A state of many rows is decoded beside the event loop, and changes nothing until it is whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from partitions.hosting.hosted_partition import HostedPartition
from partitions.replica.machine import PartitionMachine
from raftlog.errors import MachineFailed
from raftlog.node.computing import DECODED_AT_ONCE_BYTES
from raftlog.node.threads import in_thread
from raftlog.types import Index

# requirement: N2

Result = TypeVar("Result")


class Noted:
    """A derived state that knows on which thread it was decoded."""

    def __init__(self) -> None:
        self.decoded_on: threading.Thread | None = None
        self.value = b""

    def apply(self, entry: object) -> None:
        """Nothing."""

    def snapshot_pieces(self) -> tuple[bytes]:
        """The value."""
        return (self.value,)

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Become the value."""
        if snapshot.startswith(b"damaged"):
            raise ValueError(snapshot)
        self.decoded_on = threading.current_thread()
        return lambda: setattr(self, "value", snapshot)


class Log:
    """A log that has kept a state."""

    is_closed = False

    def __init__(self, state: bytes) -> None:
        self._state = state

    def load_checkpoint(self) -> tuple[Index, bytes]:
        """The state up to index 7."""
        return Index(7), self._state

    def close(self) -> None:
        """Once."""
        assert not self.is_closed
        self.is_closed = True


def replica_of(value: bytes) -> tuple[Noted, HostedPartition, Log]:
    """A replica whose log has kept this value."""
    machine, derived = PartitionMachine(Noted()), Noted()
    cast("Noted", machine.derived).value = value
    log = Log(machine.snapshot())

    async def run_blocking(work: Callable[[], Result]) -> Result:
        return await in_thread(work)

    around = SimpleNamespace(
        may_begin=lambda: True,
        run_blocking=run_blocking,
        opener=SimpleNamespace(open=lambda *_, may_begin: log),
        derive=lambda target: derived,
    )
    topic, partition = SimpleNamespace(name="t"), SimpleNamespace(partition=0, group_id=9)
    return derived, HostedPartition(cast("Any", around), cast("Any", topic), cast("Any", partition)), log


def test_a_large_state_is_decoded_on_another_thread_before_the_replica_takes_part() -> None:
    value = bytes(DECODED_AT_ONCE_BYTES + 1)
    derived, hosted, log = replica_of(value)
    assert asyncio.run(hosted.open_log()) is log
    assert derived.value == value
    assert derived.decoded_on not in (None, threading.main_thread())
    assert hosted._opened is not None
    assert hosted._opened[1].index == 7
    assert not log.is_closed


def test_a_small_state_is_decoded_at_once() -> None:
    derived, hosted, _ = replica_of(b"some")
    asyncio.run(hosted.open_log())
    assert derived.decoded_on is threading.main_thread()


def test_a_log_whose_state_cannot_be_decoded_is_closed() -> None:
    for size in (1, DECODED_AT_ONCE_BYTES):
        _, hosted, log = replica_of(b"damaged" + bytes(size))
        with pytest.raises(MachineFailed, match="restore its state"):
            asyncio.run(hosted.open_log())
        assert log.is_closed


def test_a_machine_stays_as_it_is_until_its_new_state_is_whole() -> None:
    first, second = PartitionMachine(Noted()), PartitionMachine(Noted())
    first.log_start.newest_record = Index(5)
    cast("Noted", first.derived).value = b"new"
    before = second.snapshot()
    become = second.restoring(first.snapshot())
    assert second.snapshot() == before
    parts = second.producers, second.transactions, second.log_start
    become()
    assert second.snapshot() == first.snapshot()
    assert parts == (second.producers, second.transactions, second.log_start), "others refer to these"
