"""Bugs in what becomes of a group that has broken an invariant."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

HOST = "tests/unit/node/test_broken_invariants.py"
NOTES = "tests/unit/storage/test_broken_groups.py"
MANAGER = "tests/scenarios/partitions/test_broken_groups.py"

BROKEN = (
    Mutant(
        "a group that has broken an invariant is opened again",
        "raftlog.hosting.supervisor:Supervisor._open_log",
        "if broken := self._broken.reasons.get(tenant.group_id):",
        "if False:",
        script=MANAGER,
    ),
    Mutant(
        "the note of a broken replica stays after its files",
        "partitions.hosting.replica_manager:ReplicaManager._delete_permitted",
        "partial(self._broken.forget, hosted.group_id)",
        "int",
        script=MANAGER,
    ),
    Mutant(
        "an invariant that breaks on opening names no group",
        "raftlog.node.group_host:GroupHost.blames",
        "self.fail(error, group)",
        "self.fail(error)",
        script=HOST,
    ),
    Mutant(
        "consequences of a broken invariant break other groups",
        "raftlog.node.group_host:GroupHost.fail",
        "if is_first and group is not None:",
        "if group is not None:",
        script=HOST,
    ),
    Mutant(
        "damage counts as a broken invariant",
        "raftlog.node.group_host:GroupHost.blames",
        "(LogCorrupt, OSError)",
        "OSError",
        script=HOST,
    ),
    Mutant(
        "a damaged note of a broken group is ignored",
        "raftlog.storage.broken_groups:BrokenGroups._reason",
        'return f"it has broken an invariant; {damage}"',
        'return ""',
        script=NOTES,
    ),
)
