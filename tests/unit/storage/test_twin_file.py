"""What is kept twice survives the loss of either file, and tells the loss of both."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost

FILES = ("/data/name", "/data/name.twin")

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-2],
    "a flipped digit": lambda data: data.replace(b"second", b"secone"),
    "a flipped number": lambda data: data.replace(b"[1,", b"[7,"),
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: b"\xff\n\n\n" + data,
}


def kept(*values: str) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    for value in values:
        twin_file.keep(filesystem, "/data", "name", value)
    return filesystem


def load(filesystem: FakeFilesystem) -> str | None:
    return twin_file.load(filesystem, "/data", "name", str)


def damaged(filesystem: FakeFilesystem) -> list[str]:
    return twin_file.damaged(filesystem, "/data", "name")


def test_the_newest_value_is_found_and_nothing_where_nothing_was_kept() -> None:
    assert load(kept()) is None
    assert load(kept("first", "second")) == "second"
    assert damaged(kept()) == damaged(kept("first", "second")) == []


# requirement: F6
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("path", FILES)
def test_damage_to_one_file_is_seen_and_repaired_from_the_other(path: str, damage: Damage) -> None:
    filesystem = kept("first", "second")
    whole = filesystem.read_file(path)
    filesystem.overwrite(path, damage(whole))
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"
    assert filesystem.read_file(path) == whole
    assert damaged(filesystem) == []


@pytest.mark.parametrize("path", FILES)
def test_an_older_copy_that_comes_back_loses(path: str) -> None:
    filesystem = kept("first")
    older = filesystem.read_file(path)
    twin_file.keep(filesystem, "/data", "name", "second")
    filesystem.overwrite(path, older)
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"


def test_a_file_of_another_name_does_not_pass_for_this_one() -> None:
    filesystem = kept("first")
    twin_file.keep(filesystem, "/data", "other", "intruder")
    twin_file.keep(filesystem, "/data", "other", "newer intruder")
    filesystem.overwrite(FILES[0], filesystem.read_file("/data/other"))
    assert load(filesystem) == "first"


def test_the_loss_of_both_is_told() -> None:
    filesystem = kept("first")
    for path in FILES:
        filesystem.flip_bit(path, 5)
    assert damaged(filesystem) == list(FILES)
    with pytest.raises(LogCorrupt, match="/data/name and its twin are damaged"):
        load(filesystem)


# requirement: F6
@pytest.mark.parametrize("path", FILES)
def test_a_file_that_the_disk_cannot_read_is_written_again(path: str) -> None:
    filesystem = kept("first", "second")
    filesystem.fails_read = lambda read: read == path
    assert damaged(filesystem) == [path]
    assert load(filesystem) == "second"
    filesystem.fails_read = lambda read: False
    assert damaged(filesystem) == []


def test_two_files_that_the_disk_cannot_read_are_no_loss_of_both() -> None:
    filesystem = kept("first")
    filesystem.fails_read = lambda read: True
    with pytest.raises(OSError, match="fails on purpose") as raised:
        load(filesystem)
    assert raised.value.errno == errno.EIO
    with pytest.raises(OSError, match="fails on purpose"):
        twin_file.keep(filesystem, "/data", "name", "second")
    filesystem.fails_read = lambda read: False
    assert load(filesystem) == "first"


def test_a_full_disk_leaves_the_damage_and_gives_the_value() -> None:
    filesystem = kept("first")
    filesystem.overwrite(FILES[1], None)
    filesystem.capacity_bytes = filesystem.used_bytes
    assert load(filesystem) == "first"
    assert damaged(filesystem) == [FILES[1]]


def test_a_power_loss_between_the_two_writes_leaves_the_new_value_or_the_old_one() -> None:
    for operation in range(1, 12):
        filesystem = kept("first")
        filesystem.crash_after_changes = operation
        with contextlib.suppress(PowerLost):
            twin_file.keep(filesystem, "/data", "name", "second")
        filesystem.lose_power(random.Random(operation))
        assert load(filesystem) in ("first", "second")
        assert damaged(filesystem) == []
