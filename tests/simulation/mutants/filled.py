"""Bugs in files that are filled ahead with zeros."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_SCRIPT = "tests/unit/storage/test_filled_files.py"
_FILL = "raftlog.storage.segment:Segment._fill"
_WALK = "raftlog.storage.batch_walk"

FILLED = (
    Mutant(
        "zeros at the end of a file are a torn tail",
        f"{_WALK}:walk_file",
        "not is_blank(file, damage.position)",
        "True",
        script=_SCRIPT,
    ),
    Mutant(
        "what begins with a zero counts as nothing",
        f"{_WALK}:is_blank",
        "data.count(0) != len(data)",
        "data[0]",
        script="tests/unit/storage/test_recovery.py",
    ),
    Mutant(
        "a closed segment that was filled ahead is another one",
        f"{_WALK}:ends_at",
        "file.size == size or (file.size > size and is_blank(file, size))",
        "file.size == size",
        script=_SCRIPT,
    ),
    Mutant(
        "a repair takes zeros behind a closed segment for damage",
        "raftlog.repair.verify:_Examiner._read_segments",
        "elif expected != following:",
        "else:",
        script=_SCRIPT,
    ),
    Mutant(
        "a repair that does not know the durable end takes zeros for nothing",
        "raftlog.storage.batch_search:sound_parts",
        "            yield Zeros(file.path, position, file.size, walk.trouble)\n",
        "",
        script=_SCRIPT,
    ),
    Mutant(
        "a file that is opened again goes on behind its zeros",
        "raftlog.storage.segment:Segment._opened",
        "file.end_at(self.size)",
        "pass",
        script=_SCRIPT,
    ),
    Mutant(
        "a log that is opened goes on behind its zeros",
        "raftlog.storage.recovery:_Opening._check_whole",
        "file.end_at(segment.size)",
        "pass",
        script=_SCRIPT,
    ),
    Mutant(
        "an append fails where there is no room for zeros",
        _FILL,
        "except OSError:",
        "except ValueError:",
        script=_SCRIPT,
    ),
    Mutant(
        "a file is filled beyond the size of a segment",
        _FILL,
        ", FILL_BYTES_MAX, limit - end)",
        ", FILL_BYTES_MAX)",
        script=_SCRIPT,
    ),
    Mutant(
        "a file is filled without a bound",
        _FILL,
        ", FILL_BYTES_MAX, limit - end)",
        ", limit - end)",
        script=_SCRIPT,
    ),
    Mutant(
        "a file is filled at its first append",
        _FILL,
        "self._appends > _FILL_AFTER and length > 0",
        "length > 0",
        script=_SCRIPT,
    ),
    Mutant(
        "large appends fill their file, too",
        "raftlog.storage.segment:Segment.append",
        " and size_bytes <= FILL_FOR_BYTES_MAX",
        "",
        script=_SCRIPT,
    ),
    Mutant(
        "zeros that were cut off with a suffix still count",
        "raftlog.storage.segment:Segment.reopen",
        "self._filled = 0",
        "pass",
        script=_SCRIPT,
    ),
    Mutant(
        "garbage behind a whole segment costs the segments that follow",
        "raftlog.storage.recovery:_Opening._check",
        "damage is not None and expected != following",
        "damage is not None",
        script=_SCRIPT,
    ),
    Mutant(
        "garbage behind a closed segment keeps its index from being built",
        "raftlog.storage.recovery:_Opening._rebuild",
        ", last=following - 1",
        "",
        script=_SCRIPT,
    ),
    Mutant(
        "an orderly end leaves zeros",
        "raftlog.storage.segmented_log:SegmentedLog._close",
        "active.end_fill()",
        "pass",
        script=_SCRIPT,
    ),
)
