"""Which logs are older copies, and which of them are served all the same."""

from __future__ import annotations

import random

import pytest

from raftlog.clock import SystemClock
from raftlog.hosting.opener import LogOpener
from raftlog.storage.replica_progress import Progress, ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import BEFORE_LOG, METADATA_GROUP, Term


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
