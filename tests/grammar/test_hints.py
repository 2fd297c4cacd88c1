"""Hints are true: whatever a refusal says works is tried where it is said.

Every hint of grammar/rejected.sql and of random refusals has a rule in ``RULES``: what it names as
a statement that must be accepted, or ``nothing`` where it names nothing that could be tried.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.effort import effort, first_seed
from tests.support.grammar import Sampler, emitted, mutated, read_cases, verdict
from tests.support.oracle import open_world

SENTENCES = effort(30)
SEED = first_seed(4)
Follow = Callable[[str, "re.Match[str]"], "list[str]"]

EXTRA = [
    "SELECT MAX(cost) FROM visits",
    "SELECT BOOL_OR(notes = 'a') FROM visits",
    "SELECT COUNT(*) FROM t WHERE a >= ALL (SELECT lo FROM bands)",
    "SELECT COUNT(*) FROM t WHERE a = ANY (SELECT lo FROM bands)",
    "SELECT COUNT(*) FROM t WHERE a <> ALL (SELECT lo FROM bands)",
    "SELECT SUM(m, contribution_bounds_per_row => (0, 9)) FROM t",
    "SELECT MIN(notes) FROM visits",
    "SELECT MAX(n) FROM t",
    "SELECT MAX(b) FROM t",
    "SELECT MIN(a * 2) FROM t",
    "SELECT MAX(a + e) FROM t",
    "SELECT MAX(m) FROM t",
    "SELECT MEDIAN(b) FROM t",
    "SELECT QUANTILE_CONT(d, 0.2) FROM t",
    "SELECT COUNT(DISTINCT m) FROM t",
    "SELECT COUNT(DISTINCT a + e) FROM t",
    "SELECT SUM(DISTINCT q) FROM t",
    "SELECT STDDEV(DISTINCT a), MEDIAN(DISTINCT a) FROM t",
    "SELECT COUNT(*) FROM visits WHERE person_id = 'p1'",
    "SELECT person_id, COUNT(*) FROM visits GROUP BY person_id",
    "SELECT m, COUNT(*) FROM t",
    "SELECT w, COUNT(*) FROM t",
    "SELECT a, COUNT(*) FROM t GROUP BY c",
    "DESCRIBE t.a.b.c",
    "DESCRIBE other.t",
    "SELECT COUNT(*) FROM t WHERE d < TIMESTAMP '2024-02-01 12:00:00'",
    "SELECT EXTRACT(hour FROM d), COUNT(*) FROM t GROUP BY 1",
    "SELECT COUNT(*) FROM t WHERE w >= 10",
    "SELECT COUNT(*) FROM t WHERE n * n > 3",
    "SELECT DP_STDDEV(a), COUNT(*) FROM t GROUP BY a",
    "SELECT COUNT(*) AS total, DP_STDDEV(totl) FROM t",
    "SELECT DP_STDDEV(MEDIAN(a)) FROM t",
    "SELECT a, RANK() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY a HAVING r < 3",
    "SELECT a, k FROM (SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS q ORDER BY 5",
    "SELECT a, SUM(k) FROM (SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS q",
    "SELECT * FROM (SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS q GROUP BY a",
    "SELECT COUNT(*) FROM t LEFT JOIN bands USING (a)",
    "SELECT COUNT(*) FROM t WHERE b = 'its'",
    "SELECT cuont(a) FROM t",
    "SELECT a, SUMM(q) FROM t GROUP BY a",
    "SELECT COUNT(*) FROM t WHERE uper(b) = 'X'",
    'SELECT COUNT(*) FROM t WHERE b = "its"',
    "SELECT COUNT(*) FROM t WHERE b IN (‘x’, 'y')",
    "SELECT COUNT(*) FROM t WHERE b = `x`",
    "SELECT COUNT(*) FROM t WHERE b = 'x' /* and",
    "SELECT COUNT(*) FROM t WHERE b = 'x",
    "SELECT COUNT(*) FROM t WHERE a = :x",
    "SELECT COUNT(*) FROM t WHERE a = $1",
    "SELECT COUNT(*) FROM t WHERE d >= '2024-02-30'",
    "SELECT COUNT(*) FROM t WHERE d = 2024",
    "SELECT COUNT(*) FROM t WHERE w > 'ten'",
    "SELCT COUNT(*) FROM t",
    "EXPLAIN",
    "EXPLAIN INSERT INTO t VALUES (1)",
    "BEGIN",
    "COMMIT",
    "DESCRIBE tt",
    "SELECT COUNT(DISTINCT ) FROM visits",
    "SET reuse = sometimes",
    "SELECT SUM(DISTINCT ) FROM t",
    "SELECT MODE() FROM t",
    "SELECT COALESCE(*COLUMNS(['a', 'e'])) FROM t",
    "SELECT MEDIAN(COLUMNS('a|e')) + AVG(COLUMNS('a')) FROM t",
    "SELECT COLUMNS('k') FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS s",
    "SELECT MIN() FROM t",
    "SELECT MAX(x) FROM (SELECT a * 2 AS x FROM t) AS s",
    "SELECT LIST(upper(b)) FROM t",
    "SELECT FIRST(d), COUNT(*) FROM t GROUP BY b",
    "SELECT STRING_AGG(DISTINCT b, ',') FROM t",
    "SELECT MIN(month(d)) FROM t",
    "SELECT COUNT(DISTINCT a, b) FROM t",
    "SELECT COUNT(DISTINCT x || y) FROM (SELECT b AS x, a AS y FROM t) AS s",
    "SELECT MEDIAN(a > 3) FROM t",
    "SELECT DISTINCT * FROM visits",
    "SUMMARIZE t",
    "CREATE VIEW v AS SELECT a FROM t",
    "COPY (SELECT COUNT(*) FROM t) TO 'x.csv'",
    "SELECT COUNT(*) FROM (SELECT a FROM t USING SAMPLE 10) AS s",
]


def nothing(sql: str, match: re.Match[str]) -> list[str]:
    """The hint names nothing that could be tried."""
    return []


def always(*tried: str) -> Follow:
    """The hint names forms that work anywhere."""
    return lambda sql, match: list(tried)


def over(sql: str, match: re.Match[str]) -> list[str]:
    """Expressions that the hint names, over the private table of the statement."""
    found = re.search(r"\bFROM\s+\(*\s*(t|adult|visits)\b", sql, re.IGNORECASE)
    table = found.group(1) if found else "t"
    text = match.group("what")
    if text.startswith("SELECT"):
        return [text]
    # what is spoken of may be renamed by sub-queries of the statement
    return [f"SELECT {text} FROM {table}"] if "WITH" not in sql and sql.count("FROM") == 1 else []


def filled(sql: str, match: re.Match[str]) -> list[str]:
    """A statement that the hint names, its FROM left out, over the table of the statement."""
    found = re.search(r"\bFROM\s+\(*\s*(t|adult|visits)\b", sql, re.IGNORECASE)
    text = match.group("what").replace("...", f"FROM {found.group(1) if found else 't'}")
    return [text] if "WITH" not in sql and sql.count("FROM") == 1 else []


def grouped(sql: str, match: re.Match[str]) -> list[str]:
    """The statement with one more key; some more may be missing."""
    key = match.group("key")
    if sql.upper().count("SELECT") > 1 or "GROUP" in sql.upper():
        return []
    columns = re.search(r"\bFROM (t|adult|visits)\b", sql)
    return [f"SELECT {key}, COUNT(*) FROM {columns.group(1)} GROUP BY {key}"] if columns else []


def named(sql: str, match: re.Match[str]) -> list[str]:
    """Nothing to try, but the name has to be one that is known; see ``unknown``."""
    return []


def truncated(sql: str, match: re.Match[str]) -> list[str]:
    """Groups by calendar functions."""
    listed = match.group("what").split(" or ")
    return [f"SELECT {each} AS g, COUNT(*) FROM t GROUP BY g" for each in listed]


def cut(sql: str, match: re.Match[str]) -> list[str]:
    """Comparisons with every edge."""
    column, edges = match.group("column"), match.group("edges").split(", ")
    tests = [f"{column} {o} {edge}" for edge in edges for o in ("<", ">=") if edge != "..."]
    return [f"SELECT COUNT(*) FROM t WHERE {test}" for test in tests]


def near(sql: str, match: re.Match[str]) -> list[str]:
    """The comparison that is meant, and those with every edge."""
    return [f"SELECT COUNT(*) FROM t WHERE {match.group('near')}", *cut(sql, match)]


def declared(sql: str, match: re.Match[str]) -> list[str]:
    """Comparisons with every declared value that is listed."""
    table, column = ("adult", "education") if "adult" in sql else ("t", "b")
    values = re.findall(r"'[^']*'|\"[^\"]*\"", match.group("values"))
    quoted = ["'" + v[1:-1].replace("'", "''") + "'" for v in values]
    if column not in sql:
        return []
    return [f"SELECT COUNT(*) FROM {table} WHERE {column} = {value}" for value in quoted]


def listed(form: str) -> Follow:
    """Every word that the hint lists, put into a form."""
    return lambda sql, match: [form.format(w.strip(" '")) for w in match.group("what").split(",")]


SUB = "(SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS q"
JOINED = "SELECT COUNT(*) FROM t JOIN bands ON a = lo"
KEPT = "SELECT COUNT(t.a), SUM(t.a) FROM bands LEFT JOIN t ON t.a = bands.lo"
BETWEEN = "SELECT COUNT(*) FROM t JOIN bands ON a BETWEEN lo AND hi"
SERIES = "SELECT x, COUNT(*) FROM UNNEST([1, 2]) AS u(x) JOIN t ON a = x GROUP BY x"
RANGE = "SELECT i, COUNT(*) FROM range(0, 10) AS s(i) JOIN t ON a = i GROUP BY i"
LISTED = "SELECT QUANTILE_CONT(a, [0.25, 0.5, 0.75]) FROM t"
PIVOTED = "PIVOT t ON b IN ('x', 'y') USING COUNT(*) GROUP BY c"
COUNTED = "SELECT b, COUNT(*) FROM t GROUP BY b"
DP = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"
CREATE = "CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1)"
CLAUSES = "SELECT a, COUNT(*) AS k FROM t WHERE c GROUP BY a HAVING k > 1 ORDER BY k LIMIT 3"
FREE = ["EXPLAIN SELECT COUNT(*) FROM t", "SET epsilon = 1", "SHOW budget", "DESCRIBE t"]
AGGREGATES = "COUNT(a), SUM(a), AVG(a), VAR_POP(a), VAR_SAMP(a), STDDEV(a), CORR(a, q)"
RANKS = "MEDIAN(a), QUANTILE_CONT(a, 0.5), QUANTILE_DISC(a, 0.5), MODE(a)"
OF_SHELL = (
    "MIN(k), MAX(k), QUANTILE_CONT(k, 0.5), VARIANCE(k), BOOL_AND(k > 1), BOOL_OR(k > 1), "
    "ARG_MAX(k, k), ARG_MIN(k, k)"
)
SCALARS = (
    "a IN (1, 2) AND a BETWEEN 1 AND 3 AND b LIKE 'x%' AND CASE WHEN c THEN a + 1 ELSE 0 END > 0"
)

BY_UNIT = "SELECT COUNT(*) FROM (SELECT {} AS n FROM visits) AS v"

RULES: list[tuple[str, Follow]] = [
    (
        r"SELECT DISTINCT \.\.\. FROM \(SELECT \.\.\. GROUP BY \.\.\.\) works",
        always(f"SELECT DISTINCT k FROM {SUB}"),
    ),
    # rows of one unit
    (r"COUNT\(DISTINCT \w+\) works, or (?P<what>SELECT n, .*)", over),
    (
        r"OVER \(PARTITION BY person_id ORDER BY \.\.\.\): rows of different units never meet",
        always(f"{BY_UNIT.format('ROW_NUMBER() OVER (PARTITION BY person_id ORDER BY cost)')}"),
    ),
    (
        r"columns (of numbers and dates )?with a domain work|LAG\(day\), LAG\(day, 2\)"
        "|numbers with bounds",
        always(
            BY_UNIT.format("LAG(ward) OVER (PARTITION BY person_id ORDER BY cost)"),
            BY_UNIT.format("SUM(cost) OVER (PARTITION BY person_id, ward)"),
        ),
    ),
    (
        r"ROW_NUMBER, RANK, DENSE_RANK, LAG, .* of columns work",
        always(
            *(
                BY_UNIT.format(f"{call} OVER (PARTITION BY person_id ORDER BY cost)")
                for call in [
                    "RANK()",
                    "DENSE_RANK()",
                    "LEAD(ward)",
                    "FIRST_VALUE(ward)",
                    "LAST_VALUE(ward)",
                    "COUNT(ward)",
                    "AVG(cost)",
                    "MAX(cost)",
                ]
            )
        ),
    ),
    (
        r"ROWS BETWEEN 2 PRECEDING AND CURRENT ROW, RANGE BETWEEN 6 .*",
        always(
            BY_UNIT.format(
                "COUNT(*) OVER (PARTITION BY person_id ORDER BY cost "
                "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
            )
        ),
    ),
    (r"a frame by RANGE is in the order of one column of .*", nothing),
    (
        r"list the columns, the privacy unit among them; or UNION ALL",
        always(
            "SELECT COUNT(*) FROM (SELECT person_id, ward FROM visits UNION SELECT person_id, ward "
            "FROM visits) AS u",
            "SELECT COUNT(*) FROM (SELECT ward FROM visits UNION ALL SELECT ward FROM visits) AS u",
        ),
    ),
    (
        r"the privacy unit first on both sides: .*|the privacy unit at one place .*"
        r"|list the columns in one order on both sides",
        always(
            *(
                "SELECT COUNT(*) FROM (SELECT person_id, ward FROM visits "
                f"{word} SELECT person_id, ward FROM visits) AS u"
                for word in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT ALL")
            ),
            "SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > 10 EXCEPT "
            "SELECT ward FROM visits WHERE ward <> 'A' GROUP BY ward HAVING COUNT(*) > 10",
        ),
    ),
    (
        r"(INTERSECT|EXCEPT) works, which has each key of a unit once",
        nothing,
    ),
    (
        r"what is alike in its whole cell: CASE WHEN .*",
        nothing,
    ),
    (
        r"columns with one domain, or texts, whole numbers and dates .*",
        always(
            "SELECT COUNT(*) FROM (SELECT ward FROM visits UNION ALL SELECT 'z' FROM visits) AS u"
        ),
    ),
    # what works is written out
    (r"one row decides it; COUNT_IF\(.*\) needs a domain", nothing),
    (
        r"compare with \(SELECT (MAX|MIN)\(x\) FROM \.\.\.\)",
        always("SELECT COUNT(*) FROM t WHERE a >= (SELECT MAX(lo) FROM bands)"),
    ),
    (
        r"(NOT )?IN \(SELECT \.\.\.\) works where .* is meant",
        always(
            "SELECT COUNT(*) FROM t WHERE a IN (SELECT lo FROM bands)",
            "SELECT COUNT(*) FROM t WHERE a NOT IN (SELECT lo FROM bands)",
        ),
    ),
    (r"one row decides it; (?P<what>(QUANTILE_DISC|COUNT_IF|MODE)\(.*\)) works", over),
    (r"(?P<what>SELECT .*\.\.\. GROUP BY .*?) works(: a row for every declared value)?", filled),
    (
        r"QUANTILE_DISC\(x, [\d.]+\) takes values of any type",
        always("SELECT QUANTILE_DISC(upper(b), 0.5) FROM t"),
    ),
    (r"leave it out: all rows are counted, with noise", nothing),
    (r"each column by its name: (?P<what>AVG\(a\)), AVG\(b\)", over),
    (r"QUANTILE_CONT\(x, 0\.5, contribution_bounds_per_row => \(0, 100\)\)", nothing),
    (
        r"a sub-query that counts them, and a window over its answers",
        always(
            "SELECT SUM(n) OVER (ORDER BY b) FROM "
            "(SELECT b, COUNT(DISTINCT a) AS n FROM t GROUP BY b) AS g"
        ),
    ),
    (
        r"GROUP BY (?P<what>(ROLLUP|CUBE) \(a, b\))",
        lambda sql, match: [f"SELECT COUNT(*) FROM t GROUP BY {match.group('what')}"],
    ),
    (
        r"SELECT DISTINCT a, b FROM t names the columns, and COUNT\(\*\) \.\.\. .*",
        always("SELECT DISTINCT a, b FROM t", "SELECT a, b, COUNT(*) FROM t GROUP BY a, b"),
    ),
    (
        r"what works: DESCRIBE t says what is declared; (?P<what>SELECT .* FROM t) counts",
        lambda sql, match: ["DESCRIBE t", match.group("what").replace("x", "a")],
    ),
    (
        r"what works: WITH v AS \(SELECT \.\.\.\) SELECT \.\.\. FROM v, or a view .*",
        always("WITH v AS (SELECT a FROM t) SELECT COUNT(*) FROM v"),
    ),
    (r"what works: SELECT \.\.\., whose answers dpsql run --out writes to files", nothing),
    (r"list the values: ON column IN \('x', 'y'\)", always(PIVOTED)),
    (r"UNION ALL of one SELECT a column|PIVOT a sub-query", nothing),
    (
        r"PIVOT t ON b USING COUNT\(\*\) GROUP BY c",
        always("PIVOT t ON b USING COUNT(*) GROUP BY c"),
    ),
    (r"what works: SELECT \.\.\. FROM table", nothing),
    (r"shorter texts, and lengths that are written out, work", nothing),
    (r"one row is one unit: (?P<what>COUNT\(\*\)) works", over),
    (r"(?P<what>([A-Z]+(_[A-Z]+)*)\(.*\)) works", over),
    (r"cuts must fall between \w+; (?P<what>.*) works", truncated),
    (r"(?P<near>\w+ (<|>=) [-\d.]+) works; compare (?P<column>\w+) by .*: (?P<edges>.*)", near),
    (r"compare (?P<column>\w+) by < or >= with an edge: (?P<edges>.*)", cut),
    (r"the cells of (?P<column>\w+) are days: compare it with a DATE", nothing),
    (r"(nearest )?declared values: (?P<values>.*)", declared),
    (r"add (?P<key>\w+) to GROUP BY", grouped),
    (r"did you mean [\w ]+(\(\))?\?", named),
    (
        r"a text is written in single quotes: (?P<what>'[^']*'); columns: .*",
        always("SELECT COUNT(*) FROM t WHERE b = 'x'"),
    ),
    (r"texts are quoted by ', .*", always("SELECT COUNT(*) FROM t WHERE \"b\" = 'x'")),
    (
        r"a name that is a word of SQL is quoted: (?P<what>\"\w+\")",
        lambda sql, match: [f"SELECT COUNT(*) AS {match.group('what')} FROM t"],
    ),
    (r"\*/ ends it", always("SELECT COUNT(*) /* all */ FROM t")),
    (
        r"write it as (?P<date>DATE .*)",
        always("SELECT COUNT(*) FROM t WHERE d < DATE '2024-02-01'"),
    ),
    (r"write it as 10\.5", always("SELECT COUNT(*) FROM t WHERE w < 0.0")),
    (r"write it as '08:00'", nothing),
    (r"execute\(sql, .*", nothing),
    (r"what works: EXPLAIN SELECT \.\.\., EXPLAIN RUN WORKLOAD, .*", always(FREE[0])),
    (
        r"what works: BEGIN WORKLOAD; SELECT \.\.\.; RUN WORKLOAD answers .*",
        always("BEGIN WORKLOAD", "CANCEL WORKLOAD"),
    ),
    (r"(tables|columns|aliases|settings|options|synthetic tables): .*", named),
    # forms
    (r"SELECT \.\.\. FROM table \[WHERE.*", always(CLAUSES)),
    (
        r"one private table with WHERE, GROUP BY, HAVING, ORDER BY,? (and )?LIMIT works",
        always(CLAUSES),
    ),
    (r"SELECT COUNT\(\*\) FROM \.\.\., with GROUP BY for one count per value", always(COUNTED)),
    (r"constants need no engine; SELECT COUNT\(\*\) FROM table", always("SELECT COUNT(*) FROM t")),
    (r"LIMIT at the end of all of it", always("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 2")),
    (r"quote texts by '", always("SELECT COUNT(*) FROM t WHERE b = 'x'")),
    (r"a quote within a text is written twice", always("SELECT COUNT(*) FROM t WHERE b = 'it''s'")),
    (r"what works: SELECT, EXPLAIN, .*", always("SELECT COUNT(*) FROM t", *FREE)),
    (r"what works: EXPLAIN is free and never runs", always(FREE[0])),
    (r"what works: ROLLBACK forgets an open workload; .*", always("ROLLBACK")),
    (r"SHOW COLUMNS FROM and the name of a table", always("SHOW COLUMNS FROM t")),
    (
        r"what works: DESCRIBE and the name of one table; SHOW tables .*",
        always(FREE[3], "SHOW tables"),
    ),
    (
        r"a sub-query over private rows may project, filter and compute; .*",
        always("SELECT COUNT(*) FROM (SELECT a + 1 AS x FROM t WHERE c) AS s WHERE x > 2"),
    ),
    (r"aggregate each part: .*", always("SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t")),
    (r"JOIN public_table ON private_column = public_column, .*", always(JOINED, BETWEEN)),
    (
        r"windows are over groups: .*",
        always("SELECT b, SUM(COUNT(*)) OVER (ORDER BY b) FROM t GROUP BY b"),
    ),
    (r"write \(~x\)", always("SELECT SUM((~a) - e) FROM t")),
    (r"ORDER BY a column that is shown", always("SELECT DISTINCT b FROM t ORDER BY b")),
    (
        r"COUNT\(\*\) counts rows; of one column by its name: COUNT\(a\), AVG\(b\)",
        always("SELECT COUNT(*), COUNT(a), AVG(e) FROM t"),
    ),
    (
        r"where a row stands depends on all others: .*",
        always(
            "SELECT QUANTILE_DISC(a, [0.25, 0.5, 0.75]) FROM t",
            "SELECT a, NTILE(4) OVER (ORDER BY COUNT(*)) FROM t GROUP BY a",
        ),
    ),
    (
        r"columns by their names: SELECT a, b, COUNT\(\*\) ... GROUP BY a, b",
        always("SELECT a, b, COUNT(*) FROM t GROUP BY a, b"),
    ),
    (
        r"public rows that stay are one table or sub-query: .*",
        always(
            "SELECT name, COUNT(t.a) FROM (SELECT name, lo FROM bands CROSS JOIN (VALUES (1)) v(x))"
            " AS p LEFT JOIN t ON t.a = p.lo GROUP BY name"
        ),
    ),
    (
        r"WHERE with columns of public rows alone leaves out those .*",
        always(
            "SELECT lo, COUNT(t.a) FROM bands LEFT JOIN t ON t.a = lo WHERE lo < 8"
            " GROUP BY ROLLUP (lo)",
            JOINED,
        ),
    ),
    (
        r"COUNT\(\w+\.column\) and SUM\(\w+\.column\) work, by columns of the public rows; or JOIN",
        always(KEPT, JOINED),
    ),
    (
        r"tables, sub-queries, UNNEST\(\[1, 2\]\) and range\(0, 10\) work, of constants",
        always(JOINED, SERIES, RANGE),
    ),
    (
        r"APPROX_QUANTILES\(x, 4\): a whole number up to 100",
        always("SELECT APPROX_QUANTILES(a, 4) FROM t"),
    ),
    (r"standard errors stand beside answers", nothing),
    (r"(at most \d+; )?GROUP BY the column, and COUNT\(\*\) of each group: .*", always(COUNTED)),
    (
        r"COLUMNS\(\['a', 'b'\]\), COLUMNS\('pattern'\) and COLUMNS\(\* EXCLUDE \(a\)\) work",
        always(
            "SELECT AVG(COLUMNS(['a', 'e'])) FROM t",
            "SELECT AVG(COLUMNS('^[ae]$')) FROM t",
            "SELECT COUNT(COLUMNS(* EXCLUDE (a))) FROM t",
        ),
    ),
    (
        r"UNPIVOT (\(SELECT \.\.\.\)|t) ON a, b INTO NAME which VALUE n",
        always(
            "UNPIVOT (SELECT COUNT(*) FILTER (WHERE c) AS a, COUNT(*) AS b FROM t) ON a, b"
            " INTO NAME which VALUE n"
        ),
    ),
    (
        r"DP_\w+\(alias of an aggregate\)",
        always("SELECT COUNT(*) AS n, DP_STDDEV(n) FROM t"),
    ),
    (r"INTERVAL [\d._]+ DAY|write it out: OVER \(PARTITION BY \.\.\.\)", nothing),
    (r"DP_REPORT\(COUNT\(\*\)\)\.result works", always("SELECT DP_REPORT(COUNT(*)).result FROM t")),
    (r"contribution_bounds_per_row => \(0, 100\) bounds a column", nothing),
    (r"tables of the catalog and sub-queries work", always(JOINED, f"SELECT k FROM {SUB}")),
    (
        r"join public tables to the private one, or aggregate both .*",
        always(JOINED, f"SELECT q.k + r.k FROM {SUB} JOIN {SUB.replace('q', 'r')} ON q.a = r.a"),
    ),
    (r"write ON left = right", always("SELECT COUNT(*) FROM t LEFT JOIN bands ON a = lo")),
    (
        r"write (?P<table>\w+): tables of a catalog are in the schemas main and public",
        lambda sql, match: [
            f"SELECT COUNT(*) FROM {schema}{match.group('table')}"
            for schema in ("", "main.", "public.")
        ],
    ),
    (r"write (?P<what>\w+\.\w+)(, and give columns .*)?", nothing),
    (
        r"(GROUP|ORDER) BY 1 is the first of them",
        always(f"{COUNTED} ORDER BY 1", "SELECT b, COUNT(*) FROM t GROUP BY 1"),
    ),
    (r"write a name, or a position from 1 to \d+", always(f"SELECT a, k FROM {SUB} ORDER BY 1")),
    (r"group by columns; HAVING tests aggregates", always(CLAUSES)),
    (r"SELECT COUNT\(\*\) FROM \.\.\.", always("SELECT COUNT(*) FROM t")),
    (
        r"group by a column or an expression over columns",
        always(COUNTED, "SELECT a // 2 AS g, COUNT(*) FROM t GROUP BY g"),
    ),
    (r"group by the columns themselves", always("SELECT a, e, COUNT(*) FROM t GROUP BY a, e")),
    (
        r"GROUPING\(column\), a column of GROUP BY",
        always("SELECT a, GROUPING(a), COUNT(*) FROM t GROUP BY CUBE (a)"),
    ),
    (
        r"WHERE, ON and GROUP BY are about rows; .*",
        always("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 10"),
    ),
    (
        r"comparisons, IN, BETWEEN, LIKE, CASE, arithmetic .*",
        always(
            f"SELECT COUNT(*) FROM t WHERE {SCALARS}",
            "SELECT COUNT(*) FROM t WHERE lower(b) = 'x' AND abs(a) > 1 AND year(d) = 2024",
        ),
    ),
    (
        r"write the value itself, for example DATE '2024-01-01'; CURRENT_DATE works",
        always("SELECT COUNT(*) FROM t WHERE d < DATE '2024-01-01'"),
    ),
    (r"write it shorter, for example 1e30", always("SELECT COUNT(*) FROM t WHERE a < 1e30")),
    (
        r"\(a, b\) = \(1, 2\) and \(a, b\) IN .* work: lists of one length",
        always("SELECT COUNT(*) FROM t WHERE (a, a) = (1, 2) OR (a, a) IN ((1, 2), (3, 4))"),
    ),
    (
        r"NULLIF\(x, 0\) under a division; .*",
        always("SELECT SUM(q / NULLIF(a, 0)), SUM(CASE WHEN a > 1 THEN 1 / a END) FROM t"),
    ),
    (r"COUNT, SUM, AVG, VAR_POP, .* MODE work", always(f"SELECT {AGGREGATES}, {RANKS} FROM t")),
    (r"COUNT, SUM, AVG, MIN, MAX, .* ARG_MIN work", always(f"SELECT {OF_SHELL} FROM {SUB}")),
    (r"QUANTILE_CONT\(column, 0.9\)", always("SELECT QUANTILE_CONT(a, 0.9) FROM t")),
    (
        r"sums, differences and products of columns work, .*",
        always("SELECT SUM(m + q), SUM(m - q), SUM(m * q), SUM(m * m), SUM(abs(a)) FROM t"),
    ),
    (r"DROP (DOMAIN|BOUNDS) and its name; SHOW domains lists them", always("SHOW domains")),
    (
        r"a whole number from 1: .* = 10",
        always(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 10, "
            "min_privacy_units_per_group = 10) a, COUNT(*) FROM t GROUP BY a"
        ),
    ),
    (
        r"contribution_bounds_per_group => \(0, 3\)",
        always("SELECT COUNT(*, contribution_bounds_per_group => (0, 3)) FROM visits"),
    ),
    (
        r"contribution_bounds_per_group => \(0, 1\)",
        always("SELECT COUNT(*, contribution_bounds_per_group => (0, 1)) FROM t"),
    ),
    (
        r"report_format => 'JSON'|COUNT\(\*, report_format => 'JSON'\)"
        "|report_format in the SELECT over rows, whose report others may read",
        always(
            "SELECT COUNT(*, report_format => 'JSON') FROM t",
            "SELECT r.result FROM (SELECT COUNT(*, report_format => 'JSON') AS r FROM t) AS s",
        ),
    ),
    (
        r"contribution_bounds_per_row => \(0, 100\)",
        always("SELECT MEDIAN(a, contribution_bounds_per_row => (0, 100)) FROM t"),
    ),
    (
        r"contribution_bounds_per_row => .* bounds each row",
        always("SELECT VAR_POP(cost, contribution_bounds_per_row => (0, 5)) FROM visits"),
    ),
    (
        r"GROUP BY columns, and a SELECT of its own for each level of groups",
        always(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) ward, "
            "VAR_POP(cost) FROM visits GROUP BY ward"
        ),
    ),
    (
        r"leave the option out, or join public rows by a unique key",
        always("SELECT ward, COUNT(*) FROM visits CROSS JOIN UNNEST([1, 2]) AS u(x) GROUP BY ward"),
    ),
    (
        r"give them once, or the same ones everywhere",
        always(
            f"{COUNTED} UNION ALL SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
            "b, COUNT(*) FROM t GROUP BY b"
        ),
    ),
    (r"leave the option out: the catalog says whose a row is.*", always("SELECT COUNT(*) FROM t")),
    (
        r"declare privacy_unit = .* max_groups_contributed = 3",
        always("SELECT COUNT(*) FROM visits"),
    ),
    (
        r"SELECT \.\.\. FROM one private table GROUP BY \.\.\., or HAVING COUNT\(\*\) >= 10",
        always("SELECT a, COUNT(*) FROM (SELECT a FROM t) AS s GROUP BY a HAVING COUNT(*) >= 10"),
    ),
    (
        r"contribution_bounds_per_group => \(0, 100\)",
        always("SELECT SUM(m, contribution_bounds_per_group => (0, 100)) FROM t"),
    ),
    (
        r"numbers and dates have ranges",
        always(
            "SELECT DP_RANGES(a), COUNT(*) FROM t GROUP BY 1",
            "SELECT DP_RANGES(d), COUNT(*) FROM t GROUP BY 1",
        ),
    ),
    (r"DP_RANGES\(age\)", always("SELECT DP_RANGES(age), COUNT(*) FROM adult GROUP BY 1")),
    (r"(?P<clause>LIMIT|OFFSET) 10", lambda sql, match: [f"{COUNTED} {match.group('clause')} 10"]),
    (r"ask for its value in a statement of its own.*", nothing),
    (
        r"a list of values, or a column of a public table, works",
        always(
            "SELECT COUNT(*) FROM t WHERE a IN (1, 2)",
            "SELECT COUNT(*) FROM t WHERE a IN (SELECT lo FROM bands)",
        ),
    ),
    (
        r"a CTE may use those before it",
        always("WITH x AS (SELECT a FROM t), y AS (SELECT a FROM x) SELECT COUNT(*) FROM y"),
    ),
    (
        r"QUALIFY tests windows",
        always("SELECT a, RANK() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY a QUALIFY r < 3"),
    ),
    (r"SUM\(COUNT\(\*\)\) OVER \(\)", always("SELECT a, SUM(COUNT(*)) OVER () FROM t GROUP BY a")),
    (r"SUM or COUNT", always("SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) FROM t GROUP BY a")),
    (
        r"ROWS 3 PRECEDING",
        always("SELECT a, SUM(COUNT(*)) OVER (ORDER BY a ROWS 3 PRECEDING) FROM t GROUP BY a"),
    ),
    (
        r"ROWS BETWEEN 3 PRECEDING AND CURRENT ROW, NTILE\(4\)",
        always(
            f"SELECT SUM(k) OVER (ORDER BY a ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM {SUB}",
            f"SELECT NTILE(4) OVER (ORDER BY a) FROM {SUB}",
        ),
    ),
    (
        r"joins, WHERE, GROUP BY, windows, HAVING, ORDER BY and LIMIT work over .*",
        always(
            f"SELECT a, SUM(k) AS s FROM {SUB} JOIN bands ON a = lo WHERE k > 1 GROUP BY a"
            " HAVING s > 0 ORDER BY s LIMIT 2",
            f"SELECT RANK() OVER (ORDER BY k) FROM {SUB}",
        ),
    ),
    (
        r"UNION ALL of several SELECTs",
        always(f"SELECT a, k FROM {SUB} UNION ALL SELECT NULL, SUM(k) FROM {SUB}"),
    ),
    (r"list the columns|list columns", always(f"SELECT a, k FROM {SUB}")),
    (
        r"aggregate in a sub-query|aggregate in the sub-query: .*",
        always(f"SELECT SUM(k) FROM {SUB}", "SELECT COUNT(*) / (SELECT COUNT(*) FROM t) FROM t"),
    ),
    (r"use a sub-query", nothing),
    (
        r"UNION, INTERSECT and EXCEPT work, each with ALL or without; .*"
        r"|give each column of a side a name of its own, with AS",
        always(
            *(
                f"SELECT a FROM {SUB} {word} SELECT lo AS a FROM bands"
                for word in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT ALL", "UNION BY NAME")
            )
        ),
    ),
    (r"both sides need the same number of columns", nothing),
    (r"LIMIT an aggregated result", always(f"SELECT a FROM {SUB} LIMIT 3")),
    (r"write one SELECT|write a SELECT|VALUES \(1\), \(2\)", nothing),
    (
        r"numbers, texts and dates work",
        always(
            "SELECT COUNT(*) FROM t JOIN (VALUES (1, 'x', DATE '2024-01-01')) AS v(i, j, l)"
            " ON a = i"
        ),
    ),
    (
        r"\(VALUES \(17, 29\)\) AS bands\(lo, hi\)",
        always(
            "SELECT COUNT(*) FROM adult JOIN (VALUES (17, 29)) AS bands(lo, hi)"
            " ON age BETWEEN lo AND hi"
        ),
    ),
    (
        r"(list every key|name the columns) once|give each its own (name|alias.*)",
        nothing,
    ),
    (r"use BETWEEN, or join a public table", always(BETWEEN)),
    # options and settings
    (r"write it as digits, such as 0.5 or 5e-1", always("SET epsilon = 0.5", "SET epsilon = 5e-1")),
    (
        r"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS\((epsilon = 0.5|\.\.\.)\) COUNT\(\*\) FROM t|"
        r"OPTIONS\(epsilon = 0.5, \.\.\.\)",
        always(f"{DP}(epsilon = 0.5) COUNT(*) FROM t"),
    ),
    (
        r"WITH c AS \(SELECT \.\.\.\) SELECT WITH .*",
        always(f"WITH c AS (SELECT a FROM t) {DP}(epsilon = 0.5) COUNT(*) FROM c"),
    ),
    (
        r"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS\(\.\.\.\) \* FROM \(SELECT .*",
        always(
            f"{DP}(epsilon = 0.5) * FROM"
            " (SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t) AS d"
        ),
    ),
    (
        r"for one statement: SELECT WITH .*\(clip = \.\.\.\)",
        always(f"{DP}(clip = 5) SUM(q) FROM t"),
    ),
    (r"for one statement: .*", nothing),
    (
        r"CREATE SYNTHETIC TABLE s FROM t OPTIONS \(model = \.\.\.\) or SET mechanism",
        always(
            f"{CREATE.replace('epsilon = 1', 'epsilon = 1, model = rap')} FOR ({COUNTED})",
            "SET mechanism = rap",
        ),
    ),
    (r"one of (?P<what>auto, laplace, gaussian)", listed("SET noise = {}")),
    (
        r"one of (?P<what>gls, nonnegative, pgm), mbi",
        listed(DP + "(reconstruct = '{}') COUNT(*) FROM t"),
    ),
    (r"one of (?P<what>auto, identity, .*)", listed("SET mechanism = {}")),
    (r"one of (?P<what>mean, max)", listed("SET metric = {}")),
    (r"one of 'none', 'svt', .*", nothing),
    (
        r"one of (?P<what>auto, mwem, marginals, mixture, pgm, rap)",
        listed(
            "CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = {}) FOR"
            " (SELECT a, COUNT(*) FROM t GROUP BY a)"
        ),
    ),
    (r"one of (?P<what>auto, always, never)", listed("SET reuse = {}")),
    (r"one of .*", nothing),
    (
        r"letters and digits|SUM\(x, contribution_bounds_per_group => \(0, 100\)\), x a column",
        nothing,
    ),
    (r"give \w+ one value|leave the comma out, .*|leave (per_round|metric) out.*", nothing),
    (
        r"a whole number from 1 to 10,000, or auto or doubling or annealing",
        always("SET rounds = 20", "SET rounds = auto", "SET rounds = doubling"),
    ),
    (
        r"a whole number from 1 to 10,000, or auto",
        always("SET per_round = 5", "SET per_round = auto"),
    ),
    (r"a number of rounds, or .*", nothing),
    (r"SET epsilon = 0.5", always("SET epsilon = 0.5")),
    (r"a number above 0, at most 100", always("SET effort = 0.5", "SET effort = 100")),
    (r"a positive number: max_stddev = 2", always(f"{DP}(max_stddev = 2) COUNT(*) FROM t")),
    (r"a positive number: weight = .*", always(f"{DP}(weight = 2) COUNT(*) FROM t")),
    (r"0\.5, or \[0\.25, 0\.5, 0\.75\]", always("SELECT QUANTILE_CONT(a, 0.5) FROM t", LISTED)),
    (r"0 means pure differential privacy; 1e-9 .*", always("SET delta = 0", "SET delta = 1e-9")),
    (
        r"SET (?P<name>\w+) = on, or off",
        lambda sql, match: [f"SET {match.group('name')} = {word}" for word in ("on", "off")],
    ),
    # synthetic tables and files
    (
        r"CREATE SYNTHETIC TABLE s FROM t OPTIONS \(epsilon = 1\) FOR .*",
        always(f"{CREATE} FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))"),
    ),
    (r"FOR \(SELECT \.\.\.; SELECT \.\.\.\)", always(f"{CREATE} FOR ({COUNTED}; {COUNTED})")),
    (r"FOR WORKLOAD 'queries.sql'", nothing),
    (r"MATERIALIZE SYNTHETIC TABLE s INTO .*|INTO 's.csv' or .*|ROWS = 10000, .*", nothing),
    (r"a synthetic table needs a name of its own", nothing),
    (
        r"CREATE DOMAIN d FROM t \(c\) .*",
        always("CREATE DOMAIN d FROM t (c) OPTIONS (epsilon = 0.3)"),
    ),
    (
        r"CREATE BOUNDS d FROM t \(c\) .*",
        always("CREATE BOUNDS d FROM t (d) OPTIONS (epsilon = 0.3)"),
    ),
    (r"DROP (DOMAIN|BOUNDS) and its name; .*", always("DROP DOMAIN products", "SHOW domains")),
    (r"found so far: .*; SHOW domains lists them", always("SHOW domains")),
    (
        r"COUNT\((?P<name>\w+)\) counts where it is known, COUNT\(\*\) - COUNT\(\1\) where .*",
        lambda sql, match: [
            f"SELECT COUNT(*) - COUNT({match['name']}), COUNT({match['name']}) FROM t"
        ],
    ),
    (r"SHOW TABLES lists the tables of the catalog, .*", always("SHOW TABLES", "DESCRIBE t")),
    # what the binder says of names
    (r"SHOW tables lists them", always("SHOW tables")),
    (
        r"there (are: .*|is no FROM)|write the table before it: .*|rename one by AS|name the column"
        r"|name (as many as there are|one that is in FROM)|(select|write) as many .*|leave it out"
        r"|JOIN \.\.\. ON(, or CROSS JOIN)?|work it out in a sub-query in FROM",
        nothing,
    ),
    # what the curator or DuckDB would have to say
    (r"declare .*|one row decides it; a quantile needs a domain .*", nothing),
    (r"on declared values only, DuckDB says: .*|DuckDB says: .*", nothing),
    (r"bounds within the declared ones|sum a number|COALESCE\(amount, 0\)", nothing),
    (r"its parts may be sums of their own, which are added: .*", nothing),
    (
        r"at most .*|group by fewer columns.*|join (the two|on all).*|use IN for .*|.*; at most .*",
        nothing,
    ),
]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with open_world(tmp_path_factory.mktemp("hints"), []) as (opened, _):
        yield opened


def false_hints(connection: Connection, statements: list[str]) -> list[str]:
    """What hints name that is refused, and hints without a rule."""
    out = []
    for sql in statements:
        error = verdict(connection, sql)
        if not isinstance(error, dpsql.Error) or not error.hint:
            continue
        rule = next(((m, f) for p, f in RULES if (m := re.fullmatch(p, error.hint, re.S))), None)
        if rule is None:
            out.append(f"no rule for: {error.hint}\n  {sql}")
            continue
        for tried in rule[1](sql, rule[0]):
            found = verdict(connection, tried)
            if isinstance(found, dpsql.Error):
                out.append(f"{error.hint}\n  {sql}\n  {tried}\n  {found}")
    return out


def test_hints_of_the_case_files_are_true(connection: Connection) -> None:
    statements = [case.sql for case in read_cases("rejected.sql")]
    found = false_hints(connection, [*statements, *EXTRA])
    assert not found, "\n\n".join(found)


def test_every_extra_statement_is_refused_with_a_hint(connection: Connection) -> None:
    for sql in EXTRA:
        error = verdict(connection, sql)
        assert isinstance(error, dpsql.Error), sql
        assert error.hint, sql


@pytest.mark.slow
def test_hints_of_random_refusals_are_true(connection: Connection) -> None:
    rng = random.Random(SEED + 24)
    sampler = Sampler(rng)
    known = [case.sql for case in [*read_cases("accepted.sql"), *emitted()]]
    statements = [mutated(rng.choice(known), rng) for _ in range(SENTENCES)]
    statements += [sampler.sentence() for _ in range(SENTENCES)]
    found = false_hints(connection, statements)
    assert not found, "\n\n".join(found)


def test_names_that_hints_suggest_are_known(connection: Connection) -> None:
    for sql, wrong, right in [
        ("SELECT COUNT(*) FROM t WHERE aa = 1", "aa", "a"),
        ("SELECT COUNT(*) FROM tt", "tt", "t"),
        (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilom = 1) COUNT(*) FROM t",
            "epsilom",
            "epsilon",
        ),
        ("SELECT COUNT(*) AS total, DP_STDDEV(totl) FROM t", "totl", "total"),
    ]:
        error = verdict(connection, sql)
        assert isinstance(error, dpsql.Error)
        assert error.hint == f"did you mean {right}?"
        assert not isinstance(verdict(connection, sql.replace(wrong, right)), dpsql.Error)


def test_a_false_hint_is_found(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpsql.sql.measures.aggregate_hints._of_extreme",
        lambda *_: "one row decides it; QUANTILE_DISC(cost, 0.95) works",
    )
    assert false_hints(connection, ["SELECT MAX(cost) FROM visits"])
