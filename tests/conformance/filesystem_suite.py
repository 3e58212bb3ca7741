"""What every ``Filesystem`` must do."""

from __future__ import annotations

import pytest

from raftlog.storage.filesystem import Filesystem

Place = tuple[Filesystem, str]


class FilesystemSuite:
    """Subclasses have a fixture ``place``: a filesystem, and an empty directory on it."""

    def test_appended_bytes_are_read_back_where_append_said(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        assert file.append([b"one"]) == 0
        assert file.append([b"two", bytearray(b"three"), memoryview(b"four")]) == 3
        assert file.size == 15
        assert file.read_at(3, 8) == b"twothree"
        assert file.read_at(11, 100) == b"four"
        assert file.read_at(99, 1) == b""
        memory = bytearray(b"." * 9)
        assert file.read_into(memoryview(memory)[:8], 3) == 8
        assert memory == b"twothree."
        assert file.read_into(memoryview(memory), 11) == 4
        assert memory == b"fourhree."
        file.close()

    def test_an_append_of_thousands_of_buffers_is_whole(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        buffers = [bytes([number % 256]) * 3 for number in range(5000)]
        assert file.append(buffers) == 0
        assert file.size == 15000
        assert file.read_at(0, 20000) == b"".join(buffers)
        file.close()

    def test_free_bytes_are_a_number_of_bytes(self, place: Place) -> None:
        filesystem, root = place
        assert filesystem.free_bytes(root) > 0

    def test_a_file_opened_again_has_its_bytes_and_size(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.append([b"bytes"])
        file.sync()
        file.close()
        file.close()
        again = filesystem.open(f"{root}/a")
        assert (again.size, again.path) == (5, f"{root}/a")
        assert again.append([b"!"]) == 5
        assert filesystem.read_file(f"{root}/a") == b"bytes!"
        again.close()

    def test_a_missing_file_is_not_created_unasked(self, place: Place) -> None:
        filesystem, root = place
        with pytest.raises(FileNotFoundError):
            filesystem.open(f"{root}/nothing")
        with pytest.raises(FileNotFoundError):
            filesystem.read_file(f"{root}/nothing")
        assert not filesystem.exists(f"{root}/nothing")

    def test_appends_take_the_place_of_zeros_ahead(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.append([b"one"])
        file.fill(10)
        assert file.size == 3
        assert file.append([b"two", b"three"]) == 3
        assert file.size == 11
        again = filesystem.open(f"{root}/a")
        assert again.read_at(0, 100) == b"onetwothree" + bytes(2)
        assert again.size == 13
        again.end_at(11)
        assert (again.size, again.append([b"!"])) == (11, 11)
        assert again.read_at(0, 100) == b"onetwothree!" + bytes(1)
        again.truncate(again.size)
        assert filesystem.open(f"{root}/a").size == 12

    def test_truncate_cuts_and_appends_go_on_there(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.append([b"0123456789"])
        file.truncate(4)
        assert file.size == 4
        assert file.append([b"x"]) == 4
        assert file.read_at(0, 100) == b"0123x"
        file.close()

    def test_write_at_overwrites_in_place(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.write_at(0, b"aaaa")
        file.write_at(1, b"b")
        assert file.read_at(0, 10) == b"abaa"
        assert file.size == 4
        file.close()

    def test_a_closed_file_refuses_use_but_not_a_late_sync(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.close()
        file.sync()
        with pytest.raises(ValueError, match="closed"):
            file.read_at(0, 1)
        with pytest.raises(ValueError, match="closed"):
            file.append([b"x"])

    def test_an_open_file_outlives_its_name(self, place: Place) -> None:
        filesystem, root = place
        file = filesystem.open(f"{root}/a", create=True)
        file.append([b"still here"])
        filesystem.remove(f"{root}/a")
        filesystem.remove(f"{root}/a")
        assert not filesystem.exists(f"{root}/a")
        assert file.read_at(0, 10) == b"still here"
        file.sync()
        file.close()

    def test_replace_file_replaces_and_leaves_nothing_behind(self, place: Place) -> None:
        filesystem, root = place
        filesystem.replace_file(f"{root}/a", b"first")
        filesystem.replace_file(f"{root}/a", b"second")
        assert filesystem.read_file(f"{root}/a") == b"second"
        assert filesystem.list_directory(root) == ["a"]

    def test_directories_are_made_with_parents_listed_and_removed(self, place: Place) -> None:
        filesystem, root = place
        filesystem.make_directories(f"{root}/x/y/z")
        filesystem.make_directories(f"{root}/x/y/z")
        for name in ("b", "a"):
            filesystem.open(f"{root}/x/y/{name}", create=True).close()
        filesystem.sync_directory(f"{root}/x/y")
        assert filesystem.list_directory(f"{root}/x/y") == ["a", "b", "z"]
        assert filesystem.exists(f"{root}/x/y/z")
        filesystem.remove_tree(f"{root}/x")
        filesystem.remove_tree(f"{root}/x")
        assert filesystem.list_directory(root) == []
        assert filesystem.list_directory(f"{root}/x/y") == []

    def test_a_renamed_directory_takes_all_below_it_along(self, place: Place) -> None:
        filesystem, root = place
        filesystem.make_directories(f"{root}/x/y")
        filesystem.make_directories(f"{root}/away")
        filesystem.open(f"{root}/x/y/a", create=True).append([b"bytes"])
        filesystem.open(f"{root}/x/b", create=True).append([b"more"])
        assert filesystem.tree_bytes(f"{root}/x") == 9
        filesystem.rename(f"{root}/x", f"{root}/away/x")
        filesystem.sync_directory(root)
        filesystem.sync_directory(f"{root}/away")
        assert not filesystem.exists(f"{root}/x")
        assert filesystem.tree_bytes(f"{root}/x") == 0
        assert filesystem.list_directory(f"{root}/away/x") == ["b", "y"]
        assert filesystem.read_file(f"{root}/away/x/y/a") == b"bytes"
        filesystem.make_directories(f"{root}/x")
        filesystem.open(f"{root}/x/c", create=True).close()
        with pytest.raises(OSError, match="not empty"):
            filesystem.rename(f"{root}/x", f"{root}/away/x")
        with pytest.raises(FileNotFoundError):
            filesystem.rename(f"{root}/x", f"{root}/nowhere/x")
        assert filesystem.list_directory(f"{root}/x") == ["c"]
