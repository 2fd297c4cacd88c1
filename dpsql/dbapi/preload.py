"""Early work: slow steps that need nothing of a catalog, begun while the rest is imported."""

from __future__ import annotations


def open_early() -> None:
    """Begin to open DuckDB, once for public values and once for rows: a twelfth of a first answer.

    The first is begun before what the second needs is imported.
    """
    from dpsql.sealed import ahead  # this module is imported before anything that takes long

    ahead.begin()
    from dpsql.privacy.doors.vaults import open_ahead

    open_ahead()
