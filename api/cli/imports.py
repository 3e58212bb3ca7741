"""Imports packages without parts that a command does not need; these parts take most of the CPU time of a
short command.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec, module_from_spec


def tls_only_for(server: str) -> AbstractContextManager[None]:
    """Import no TLS for a server without TLS: aiohttp would read the certificates of the system twice.

    asyncio and aiohttp work without ``ssl``.
    """
    return contextlib.nullcontext() if "https:" in server else _without("ssl")


def without_type_extensions() -> AbstractContextManager[None]:
    """Import msgspec without ``typing_extensions``, which it does not need and which takes longer to
    import.
    """
    return _without("typing_extensions")


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Make imports of a module fail in the block, unless the module is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # makes its import fail
    try:
        yield
    finally:
        del sys.modules[module]


def import_decoder() -> None:
    """Import aiokafka's record decoder without the client of aiokafka, which ``import aiokafka`` would
    import, too.
    """
    spec = find_spec("aiokafka")
    if "aiokafka" in sys.modules or spec is None:
        return
    sys.modules["aiokafka"] = module_from_spec(spec)
    try:
        with contextlib.suppress(ImportError):  # without the decoder, the client imports the whole package
            import_module("raftlog.records.reader")
    finally:
        del sys.modules["aiokafka"]
