"""Loads the files of a TLS context again: when they change, and when an operator asks for it.

Decides: when the files are looked at, and what the log and the metrics say. Leaves to others: which files may
be used (``tls``).
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from broker.listeners.tls import TlsContext
from raftlog.errors import InvalidRequest
from raftlog.node.threads import in_thread

_log = logging.getLogger("raftlog.tls")

LOOK_S: Final = 30.0
SOON_DAYS: Final = 14  # a certificate that expires within them is warned about once a day


class TlsReloads:
    """Keeps the context of a listener up to date until ``stop``."""

    def __init__(self, tls: TlsContext, registry: CollectorRegistry) -> None:
        self._tls = tls
        self._asked = asyncio.Event()
        self._warned_on: object = None
        self._task = asyncio.get_running_loop().create_task(self._run())
        expiry = Gauge(
            "raftlog_tls_certificate_expiry_timestamp_seconds",
            "When the first certificate or revocation list of the TLS listener in use expires.",
            registry=registry,
        )
        expiry.set_function(lambda: tls.expires_at.timestamp())
        refused = Gauge(
            "raftlog_tls_files_refused",
            "1 while the files of the TLS listener cannot be used and earlier ones are in use.",
            registry=registry,
        )
        refused.set_function(lambda: tls.failure is not None)
        self._handshakes = Counter(
            "raftlog_tls_handshakes", "TLS handshakes of clients.", ["outcome"], registry=registry
        )
        for outcome in ("done", "failed", "refused"):
            self._handshakes.labels(outcome)

    def handshake_ended(self, outcome: str, /) -> None:
        """Count a handshake; see ``HandshakeMetrics``."""
        self._handshakes.labels(outcome).inc()

    def reload_soon(self) -> None:
        """Look at the files now."""
        self._asked.set()

    def stop(self) -> None:
        """Look at the files no more."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
                is_asked = True
            except TimeoutError:
                is_asked = False
            self._asked.clear()
            await self._look(is_asked)

    async def _look(self, is_asked: bool) -> None:
        now, failure = datetime.now(UTC), self._tls.failure
        try:
            is_changed = await in_thread(partial(self._tls.reload, now))
        except InvalidRequest as error:
            if is_asked or str(error) != failure:
                _log.error("the TLS files are refused, and the files loaded before stay in use: %s", error)
        except OSError as error:  # the process lacks a thread, a descriptor or memory
            _log.warning("the TLS files were not read, and are read again in %s s: %s", LOOK_S, error)
        else:
            if is_changed:
                _log.info("the TLS files are loaded; the certificate expires at %s", self._tls.expires_at)
            elif is_asked:
                _log.info("the TLS files have not changed")
        left = (self._tls.expires_at - now).days
        if left < SOON_DAYS and self._warned_on != now.date():
            self._warned_on = now.date()
            _log.warning("a certificate or revocation list of the TLS listener expires in %d days", left)
