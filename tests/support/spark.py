"""Spark for tests: one context for all of a file, of two threads of this process."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

MASTER = "local[2]"
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


def require_spark() -> None:
    """Skip where Spark cannot run; fail instead where DPSQL_TEST_SPARK says that it must."""
    missing = []
    if importlib.util.find_spec("pyspark") is None:
        missing.append("the package pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing.append("Java 17")
    if missing:
        told = f"Spark needs {' and '.join(missing)}"
        if os.environ.get("DPSQL_TEST_SPARK"):
            pytest.fail(told)
        pytest.skip(told)


@contextmanager
def small_spark(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let the engine start Spark with what a small machine is set to, and stop it in the end."""
    require_spark()
    from pyspark import SparkContext

    lines = {**DEFAULTS, "spark.sql.warehouse.dir": f"{folder}/warehouse", **(settings or {})}
    (folder / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in lines.items()), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONF_DIR", str(folder))
        patched.setenv("SPARK_LOCAL_DIRS", str(folder / "local"))
        try:
            yield
        finally:
            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
