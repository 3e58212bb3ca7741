"""Bugs in what makes delayed messages and readers of rare tags cheap."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

DIRECTORY = "tests/unit/records/test_tag_directory.py"
READS = "tests/unit/api/test_broker_delays.py"
AHEAD = "tests/unit/delayed/test_read_ahead.py"
RECENT = "tests/unit/delayed/test_recent.py"
COPIES = "tests/unit/delayed/test_snapshot_copies.py"

ACCURACY = (
    Mutant(
        "compressed records with a rare tag share runs with others",
        "raftlog.records.tag_directory:_worth_compressing",
        "if run.tags in rare or before.tags in rare:",
        "if False:",
        script=DIRECTORY,
    ),
    Mutant(
        "the neighbour behind a compressed record with a rare tag shares its run",
        "raftlog.records.tag_directory:_worth_compressing",
        "if run.tags in rare or before.tags in rare:",
        "if run.tags in rare:",
        script=DIRECTORY,
    ),
    Mutant(
        "all tags of a compressed batch count as rare",
        "raftlog.records.tag_directory:_rare_sets",
        "if left < 0:",
        "if False:",
        script=DIRECTORY,
    ),
    Mutant(
        "each move of delayed messages reads its batch again",
        "delayed.read_ahead:ReadAhead.keep",
        "if epoch is None or self._epoch_of.get(partition) != epoch:",
        "if True:",
        script=READS,
    ),
    Mutant(
        "a read of delayed messages that began in an earlier epoch is kept",
        "delayed.read_ahead:ReadAhead.keep",
        "self._epoch_of.get(partition) != epoch",
        "partition not in self._epoch_of",
        script=AHEAD,
    ),
    Mutant(
        "a leader of delayed messages delivers what it has read in an earlier epoch",
        "delayed.read_ahead:ReadAhead.begin",
        "self._records.pop(partition, None)",
        "if self._records.get(partition):\n        return",
        script=READS,
    ),
    Mutant(
        "a coordinator of delayed messages does not say that its epoch has begun",
        "delayed.coordinator:DelayedCoordinator.leads",
        "self._delivery.begin(self._partition, is_led=log is not None)",
        "pass",
        script="tests/unit/delayed/test_coordinator_moves.py",
    ),
    Mutant(
        "what is read ahead of delayed messages has no limit",
        "delayed.read_ahead:ReadAhead.keep",
        "while self._bytes > self._bytes_max:",
        "while False:",
        script=AHEAD,
    ),
    Mutant(
        "a replica remembers for ever how delayed messages left",
        "delayed.recent:Recent.forget_before",
        "left[order[0]].at_ms + RECENT_MS <= at_ms",
        "False",
        script=RECENT,
    ),
    Mutant(
        "a snapshot of delayed messages is copied twice",
        "delayed.state:DelayedState.snapshot_pieces",
        "return [_HEAD.pack(SNAPSHOT_VERSION, len(head)), head, *self.waiting.columns()]",
        "return [b''.join((_HEAD.pack(SNAPSHOT_VERSION, len(head)), head, *self.waiting.columns()))]",
        script=COPIES,
    ),
)
