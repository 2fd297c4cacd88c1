"""Stores of objects for tests: one of S3 by moto, and one whose answers are made by a test."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

BUCKET = "bucket"
KEY_ID, SECRET = "AKIDOFTHETEST", "secretofthetest"


def point_to(address: str, patch: pytest.MonkeyPatch) -> None:
    """Let the environment name a store of S3 and credentials, as a curator's does."""
    patch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_REGION", "us-east-1")
    patch.setenv("AWS_ENDPOINT_URL", address)


@contextmanager
def s3() -> Iterator[tuple[str, Any]]:
    """A server of S3 in threads of this process: its address, and a client of one bucket."""
    pytest.importorskip("obstore")
    moto = pytest.importorskip("moto.server")
    import boto3
    import botocore.config

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=botocore.config.Config(proxies={}),
        )
        client.create_bucket(Bucket=BUCKET)
        yield address, client
    finally:
        server.stop()


Answer = tuple[int, Mapping[str, str], bytes]
"""A status, headers and a body, which may be shorter than the header Content-Length says."""


@contextmanager
def answering(
    answer: Callable[[str, str], Answer], secured: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """A web server whose answers follow from method and path: its address.

    It is ``secured`` by a certificate and its key.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, headers, body = answer(self.command, self.path)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    for method in ("GET", "HEAD", "PUT", "POST"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if secured is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*secured)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if secured is None else "https"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


EXTENSIONS = "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n"
MADE = (
    "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests",
    "req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=localhost",
    "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile own.ext "
    "-out own.pem",
)


def certificate(folder: Path) -> tuple[Path, Path, Path]:
    """The certificate of an authority, one that it signs for this machine, and the key of that."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl is installed")
    (folder / "own.ext").write_text(EXTENSIONS)
    for command in MADE:
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder / "ca.pem", folder / "own.pem", folder / "own.key"


AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key that the emulator of Azure publishes."""
ACCOUNT = "devstoreaccount1"


@contextmanager
def azure(folder: Path) -> Iterator[tuple[str, Callable[[str, bytes], None]]]:
    """An emulator of Azure with a container: its address, and what puts an object there."""
    program = os.environ.get("AZURITE") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed: npm install azurite, and AZURITE names azurite-blob")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = f"--blobHost 127.0.0.1 --blobPort {port} --silent --skipApiVersionCheck --location"
    process = subprocess.Popen(
        [program, *given.split(), str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"

    def send(path: str, body: bytes, headers: Mapping[str, str], query: str = "") -> None:
        when = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        own = {"x-ms-date": when, "x-ms-version": "2021-08-06", **headers}
        listed = "".join(f"{key}:{own[key]}\n" for key in sorted(own))
        size = str(len(body)) if body else ""
        resource = f"/{ACCOUNT}/{ACCOUNT}/{path}" + (f"\n{query.replace('=', ':')}" * bool(query))
        text = f"PUT\n\n\n{size}\n\napplication/octet-stream" + "\n" * 7 + listed + resource
        signed = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)
        own["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        own |= {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        url = f"{address}/{ACCOUNT}/{path}" + f"?{query}" * bool(query)
        asked = urllib.request.Request(url, data=body, method="PUT", headers=own)
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked).close()

    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        send(BUCKET, b"", {}, "restype=container")
        yield (
            address,
            lambda key, body: send(f"{BUCKET}/{key}", body, {"x-ms-blob-type": "BlockBlob"}),
        )
    finally:
        process.terminate()
        process.wait()
