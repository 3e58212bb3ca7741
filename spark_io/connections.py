"""Clients of this process, by the addresses of their cluster.

Spark uses a Python worker for many tasks, one after the other; a client that each of them opened would cost
more than a small task. A forked process begins without any: the connections are its parent's.
"""

from __future__ import annotations

import os
import threading

from raftlog.client import Client

_clients: dict[tuple[int, tuple[str, ...]], Client] = {}
_lock = threading.Lock()


def client_of(servers: tuple[str, ...]) -> Client:
    """The client of a cluster. It stays open until the process ends."""
    key = os.getpid(), servers
    with _lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = Client(servers)
        return found
