"""Shares the file descriptors of a process between HTTP connections, segment files, and a reserve.

At most half of the descriptors are for HTTP connections, and at most half of the others for active segments,
whose files stay open between uses. The rest is a reserve for files that are open briefly, and for connections
to peers.
"""

from __future__ import annotations

import logging
import resource
from typing import Final, NamedTuple

_log = logging.getLogger("raftlog.server")

CONNECTIONS_MAX: Final = 25_000  # more than the limit of waiting requests; each connection takes memory, too
HELD_FILES_MAX: Final = 65_536
FEW: Final = 1024


class Descriptors(NamedTuple):
    """Numbers of file descriptors: the limit of the process, and the shares of HTTP connections and of
    segment files.
    """

    limit: int
    connections_max: int
    held_files_max: int


def raise_limit() -> int:
    """Raise the soft limit on open files to the hard limit; return the limit that is then in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("the limit stays at %d open files: it could not be raised to %d: %s", soft, hard, error)
        return soft
    return hard


def shares(limit: int, connections_max: int | None) -> Descriptors:
    """Compute the shares of descriptors; ``connections_max`` is the setting, None for the default."""
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    half = limit // 2
    connections = min(half, connections_max or CONNECTIONS_MAX)
    if connections_max is not None and connections < connections_max:
        _log.warning(
            "limits.connections_max is %d, but %d open files leave room for %d: raise the limit (ulimit -n)",
            connections_max,
            limit,
            connections,
        )
    return Descriptors(limit, connections, min(HELD_FILES_MAX, (limit - connections) // 2))


def share_out(connections_max: int | None) -> Descriptors:
    """Raise the limit on open files, log the shares of descriptors, and return them."""
    found = shares(raise_limit(), connections_max)
    tell = _log.warning if found.limit < FEW else _log.info
    tell(
        "%d open files are allowed: %d for HTTP connections, %d for segments, the rest for other files",
        found.limit,
        found.connections_max,
        found.held_files_max,
    )
    return found
