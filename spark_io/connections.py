"""Keeps the clients of this process, by the addresses of their cluster.

Spark uses a Python worker for many tasks, one after the other; opening a client for each task would cost more
than a small task. A forked process begins without clients: the connections belong to its parent.

If this package is pickled by value (``register``), each task has its own copies of the modules. So the
clients are stored in a module in ``sys.modules``, and this module has no module-level value that cannot be
pickled.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raftlog.client import Client
    from raftlog.client.reader_place import ReaderPlace

_PLACE: Final = "spark_io_clients_of_this_process"
_Clients = dict[tuple[int, tuple[str, ...], tuple[str, int] | None], "Client"]


def client_of(servers: tuple[str, ...], place: ReaderPlace | None = None) -> Client:
    """The client of a cluster for readers in a rack. The client stays open until the process ends."""
    from raftlog.client import Client  # slow to import; some processes of Spark never ask

    module = sys.modules.setdefault(_PLACE, ModuleType(_PLACE))
    clients: _Clients = module.__dict__.setdefault("clients", {})
    key = os.getpid(), servers, None if place is None else (place.rack, place.max_staleness_ms)
    found = clients.get(key)
    if found is None:
        made = Client(servers) if place is None else Client(servers, **place.options)
        found = clients.setdefault(key, made)  # another thread may have been faster
        if found is not made:
            made.close()
    return found
