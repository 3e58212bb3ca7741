"""Queues log lines for a thread that writes them to standard error.

A write to a pipe blocks as long as the other end is not read. Only the thread blocks, and the broker
continues to serve. Decides: how many lines and bytes wait in the queue; further lines are dropped and
counted. Leaves to others: the format of a line (``logs``).
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

LINES_MAX: Final = 5_000  # waiting lines
LINE_BYTES_MAX: Final = 8 << 20  # of all waiting lines: a line may have a traceback, or names from requests
FLUSH_S: Final = 1.0  # longest wait at the end of the process


class LogQueue(QueueHandler):
    """Formats log lines and queues them for the thread that writes to the file ``descriptor``. Logging never
    waits for a write.
    """

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
        self._untold = 0  # dropped lines that no line has reported yet
        self._bytes_max = bytes_max
        self._queued_bytes = 0  # total of all lines; changed under the lock of the handler
        self._writer = _Writer(self._lines, descriptor)
        self._writer.start()

    @property
    def waiting_bytes(self) -> int:
        """The total size of the queued lines in bytes."""
        return self._queued_bytes - self._writer.taken_bytes

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as dropped if the queue is full.

        Once half of the queue is free again, a line reports the number of dropped lines.
        """
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
        """Return once all lines are written, or after ``FLUSH_S``; ``logging.shutdown`` calls it."""
        deadline = time.monotonic() + FLUSH_S
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.005)


class LogLines(Collector):
    """Collector of the metric for log lines that this process has dropped."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metric with its current value."""
        handlers = logging.getLogger().handlers
        dropped = sum(handler.dropped for handler in handlers if isinstance(handler, LogQueue))
        yield CounterMetricFamily(
            "raftlog_log_lines_dropped", "Log lines dropped, because standard error was blocked.", dropped
        )


class _Writer(QueueListener):
    """Writes log lines to a descriptor directly, not through a handler or a buffered file: the exit of the
    process would wait for their locks.
    """

    def __init__(self, lines: queue.Queue[logging.LogRecord], descriptor: int) -> None:
        super().__init__(lines)
        self._descriptor = descriptor
        self.taken_bytes = 0  # total; changed by the thread of this writer alone

    def handle(self, record: logging.LogRecord) -> None:
        """Write a line. An error of the write is ignored: if standard error is closed, no error can be
        reported.
        """
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
    message = "%d log lines were dropped here: standard error was blocked"
    return logging.LogRecord("raftlog.logs", logging.WARNING, "", 0, message, (count,), None)
