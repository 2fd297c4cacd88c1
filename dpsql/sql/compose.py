"""A statement -> the SELECTs over private tables that it is made of, compiled."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.bind import bind
from dpsql.sql.compiled import Compiled
from dpsql.sql.parse import Statement
from dpsql.sql.products import Compiler
from dpsql.sql.scope import PublicRows


def compile_statement(statement: Statement, compiler: Compiler, public: PublicRows) -> Compiled:
    """Bind and compile a statement.

    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    tree = statement.tree
    assert isinstance(tree, exp.Select)
    query = bind(
        tree, statement.fragment, compiler.catalog, public, statement.clips, compiler.known
    )
    return Compiled(statement.fragment.body, (compiler.compile(query),))
