"""What the machine's filesystem does when it cannot."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from raftlog.storage.os_filesystem import OsFilesystem


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
