"""Formats the broker's log: one line per event, as text or as a JSON object.

A line of text ends with ``key=value`` pairs after the message. A JSON object has ``time``, ``level``,
``broker``, ``logger``, ``message``, ``exception`` and the fields that the log call passes as ``extra``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import structlog

from broker.process.log_queue import LogQueue

LogFormat = Literal["text", "json"]


def configure_logs(level: str, broker_id: int, log_format: LogFormat = "text") -> None:
    """Send all log events to standard error, each line with the broker's id.

    Logging never waits for a reader.
    """
    root = logging.getLogger()
    root.handlers[:] = [LogQueue(formatter_of(log_format, broker_id), sys.stderr.fileno())]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def formatter_of(log_format: LogFormat, broker_id: int) -> logging.Formatter:
    """Create the formatter of log lines for one broker."""

    def add_broker(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["broker"] = broker_id
        return event

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.ExtraAdder(),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            add_broker,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *_RENDERERS[log_format],
        ],
    )


def _renamed(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Rename the fields of a JSON line. If the log call has a field with the name of a broker's field, the
    broker's field is written.
    """
    own = {_NAMES.get(name, name): event[name] for name in _ORDER if name in event}
    return {**own, **{name: value for name, value in event.items() if name not in _ORDER and name not in own}}


_ORDER: Final = ("timestamp", "level", "broker", "logger", "event", "exception")
_NAMES: Final = {"timestamp": "time", "event": "message"}
_RENDERERS: Final[Mapping[LogFormat, Sequence[structlog.typing.Processor]]] = {
    "text": [structlog.processors.KeyValueRenderer(key_order=_ORDER[:-1], drop_missing=True)],
    "json": [_renamed, structlog.processors.JSONRenderer()],
}
