"""Clients of this process, by the addresses of their cluster.

Spark uses a Python worker for many tasks, one after the other; a client that each of them opened would cost
more than a small task. A forked process begins without any: the connections are its parent's.

A package that is pickled by value (``register``) has new modules in each task. So the clients have a place of
their own in the process, and no module-level value here keeps a function from being pickled.
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
    """The client of a cluster, for readers in a place. It stays open until the process ends."""
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
