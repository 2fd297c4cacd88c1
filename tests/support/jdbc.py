"""PostgreSQL's JDBC driver for tests: Debian's, in a Java of its own that Python steers."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path("/usr/share/java/postgresql.jar")
"""Where Debian's package libpostgresql-jdbc-java puts it."""


def require_jdbc() -> None:
    """Skip where the driver cannot run; fail instead where DPSQL_TEST_JDBC says that it must."""
    missing = [] if DRIVER.exists() else ["libpostgresql-jdbc-java"]
    if importlib.util.find_spec("pyspark") is None:
        missing.append("the package pyspark, whose py4j steers it")
    if shutil.which("java") is None:
        missing.append("Java")
    if missing:
        told = f"JDBC needs {' and '.join(missing)}"
        if os.environ.get("DPSQL_TEST_JDBC"):
            pytest.fail(told)
        pytest.skip(told)


@contextmanager
def java() -> Iterator[Any]:
    """The classes of a Java that knows the driver."""
    require_jdbc()
    import pyspark
    from py4j.java_gateway import JavaGateway

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(jar), classpath=str(DRIVER), die_on_exit=True, javaopts=["-XX:+UseSerialGC"]
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.java_process.stdin.close()
        gateway.java_process.wait()


def read(found: Any) -> list[list[Any]]:
    """The rows of a result set, whose values are text."""
    count = found.getMetaData().getColumnCount()
    rows = []
    while found.next():
        rows.append([found.getString(number + 1) for number in range(count)])
    return rows
