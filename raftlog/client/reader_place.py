"""Checks the options ``rack`` and ``max_staleness``: the rack of readers, and how stale a replica may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from raftlog.client.options import Duration, PlaceSettings, milliseconds
from raftlog.wire.limits import RACK_CHARACTERS_MAX, STALENESS_MS_DEFAULT, STALENESS_MS_MAX, STALENESS_MS_MIN


@dataclass(frozen=True, slots=True)
class ReaderPlace:
    """The rack of readers and the staleness that they permit."""

    rack: str
    max_staleness_ms: int

    @property
    def options(self) -> PlaceSettings:
        """The options of a client whose readers have this place."""
        return {"rack": self.rack, "max_staleness": timedelta(milliseconds=self.max_staleness_ms)}


def reader_place(rack: str | None, max_staleness: Duration | None) -> ReaderPlace | None:
    """Check the options; None to read from leaders. Raises ``ValueError`` that names the option."""
    if rack is None:
        if max_staleness is not None:
            raise ValueError("max_staleness is for readers with a rack; give rack, too")
        return None
    if type(rack) is not str or not 0 < len(rack) <= RACK_CHARACTERS_MAX:
        raise ValueError(f"rack is {rack!r}; give the label of the brokers nearby, 1 to 255 characters")
    found_ms = STALENESS_MS_DEFAULT if max_staleness is None else milliseconds("max_staleness", max_staleness)
    if not STALENESS_MS_MIN <= found_ms <= STALENESS_MS_MAX:
        raise ValueError(f"max_staleness is {max_staleness!r}; give a time from 500ms to 24h")
    return ReaderPlace(rack, found_ms)
