"""Nothing is remembered by identity, but where identity is what is meant or the object is held."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dpsql"

ALLOWED = {
    "forks.py": "locks that are taken and held until they are given back",
    "engine/planner.py": "factors and patterns that the statement holds",
    "engine/defects.py": "failures met on one walk, all held by the first",
    "algebra/weak_cache.py": "read-only objects; an entry knows its own, and goes with it",
    "plan/baselines.py": "operators that the layout holds",
    "search/workload_rows.py": "operators that the workload holds",
    "search/column_components.py": "parameters are shared by being one array; a problem holds it",
    "search/unions/joint.py": "parameters are shared by being one array; the union holds them",
    "search/marginals/residual.py": "parameters are one array; the caller holds them",
    "plan/target.py": "operators that the terms hold",
    "workload/unions.py": "operators that a reading holds; a workload shares equal ones",
    "workload/workload.py": "operators that the products, or the cache itself, hold",
    "privacy/doors/sensitivity.py": "candidates, pieces and operators that the cache itself holds",
    "learn/antipodes.py": "tables that the caller holds",
    "plan/memory.py": "matrices that the strategy holds",
    "plan/partition.py": "operators that the layout holds",
    "sql/groups/absent_groups.py": "nodes of the tree that is walked",
    "dialect/reading.py": "nodes of the tree that the caller holds",
    "logical/existence.py": "plans that the plan that is read holds",
    "logical/nodes.py": "plans that the plan that is read holds",
    "logical/own_groups.py": "plans that the plan that is read holds",
    "logical/inference.py": "plans that the statement, or the cache itself, holds",
    "logical/rules/join_order.py": "plans that the cache itself holds",
    "logical/rules/pushdown.py": "plans that the cache itself holds",
    "sql/rewrites/code_calls.py": "nodes of the tree that is walked",
    "sql/text/growth.py": "nodes of the tree that is walked",
    "sql/cells/column_mentions.py": "nodes that the cache itself holds",
    "sql/shape.py": "nodes and names that the cache itself holds",
    "sql/cells/cell_constants.py": "nodes that the cache itself holds",
    "sql/rewrites/sugar.py": "nodes of the tree that is walked",
    "strategy/base.py": "operators that the caller holds",
    "strategy/product_forecast.py": "operators that the cache itself holds",
    "privacy/doors/exact_counts.py": "pieces that the cache itself holds",
}
"""Modules that call ``id``, and why an id cannot be taken for another object's there."""


def callers(root: Path) -> set[str]:
    """The modules below a folder that call ``id``."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\bid\(", text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "id"
    }


def test_caches_by_identity_are_known() -> None:
    assert callers(PACKAGE) == ALLOWED.keys()


def test_a_cache_by_identity_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("known = {}\nknown[id(known)] = 1\n")
    (tmp_path / "old.py").write_text("def find(id):\n    return id\n")
    assert callers(tmp_path) == {"new.py"}
