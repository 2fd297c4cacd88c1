"""Draft a catalog for a data file from column names and types: never from its values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def draft(
    path: Path | str, columns: Sequence[tuple[str, str]], source: Mapping[str, str] | None = None
) -> str:
    """Return a TOML catalog with one commented line per column for the curator to fill in.

    ``columns`` are pairs of name and type family; ``source`` says where a server has the table
    that ``path`` names. A column whose domain stays commented out cannot be queried.
    """
    path = Path(path)
    name = re.sub(r"\W+", "_", path.name.split(".")[0]).strip("_").lower() or "data"
    where = json.dumps(path.name)
    if source is not None:
        where = (
            f"{{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in source.items())} }}"
        )
    lines = [
        "# Drafted from column names and types only. Declare what each column may hold, from the",
        "# documentation of the data, never from the data: what is not declared cannot be queried.",
        "",
        "[budget]",
        "epsilon = 1.0        # for everything ever released from this catalog",
        "delta   = 1e-9       # 0 = pure differential privacy",
        "",
        f"[table.{name}]",
        f"source       = {where}",
        'privacy_unit = "row" # or { column = "person_id", max_rows = 5 }',
        "",
        f"[table.{name}.column]",
    ]
    width = max((len(_key(column)) for column, _ in columns), default=0)
    lines += [f"{_key(column):<{width}} = {_facts(kind)}" for column, kind in columns]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _facts(kind: str) -> str:
    match kind:
        case "integer":
            return '{ type = "integer" } # domain = [0, 99], or bounds = [0, 100000]'
        case "decimal":
            return '{ type = "decimal" } # domain = [0, 9.99], step = 0.01'
        case "float":
            return '{ type = "number" }  # domain = [0, 500], bins = 100, or bounds = [0, 500]'
        case "boolean":
            return '{ type = "boolean", domain = [false, true] }'
        case "timestamp":
            return '{ type = "timestamp" } # domain = ["2024-01-01", "2024-12-31"], by = "hour"'
        case "date":
            return '{ type = "date" }    # domain = ["2020-01-01", "2024-12-31"], by = "month"'
    return '{ type = "text" }    # domain = ["a", "b"], or domain_file = "values.txt"'
