"""The errors that users of the format see.

Spark shows the whole traceback of a Python error; its last line is the message, which says what to do.
"""

from __future__ import annotations


class InvalidOption(ValueError):
    """An option has a wrong name or value."""


class InvalidRows(ValueError):
    """A DataFrame cannot be written: its columns, or the value of a row."""


class DataLoss(RuntimeError):
    """Records to read no longer exist."""


class SinkInUse(RuntimeError):
    """The sink of a stream belongs to another query, or to a newer run of this query."""


class SinkGap(RuntimeError):
    """The sink has not committed the batch before the batch that Spark commits."""


class SinkAhead(RuntimeError):
    """The sink has committed a later batch than the batch that Spark repeats."""


class ArchiveOverlap(RuntimeError):
    """Offsets to archive are in the archive already, or twice in one batch."""


class ArchiveGap(RuntimeError):
    """Offsets with records are neither in a Delta table nor in the files to add to it."""


class ArchiveDamaged(RuntimeError):
    """A file of an archive is missing, or differs from its manifest."""


class ArchiveUnreachable(RuntimeError):
    """The address of an archive needs a package that is not installed, or is not an address."""
