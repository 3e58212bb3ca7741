"""Which logs are older copies, and which of them are served all the same."""

from __future__ import annotations

import random

import pytest

from raftlog.clock import SystemClock
from raftlog.hosting.opener import LogOpener, make_durable
from raftlog.storage.replica_progress import Progress, ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import BEFORE_LOG, METADATA_GROUP, GroupId, Term
from tests.helpers.log_files import DIRECTORY

FIVE = GroupId(5)


# requirement: F6
@pytest.mark.parametrize("is_only", [True, False])
def test_only_a_note_of_this_disk_says_that_a_replica_is_alone(*, is_only: bool) -> None:
    filesystem = FakeFilesystem()
    registry = ReplicaRegistry.open(filesystem, "/data", random.Random(1))
    progress = ReplicaProgress.open(filesystem, "/data")
    opener = LogOpener(filesystem, "/data", SystemClock(), registry, progress)
    assert not opener.was_only(METADATA_GROUP)
    registry.add([METADATA_GROUP])
    progress.keep({METADATA_GROUP: Progress(Term(1), None, BEFORE_LOG, is_only)}, registry.groups)
    assert opener.was_only(METADATA_GROUP) == is_only
    registry.begin_again(random.Random(2))
    assert not opener.was_only(METADATA_GROUP)


# requirement: F6
def test_a_replica_whose_folder_is_gone_rejoins_although_its_progress_was_never_noted() -> None:
    filesystem = FakeFilesystem()
    registry = ReplicaRegistry.open(filesystem, "/data", random.Random(1))
    progress = ReplicaProgress.open(filesystem, "/data")
    opener = LogOpener(filesystem, "/data", SystemClock(), registry, progress)

    def rejoins() -> bool:
        log = opener.open(FIVE, DIRECTORY, LogSettings(), is_rejoining=False, is_only=lambda: False)
        make_durable(log)
        log.close()
        return log.durable_hard_state.is_rejoining

    assert not rejoins()
    registry.add([FIVE])
    assert not rejoins()
    filesystem.remove_tree(DIRECTORY)
    assert rejoins()
