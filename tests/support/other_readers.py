"""Files as pandas and pyreadstat read them, in the form that a draft declares."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

STAT = {".sav": "read_sav", ".zsav": "read_sav", ".dta": "read_dta", ".xpt": "read_xport"}
OWN: dict[str, Any] = {
    ".parquet": pd.read_parquet,
    ".feather": pd.read_feather,
    ".orc": pd.read_orc,
}


def read_as_drafted(path: Path, draft: str) -> pd.DataFrame | None:
    """Return the rows of a file as texts or numbers; None where the other readers have none."""
    said = next(iter(tomllib.loads(draft)["table"].values()))["source"]
    said = said if isinstance(said, dict) else {}
    end = path.suffix.lower()
    try:
        if end in STAT:
            import pyreadstat

            found, _ = getattr(pyreadstat, STAT[end])(str(path))
            return pd.DataFrame(found)
        if end in OWN:
            return pd.DataFrame(OWN[end](path))
        if end == ".arrow":
            import pyarrow as pa

            return pd.DataFrame(pa.ipc.open_file(path).read_pandas())
        if end == ".ndjson":
            return pd.read_json(path, lines=True)
        if end in (".xlsx", ".ods"):
            found = pd.read_excel(path, engine="calamine", header=said.get("skip", 0))
            named = [each for each in found if not str(each).startswith("Unnamed")]
            return found.dropna(how="all", subset=named)
        if end == ".sqlite":
            with closing(sqlite3.connect(path)) as connection:
                (name,) = connection.execute("SELECT name FROM sqlite_master").fetchone()
                return pd.read_sql(f'SELECT * FROM "{name}"', connection)
        return _delimited(path, said)
    except Exception:  # a file that they refuse
        return None


def _delimited(path: Path, said: Mapping[str, Any]) -> pd.DataFrame:
    options = {"decimal": said.get("decimal", "."), "thousands": said.get("thousands")}
    found: pd.DataFrame = pd.read_csv(
        path,
        sep=said.get("delimiter", ","),
        encoding=said.get("encoding", "utf-8"),
        skiprows=said.get("skip", 0),
        header="infer" if said.get("header", True) is True else None,
        na_values=[*said.get("missing", ()), ""],
        keep_default_na=False,
        index_col=False,
        **options,
    )
    return found
