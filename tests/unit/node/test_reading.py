"""What is read from a log, and where it begins."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.node.reading import read_batches
from raftlog.records.batch import parse_header
from raftlog.records.compaction import gap_batch
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index
from tests.helpers.log_files import append, log_with, sync


@pytest.mark.parametrize("first", range(12))
def test_a_read_that_begins_inside_a_gap_batch_has_nothing_below(first: int) -> None:
    log = log_with(FakeFilesystem(), 2)
    log.append([gap_batch(2, 9, 1, None)])
    append(log, 2)
    sync(log)
    found = asyncio.run(read_batches(log, Index(first), log.last_index, bytes_max=10_000))
    assert parse_header(found.data).base_offset == first
    assert found.last == log.last_index
