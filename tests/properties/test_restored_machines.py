"""A state machine that is restored from a snapshot goes on as the one that was snapshotted.

Both apply the same entries afterwards, and are compared by all that they show, not by snapshots alone: a
snapshot may lack what it should have, or have it in another order. What may only rise is watched meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

import pytest

from delayed.requests import Cancel, Reschedule, When
from delayed.state import DelayedState
from groups.records import KINDS as GROUP_KINDS
from groups.state import GroupsState
from partitions.metadata.commands import AllocateProducerIds, Command, DeleteTopic, FenceBroker, command_batch
from partitions.metadata.machine import MetadataMachine
from partitions.replica.machine import PartitionMachine
from partitions.replica.producer_table import ProducerTable
from raftlog.hosting.budget import Usage
from raftlog.hosting.keyed_records import KeyedRecords
from raftlog.records.batch import Batch, Codec, split_batches, stamp
from raftlog.records.builder import build_batch, with_producer
from raftlog.records.control import (
    Archived,
    Marker,
    Seal,
    archived_batch,
    log_start_batch,
    marker_batch,
    seal_batch,
)
from raftlog.types import NodeId
from tests.helpers.decided_delays import Coordinator as DelayedCoordinator
from tests.helpers.decided_delays import add, id_of, new
from tests.helpers.metadata_images import create, meant, register
from tests.helpers.orders import batch_of
from tests.helpers.queue_crowd import Crowd, one_step
from tests.helpers.transaction_world import TransactionWorld
from tests.helpers.worked_off import WorkedOff
from transactions.outputs import Row
from transactions.records import KINDS as TRANSACTION_KINDS
from transactions.state import TransactionsState

SEEDS: Final = 5
RESTORED: Final = 0.1  # of the entries are followed by a restart
PRODUCERS: Final = 6


class Machine(Protocol):
    """What all state machines have."""

    def apply(self, entry: Batch) -> object:
        """Take in one committed batch."""

    def snapshot(self) -> bytes:
        """The whole state."""

    def restore(self, snapshot: bytes) -> None:
        """Become this state."""


# What a machine shows.


def shown(state: object) -> dict[str, object]:
    """All public values of a state, properties too."""
    names = [name for name in dir(type(state)) + list(vars(state)) if not name.startswith("_")]
    found = {name: getattr(state, name) for name in sorted(set(names))}
    return {name: plain(value) for name, value in found.items() if not callable(value)}


def plain(value: object) -> object:
    """A value that can be compared. A dict has no order here, all else has."""
    match value:
        case Usage():
            return value.total, dict(value._of)
        case ProducerTable():
            return [(producer, value.get(producer)) for producer in value]
        case dict():
            return dict(value)
        case Mapping():
            return dict(value), [*value] if len(value) < 1_000 else ()
    if type(value).__module__.startswith("partitions.replica") and hasattr(value, "__dict__"):
        return shown(value)
    return [*value] if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else value


def rising(state: object) -> tuple[int, ...]:
    """What never falls while entries are applied, also when the state is restored in between."""
    if not isinstance(state, PartitionMachine):
        return ()
    return (
        state.transactions.known_from,
        state.log_start.offset,
        state.log_start.newest_record,
        state.sealed.newest.version,
    )


# Entries.


def stamped(data: bytes | memoryview, offset: int, stamp_ms: int | None = None) -> Batch:
    """A batch as its leader appends it."""
    batch = stamp(bytearray(data), base_offset=offset, leader_epoch=1, append_time_ms=stamp_ms)
    return split_batches(batch.data)[0]


def of_a_partition(rng: Random) -> Iterator[Batch]:
    """Transactions, plain batches and control entries; leaders know different log starts."""
    epochs, sequences = dict.fromkeys(range(PRODUCERS), 0), dict.fromkeys(range(PRODUCERS), 0)
    for offset in range(120):
        producer = rng.randrange(PRODUCERS)
        epoch, choice = epochs[producer], rng.random()
        if choice < 0.55:
            data = with_producer(
                batch_of(b"value"), producer, epoch, sequences[producer], in_transaction=rng.random() < 0.8
            )
            sequences[producer] += 1
            yield stamped(data, offset, 1_000 + offset)
            continue
        if choice < 0.8:
            marker = Marker(producer, epoch, rng.random() < 0.5, 1, rng.randrange(offset + 1))
            epochs[producer], sequences[producer] = epoch + 1, 0
            control = marker_batch(marker, timestamp_ms=1)
        elif choice < 0.88:
            control = log_start_batch(rng.randrange(offset + 1), timestamp_ms=1)
        elif choice < 0.94:
            control = archived_batch(Archived(rng.randrange(offset + 1), rng.random() < 0.2), timestamp_ms=1)
        else:
            control = seal_batch(Seal(rng.random() < 0.5, rng.randrange(9)), timestamp_ms=1)
        yield stamped(control.data, offset)


def of_rows(kinds: KeyedRecords[Any, Any], written: Iterable[tuple[Any, ...]]) -> Iterator[Batch]:
    """The batches of an internal topic."""
    offset = 0
    for rows in written:
        records = [kinds.record_of(*row) for row in rows]
        yield stamped(build_batch(records, codec=Codec.NONE, timestamp_ms=1), offset, 1)
        offset += len(records)


class Written(TransactionWorld):
    """Keeps what is committed."""

    def __init__(self, seed: int) -> None:
        self.written: list[tuple[Row, ...]] = []
        super().__init__(seed)

    def _committed(self, rows: tuple[Row, ...]) -> None:
        self.written.append(rows)
        super()._committed(rows)


def of_transactions(rng: Random) -> Iterator[Batch]:
    """What a coordinator of transactions writes."""
    world = Written(rng.randrange(1 << 20))
    world.run(600)
    return of_rows(TRANSACTION_KINDS, world.written)


def of_groups(rng: Random) -> Iterator[Batch]:
    """What a coordinator of groups writes that work off a topic."""
    mail = WorkedOff(2)
    crowd = Crowd(mail, rng, is_ordered=rng.random() < 0.5, clocks_differ=False)
    for _ in range(200):
        one_step(crowd)
    return of_rows(GROUP_KINDS, mail.written)


def of_delays(rng: Random) -> Iterator[Batch]:
    """What a coordinator of delayed messages writes."""
    coordinator = DelayedCoordinator()
    for number in range(80):
        topic = rng.choice(("orders", "mail"))
        coordinator.ask(add(new(number, delay_ms=rng.randrange(5_000)), topic=topic))
        id_ = id_of(rng.randrange(number + 1))
        if rng.random() < 0.3:
            coordinator.ask(rng.choice((Cancel(id=id_), Reschedule(id=id_, when=When(delay_ms=900)))))
        coordinator.advance(rng.choice((1, 100, 60_000)))
        if rng.random() < 0.7:
            coordinator.deliver()
        elif coordinator.moves and rng.random() < 0.5:
            move = coordinator.moves.pop()
            coordinator.decisions.refused(
                move, "gone", is_gone=True, now_ms=coordinator.wall_ms, wall_ms=coordinator.wall_ms
            )
            coordinator.commit()
    return iter(coordinator._log)


def of_metadata(rng: Random) -> Iterator[Batch]:
    """Commands of any controller."""
    machine = MetadataMachine()
    for offset in range(80):
        name, broker = rng.choice("abc"), rng.randrange(1, 5)
        row = tuple(rng.sample(range(1, 5), 3))
        commands: tuple[Command, ...] = (
            register(broker, rack=rng.choice((None, "r"))),
            create(name, row, number=offset),
            DeleteTopic(name),
            AllocateProducerIds(10),
            FenceBroker(NodeId(broker), "first"),
        )
        command = meant(rng.choice(commands), machine.image)
        batch = stamped(command_batch(command, timestamp_ms=1).data, offset)  # type: ignore[arg-type]
        machine.apply(batch)
        yield batch


@dataclass(frozen=True)
class Kind:
    """A kind of state machine, and entries for it."""

    new: Callable[[], Machine]
    entries: Callable[[Random], Iterator[Batch]]


KINDS: Final = {
    "partition": Kind(PartitionMachine, of_a_partition),
    "transactions": Kind(TransactionsState, of_transactions),
    "groups": Kind(GroupsState, of_groups),
    "delayed": Kind(DelayedState, of_delays),
    "metadata": Kind(MetadataMachine, of_metadata),
}


def restored(kind: Kind, machine: Machine) -> Machine:
    """A replica that begins with this snapshot."""
    twin = kind.new()
    twin.restore(machine.snapshot())
    return twin


# requirement: D3
@pytest.mark.parametrize("name", KINDS)
def test_a_restored_machine_goes_on_as_the_one_that_was_snapshotted(name: str) -> None:
    kind, entries_seen = KINDS[name], 0
    for seed in range(SEEDS):
        rng = Random(seed)
        machine, twin = kind.new(), kind.new()
        for number, entry in enumerate(kind.entries(rng)):
            before = rising(twin)
            machine.apply(entry)
            twin.apply(entry)
            if rng.random() < RESTORED:
                twin = restored(kind, twin)
            where = f"seed {seed}, entry {number}"
            assert shown(twin) == shown(machine), where
            assert twin.snapshot() == machine.snapshot(), where
            assert all(old <= now for old, now in zip(before, rising(twin), strict=True)), where
            entries_seen += 1
    assert entries_seen > 30 * SEEDS
