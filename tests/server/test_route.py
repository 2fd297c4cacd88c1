"""Where statements go."""

from __future__ import annotations

import pytest

from dpsql.server.route import SessionCommand, blank_but, route
from dpsql.sql.text.lexemes import split_statements

DECLARED = {("t",), ("public", "t"), ("t.s",)}


def _route(sql: str) -> SessionCommand:
    (fragment,) = split_statements(sql)
    return route(fragment, lambda parts: tuple(part.casefold() for part in parts) in DECLARED)


@pytest.mark.parametrize(
    ("kind", "sqls"),
    {
        "ask": [
            "SELECT COUNT(*) FROM t",
            'SELECT COUNT(*) FROM "public"."T"',
            "WITH a AS (SELECT * FROM t) SELECT COUNT(*) FROM a",
            "SELECT COUNT(*) FROM nobody",
            "SELECT COUNT(*) FROM (SELECT * FROM t, pg_class) x",
            "SELECT COUNT(* FROM t",
            "EXPLAIN SELECT COUNT(*) FROM t",
            "SHOW budget",
            "SHOW epsilon",
            "SHOW tables",
            "SET epsilon = 1",
            "SET noise TO gaussian",
            "SET SESSION epsilon = 1",
            "BEGIN WORKLOAD",
            "RUN WORKLOAD",
            "CANCEL WORKLOAD",
            "EXPLAIN RUN WORKLOAD",
            "SHOW COLUMNS FROM t",
            "SHOW COLUMNS FROM public.t",
            "CREATE DOMAIN d FROM t (a)",
            "DROP DOMAIN d",
            "DESCRIBE t",
            "INSERT INTO t VALUES (1)",
            "DELETE FROM t",
            "FROM t SELECT COUNT(*)",
            "(SELECT COUNT(*) FROM t) UNION ALL (SELECT COUNT(*) FROM t)",
        ],
        "twin": [
            "SELECT 1",
            "SELECT version()",
            "SELECT * FROM pg_catalog.pg_class",
            "SELECT * FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM generate_series(1, 3)",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "SHOW server_version",
            "SHOW TRANSACTION ISOLATION LEVEL",
            "SHOW ALL",
            "VALUES (1)",
            "SELECT t.oid FROM pg_type AS t WHERE (t.oid = 1",
            "EXPLAIN SELECT 1",
        ],
        "nothing": ["LISTEN x", "LOCK TABLE t"],
        "savepoint": ["SAVEPOINT a"],
        "release": ["RELEASE SAVEPOINT a"],
        "rollback to": ["ROLLBACK TO a", "ROLLBACK WORK TO SAVEPOINT a"],
        "deallocate": ["DEALLOCATE ALL", "DEALLOCATE PREPARE a"],
        "discard": ["DISCARD ALL", "DISCARD PLANS"],
        "reset": ["RESET ALL", "RESET epsilon", "SET epsilon TO DEFAULT"],
        "set local": ["SET LOCAL epsilon = 1", "SET LOCAL statement_timeout = 1"],
        "set": [
            "SET client_encoding TO 'UTF8'",
            "SET SESSION statement_timeout = '3s'",
            "SET TIME ZONE 'UTC'",
            "SET LOCAL search_path = x",
            "SET show_stddev = on",
        ],
        "show": ["SHOW show_stddev", "SHOW last_charge", "SHOW statement_timeout"],
        "begin": ["BEGIN", "BEGIN READ ONLY", "START TRANSACTION"],
        "commit": ["COMMIT", "END"],
        "rollback": ["ROLLBACK", "ABORT"],
        "declare": ['DECLARE "c" NO SCROLL CURSOR WITH HOLD FOR SELECT COUNT(*) FROM t'],
        "fetch": ["FETCH 5 FROM c", "FETCH FORWARD ALL IN c", "MOVE 3 c", 'FETCH "c"'],
        "close": ["CLOSE c", "CLOSE ALL"],
        "copy": [
            "COPY (SELECT COUNT(*) FROM t) TO STDOUT",
            "COPY (SELECT COUNT(*) FROM t) TO STDOUT WITH (FORMAT binary)",
        ],
    }.items(),
)
def test_where_statements_go(kind: str, sqls: list[str]) -> None:
    assert {sql: _route(sql).kind for sql in sqls} == dict.fromkeys(sqls, kind)


def test_what_a_cursor_is_of_keeps_its_place() -> None:
    sql = "DECLARE c CURSOR FOR SELECT COUNT(*) FROM t"
    command = _route(sql)
    assert len(command.inner) == len(sql)
    assert command.inner.strip() == "SELECT COUNT(*) FROM t"
    command = _route("COPY (SELECT COUNT(*) FROM t) TO STDOUT CSV HEADER")
    assert (command.name, command.inner.strip()) == ("csv header", "SELECT COUNT(*) FROM t")


def test_blanks_keep_places() -> None:
    text = "BEGIN;\n SELECT 1 ; SELECT ';' "
    one, two, three = split_statements(text)
    assert blank_but(text, [two, three]).rstrip() == "      \n SELECT 1;  SELECT ';'"
    assert [f.body for f in split_statements(blank_but(text, [one, three]))] == [
        "BEGIN",
        "SELECT ';'",
    ]
