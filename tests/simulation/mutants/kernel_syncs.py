"""Bugs in the syncs of files without a thread. Simulated brokers sync them in the same cases."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_SYNCS = "tests/scenarios/node/test_kernel_syncs.py"
_ALONE = "raftlog.storage.log_sync:LogSync.begin_alone"
_AIO = "raftlog.storage.linux_aio:LinuxAio"
_KERNEL = "raftlog.node.kernel_syncs"

KERNEL_SYNCS = (
    Mutant(
        "a file is synced in place of a vote",
        _ALONE,
        "self._state.is_dirty or ",
        "",
    ),
    Mutant(
        "a file is synced in place of its name",
        _ALONE,
        "self.names_changed or self._notes_end or self._epochs is not None or ",
        "self._notes_end or ",
    ),
    Mutant(
        "one file is synced in place of two",
        _ALONE,
        "len(self.files) != 1",
        "not self.files",
        equivalent="there is a second file only after the first was closed: its name and epochs are due",
    ),
    Mutant(
        "the durable end is never noted where a file is synced alone",
        _ALONE,
        "self._notes_end or ",
        "",
        script=_SYNCS,
    ),
    Mutant(
        "a file is synced while its log waits for the disk",
        "raftlog.storage.log_sync:SyncFailure.try_begin",
        "if not self._turn.acquire(blocking=False):\n        return False",
        "self._turn.acquire(blocking=False)",
        script=_SYNCS,
    ),
    Mutant(
        "a file is synced again after a failure",
        "raftlog.storage.log_sync:SyncFailure.try_begin",
        "if self.happened:",
        "if False:",
        script=_SYNCS,
    ),
    Mutant(
        "a log may be synced again although the kernel has failed to",
        f"{_KERNEL}:_MixedRound.file_synced",
        "work.end_alone(error)",
        "work.end_alone(None)",
        script=_SYNCS,
    ),
    Mutant(
        "an error of the kernel's sync is swallowed",
        f"{_KERNEL}:_MixedRound.file_synced",
        "self._errors[number] = error",
        "pass",
        script=_SYNCS,
    ),
    Mutant(
        "an error on a thread is reported to another of the round",
        f"{_KERNEL}:_MixedRound.others_ended",
        "self._errors[number] = error",
        "self._errors[-1 - number] = error",
        script=_SYNCS,
    ),
    Mutant(
        "a round ends with its first sync",
        f"{_KERNEL}:_MixedRound._count",
        "if not self._left:",
        "if True:",
        script=_SYNCS,
    ),
    Mutant(
        "a log waits for ever for a sync that the kernel did not take",
        f"{_KERNEL}:KernelSyncs._is_begun",
        "work.end_alone(None)",
        "pass",
        script=_SYNCS,
    ),
    Mutant(
        "a file that was closed while it was synced stays open",
        f"{_KERNEL}:KernelSyncs._is_begun",
        "file.end_sync()",
        "pass",
        script=_SYNCS,
    ),
    Mutant(
        "a file that syncs in a way of its own is synced by the kernel",
        f"{_KERNEL}:KernelSyncs._is_begun",
        "type(file) is OsFile",
        "isinstance(file, OsFile)",
        script=_SYNCS,
    ),
    Mutant(
        "a place of the kernel is used once",
        f"{_AIO}.deliver",
        "self._free.append(slot)",
        "pass",
        script=_SYNCS,
    ),
    Mutant(
        "a sync that the kernel did not take counts as begun",
        f"{_AIO}.begin",
        "return False\n    self._free.pop()",
        "pass\n    self._free.pop()",
        script=_SYNCS,
    ),
)
