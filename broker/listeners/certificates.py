"""Checks of certificates and revocation lists that ``ssl`` does not make: dates, order, and completeness.

``ssl`` serves an expired certificate, and refuses all clients with a certificate if a revocation list is
missing or has expired. All functions take PEM and raise ``ValueError`` with the reason; for damaged data the
package cryptography raises errors of its own, too.
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def chain_expiry(chain_pem: bytes, now: datetime) -> datetime:
    """Check the dates and the order of a chain, whose first certificate is the broker's own.

    Returns the time at which the first of its certificates expires.
    """
    try:
        chain = x509.load_pem_x509_certificates(chain_pem)
    except ValueError:
        raise ValueError("it has no certificate in PEM") from None
    for certificate in chain:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now < begins:
            raise ValueError(
                f"the certificate {_name(certificate.subject)} is not valid before {_minute(begins)}; "
                "check the clock"
            )
        if now >= ends:
            raise ValueError(
                f"the certificate {_name(certificate.subject)} expired at {_minute(ends)}; renew it"
            )
    for certificate, issuer in itertools.pairwise(chain):
        try:
            certificate.verify_directly_issued_by(issuer)
        except (InvalidSignature, ValueError, TypeError):
            raise ValueError(
                f"the certificate {_name(issuer.subject)} did not sign the certificate before it; the "
                "broker's own comes first, then its authority, and so on"
            ) from None
    return min(certificate.not_valid_after_utc for certificate in chain)


def revocations_expiry(authorities_pem: bytes, lists_pem: bytes, now: datetime) -> datetime:
    """Check that each authority has a revocation list that is valid now.

    Returns the time at which the first of these lists expires.
    """
    lists = [x509.load_pem_x509_crl(block) for block in _LIST.findall(lists_pem)]
    if not lists:
        raise ValueError("it has no revocation list in PEM")
    return min(
        _list_expiry(authority, lists, now) for authority in x509.load_pem_x509_certificates(authorities_pem)
    )


def _list_expiry(
    authority: x509.Certificate, lists: list[x509.CertificateRevocationList], now: datetime
) -> datetime:
    key, expiries = authority.public_key(), []
    for each in lists:
        is_own = each.issuer == authority.subject and each.is_signature_valid(key)  # type: ignore[arg-type]
        if is_own and each.next_update_utc is not None and each.last_update_utc <= now:
            expiries.append(each.next_update_utc)
    if not expiries:
        raise ValueError(
            f"it has no revocation list of the authority {_name(authority.subject)} of client_ca_file"
        )
    if now >= max(expiries):
        raise ValueError(
            f"the revocation list of the authority {_name(authority.subject)} expired at "
            f"{_minute(max(expiries))}; renew it"
        )
    return max(expiries)


def _name(subject: x509.Name) -> str:
    return subject.rfc4514_string() or "without a subject"


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
