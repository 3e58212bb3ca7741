"""The Python client: producing and reading, asynchronous and blocking.

Decides: the partition of a record, how records are batched, what is retried, and the order in which batches
are sent so that no record is duplicated or reordered. Leaves to others: storage and duplicate detection
(brokers).

Read ``pipeline`` first: it has the rules of order. The path of a record is ``producer``, ``partitioners``,
``buffer``, ``sender``, ``receipts``. Reading is ``partition`` and ``messages``. ``session`` knows the brokers
and ``metadata`` the leaders of partitions. ``client`` combines all modules; ``blocking`` is its counterpart
for threads, and uses ``portal``.

Each client is imported at its first use: a program that needs only ``options`` imports no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftlog.client.blocking import Client
    from raftlog.client.client import AsyncClient

__all__ = ["AsyncClient", "Client"]

_MODULES = {"AsyncClient": "client", "Client": "blocking"}


if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found
