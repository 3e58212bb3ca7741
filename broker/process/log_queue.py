"""Log lines on their way to standard error, which a thread of its own writes.

Where nobody reads the other end of a pipe, a write to it waits without end. Only that thread does so, and the
broker serves. Decides: how many lines and bytes wait, and that further lines are left out and counted. Leaves
to others: what a line looks like (``logs``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import time
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

LINES_MAX: Final = 5_000  # that wait
LINE_BYTES_MAX: Final = 8 << 20  # of all lines that wait: a line may have a traceback, or names from requests
FLUSH_S: Final = 1.0  # at the end of the process


class LogQueue(QueueHandler):
    """Formats lines and queues them for the file ``descriptor``. Logging never waits for the writing."""

    def __init__(
        self,
        formatter: logging.Formatter,
        descriptor: int,
        lines_max: int = LINES_MAX,
        bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(lines_max)
        super().__init__(self._lines)
        self.setFormatter(formatter)
        self.dropped = 0
        self._untold = 0  # of those that were dropped
        self._bytes_max = bytes_max
        self._queued_bytes = 0  # ever; changed under the lock of the handler
        self._writer = _Writer(self._lines, descriptor)
        self._writer.start()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the lines that wait."""
        return self._queued_bytes - self._writer.taken_bytes

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as dropped; once half of the queue is free, a line says how many."""
        is_half_free = (
            self._lines.qsize() <= self._lines.maxsize // 2 and self.waiting_bytes <= self._bytes_max // 2
        )
        if self._untold and is_half_free:
            untold, self._untold = self._untold, 0
            self._put(self.prepare(_note(untold)))
        self._put(record)

    def _put(self, record: logging.LogRecord) -> None:
        size_bytes = len(_line(record))
        if self.waiting_bytes + size_bytes <= self._bytes_max:
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(record)
                self._queued_bytes += size_bytes
                return
        self.dropped += 1
        self._untold += 1

    def flush(self) -> None:
        """Return once all lines are written, or after a second: ``logging.shutdown`` calls it."""
        deadline = time.monotonic() + FLUSH_S
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.005)


class LogLines(Collector):
    """The metric of the lines that this process has dropped."""

    def collect(self) -> Iterator[Metric]:
        """The current value."""
        handlers = logging.getLogger().handlers
        dropped = sum(handler.dropped for handler in handlers if isinstance(handler, LogQueue))
        yield CounterMetricFamily(
            "raftlog_log_lines_dropped", "Log lines left out, since standard error took no more.", dropped
        )


class _Writer(QueueListener):
    """Writes to a descriptor: handlers and buffered files have locks, for which an exit waits."""

    def __init__(self, lines: queue.Queue[logging.LogRecord], descriptor: int) -> None:
        super().__init__(lines)
        self._descriptor = descriptor
        self.taken_bytes = 0  # ever; changed by the thread of this writer alone

    def handle(self, record: logging.LogRecord) -> None:
        """Write a line. Nothing can be said where standard error is closed."""
        line = _line(record)
        self._write(memoryview(line))
        self.taken_bytes += len(line)

    def _write(self, left: memoryview) -> None:
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                return


def _line(record: logging.LogRecord) -> bytes:
    return f"{record.getMessage()}\n".encode(errors="backslashreplace")


def _note(count: int) -> logging.LogRecord:
    message = "%d log lines were left out here: standard error took no more"
    return logging.LogRecord("raftlog.logs", logging.WARNING, "", 0, message, (count,), None)
