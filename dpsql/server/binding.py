"""Channel binding of a sign-in to its TLS connection: a hash of the server's certificate.

Source: RFC 5929, section 4, tls-server-end-point.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

_RSA, _ECDSA = bytes.fromhex("2a864886f70d0101"), bytes.fromhex("2a8648ce3d0403")
HASHES = {
    _RSA + b"\x04": "sha256",  # MD5 and SHA-1 give way to it
    _RSA + b"\x05": "sha256",
    _RSA + b"\x0b": "sha256",
    _RSA + b"\x0c": "sha384",
    _RSA + b"\x0d": "sha512",
    _RSA + b"\x0e": "sha224",
    bytes.fromhex("2a8648ce3d0401"): "sha256",
    _ECDSA + b"\x01": "sha224",
    _ECDSA + b"\x02": "sha256",
    _ECDSA + b"\x03": "sha384",
    _ECDSA + b"\x04": "sha512",
}
"""The hash of a certificate, by the algorithm that it is signed with, an identifier in DER."""


def end_point(certificate: Path) -> bytes | None:
    """The hash of the first certificate of a file; None where none is defined for it."""
    try:
        found = ssl.PEM_cert_to_DER_cert(_first(certificate.read_text(encoding="ascii")))
        name = HASHES.get(_signed_with(found))
    except (OSError, ValueError, IndexError):
        return None
    return None if name is None else hashlib.new(name, found).digest()


def _first(text: str) -> str:
    start, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER)
    return text[start : end + len(ssl.PEM_FOOTER)]


def _signed_with(der: bytes) -> bytes:
    """The identifier of the algorithm: SEQUENCE { what is signed, SEQUENCE { it, ...}, ...}."""
    start, _ = _element(der, 0)
    _, end = _element(der, start)
    start, _ = _element(der, end)
    start, end = _element(der, start)
    return der[start:end]


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return the start and the end of the content of an element. Raises: IndexError."""
    length, start = der[at + 1], at + 2
    # DER: a long length says in how many bytes it stands.
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count]), start + count
    return start, start + length
