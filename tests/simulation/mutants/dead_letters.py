"""Bugs in the requests about dead letters: which are open, and in which order they are settled."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

SCAN = "tests/unit/api/test_dead_letter_scan.py"
HTTP = "tests/unit/api/test_dead_letters.py"

DEAD_LETTERS = (
    Mutant(
        "a dead letter is open although a later record has its key",
        "api.resources.dead_letter_scan:Scan._take",
        "self._found.pop(digest, None) is not None",
        "digest in self._found",
        script=SCAN,
    ),
    Mutant(
        "a cursor drops the dead letters for which it has no place",
        "api.resources.dead_letter_scan:Cursor.cut",
        "rest=self.found[letters_max][0], ",
        "",
        script=SCAN,
    ),
    Mutant(
        "a scan has no end where records fail again at once",
        "api.resources.dead_letter_scan:Scan._take",
        "self._rest < 0 and stored.offset < self._end",
        "self._rest < 0",
        script=SCAN,
    ),
    Mutant(
        "a record with another key than its origin is a dead letter",
        "api.resources.dead_letter_scan:letter_of",
        "if stored.key != str(letter.origin).encode() or not all(",
        "if not all(",
        script=SCAN,
    ),
    Mutant(
        "a dead letter is settled before its record is in the retry topic",
        "api.resources.dead_letters:_settled",
        "            if retries is not None:\n"
        "                await _redrive(call, retries, letters)\n"
        "            await _settle(call, pages.source, scan, letters, how)\n",
        "            await _settle(call, pages.source, scan, letters, how)\n"
        "            if retries is not None:\n"
        "                await _redrive(call, retries, letters)\n",
        script=HTTP,
    ),
    Mutant(
        "a dead letter that is written during its redrive is lost",
        "api.resources.dead_letters:_settle",
        "while at < receipt.base_offset:",
        "while False:",
        script=HTTP,
    ),
    Mutant(
        "a dry run redrives",
        "api.resources.dead_letters:_settled",
        "if letters and not wanted.dry_run:",
        "if letters:",
        script=HTTP,
    ),
    Mutant(
        "a redriven record keeps its attempts",
        "api.resources.dead_letters:_redrive",
        "replace(each.record, attempts=0, not_before_ms=0)",
        "each.record",
        script=HTTP,
    ),
    Mutant(
        "the client repeats a redrive whose answer was lost",
        "raftlog.client.dead_letters:_settle",
        "may_repeat=body.dry_run",
        "may_repeat=True",
        script="tests/unit/client/test_dead_letters.py",
    ),
)
