"""What the metadata will be if all is committed that stands in the log."""

from __future__ import annotations

from collections.abc import Sequence

from partitions.metadata.commands import Command, command_batch
from partitions.metadata.image import MetadataImage
from partitions.metadata.log_ahead import image_ahead
from partitions.metadata.machine import encode_image
from raftlog.core.ready import HardState
from raftlog.records.batch import stamp
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, Term
from tests.helpers.metadata_images import applied, create, register

COMMANDS: Sequence[Command] = [register(1), register(2), create("orders", (1, 2)), register(3)]


def log_of(commands: Sequence[Command]) -> MemoryLog:
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    for index, command in enumerate(commands):
        batch = command_batch(command, timestamp_ms=0)
        log.append([stamp(batch.data, base_offset=index, leader_epoch=1, append_time_ms=0)])
    return log


def test_what_is_not_known_to_be_committed_counts() -> None:
    # requirement: F2
    image = image_ahead(log_of(COMMANDS))
    assert {broker.rpc_port for broker in image.brokers.values()} == {9001, 9002, 9003}
    assert {*image.topics} == {"orders"}


def test_it_begins_with_the_newest_state_that_was_kept() -> None:
    log = log_of(COMMANDS)
    kept, _ = applied(register(7), to=MetadataImage())
    change = log.checkpoint_change(Index(2), encode_image(kept))
    assert change is None or change.run() is None
    if change is not None:
        change.finish()
    assert {*image_ahead(log).brokers} == {7, 3}


def test_an_empty_log_names_nobody() -> None:
    assert image_ahead(MemoryLog()) == MetadataImage()
