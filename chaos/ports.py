"""Ports of loopback for brokers and other servers: each belongs to one process until that process ends.

A port that is free when it is chosen may be taken by another process before it is used, and a stopped broker
does not hold its port. So each port is a byte of one file, and its owner holds a POSIX lock on that byte. The
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
ROW: Final = 10  # ports; a search for free ports begins at a multiple of it
LOCKS: Final = Path("/tmp") / f"raftlog-ports-{os.getuid()}"  # not in TMPDIR, which tests change

_taking = threading.Lock()
_owned: set[int] = set()  # the locks of a process do not exclude the process itself


def free_ports(how_many: int) -> int:
    """The first of several consecutive free ports; those ``RPC_PORT_STEP`` above are free, too.

    No other call returns one of them, in this process or in another one, until ``release`` or the end of this
    process. All are below the range of outgoing connections: otherwise a client that dials a stopped broker
    could get the broker's own port.
    """
    firsts = [
        block + row
        for block in range(PORT_MIN, EPHEMERAL_PORT_MIN - 2 * RPC_PORT_STEP, 2 * RPC_PORT_STEP)
        for row in range(0, RPC_PORT_STEP - how_many + 1, ROW)
    ]
    # Distant ports for processes of the same minute: they compete for fewer locks.
    begin = os.getpid() * 211 % len(firsts)
    with _taking:
        for first in firsts[begin:] + firsts[:begin]:
            if _take(first, how_many):
                return first
    raise ClusterFailed(f"found no {how_many} free ports in a row")


def release(first: int, how_many: int) -> None:
    """Give ports back that ``free_ports`` has returned."""
    with _taking:
        _unlock(_ports(first, how_many))


def _ports(first: int, how_many: int) -> list[int]:
    return [port + step for step in (0, RPC_PORT_STEP) for port in range(first, first + how_many)]


def _take(first: int, how_many: int) -> bool:
    """Own all of these ports, or none."""
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
    """A descriptor that stays open: closing any descriptor of the file releases all locks of this process."""
    return os.open(LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    """Whether no other program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
