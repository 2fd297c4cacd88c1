"""SCRAM against the example of RFC 7677, and exchanges that fail."""

from __future__ import annotations

import base64
import hashlib
import hmac
from unittest import mock

import pytest

from dpsql.server.scram import Exchange, ScramError, Verifier

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def _exchange(monkeypatch: pytest.MonkeyPatch, password: str) -> Exchange:
    """The example's: its salt and its nonce of the server."""
    monkeypatch.setattr("dpsql.server.scram._base64", _encode)
    with mock.patch("secrets.token_bytes", return_value=SALT):
        verifier = Verifier.of(password)
    return Exchange(verifier)


def _encode(data: bytes) -> str:
    return SERVER if data == b"nonce" else base64.b64encode(data).decode()


def test_the_example_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = _exchange(monkeypatch, "pencil")
    with mock.patch("secrets.token_bytes", return_value=b"nonce"):
        first = exchange.first(f"n,,n=user,r={NONCE}".encode())
    assert first.decode() == f"r={NONCE}{SERVER},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = exchange.final(f"c=biws,r={NONCE}{SERVER},p={PROOF}".encode())
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "final",
    [
        f"c=biws,r={NONCE}{SERVER},p={PROOF[:-4]}AAA=",
        f"c=biws,r={NONCE},p={PROOF}",
        f"c=eSws,r={NONCE}{SERVER},p={PROOF}",
        f"c=biws,r={NONCE}{SERVER},p=!!!",
        f"c=biws,r={NONCE}{SERVER},p=AAAA",
        f"c=biws,r={NONCE}{SERVER}",
        "",
    ],
)
def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch, final: str) -> None:
    exchange = _exchange(monkeypatch, "pencil")
    with mock.patch("secrets.token_bytes", return_value=b"nonce"):
        exchange.first(f"n,,n=user,r={NONCE}".encode())
    with pytest.raises(ScramError):
        exchange.final(final.encode())


BINDING = bytes(range(32))


def bound(flag: str, binding: bytes | None, wanted: bool, said: bytes) -> bytes:
    """An exchange in which the client knows the password, and says what it is bound to."""
    verifier = Verifier.of("pencil")
    exchange = Exchange(verifier, binding, wanted)
    first = exchange.first(f"{flag},,n=,r={NONCE}".encode()).decode()
    nonce = first.split(",")[0].removeprefix("r=")
    header = base64.b64encode(f"{flag},,".encode() + said).decode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", verifier.salt, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"n=,r={NONCE},{first},c={header},r={nonce}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return exchange.final(f"c={header},r={nonce},p={proof}".encode())


def test_an_exchange_is_bound_to_its_tls() -> None:
    plus = "p=tls-server-end-point"
    assert bound(plus, BINDING, True, BINDING)
    assert bound("n", BINDING, False, b"")
    assert bound("y", None, False, b"")
    wrong = [
        (plus, BINDING, True, b""),
        (plus, BINDING, True, BINDING[::-1]),  # somebody else's certificate
        (plus, BINDING, False, BINDING),
        ("n", BINDING, True, b""),
        ("y", BINDING, False, b""),  # it was offered, and somebody has hidden that
        ("p=tls-unique", BINDING, True, BINDING),
    ]
    for each in wrong:
        with pytest.raises(ScramError):
            bound(*each)


@pytest.mark.parametrize("first", ["", "p=tls-unique,,n=u,r=x", "n,,r=x", "n,,n=u", "n,,n=u,r="])
def test_a_wrong_beginning_fails(first: str) -> None:
    with pytest.raises(ScramError):
        Exchange(Verifier.of("x")).first(first.encode())


def test_a_name_that_nobody_has_looks_like_any_other() -> None:
    one, two = (Verifier.mock(b"secret", "eve") for _ in range(2))
    real = Verifier.of("x")
    assert one.salt == two.salt
    assert (len(one.salt), one.iterations) == (len(real.salt), real.iterations)
    assert Verifier.mock(b"secret", "bob").salt != one.salt
    assert not one.matches("")


def test_verifiers_are_written_as_postgresql_does() -> None:
    found = Verifier.parse(str(Verifier.of("geheim é")))
    assert found is not None
    assert found.matches("geheim é")
    assert found.matches("geheim e\N{COMBINING ACUTE ACCENT}")
    assert not found.matches("geheim e")
    for text in ("", "md5abc", "SCRAM-SHA-256$4096:AA==$AA==:AA==", "SCRAM-SHA-256$0:AA==$x:y"):
        assert Verifier.parse(text) is None
