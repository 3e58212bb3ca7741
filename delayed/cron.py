"""The instants of a cron expression in a time zone.

Decides: which expressions and zones are accepted, and which instants count if there are many. Leaves to
others: the fields of an expression and days with a clock change (the library ``cronsim``, which follows
Debian's cron), and when an instant fires (``scheduling``).

An expression has five fields, so two instants are at least a minute apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from raftlog.errors import InvalidRequest
from raftlog.exhaustion import refuse_exhausted
from raftlog.wire.limits import CRON_CHARACTERS_MAX

FIELDS: Final = 5
_ZONE_CHARACTERS_MAX: Final = 64
_LOCAL: Final = ("localtime", "posixrules")  # names of a machine's local zone, which differs between brokers
_MINUTE_MS: Final = 60_000
_WRONG: Final = (CronSimError, ValueError, TypeError, AssertionError)  # that the library raises


def check(cron: str, time_zone: str, now_ms: int) -> None:
    """Raise ``InvalidRequest`` for an invalid expression or zone, or an expression that never fires.

    Every function of this module raises ``Overloaded`` if the file of a zone cannot be read now.
    """
    _zone(time_zone)
    if next_ms(cron, time_zone, now_ms) is None:
        raise InvalidRequest(
            f"cron is {cron!r}, which does not fire in the next 50 years; send another", field="cron"
        )


@lru_cache(maxsize=4_096)  # a rare instant takes a millisecond, and lists repeat up to 100 calls
def next_ms(cron: str, time_zone: str, after_ms: int) -> int | None:
    """The first instant after ``after_ms``, or None. Raises ``InvalidRequest``, ``Overloaded``."""
    return next(_instants(cron, time_zone, after_ms), None)


def newest(cron: str, time_zone: str, after_ms: int, until_ms: int, count_max: int) -> list[int]:
    """The newest instants in ``(after_ms, until_ms]``, up to ``count_max`` of them, sorted.

    The search extends backwards from the end, so its cost does not depend on the number of instants. Raises
    as ``next_ms``.
    """
    reach_ms = max(1, count_max) * _MINUTE_MS
    while True:
        begin_ms = max(after_ms, until_ms - reach_ms)
        found = deque[int](maxlen=count_max)
        for instant in _instants(cron, time_zone, begin_ms):
            if instant > until_ms:
                break
            found.append(instant)
        if begin_ms == after_ms or len(found) == count_max:
            return list(found)
        reach_ms *= 4


def _instants(cron: str, time_zone: str, after_ms: int) -> Iterator[int]:
    """The instants after ``after_ms``, without the hour that the library may repeat at a clock change."""
    newest_ms = after_ms
    try:
        begin = datetime.fromtimestamp(after_ms // _MINUTE_MS * 60, _zone(time_zone))
        if len(cron) > CRON_CHARACTERS_MAX:
            raise ValueError(f"more than {CRON_CHARACTERS_MAX} characters")
        if len(cron.split()) != FIELDS:  # the library also accepts seconds
            raise ValueError(f"not {FIELDS} fields")
        for instant in CronSim(cron, begin):
            instant_ms = int(instant.timestamp()) * 1000
            if instant_ms > newest_ms:
                newest_ms = instant_ms
                yield instant_ms
    except _WRONG as error:
        raise InvalidRequest(
            f"cron is {cron[:64]!r} ({str(error)[:80]}); send minute, hour, day of the month, month and day "
            "of the week, such as 30 3 * * MON-FRI",
            field="cron",
        ) from None
    except OverflowError:
        return  # after the year 9999


def _zone(name: str) -> tzinfo:
    """The time zone with this name. Raises ``InvalidRequest`` for an unknown name, and ``Overloaded``."""
    if name == "UTC":
        return UTC
    if name not in _LOCAL and len(name) <= _ZONE_CHARACTERS_MAX and name.isascii():
        try:
            return ZoneInfo(name)
        except (OSError, MemoryError) as error:  # the file is a folder, or cannot be opened
            refuse_exhausted(error, f"the time zone {name} cannot be read")
        except (ValueError, KeyError):  # ``ZoneInfoNotFoundError``
            pass
    raise InvalidRequest(
        f"time_zone is {name[:64]!r}; send UTC or a name of the IANA database such as Europe/Berlin",
        field="time_zone",
    )
