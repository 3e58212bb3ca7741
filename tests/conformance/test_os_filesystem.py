"""What the machine's filesystem does when it cannot."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import weakref
from pathlib import Path

import pytest

from raftlog.storage.os_filesystem import OsFilesystem
from tests.helpers.few_descriptors import few_descriptors


def test_an_append_that_the_system_cuts_short_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = OsFilesystem().open(f"{tmp_path}/a", create=True)
    file.append([b"x" * 1000])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        for buffers in ([b"y" * 1000], [b"y" * 300, b"z" * 300, b"w" * 5000]):
            with pytest.raises(OSError, match="too large"):
                file.append(buffers)
            assert (file.size, os.stat(file.path).st_size) == (1000, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.append([b"again"]) == 1000
    assert file.read_at(998, 100) == b"xxagain"
    file.close()


def test_a_file_nobody_holds_any_more_is_closed(tmp_path: Path) -> None:
    file = OsFilesystem().open(f"{tmp_path}/a", create=True)
    descriptor = file.descriptor()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_that_is_being_closed_is_found_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread with a weak reference would write to a descriptor that is gone, or is another file's."""
    found, close = [], os.close
    file = OsFilesystem().open(f"{tmp_path}/a", create=True)
    reference = weakref.ref(file)

    def closed(descriptor: int) -> None:
        found.append(reference())
        close(descriptor)

    monkeypatch.setattr(os, "close", closed)
    del file
    assert found == [None]


def test_a_file_may_be_closed_while_it_is_synced(tmp_path: Path) -> None:
    for turn in range(50):
        file = OsFilesystem().open(f"{tmp_path}/{turn}", create=True)
        file.append([bytes(100_000)])
        thread = threading.Thread(target=file.sync)
        thread.start()
        file.close()
        thread.join()
        file.sync()


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    filesystem = OsFilesystem()
    filesystem.replace_file(f"{tmp_path}/a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            filesystem.replace_file(f"{tmp_path}/a", bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert filesystem.read_file(f"{tmp_path}/a") == b"old"
    assert filesystem.list_directory(str(tmp_path)) == ["a"]


def test_held_files_are_closed_where_descriptors_are_short(tmp_path: Path) -> None:
    filesystem = OsFilesystem(held_files_max=100)
    with few_descriptors(10):
        for number in range(30):
            file = filesystem.open(f"{tmp_path}/{number}", create=True)
            assert filesystem.hold(file)
            del file
            filesystem.replace_file(f"{tmp_path}/replaced", b"new")
            assert len(filesystem.list_directory(str(tmp_path))) == number + 2


def test_thread_that_may_wait_does_so_for_a_descriptor(tmp_path: Path) -> None:
    filesystem = OsFilesystem()
    found: list[bytes] = []
    filesystem.replace_file(f"{tmp_path}/a", b"there")
    with few_descriptors(3):
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        reader = threading.Thread(target=lambda: found.append(filesystem.read_file(f"{tmp_path}/a")))
        reader.start()
        for descriptor in taken:
            os.close(descriptor)
        reader.join()
    assert found == [b"there"]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    filesystem = OsFilesystem()
    os.mkfifo(f"{tmp_path}/pipe")
    for path in (f"{tmp_path}/pipe", os.devnull, "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            filesystem.open(path)
        with pytest.raises(OSError, match="not a regular file"):
            filesystem.read_file(path)
