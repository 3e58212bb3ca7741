"""Bugs in archives: what counts, what is replayed, and where the log takes over."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_ARCHIVE = "tests/scenarios/archive/test_archive.py"
_REPLAY = "tests/scenarios/archive/test_archive_replay.py"
_VIEW = "tests/scenarios/archive/test_view.py"
_PACKAGE = "spark_io.archive."


def _mutant(name: str, place: str, text: str, planted: str, script: str) -> Mutant:
    return Mutant(name, _PACKAGE + place, text, planted, script=script)


ARCHIVE = (
    _mutant(
        "a second driver replaces the manifest of a batch",
        "storage:DirectoryStorage.create",
        "os.link(temporary, target)",
        "os.replace(temporary, target)",
        _ARCHIVE,
    ),
    _mutant(
        "offsets are archived twice by two queries",
        "catalogue:commit",
        "archived.check_added(added)",
        "pass",
        _ARCHIVE,
    ),
    _mutant(
        "a gap between files is closed whether or not the log has records there",
        "entries:joined",
        "is_empty.get(gap, False)",
        "True",
        _ARCHIVE,
    ),
    _mutant(
        "a file with another checksum is read",
        "files:read_file",
        "len(data) != entry.bytes or crc32c(data) != entry.crc",
        "len(data) != entry.bytes",
        _ARCHIVE,
    ),
    _mutant(
        "two tasks write the same file",
        "files:write_file",
        "uuid4().hex[:8]",
        '"0"',
        _ARCHIVE,
    ),
    _mutant(
        "a batch whose manifest a generation replaces is archived again",
        "catalogue:manifest_of",
        "return manifest_in(path, storage.read(path))",
        "return None",
        _ARCHIVE,
    ),
    _mutant(
        "a generation hides batches that were committed meanwhile",
        "entries:catalogue_of",
        "if batch > base.through.get(query, -1):",
        "if not base.through:",
        _ARCHIVE,
    ),
    _mutant(
        "a replay that is started again begins at the first record",
        "replaying:_replay_chunks",
        "max(wanted.start, _newest(client, _chunks_of(key)) or 0)",
        "wanted.start",
        _REPLAY,
    ),
    _mutant(
        "a job that began at another offset goes on and leaves records out",
        "replaying:_check_start",
        "if start != wanted.start:",
        "if False:",
        _REPLAY,
    ),
    _mutant(
        "a record that two files have is read twice",
        "entries:Catalogue.pieces",
        "at = end",
        "pass",
        _ARCHIVE,
    ),
    _mutant(
        "a read of both takes files of the log's own offsets",
        "view:divided",
        "min(one.end, log_start)",
        "one.end",
        _VIEW,
    ),
    _mutant(
        "a gap between the archive and the log is not seen",
        "view:_extended",
        "if one.end < start:",
        "if False:",
        _VIEW,
    ),
)
