"""Certificates of tests: an authority, and the files that a listener or a client reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = datetime.now(UTC)


class Authority:
    """An authority whose files are below a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.ca = trustme.CA()
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.file = self._written("ca.pem", self.ca.cert_pem.bytes())

    def certificate(
        self,
        *names: str,
        file: str = "broker",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> tuple[Path, Path]:
        """Write a certificate with these subject alternative names; return its chain's file and its key's."""
        made = self.ca.issue_cert(
            *(names or ("localhost", "127.0.0.1")), not_before=not_before, not_after=not_after
        )
        chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
        return self._written(f"{file}.pem", chain), self._written(f"{file}.key", made.private_key_pem.bytes())

    def revocation_list(self, *revoked: Path, expires_at: datetime = NOW + timedelta(days=1)) -> Path:
        """Write a revocation list of these certificates."""
        authority = x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())
        key = serialization.load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        builder = x509.CertificateRevocationListBuilder(
            authority.subject, NOW - timedelta(days=2), expires_at
        )
        for path in revoked:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder(serial, NOW - timedelta(hours=1)).build()
            )
        signed = builder.sign(key, hashes.SHA256())
        return self._written("revoked.pem", signed.public_bytes(serialization.Encoding.PEM))

    def _written(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        return path
