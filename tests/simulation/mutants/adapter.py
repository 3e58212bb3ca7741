"""Bugs in the adapter to the machine's filesystem, seen by what its system calls make durable."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

_CALLS = "tests/conformance/test_filesystem_calls.py"
_SUITE = "tests/conformance/test_filesystem.py"
_FILE = "raftlog.storage.os_filesystem:OsFile"
_FILESYSTEM = "raftlog.storage.os_filesystem:OsFilesystem"

ADAPTER = (
    Mutant(
        "a short write of an append counts as complete",
        f"{_FILE}.append",
        "if written != wanted:",
        "if False:",
        script=_CALLS,
    ),
    Mutant(
        "the rest of an append is written at its start",
        f"{_FILE}._append_rest",
        "start + written)",
        "start)",
        script=_CALLS,
    ),
    Mutant(
        "the rest of an append skips a buffer",
        f"{_FILE}._append_rest",
        "skip -= len(rest.pop(0))",
        "skip = 0 * len(rest.pop(0))",
        script=_CALLS,
    ),
    Mutant(
        "the bytes of a failed append stay",
        f"{_FILE}.append",
        "os.ftruncate(self._descriptor, start)",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a short read counts as the end of the file",
        f"{_FILE}.read_at",
        "if len(data) == length or not data:",
        "if True:",
        script=_CALLS,
    ),
    Mutant(
        "a short overwrite counts as complete",
        f"{_FILE}.write_at",
        "view = view[written:]",
        "view = view[len(view) :]",
        script=_CALLS,
    ),
    Mutant(
        "the rest of an overwrite is written at its start",
        f"{_FILE}.write_at",
        "position += written",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a truncated file keeps its size",
        f"{_FILE}.truncate",
        "self._size = size",
        "self._size = max(size, self._size)",
        script=_CALLS,
    ),
    Mutant(
        "a sync does nothing",
        f"{_FILE}.sync",
        "_sync_data(descriptor)",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "an error of a sync is swallowed",
        f"{_FILE}.sync",
        "_sync_data(descriptor)",
        "with contextlib.suppress(OSError): _sync_data(descriptor)",
        script=_CALLS,
    ),
    Mutant(
        "a failed sync is tried again",
        f"{_FILE}.sync",
        "_sync_data(descriptor)",
        "with contextlib.suppress(OSError): _sync_data(descriptor); return\n        _sync_data(descriptor)",
        script=_CALLS,
    ),
    Mutant(
        "an unused file stays open",
        f"{_FILE}.__del__",
        "if not self._closing:",
        "if False:",
        script=_CALLS,
    ),
    Mutant(
        "a file is closed twice",
        f"{_FILE}.close",
        "if not self._closing:",
        "if True:",
        script=_CALLS,
    ),
    Mutant(
        "opening with create truncates an existing file",
        f"{_FILESYSTEM}.open",
        "_OPEN_FLAGS | os.O_CREAT if create",
        "_OPEN_FLAGS | os.O_CREAT | os.O_TRUNC if create",
        script=_CALLS,
    ),
    Mutant(
        "a replacement is renamed before its bytes are synced",
        f"{_FILESYSTEM}.replace_file",
        "file.sync()",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a replacement's name is not synced",
        f"{_FILESYSTEM}.replace_file",
        "self.sync_directory(os.path.dirname(path))",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a replacement is written over the old file",
        f"{_FILESYSTEM}.replace_file",
        'path + ".tmp"',
        "path",
        script=_CALLS,
    ),
    Mutant(
        "a failed replacement leaves a partial file",
        f"{_FILESYSTEM}.replace_file",
        "os.remove(temporary)",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a replacement appends to an old partial file",
        f"{_FILESYSTEM}.replace_file",
        " | os.O_TRUNC",
        "",
        script=_CALLS,
    ),
    Mutant(
        "the name of a new directory is not synced",
        f"{_FILESYSTEM}._make",
        "self.sync_directory(parent)",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "an existing directory counts as durable",
        f"{_FILESYSTEM}._make",
        "if was_there and path in self._named:",
        "if was_there:",
        script=_CALLS,
    ),
    Mutant(
        "a directory that is created again counts as the removed one",
        f"{_FILESYSTEM}._make",
        "if was_there and path in self._named:",
        "if path in self._named:",
        more=(Edit(f"{_FILESYSTEM}.remove_tree", "self._named = {", "_ = {"),),
        script=_CALLS,
    ),
    Mutant(
        "the removal of a directory is not synced",
        f"{_FILESYSTEM}.remove_tree",
        "self.sync_directory(os.path.dirname(path))",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "a sync of a directory syncs the one above",
        f"{_FILESYSTEM}.sync_directory",
        'os.open, path or "."',
        'os.open, os.path.dirname(path) or "."',
        script=_CALLS,
    ),
    Mutant(
        "a sync of a directory leaves it open",
        f"{_FILESYSTEM}.sync_directory",
        "os.close(descriptor)",
        "pass",
        script=_CALLS,
    ),
    Mutant(
        "the third write of an append goes where the second began",
        f"{_FILE}._append_rest",
        "        skip = os.pwritev(self._descriptor, rest[:_BUFFERS_PER_WRITE_MAX], start + written)\n"
        "        written += skip\n",
        "        written += os.pwritev(self._descriptor, rest[:_BUFFERS_PER_WRITE_MAX], start + written)\n",
        script=_SUITE,
    ),
    Mutant(
        "an append hands the system more buffers than it takes",
        f"{_FILE}.append",
        "buffers[:_BUFFERS_PER_WRITE_MAX], start)",
        "buffers, start)",
        script=_SUITE,
    ),
    Mutant(
        "the third piece of a read comes from the place of the second",
        f"{_FILE}.read_at",
        "position + done)",
        "position + len(data))",
        script=_CALLS,
    ),
)
