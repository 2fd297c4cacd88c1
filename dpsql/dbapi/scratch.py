"""Scratch mode: drafts of a catalog, asked within a part of its budget that is set apart for them.

Every charge is one of the real ledger, to the whole budget and to that part of it.
"""

from __future__ import annotations

import os
from typing import Any

from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection, connect
from dpsql.privacy.budget.curator_acts import follow_draft


def connect_scratch(catalog: str | os.PathLike[str], **options: Any) -> tuple[Connection, str]:
    """Connect as ``dpsql.connect`` does, for drafts; say what of the catalog has changed since.

    Columns, views and new tables of an edited catalog are in force at once, and logged.
    Raises: as that.
    Guarantee: that of ``dpsql.connect``, for real answers and drafts together; drafts alone have
    the epsilon of [scratch], where the catalog has one.
    """
    change = follow_draft(read_catalog(catalog))
    connection = connect(catalog, **options)
    connection.engine.scratch = True
    return connection, change
