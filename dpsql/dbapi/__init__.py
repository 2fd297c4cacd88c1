"""PEP 249: connections and cursors, and what the surfaces need beside them.

Its nouns: a *connection* holds the engine and the terms of a session, a *cursor* executes and walks
results by *fetching*, a *script* is several statements as one workload; ``show`` tells public
facts, ``checking`` what a catalog leaves out, ``types`` are those of columns.

Its names are loaded on use: ``dpsql --help`` needs none of them, and they need the whole engine.
"""

from __future__ import annotations

__all__ = [
    "BudgetStatus",
    "Connection",
    "Cursor",
    "Explanation",
    "LedgerEntry",
    "Result",
    "adopt_ledger",
    "connect",
    "draft_catalog",
    "find_entry",
    "inspect",
    "migrate_ledger",
    "parse_delta_text",
    "parse_epsilon_text",
    "raise_budget",
    "recover_ledger",
    "split_script",
    "verify_ledger",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dpsql.dbapi.connection import (
        BudgetStatus,
        Connection,
        Cursor,
        Explanation,
        LedgerEntry,
        Result,
        adopt_ledger,
        connect,
        find_entry,
        inspect,
        migrate_ledger,
        parse_delta_text,
        parse_epsilon_text,
        raise_budget,
        recover_ledger,
        split_script,
        verify_ledger,
    )
    from dpsql.dbapi.drafting import draft_catalog


def __getattr__(name: str) -> object:
    if name == "draft_catalog":
        from dpsql.dbapi.drafting import draft_catalog  # as below

        return draft_catalog
    if name in __all__:
        from dpsql.dbapi import connection  # `import dpsql` and `--help` need nothing heavy

        return getattr(connection, name)
    raise AttributeError(f"module 'dpsql.dbapi' has no attribute {name!r}")
