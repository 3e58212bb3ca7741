"""Small files that no peer can restore, kept twice: a damaged copy is repaired from the other.

``<name>`` and ``<name>.twin``, below a data directory, hold two equal lines: the JSON of ``[number, value]``,
then the CRC-32C, in hexadecimal, of the name and that line. The number rises with every change, so the newer
copy counts; the name in the checksum keeps a file from being taken for another. Each copy is replaced
atomically and durably, ``<name>`` first.

Decides: which copy counts. Leaves to others: the meaning of values, and the consequences of losing both
copies.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
from crc32c import crc32c

from raftlog.errors import LogCorrupt
from raftlog.storage.filesystem import Filesystem, is_disk_full

_log = logging.getLogger("raftlog.storage")

ENDINGS: Final = ("", ".twin")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Copy(Generic[Value]):
    number: int
    value: Value


def load(filesystem: Filesystem, root: str, name: str, kind: type[Value]) -> Value | None:
    """Read the value of a file; None if neither copy exists. Writes a damaged or older copy again.

    Raises ``LogCorrupt`` if copies exist and none is whole, and ``OSError``.
    """
    copies = _copies(filesystem, root, name, kind)
    newest = _newest(copies.values())
    if newest is None:
        if any(filesystem.exists(path) for path in copies):
            raise LogCorrupt(
                f"{root}/{name} and its twin are damaged: neither matches the checksum in its last line"
            )
        return None
    for path, copy in copies.items():
        if copy != newest:
            _log.warning("%s is missing, damaged or older than its twin: restored from the twin", path)
            try:
                filesystem.replace_file(path, _bytes(name, newest))
            except OSError as error:
                if not is_disk_full(error):
                    raise
    return newest.value


def keep(filesystem: Filesystem, root: str, name: str, value: object) -> None:
    """Replace the value in both copies of a file, durably. Raises ``OSError``."""
    copies = _copies(filesystem, root, name, msgspec.Raw)
    before = _newest(copies.values())
    data = _bytes(name, _Copy(0 if before is None else before.number + 1, value))
    for path in copies:
        filesystem.replace_file(path, data)


def damaged(filesystem: Filesystem, root: str, name: str) -> list[str]:
    """Paths of the copies that are missing, damaged or older than the other. Writes nothing."""
    copies = _copies(filesystem, root, name, msgspec.Raw)
    if not any(filesystem.exists(path) for path in copies):
        return []
    newest = _newest(copies.values())
    return [path for path, copy in copies.items() if copy is None or copy != newest]


def _copies(
    filesystem: Filesystem, root: str, name: str, kind: type[Value]
) -> dict[str, _Copy[Value] | None]:
    """The copies by path; None for a copy that is missing, not whole, or unreadable (EIO).

    Raises ``OSError`` if neither copy can be read.
    """
    found: dict[str, _Copy[Value] | None] = {}
    unreadable: list[OSError] = []
    for ending in ENDINGS:
        path = f"{root}/{name}{ending}"
        found[path] = None
        try:
            *lines, checksum, rest = filesystem.read_file(path).split(b"\n")
        except (FileNotFoundError, ValueError):
            continue
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            unreadable.append(error)
            continue
        line = b"\n".join(lines)
        if not rest and checksum == _checksum(name, line):
            number, value = msgspec.json.decode(line, type=tuple[int, msgspec.Raw])
            found[path] = _Copy(number, msgspec.json.decode(value, type=kind))
    if unreadable and _newest(found.values()) is None:
        raise unreadable[0]
    return found


def _newest(copies: Iterable[_Copy[Value] | None]) -> _Copy[Value] | None:
    whole = [copy for copy in copies if copy is not None]
    return max(whole, key=lambda copy: copy.number, default=None)


def _bytes(name: str, copy: _Copy[Value]) -> bytes:
    line = msgspec.json.encode((copy.number, copy.value))
    return b"%b\n%b\n" % (line, _checksum(name, line))


def _checksum(name: str, line: bytes) -> bytes:
    return b"%08x" % crc32c(b"%b\n%b" % (name.encode(), line))
