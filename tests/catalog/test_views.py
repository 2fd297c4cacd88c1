"""Views in a catalog: read, validated, and part of the policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError

BASE = """
[budget]
epsilon = 1

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 9] }
"""


def load(folder: Path, text: str) -> Catalog:
    path = folder / "c.toml"
    path.write_text(BASE + text)
    return read_catalog(path)


def test_a_view_has_a_name_and_sql(tmp_path: Path) -> None:
    catalog = load(tmp_path, "[view.Half]\nsql = 'SELECT a // 2 AS h FROM t'\n")
    assert catalog.views["half"].name == "Half"
    assert catalog.views["half"].sql == "SELECT a // 2 AS h FROM t"
    assert catalog.policy_hash() != load(tmp_path, "").policy_hash()


@pytest.mark.parametrize(
    "text",
    [
        "[view.v]\n",
        "[view.v]\nsql = 3\n",
        "[view.v]\nsql = ''\n",
        "[view.v]\nsql = 'SELECT a FROM t; SELECT a FROM t'\n",
        "[view.v]\nsql = 'SELECT a FRM t WHERE ('\n",
        "[view.v]\nsql = 'DROP TABLE t'\n",
        "[view.v]\nsql = 'EXPLAIN SELECT a FROM t'\n",
        "[view.v]\nsql = 'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) a FROM t'\n",
        "[view.v]\nsql = 'SELECT a FROM t'\npublic = true\n",
        "[view.T]\nsql = 'SELECT a FROM t'\n",
        "[view.v]\nsql = 'SELECT a FROM t'\n[view.V]\nsql = 'SELECT a FROM t'\n",
        "[view]\nv = 'SELECT a FROM t'\n",
    ],
)
def test_a_malformed_view_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, text)
    assert caught.value.code == "E_POLICY"
    assert "view" in caught.value.message or "public" in caught.value.message
    assert caught.value.hint
