"""The engines of servers that are part of dpsql, each a module with an ``ENGINE`` of its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from dpsql.catalog.catalog import SERVERS, Table
from dpsql.privacy.vault.data_engine import DataEngine, unavailable
from dpsql.privacy.vault.dialect import Dialect


def find_server(table: Table) -> DataEngine:
    """Return the engine of a server, whose driver may be missing.

    Raises: DataUnavailable, which names the extra that brings the driver.
    """
    name = {"postgresql": "postgres"}.get(str(table.engine), str(table.engine))
    try:
        engine: DataEngine = import_module(f"dpsql.privacy.vault.servers.{table.engine}").ENGINE
    except ImportError:  # drivers are only imported where they are used
        problem = f"the driver for {table.engine} is not installed"
        unavailable(table.name, table.source, problem, f"pip install 'dpsql[{name}]'")
    return engine


def find_dialect(table: Table) -> tuple[Dialect, Callable[[str], str]] | None:
    """Return how an engine's SQL is written, and families of its types: no driver is needed.

    None where an installed package does not say it.
    """
    if table.engine not in SERVERS:
        from dpsql.privacy.vault.plugins import find_dialect as of_package  # most are ours

        return of_package(table)
    module = import_module(f"dpsql.privacy.vault.servers.{table.engine}_sql")
    return module.DIALECT, module.family_of
