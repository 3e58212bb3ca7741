"""Rounds of syncs on Linux: the kernel syncs files, threads do all other work that waits for the disk.

To wake a thread for each round, and the event loop after it, takes a quarter of the CPU time that one record
with its own sync needs. Decides: which work the kernel does. Leaves to others: which syncs are in a round
(``flusher``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial

from raftlog.node.flusher import Errors, RoundEnded, RunSyncs
from raftlog.storage.linux_aio import LinuxAio
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.log_sync import LogSync
from raftlog.storage.os_filesystem import OsFile


class KernelSyncs:
    """Implements ``RunSyncs`` with the kernel. ``threads`` run all works except the sync of a single file."""

    def __init__(self, aio: LinuxAio, threads: RunSyncs) -> None:
        self._aio = aio
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, works: Sequence[DiskWork], ended: RoundEnded) -> None:
        """Begin a whole round; it ends when its last work is done."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._aio.eventfd, self._aio.deliver)
        this_round = _MixedRound(len(works), ended)
        others = []
        for number, work in enumerate(works):
            if not self._is_begun(work, number, this_round):
                others.append(number)
        if others:
            self._threads([works[number] for number in others], partial(this_round.others_ended, others))

    def _is_begun(self, work: DiskWork, number: int, this_round: _MixedRound) -> bool:
        if not isinstance(work, LogSync) or (file := work.begin_alone()) is None:
            return False
        # Not for subclasses of ``OsFile``, whose ``sync`` may differ.
        if type(file) is OsFile and (descriptor := file.begin_sync()) is not None:
            is_begun = self._aio.begin(descriptor, partial(this_round.file_synced, number, work))
            file.end_sync()  # the kernel keeps the file open
            if is_begun:
                return True
        work.end_alone(None)
        return False


class _MixedRound:
    """A round in which some works run on threads."""

    __slots__ = ("_broken", "_ended", "_errors", "_left")

    def __init__(self, works: int, ended: RoundEnded) -> None:
        self._ended = ended
        self._errors: Errors = [None] * works
        self._broken: BaseException | None = None
        self._left = works

    def file_synced(self, number: int, work: LogSync, code: int) -> None:
        """Note that the kernel has finished the sync of one work, with error number ``code``, or 0 for
        success.
        """
        error = OSError(code, os.strerror(code), work.files[0].path) if code else None
        work.end_alone(error)
        self._errors[number] = error
        self._count(1)

    def others_ended(self, numbers: Sequence[int], result: Errors | BaseException) -> None:
        """Note the results of the works that ran on threads."""
        if isinstance(result, BaseException):
            self._broken = result
        else:
            for number, error in zip(numbers, result, strict=True):
                self._errors[number] = error
        self._count(len(numbers))

    def _count(self, ended: int) -> None:
        self._left -= ended
        if not self._left:
            self._ended(self._broken or self._errors)
