"""A served catalog, and a client that speaks the protocol byte by byte."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.dbapi.site import open_site
from dpsql.server.address import Address
from dpsql.server.binding import end_point
from dpsql.server.catalog_twin import Twin, twin_of
from dpsql.server.databases import Database, Databases
from dpsql.server.handshake import Failures
from dpsql.server.preload import import_all
from dpsql.server.server import Server, read_tls
from dpsql.server.users import Users
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 100
delta = 1e-9

[ledger]
anchor = "anchors"

[analyst.ana]
epsilon = 90

[analyst.bo]
epsilon = 1

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
kind = { type = "text", domain = ["x", "y", "it's"] }
size = { type = "integer", domain = [0, 9] }
day = { type = "date", domain = ["2024-01-01", "2024-03-31"], by = "month" }
cost = { type = "number", bounds = [0, 100] }
"""
TABLES = {
    "t": "SELECT CASE i % 4 WHEN 0 THEN 'y' WHEN 1 THEN 'it''s' ELSE 'x' END AS kind,"
    " i % 10 AS size, DATE '2024-01-01' + CAST(i % 90 AS INTEGER) AS day, i % 100 AS cost"
    " FROM range(1000) v(i)"
}
PASSWORD = "geheim é"


def write_served(folder: Path) -> Path:
    """Write the catalog, its data and its users; return the catalog's path."""
    catalog = folder / "clinic.toml"
    write_tables(folder, CATALOG, TABLES).close()
    (folder / "t.toml").rename(catalog)
    users = Users(folder / "clinic.users")
    users.put("ana", PASSWORD, new=True)
    users.put("Bo", PASSWORD, new=True)
    users.put("eve", PASSWORD, new=True)
    return catalog


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost and its key, signed by itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2"
    subprocess.run([*command.split(), "-subj", "/CN=localhost"], check=True, capture_output=True)
    return cert, key


def database(catalog: Path, twin: Twin | None = None) -> Database:
    """A database of a catalog; its twin is one in the PostgreSQL of another's."""
    name, users = catalog.stem, Users(catalog.with_suffix(".users"))
    if twin is not None and twin.database != name:
        twin = twin_of(twin.server, name)
    return Database(name, open_site(catalog), users, twin)


