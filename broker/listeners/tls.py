"""TLS of a listener: its certificate, the authorities of its clients, and their replacement at run time.

Decides: which files make a context that may serve connections (``load``), and that the newest such context
serves each new connection (``TlsContext``). A context that may not is refused with its reason, and the
current one stays.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar

from broker.settings import HttpsSettings
from raftlog.errors import InvalidRequest
from raftlog.extras import install_command

Result = TypeVar("Result")

ALPN: Final = ("http/1.1",)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a context, all in PEM. ``name`` is the section of the settings, for errors."""

    name: str
    certificate_file: Path
    """The certificate of this broker, then those of the authorities between it and the root."""
    key_file: Path
    client_ca_file: Path | None = None
    """Authorities of client certificates; None if clients are asked for no certificate."""
    crl_file: Path | None = None
    """Revocation lists of ``client_ca_file``, which every authority in it must have then."""
    minimum_version: Literal["1.2", "1.3"] = "1.3"

    @classmethod
    def of(cls, settings: HttpsSettings) -> TlsFiles:
        """Return the files of the section ``[https]``."""
        return cls(
            name=settings.scheme,
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            client_ca_file=settings.client_ca_file,
            crl_file=settings.crl_file,
            minimum_version=settings.minimum_version,
        )

    @property
    def paths(self) -> Sequence[tuple[str, Path]]:
        """The files by the names of their settings."""
        named = (
            ("certificate_file", self.certificate_file),
            ("key_file", self.key_file),
            ("client_ca_file", self.client_ca_file),
            ("crl_file", self.crl_file),
        )
        return [(f"{self.name}.{setting}", path) for setting, path in named if path is not None]


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A TLS context that may serve connections, and the time at which a certificate or a list expires."""

    context: ssl.SSLContext
    expires_at: datetime
    digest: str
    """SHA-256 of all files, in hexadecimal; differs after a file has changed."""


def digest_of(files: TlsFiles) -> str:
    """Return the digest of the files' contents. Raises ``InvalidRequest`` for a file that cannot be read."""
    found = hashlib.sha256()
    for setting, path in files.paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InvalidRequest(
                f"{setting} {str(path)!r} cannot be read: {error.strerror}", field=setting
            ) from None
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()


def load(files: TlsFiles, now: datetime) -> LoadedTls:
    """Load a context for servers from the files.

    Raises ``InvalidRequest``, which names the setting: a file that cannot be read or is not PEM, a key of
    another certificate, a certificate that has expired or is not valid yet, a chain whose certificates do
    not sign each other, and, if ``crl_file`` is set, an authority of clients without a valid revocation list.
    """
    digest = digest_of(files)
    expires_at = _check_certificates(files, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[files.minimum_version]
    context.set_alpn_protocols(ALPN)
    try:
        context.load_cert_chain(files.certificate_file, files.key_file, password=_refuse_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise _refused(files, "key_file", files.key_file, _why(error)) from None
    if files.client_ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        _trust(context, files, "client_ca_file", files.client_ca_file)
        if files.crl_file is not None:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
            _trust(context, files, "crl_file", files.crl_file)
    return LoadedTls(context, expires_at, digest)


def _trust(context: ssl.SSLContext, files: TlsFiles, setting: str, path: Path) -> None:
    before = context.cert_store_stats()
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise _refused(files, setting, path, _why(error)) from None
    kind = "crl" if setting == "crl_file" else "x509_ca"
    if context.cert_store_stats()[kind] == before[kind]:
        what = "revocation list" if kind == "crl" else "certificate of an authority (CA:TRUE)"
        raise _refused(files, setting, path, f"it has no {what} in PEM")


def _refuse_password() -> bytes:
    raise ValueError("the key is encrypted, and a broker asks nobody for a password; use a file without one")


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "it is the key of another certificate than certificate_file"
    if isinstance(error, ssl.SSLError):
        return f"it is not what is expected in PEM ({reason or error})"
    return getattr(error, "strerror", None) or str(error)


def _refused(files: TlsFiles, setting: str, path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(f"{files.name}.{setting} {str(path)!r}: {why}", field=f"{files.name}.{setting}")


def _check_certificates(files: TlsFiles, now: datetime) -> datetime:
    """Check all certificates and revocation lists; return the time at which the first of them expires."""
    try:
        from broker.listeners import certificates
    except ModuleNotFoundError:
        raise InvalidRequest(
            f"TLS needs the package cryptography: {install_command('server', 'security')}", field=files.name
        ) from None
    expires_at = _checked(
        files, "certificate_file", files.certificate_file, partial(certificates.chain_expiry, now=now)
    )
    if files.client_ca_file is None or files.crl_file is None:
        return expires_at
    authorities = _checked(files, "client_ca_file", files.client_ca_file, bytes)
    check = partial(certificates.revocations_expiry, authorities, now=now)
    return min(expires_at, _checked(files, "crl_file", files.crl_file, check))


def _checked(files: TlsFiles, setting: str, path: Path, check: Callable[[bytes], Result]) -> Result:
    """Return the result of ``check`` for the contents of a file; each of its errors refuses the file."""
    try:
        return check(path.read_bytes())
    except Exception as error:  # cryptography has several classes of errors for damaged data
        raise _refused(files, setting, path, _why(error) or "it is damaged") from error


class TlsContext:
    """The newest loaded TLS context, for new connections. The files may change at any time."""

    def __init__(self, files: TlsFiles, loaded: LoadedTls) -> None:
        """``loaded`` is the context of ``files``."""
        self._files = files
        self._loaded = loaded
        self.failure: str | None = None
        """The reason why the changed files are refused; None while the newest files are in use."""

    @classmethod
    def of(cls, files: TlsFiles) -> TlsContext:
        """Load the files. Raises ``InvalidRequest`` as ``load`` does."""
        return cls(files, load(files, datetime.now(UTC)))

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a connection that is accepted now."""
        return self._loaded.context

    @property
    def expires_at(self) -> datetime:
        """The time at which the first certificate or revocation list in use expires."""
        return self._loaded.expires_at

    def reload(self, now: datetime) -> bool:
        """Load the files again if they have changed, and return whether they had changed.

        Raises ``InvalidRequest`` as ``load`` does: the context stays, and ``failure`` says why.
        """
        try:
            if digest_of(self._files) == self._loaded.digest:
                self.failure = None
                return False
            self._loaded = load(self._files, now)
        except InvalidRequest as error:
            self.failure = str(error)
            raise
        self.failure = None
        return True
