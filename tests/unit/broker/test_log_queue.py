"""Log lines for a standard error that nobody reads: logging goes on, and what is left out is counted."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from broker.process.log_queue import LINE_BYTES_MAX, LogLines, LogQueue
from broker.process.logs import formatter_of
from raftlog.testing.waits import LIMIT_S, eventually

PIPE_BYTES = 65_536


@contextmanager
def logging_to_a_pipe(
    lines_max: int, bytes_max: int = LINE_BYTES_MAX
) -> Iterator[tuple[logging.Logger, LogQueue, int]]:
    """A logger whose lines go into a pipe, and the end that may be read."""
    read_end, write_end = os.pipe()
    handler = LogQueue(logging.Formatter("%(message)s"), write_end, lines_max, bytes_max)
    logger = logging.Logger("to a pipe")
    logger.addHandler(handler)
    yield logger, handler, read_end
    os.set_blocking(read_end, False)
    read_until(read_end, lambda _: handler._lines.unfinished_tasks == 0)
    os.close(read_end)
    os.close(write_end)


def read_until(read_end: int, is_enough: object) -> list[str]:
    """The lines that come until it is enough."""
    assert callable(is_enough)
    data, deadline = b"", time.monotonic() + LIMIT_S
    while not is_enough(data):
        assert time.monotonic() < deadline, data[-200:]
        try:
            data += os.read(read_end, PIPE_BYTES)
        except BlockingIOError:
            time.sleep(0.005)
    return data.decode().splitlines()


def test_lines_come_in_order_and_whole() -> None:
    with logging_to_a_pipe(1_000) as (logger, handler, read_end):
        for number in range(500):
            logger.info("line %d", number)
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("failed")
        lines = read_until(read_end, lambda data: data.endswith(b"ValueError: why\n"))
        assert lines[:500] == [f"line {number}" for number in range(500)]
        assert lines[500:502] == ["failed", "Traceback (most recent call last):"]
        assert handler.dropped == 0


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time() -> None:
    with logging_to_a_pipe(100) as (logger, handler, read_end):
        line = "x" * 1_000
        count = PIPE_BYTES // len(line) + 1_000
        for _ in range(count):
            logger.info(line)
        os.set_blocking(read_end, False)
        lines = read_until(read_end, lambda _: handler._lines.unfinished_tasks == 0)
        logger.info("after")
        lines += read_until(read_end, lambda data: data.endswith(b"after\n"))
        assert lines[-1] == "after"
        told = [int(each.split()[0]) for each in lines if each.endswith("standard error was blocked")]
        assert sum(told) == handler.dropped > 0
        assert lines.count(line) == count - handler.dropped


def test_lines_that_wait_have_a_bound_in_bytes() -> None:
    bytes_max, line = 100_000, "ä" * 5_000  # of two bytes each
    full = "x" * PIPE_BYTES  # it waits until somebody reads: the pipe has no room for its end
    with logging_to_a_pipe(10_000, bytes_max) as (logger, handler, read_end):
        logger.info(full)
        for _ in range(100):
            logger.info(line)
        logger.info("x" * bytes_max)
        assert bytes_max - 2 * len(line) - 2 < handler.waiting_bytes <= bytes_max
        kept = 102 - handler.dropped
        lines = [full, *[line] * (kept - 1)]
        assert read_until(read_end, lambda data: data.count(b"\n") == kept) == lines
        eventually(lambda: handler.waiting_bytes == 0, what="no line waits")
        logger.info("after")
        told, after = read_until(read_end, lambda data: data.endswith(b"after\n"))
        assert int(told.split()[0]) == handler.dropped
        assert after == "after"


def test_dropped_lines_are_a_metric() -> None:
    with logging_to_a_pipe(1) as (logger, handler, _):
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            [before] = LogLines().collect()
            for _ in range(200):
                logger.info("x" * 1_000)
            [after] = LogLines().collect()
        finally:
            root.removeHandler(handler)
        assert handler.dropped > 0
        assert after.samples[0].value - before.samples[0].value == handler.dropped


BLOCKED = """
import logging
from broker.process.logs import configure_logs

configure_logs("info", 1)
for number in range(20_000):
    logging.getLogger("raftlog.test").info("line %d", number)
print("done", flush=True)
"""


def test_a_process_whose_log_is_blocked_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait(LIMIT_S) == 0
        assert b"line 0'" in process.stderr.readline()


def test_a_json_line_has_the_fields_of_its_event_and_the_traceback() -> None:
    with logging_to_a_pipe(1_000) as (logger, handler, read_end):
        handler.setFormatter(formatter_of("json", 7))
        try:
            raise ValueError("why\nnot")
        except ValueError:
            logger.exception(
                "read %d of\n%s", 3, "5", extra={"topic": "orders", "level": "mine", "path": Path("/a")}
            )
        logger.warning("plain")
        lines = [json.loads(line) for line in read_until(read_end, lambda data: data.count(b"\n") == 2)]
    assert [*lines[0]] == ["time", "level", "broker", "logger", "message", "exception", "topic", "path"]
    assert datetime.fromisoformat(lines[0].pop("time")).tzinfo is not None
    traceback = lines[0].pop("exception")
    assert traceback.startswith("Traceback (most recent call last):")
    assert traceback.endswith("ValueError: why\nnot")
    assert lines[0] == {
        "level": "error",
        "broker": 7,
        "logger": "to a pipe",
        "message": "read 3 of\n5",
        "topic": "orders",
        "path": repr(Path("/a")),
    }
    assert lines[1]["message"] == "plain"