@contextmanager
def served(
    catalog: Path,
    twin: Twin | None = None,
    tls: tuple[Path, Path] | None = None,
    most: int = 200,
    first_delay: float = 0.0,
    others: Sequence[Path] = (),
) -> Iterator[Server]:
    """A server of a catalog, and of others, in a thread, on a port that the kernel chooses.

    All modules are imported before, as the command does: none is while a statement may end.
    Sign-ins that fail cost no time unless a first delay is given.
    """
    import_all()
    address = Address("127.0.0.1", 0)
    context = None if tls is None else read_tls(*tls, address)
    binding = None if tls is None else end_point(tls[0])
    server = Server(
        Databases(*(database(each, twin) for each in (catalog, *others))),
        address,
        context,
        most,
        binding=binding,
        failures=Failures(first=first_delay, of_name=first_delay),
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


@dataclass
class Client:
    """One connection; ``ask`` returns the messages up to the next ReadyForQuery."""

    port: int
    user: str = "ana"
    password: str = PASSWORD
    socket: socket.socket = field(init=False)
    key: tuple[int, int] = (0, 0)
    parameters: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), 60)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self.socket.recv(count - len(found))
            if not piece:
                raise EOFError(bytes(found))
            found += piece
        return bytes(found)

    def message(self) -> tuple[bytes, bytes]:
        kind = self.read(1)
        return kind, self.read(struct.unpack("!i", self.read(4))[0] - 4)

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        found = [self.message()]
        while found[-1][0] != b"Z":
            found.append(self.message())
        return found

    def start(self, **options: str) -> list[tuple[bytes, bytes]]:
        """Sign in, and return what comes; the last is Z, or E where the client is refused."""
        told = {"user": self.user, "database": "clinic", **options}
        body = b"".join(f"{k}\0{v}\0".encode() for k, v in told.items()) + b"\0"
        self.socket.sendall(struct.pack("!ii", len(body) + 8, 196608) + body)
        kind, asked = self.message()
        if kind == b"E":
            return [(kind, asked)]
        assert b"SCRAM-SHA-256" in asked[4:].split(b"\0")
        nonce = "rOprNGfwEbeRWgbNEkqO"
        bare = f"n=,r={nonce}"
        first = f"n,,{bare}".encode()
        self.send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        kind, body = self.message()
        if kind == b"E":
            return [(kind, body)]
        server = body[4:].decode()
        facts = dict(part.split("=", 1) for part in server.split(","))
        final = f"c=biws,r={facts['r']}"
        salt = base64.b64decode(facts["s"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, int(facts["i"]))
        client = hmac.digest(salted, b"Client Key", "sha256")
        signed = f"{bare},{server},{final}".encode()
        signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client, signature, strict=True)))
        self.send(b"p", f"{final},p=".encode() + proof)
        found = [self.message()]
        while found[-1][0] not in (b"Z", b"E"):
            found.append(self.message())
            if found[-1][0] == b"K":
                self.key = struct.unpack("!iI", found[-1][1])
            if found[-1][0] == b"S":
                name, value, _ = found[-1][1].decode().split("\0")
                self.parameters[name] = value
        return found

    def ask(self, sql: str) -> list[tuple[bytes, bytes]]:
        """A simple query."""
        self.send(b"Q", sql.encode() + b"\0")
        return self.until_ready()

    def parse(self, sql: str, name: str = "", oids: tuple[int, ...] = ()) -> None:
        body = f"{name}\0{sql}\0".encode() + struct.pack(f"!H{len(oids)}I", len(oids), *oids)
        self.send(b"P", body)

    def bind(
        self, *values: bytes | None, portal: str = "", name: str = "", wanted: int = 0
    ) -> None:
        body = f"{portal}\0{name}\0".encode() + struct.pack("!hh", 0, len(values))
        for value in values:
            body += (
                struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
            )
        self.send(b"B", body + struct.pack("!hh", 1, wanted))

    def describe(self, kind: bytes = b"S", name: str = "") -> None:
        self.send(b"D", kind + name.encode() + b"\0")

    def execute(self, most: int = 0, portal: str = "") -> None:
        self.send(b"E", portal.encode() + b"\0" + struct.pack("!i", most))

    def sync(self) -> list[tuple[bytes, bytes]]:
        self.send(b"S")
        return self.until_ready()


def salt_of(port: int, name: str, **options: str) -> bytes:
    """The salt that a stranger is told of a name."""
    with Client(port, name, "wrong") as client:
        heard = []
        hear = client.message

        def listen() -> tuple[bytes, bytes]:
            heard.append(hear())
            return heard[-1]

        client.message = listen  # type: ignore[method-assign]
        client.start(**options)
    (found,) = re.findall(rb"s=([^,]+),i=4096", b"".join(body for _, body in heard))
    return bytes(found)


def kinds(found: list[tuple[bytes, bytes]]) -> str:
    """The letters of messages."""
    return b"".join(kind for kind, _ in found).decode()


def rows(found: list[tuple[bytes, bytes]]) -> list[list[bytes | None]]:
    """The rows among messages."""
    result = []
    for kind, body in found:
        if kind == b"D":
            at, values = 2, []
            for _ in range(struct.unpack("!H", body[:2])[0]):
                (size,) = struct.unpack("!i", body[at : at + 4])
                values.append(None if size < 0 else body[at + 4 : at + 4 + size])
                at += 4 + max(size, 0)
            result.append(values)
    return result


def told(found: list[tuple[bytes, bytes]], kind: bytes = b"E") -> list[dict[str, str]]:
    """The fields of errors, or of notices, among messages."""
    return [
        {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
        for letter, body in found
        if letter == kind
    ]


def names(found: list[tuple[bytes, bytes]]) -> list[tuple[str, int]]:
    """The names and types of the columns among messages."""
    result = []
    for kind, body in found:
        at = 2
        while kind == b"T" and at < len(body):
            end = body.index(b"\0", at)
            result.append((body[at:end].decode(), struct.unpack("!i", body[end + 7 : end + 11])[0]))
            at = end + 19
    return result
