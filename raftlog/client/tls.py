"""TLS of a client: the authorities that it trusts, and its own certificate.

Decides: which files a client uses, and that changed files are used for new connections. Leaves to others:
which broker is asked (``session``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from raftlog.client.logs import client_logger
from raftlog.errors import NotSent

if TYPE_CHECKING:
    from ssl import SSLContext

_log = client_logger()

VARIABLES: Final = {"ca": "RAFTLOG_CA_FILE", "cert": "RAFTLOG_CERT_FILE", "key": "RAFTLOG_KEY_FILE"}
"""Environment variables by the fields of ``Tls``."""
LOOK_S: Final = 30.0  # between two looks at the files

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a client for ``https://`` URLs, all in PEM.

    ``ca`` has the authorities that sign the certificates of brokers; None stands for the authorities of the
    system. ``cert`` is the client's own certificate, with the authorities between it and the root. ``key`` is
    the key of ``cert``. The files may be replaced at any time: new connections use the new files within 30 s.
    Raises ``ValueError`` for a certificate without a key, and for a key without a certificate.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            given, other = ("key", "cert") if self.cert is None else ("cert", "key")
            raise ValueError(f"tls: {given} is given without {other}; give both files, or neither")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Tls:
        """Return the files that the environment names (``RAFTLOG_CA_FILE``, ``RAFTLOG_CERT_FILE``,
        ``RAFTLOG_KEY_FILE``).
        """
        given = os.environ if environ is None else environ
        return cls(**{field: given.get(name, "").strip() or None for field, name in VARIABLES.items()})


def load(tls: Tls) -> SSLContext:
    """Create a context of these files. Raises ``NotSent``, which names the file and what is wrong."""
    import ssl

    at: Path | None = tls.ca
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            at = tls.cert
            context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise NotSent(f"tls: the file {os.fspath(at or '')!r} cannot be used: {reason}") from None
    return context


class ClientContext:
    """The newest context of a client's files. ``monotonic`` returns seconds."""

    def __init__(self, tls: Tls, monotonic: Callable[[], float]) -> None:
        self._tls = tls
        self._monotonic = monotonic
        self._context: SSLContext | None = None
        self._state: tuple[object, ...] = ()
        self._looked_at = 0.0

    def current(self) -> SSLContext:
        """Return the context for a new connection.

        Raises ``NotSent`` if the files could never be used; otherwise the context in use stays, and the log
        says why.
        """
        now = self._monotonic()
        if self._context is not None and now - self._looked_at < LOOK_S:
            return self._context
        self._looked_at = now
        state = _state_of(self._tls)
        if self._context is None or state != self._state:
            try:
                self._context = load(self._tls)
            except NotSent as error:
                if self._context is None:
                    raise
                _log.warning("%s; the files that were loaded before stay in use", error)
            self._state = state
        return self._context


def _state_of(tls: Tls) -> tuple[object, ...]:
    """Return a value that differs when a file has been replaced."""
    paths = [getattr(tls, field.name) for field in fields(tls)]
    return tuple(_state(path) for path in paths if path is not None)


def _state(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _no_password() -> bytes:
    raise ValueError("the key is encrypted; use a key without a password")
