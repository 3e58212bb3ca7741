"""Format of the broker's log: one line per event, ``key=value`` after the message."""

from __future__ import annotations

import logging
import sys

import structlog

from api.log_queue import LogQueue


def configure_logs(level: str, broker_id: int) -> None:
    """Send all log events to standard error, each line with the broker's id; logging waits for no reader."""

    def add_broker(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["broker"] = broker_id
        return event

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            add_broker,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(
                key_order=["timestamp", "level", "broker", "logger", "event"], drop_missing=True
            ),
        ],
    )
    root = logging.getLogger()
    root.handlers[:] = [LogQueue(formatter, sys.stderr.fileno())]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
