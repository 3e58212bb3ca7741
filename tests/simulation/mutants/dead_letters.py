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
        "if stored.key != letter.id.encode() or not all(",
        "if not all(",
        script=SCAN,
    ),
    Mutant(
        "a dead letter is settled before its record is in the retry topic",
        "api.resources.dead_letters:_settled",
        "            if redriver is not None:\n"
        "                await redriver.redrive(letters)\n"
        "            tombstones = [tombstone(letter.record.id, how) for letter in letters]\n"
        "            await _append(call, pages.source, scan.cursor.partition, tombstones)\n",
        "            tombstones = [tombstone(letter.record.id, how) for letter in letters]\n"
        "            await _append(call, pages.source, scan.cursor.partition, tombstones)\n"
        "            if redriver is not None:\n"
        "                await redriver.redrive(letters)\n",
        script=HTTP,
    ),
    Mutant(
        "the tombstone of a redrive settles the next failure, too",
        "raftlog.records.failures:FailedRecord.redriven",
        "redrives=self.redrives + 1",
        "redrives=self.redrives",
        script="tests/unit/records/test_failures.py",
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
        "raftlog.records.failures:FailedRecord.redriven",
        "attempts=0, ",
        "",
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
