"""SCRAM-SHA-256, bound to its TLS or not: verifiers as PostgreSQL writes them, and one exchange.

Source: RFC 5802 and RFC 7677; the form of a verifier is that of PostgreSQL's ``pg_authid``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import unicodedata

from dpsql.records import dataclass

MECHANISM = "SCRAM-SHA-256"
BOUND = MECHANISM + "-PLUS"
"""The mechanism that is bound to the TLS which it goes through."""
# PostgreSQL's default, and the least that RFC 7677 asks for.
ITERATIONS = 4096
SALT_BYTES = 16
_VERIFIER = re.compile(
    r"SCRAM-SHA-256\$(\d{1,7}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)"
)
_FIRST = re.compile(
    r"(n|y|p=tls-server-end-point),,(n=[^,]*,r=([\x21-\x2b\x2d-\x7e]+))(?:,.*)?", re.DOTALL
)
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")


class ScramError(Exception):
    """The exchange failed; whoever is told hears the same, whatever was wrong."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The verifier of a password: it proves one without being one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str) -> Verifier:
        """The verifier of a password, with a new salt."""
        return cls._derive(password, secrets.token_bytes(SALT_BYTES), ITERATIONS)

    @classmethod
    def _derive(cls, password: str, salt: bytes, iterations: int) -> Verifier:
        text = prepared(password).encode()
        salted = hashlib.pbkdf2_hmac("sha256", text, salt, iterations)
        client = hmac.digest(salted, b"Client Key", "sha256")
        server = hmac.digest(salted, b"Server Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client).digest(), server)

    @classmethod
    def mock(cls, secret: bytes, name: str) -> Verifier:
        """The verifier of a name that nobody has: the same salt at every try, and no password.

        Guarantee: an exchange over it differs from one with a wrong password in nothing.
        """
        salt = hmac.digest(secret, b"salt:" + name.encode(), "sha256")[:SALT_BYTES]
        # Keys that are those of no password.
        return cls(ITERATIONS, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Read a verifier; None where the text is not one.

        >>> Verifier.parse(str(Verifier.of("secret"))).iterations
        4096
        """
        found = _VERIFIER.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (
                base64.b64decode(part, validate=True) for part in found.groups()[1:]
            )
        except ValueError:
            return None
        iterations = int(found.group(1))
        if not (iterations > 0 and salt and len(stored) == len(server) == 32):
            return None
        return cls(iterations, salt, stored, server)

    def __str__(self) -> str:
        salt, stored, server = map(_base64, (self.salt, self.stored_key, self.server_key))
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"

    def matches(self, password: str) -> bool:
        """True if this is a verifier of a password."""
        again = self._derive(password, self.salt, self.iterations)
        return hmac.compare_digest(again.stored_key, self.stored_key)


class Exchange:
    """The server's side of one exchange: ``first``, then ``final``.

    ``binding`` is what binds it to its TLS, where that is offered; ``bound``: it is wanted.
    """

    def __init__(
        self, verifier: Verifier, binding: bytes | None = None, bound: bool = False
    ) -> None:
        self._verifier = verifier
        self._binding = binding
        self._bound = bound
        self._nonce = ""
        self._so_far = ""

    def first(self, message: bytes) -> bytes:
        """The server's first message. Raises: ScramError."""
        found = _FIRST.fullmatch(_ascii(message))
        if found is None:
            raise ScramError
        flag = found.group(1)
        if flag.startswith("p") != self._bound or (flag == "y" and self._binding is not None):
            raise ScramError  # "y" is what a client says to whom nobody has offered it
        self._header = _base64(flag.encode() + b",," + (self._binding or b"") * self._bound)
        # 18 bytes, as PostgreSQL's: 24 characters of base64 without padding.
        self._nonce = found.group(3) + _base64(secrets.token_bytes(18))
        verifier = self._verifier
        reply = f"r={self._nonce},s={_base64(verifier.salt)},i={verifier.iterations}"
        self._so_far = f"{found.group(2)},{reply}"
        return reply.encode()

    def final(self, message: bytes) -> bytes:
        """The server's final message, for a client that knows the password. Raises: ScramError."""
        found = _FINAL.fullmatch(_ascii(message))
        if found is None or found.group(2) != self._header or found.group(3) != self._nonce:
            raise ScramError
        signed = f"{self._so_far},{found.group(1)}".encode()
        verifier = self._verifier
        signature = hmac.digest(verifier.stored_key, signed, "sha256")
        try:
            proof = base64.b64decode(found.group(4), validate=True)
        except ValueError:
            raise ScramError from None
        if len(proof) != len(signature):
            raise ScramError
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), verifier.stored_key):
            raise ScramError
        return b"v=" + _base64(hmac.digest(verifier.server_key, signed, "sha256")).encode()


def prepared(password: str) -> str:
    """A password as SCRAM hashes it: normal form KC, or as it is where that is not defined."""
    if password.isascii():
        return password
    mapped = "".join(" " if unicodedata.category(c) == "Zs" else c for c in password)
    return unicodedata.normalize("NFKC", mapped)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _ascii(message: bytes) -> str:
    """A message as text; names in it are not used. Raises: ScramError."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError from None
