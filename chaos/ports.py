"""Reserves loopback ports for brokers and other servers: each port belongs to one process until that process
ends.

A port that is free when it is chosen may be taken by another process before it is used, and a stopped broker
does not keep its port. So each port is a byte of one file, and its owner holds a POSIX lock on that byte. The
kernel releases the locks of a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from broker.addresses import RPC_PORT_STEP
from chaos.cluster_view import ClusterFailed

PORT_MIN: Final = 10_000
EPHEMERAL_PORT_MIN: Final = 32_768  # the range of outgoing connections on Linux begins here
ROW: Final = 10  # a search for free ports begins at a multiple of this number
LOCKS: Final = Path("/tmp") / f"raftlog-ports-{os.getuid()}"  # not in TMPDIR, which tests change

_taking = threading.Lock()
_owned: set[int] = set()  # the locks of a process do not exclude the process itself


def free_ports(how_many: int) -> int:
    """Reserve consecutive free ports and return the first; the ports that are higher by ``RPC_PORT_STEP`` are
    reserved, too.

    No other call returns one of these ports, in this or another process, until ``release`` or the end of this
    process. All ports are below the range of outgoing connections: otherwise a client that connects to a
    stopped broker could get the broker's own port.
    """
    firsts = [
        block + row
        for block in range(PORT_MIN, EPHEMERAL_PORT_MIN - 2 * RPC_PORT_STEP, 2 * RPC_PORT_STEP)
        for row in range(0, RPC_PORT_STEP - how_many + 1, ROW)
    ]
    # Distant ports for processes that start at about the same time: they compete for fewer locks.
    begin = os.getpid() * 211 % len(firsts)
    with _taking:
        for first in firsts[begin:] + firsts[:begin]:
            if _take(first, how_many):
                return first
    raise ClusterFailed(f"there are no {how_many} consecutive free ports")


def release(first: int, how_many: int) -> None:
    """Release ports that ``free_ports`` has returned."""
    with _taking:
        _unlock(_ports(first, how_many))


def _ports(first: int, how_many: int) -> list[int]:
    return [port + step for step in (0, RPC_PORT_STEP) for port in range(first, first + how_many)]


def _take(first: int, how_many: int) -> bool:
    """Reserve all of these ports, or none if one is taken; return whether they are reserved."""
    taken = []
    for port in _ports(first, how_many):
        if port not in _owned and _lock(port):
            taken.append(port)
            _owned.add(port)
            if _is_free(port):
                continue
        _unlock(taken)
        return False
    return True


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(ports: Iterable[int]) -> None:
    for port in ports:
        _owned.discard(port)
        fcntl.lockf(_lock_file(), fcntl.LOCK_UN, 1, port)


@cache
def _lock_file() -> int:
    """Return a descriptor of the lock file that stays open: closing any descriptor of the file releases all
    of its locks.
    """
    return os.open(LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    """Return whether no program uses the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
