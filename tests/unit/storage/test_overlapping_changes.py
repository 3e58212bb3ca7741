"""A cut may come between the two parts of another change."""

from __future__ import annotations

import pytest

from raftlog.errors import InvariantViolated
from raftlog.node.group.log_changer import LogChanger
from raftlog.storage.log_storage import LogChange
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.storage_batches import storage_batch
from tests.helpers.synced_logs import log_of


def carried_out(changer: LogChanger) -> None:
    change = changer.begin()
    assert change is not None
    change.run()
    changer.end(None)


@in_virtual_time
async def test_nothing_is_appended_beside_the_second_part_of_a_change() -> None:
    log: SegmentedLog = log_of(FakeFilesystem(), 10)
    changer = LogChanger(log)
    changer.ask(lambda: LogChange(lambda: None, lambda: log.prefix_change(Index(8))))
    first = changer.begin()
    assert first is not None
    first.run()
    log.cut(Index(9))
    changer.end(None)  # the second part is asked for
    carried_out(changer)  # the cut
    assert changer.begin() is not None
    assert log.is_changing
    with pytest.raises(InvariantViolated):
        log.append([storage_batch(9, epoch=2)])
