-- What dpsql refuses, each statement with code, caret and hint.
-- The catalog is that of tests/support/oracle.py. Made anew by: python -m tests.support.make_cases

--- not one statement

SELECT COUNT(*) FROM t WHERE;
-- E_PARSE at line 1, column 24: cannot be parsed near 'WHERE'
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT COUNT( FROM t;
-- E_PARSE at line 1, column 20: cannot be parsed near 't'
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT QUANTILE_CONT(a, , 0.5) FROM t;
-- E_PARSE at line 1, column 25: something is missing before this
-- hint: leave the comma out, or write what follows it

SELECT COUNT( , report_format => 'JSON') FROM t;
-- E_PARSE at line 1, column 15: something is missing before this
-- hint: leave the comma out, or write what follows it

SELECT COUNT(*) FROM FROM t;
-- E_PARSE at line 1, column 22: syntax error at or near "FROM"
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT COUNT(*) AS , SUM(a) FROM t;
-- E_PARSE at line 1, column 20: syntax error at or near ","
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT COUNT(*) FROM t WHERE b = 'x' 'y';
-- E_PARSE at line 1, column 38: syntax error at or near "'y'"
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT COUNT(*) FROM t WHERE a > > 3;
-- E_PARSE at line 1, column 34: syntax error at or near ">"
-- hint: SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]

SELECT COUNT(*) FROM t WHERE b = $$x$$;
-- E_PARSE at line 1, column 34: $ is not supported
-- hint: texts are quoted by ', parameters are given beside the SQL

SELECT COUNT(*) FROM t WHERE b = 'x;
-- E_PARSE at line 1, column 34: a quote is not closed
-- hint: a quote within a text is written twice

--- not a query

DELETE FROM t;
-- E_STATEMENT at line 1, column 1: DELETE is not supported: tables are only read, and a synthetic table is final
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.csv' writes rows that are yours to change

INSERT INTO t VALUES (1);
-- E_STATEMENT at line 1, column 1: INSERT is not supported: tables are only read, and a synthetic table is final
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.csv' writes rows that are yours to change

CREATE TABLE u AS SELECT * FROM t;
-- E_STATEMENT at line 1, column 1: CREATE of this is not supported
-- hint: what works: WITH v AS (SELECT ...) SELECT ... FROM v, or a view in the catalog; CREATE SYNTHETIC TABLE, CREATE DOMAIN and CREATE BOUNDS

COPY t TO 'out.csv';
-- E_STATEMENT at line 1, column 1: COPY of this is not supported
-- hint: what works: SELECT ..., whose answers dpsql run --out writes to files

ATTACH 'x.db';
-- E_STATEMENT at line 1, column 1: ATTACH is not supported
-- hint: what works: SELECT, EXPLAIN, SET, SHOW, DESCRIBE, BEGIN, RUN and CANCEL WORKLOAD, ROLLBACK, CREATE SYNTHETIC TABLE, MATERIALIZE SYNTHETIC TABLE, CREATE DOMAIN, CREATE BOUNDS and DROP DOMAIN

PRAGMA database_list;
-- E_STATEMENT at line 1, column 1: PRAGMA is not supported
-- hint: what works: SELECT, EXPLAIN, SET, SHOW, DESCRIBE, BEGIN, RUN and CANCEL WORKLOAD, ROLLBACK, CREATE SYNTHETIC TABLE, MATERIALIZE SYNTHETIC TABLE, CREATE DOMAIN, CREATE BOUNDS and DROP DOMAIN

SUMMARIZE t;
-- E_STATEMENT at line 1, column 1: SUMMARIZE of this is not supported
-- hint: what works: DESCRIBE t says what is declared; SELECT COUNT(*), AVG(x), STDDEV(x), QUANTILE_DISC(x, [0.25, 0.5, 0.75]) FROM t counts

EXPLAIN ANALYZE SELECT COUNT(*) FROM t;
-- E_STATEMENT at line 1, column 1: EXPLAIN ANALYZE is not supported
-- hint: what works: EXPLAIN is free and never runs

SET threads = 4;
-- E_SETTING at line 1, column 5: no such setting: threads
-- hint: settings: epsilon, delta, noise, mechanism, metric, rounds, per_round, effort, reuse, fresh, nonnegative, dialect, memory_limit

DESCRIBE t.nothing;
-- E_UNKNOWN_COLUMN: there is no column 'nothing' in table t
-- hint: columns: a, b, c, d, e, n, w, m, q, r

SHOW COLUMNS;
-- E_SETTING at line 1, column 6: no such setting: COLUMNS
-- hint: SHOW COLUMNS FROM and the name of a table

ROLLBACK TO x;
-- E_STATEMENT at line 1, column 1: ROLLBACK to anywhere is not supported
-- hint: what works: ROLLBACK forgets an open workload; what was released stays released

SHOW password;
-- E_SETTING at line 1, column 6: no such setting: password
-- hint: settings: budget, domains, ledger, tables, epsilon, delta, noise, mechanism, metric, rounds, per_round, effort, reuse, fresh, nonnegative, dialect, memory_limit, all, columns

SELECT COUNT(*) INTO u FROM t;
-- E_STATEMENT at line 1, column 22: INTO is not supported
-- hint: one private table with WHERE, GROUP BY, HAVING, ORDER BY and LIMIT works

--- rows

SELECT * FROM t;
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT s.* FROM t AS s;
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT a FROM t;
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT DISTINCT * FROM t;
-- E_AGGREGATE at line 1, column 17: SELECT DISTINCT of rows is not supported
-- hint: SELECT DISTINCT a, b FROM t names the columns, and COUNT(*) ... GROUP BY a, b counts their rows

SELECT a, COUNT(*) FROM t;
-- E_GROUP_BY at line 1, column 8: column a must appear in GROUP BY or inside an aggregate
-- hint: add a to GROUP BY

SELECT a FROM t LIMIT 5;
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT COUNT(*) FROM (SELECT a FROM t LIMIT 5) AS s;
-- E_LIMIT at line 1, column 45: LIMIT on rows is not supported
-- hint: a sub-query over private rows may project, filter and compute; aggregate it outside

SELECT a FROM t UNION SELECT n FROM t;
-- E_SET_OP at line 1, column 8: UNION of private rows is not supported
-- hint: aggregate each part: SELECT COUNT(*) ... UNION ALL SELECT COUNT(*) ...

SELECT a, ROW_NUMBER() OVER (ORDER BY a) FROM t;
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: windows are over groups: SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) ... GROUP BY k

SELECT SUM(a) OVER (ORDER BY a) FROM t;
-- E_NO_AGGREGATE at line 1, column 30: rows cannot be returned, only aggregates
-- hint: windows are over groups: SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) ... GROUP BY k

SELECT DISTINCT b FROM t ORDER BY a;
-- E_GROUP_BY at line 1, column 35: ORDER BY a, which SELECT DISTINCT does not show
-- hint: ORDER BY a column that is shown

SELECT SUM(t.*) FROM t;
-- E_FUNCTION at line 1, column 12: t.* is not supported here
-- hint: COUNT(*) counts rows; of one column by its name: COUNT(a), AVG(b)

SELECT q, COUNT(*) FROM (SELECT NTILE(4) OVER (ORDER BY a) AS q FROM t) GROUP BY q;
-- E_WINDOW at line 1, column 33: a window over private rows is not supported
-- hint: where a row stands depends on all others: QUANTILE_DISC(x, [0.25, 0.5, 0.75]) has the cuts, and windows over groups work

SELECT COUNT(*) FROM t TABLESAMPLE 10%;
-- E_SAMPLE at line 1, column 36: sampling is not supported
-- hint: leave it out: all rows are counted, with noise

SELECT COUNT(*) FROM t USING SAMPLE 10;
-- E_SAMPLE at line 1, column 37: sampling is not supported
-- hint: leave it out: all rows are counted, with noise

--- names

SELECT COUNT(*) FROM tt;
-- E_UNKNOWN_TABLE at line 1, column 22: there is no table 'tt' in the catalog
-- hint: did you mean t?

SELECT table_name FROM information_schema.tables;
-- E_UNKNOWN_TABLE at line 1, column 24: there is no table 'information_schema.tables' in the catalog
-- hint: SHOW TABLES lists the tables of the catalog, DESCRIBE t the columns of one

SELECT COUNT(*) FROM other.t;
-- E_UNKNOWN_TABLE at line 1, column 22: there is no table 'other.t' in the catalog
-- hint: write t: tables of a catalog are in the schemas main and public

SELECT COUNT(*) FROM t WHERE aa = 1;
-- E_UNKNOWN_COLUMN at line 1, column 30: there is no column 'aa' in table t
-- hint: did you mean a?

SELECT AVG(COLUMNS('zz|yy')) FROM t;
-- E_UNKNOWN_COLUMN at line 1, column 20: there is no column of such a name
-- hint: columns: a, b, c, d, e, n, w, m, q, r

SELECT COUNT(*) FROM t WHERE u.a = 1;
-- E_UNKNOWN_TABLE at line 1, column 30: there is no table 'u' in this statement
-- hint: tables: t

DESCRIBE nothing;
-- E_UNKNOWN_TABLE at line 1, column 1: there is no table 'nothing' in the catalog
-- hint: tables: t, bands, adult, visits

--- values and domains

SELECT COUNT(*) FROM t WHERE b = 'z';
-- E_NOT_IN_DOMAIN at line 1, column 34: 'z' is not a declared value of b
-- hint: declared values: 'x', 'y', '', "it's", 'rest'

SELECT COUNT(*) FROM t WHERE n < 1;
-- E_BIN_EDGE at line 1, column 34: this would cut through a cell of n
-- hint: compare n by < or >= with an edge: -1.5, 0, 2

SELECT COUNT(*) FROM t WHERE n;
-- E_BIN_EDGE at line 1, column 30: this would cut through a cell of n
-- hint: compare n by < or >= with an edge: -1.5, 0, 2

SELECT COUNT(*) FROM t WHERE d >= DATE '2024-01-15';
-- E_BIN_EDGE at line 1, column 40: this would cut through a cell of d
-- hint: cuts must fall between months; date_trunc('month', d) or date_trunc('quarter', d) or date_trunc('year', d) works

SELECT n + 1, COUNT(*) FROM t GROUP BY 1;
-- E_BIN_EDGE at line 1, column 8: this would cut through a cell of n
-- hint: compare n by < or >= with an edge: -1.5, 0, 2

SELECT COUNT(*) FROM t WHERE m > 3;
-- E_DOMAIN at line 1, column 30: column m is a measure with bounds: it cannot be used in a predicate or GROUP BY
-- hint: declare a domain (or bins) for it in the catalog

SELECT COUNT(*) FILTER (WHERE m IS NULL) FROM t;
-- E_DOMAIN at line 1, column 31: column m is a measure with bounds: it cannot be used in a predicate or GROUP BY
-- hint: COUNT(m) counts where it is known, COUNT(*) - COUNT(m) where it is not

SELECT m, COUNT(*) FROM t GROUP BY m;
-- E_DOMAIN at line 1, column 36: column m is a measure with bounds: it cannot be used in a predicate or GROUP BY
-- hint: declare a domain (or bins) for it in the catalog

SELECT COUNT(*) FROM t WHERE sqrt(a - 3) > 1;
-- E_DOMAIN_EVAL at line 1, column 30: the expression fails on the declared domain
-- hint: on declared values only, DuckDB says: Invalid Input Error: not a number

SELECT COUNT(*) FROM t WHERE a = 99999999999999999999999999999999999999999;
-- E_LITERAL at line 1, column 34: a number of over 40 characters or not finite
-- hint: write it shorter, for example 1e30

SELECT COUNT(*) FROM t GROUP BY 2;
-- E_GROUP_BY at line 1, column 33: GROUP BY 2: there are 1 select items
-- hint: GROUP BY 1 is the first of them

SELECT COUNT(*) FROM t ORDER BY 4;
-- E_ORDER_BY at line 1, column 33: ORDER BY 4: there are 1 select items
-- hint: ORDER BY 1 is the first of them

SELECT COUNT(*) FROM t GROUP BY COUNT(*);
-- E_GROUP_BY at line 1, column 33: an aggregate cannot be a grouping key
-- hint: group by columns; HAVING tests aggregates

SELECT 'x', a, COUNT(*) FROM t GROUP BY ROLLUP (1, a);
-- E_GROUP_BY at line 1, column 8: a constant is not a grouping key
-- hint: group by a column or an expression over columns

--- functions

SELECT COUNT(*) FROM t WHERE sha256(b) = 'x';
-- E_FUNCTION at line 1, column 30: SHA256() is not supported here
-- hint: comparisons, IN, BETWEEN, LIKE, CASE, arithmetic and the usual text, number and date functions work

SELECT SUM(COALESCE(*COLUMNS(['a', 'e']))) FROM t;
-- E_FUNCTION at line 1, column 22: *COLUMNS() is not supported
-- hint: each column by its name: AVG(a), AVG(b)

SELECT COUNT(*) FROM t WHERE random() < 0.5;
-- E_NONDETERMINISTIC at line 1, column 30: rand() is not deterministic
-- hint: write the value itself, for example DATE '2024-01-01'; CURRENT_DATE works

SELECT COUNT(*) FROM t WHERE d < now();
-- E_NONDETERMINISTIC at line 1, column 34: now() is not deterministic
-- hint: write the value itself, for example DATE '2024-01-01'; CURRENT_DATE works

SELECT COUNT(*) FROM t WHERE d < current_timestamp;
-- E_NONDETERMINISTIC at line 1, column 30: current_timestamp() is not deterministic
-- hint: write the value itself, for example DATE '2024-01-01'; CURRENT_DATE works

SELECT COUNT(*) FROM t WHERE a = getenv('HOME');
-- E_FUNCTION at line 1, column 34: the function getenv() is not supported here
-- hint: comparisons, IN, BETWEEN, LIKE, CASE, arithmetic and the usual text, number and date functions work

SELECT COUNT(*) FROM t WHERE a = CAST('1' AS BLOB);
-- E_FUNCTION at line 1, column 39: the type BLOB is not supported here
-- hint: comparisons, IN, BETWEEN, LIKE, CASE, arithmetic and the usual text, number and date functions work

SELECT COUNT(*) FROM read_csv('/etc/passwd');
-- E_TABLE_FUNCTION at line 1, column 22: a table function is not supported
-- hint: tables, sub-queries, UNNEST([1, 2]) and range(0, 10) work, of constants

--- aggregates

SELECT MIN(a) FROM t;
-- E_AGGREGATE at line 1, column 12: the aggregate MIN() is not supported
-- hint: one row decides it; QUANTILE_DISC(a, 0.05) works

SELECT MAX(m) FROM t;
-- E_AGGREGATE at line 1, column 12: the aggregate MAX() is not supported
-- hint: one row decides it; a quantile needs a domain (or bins) of m in the catalog

SELECT MAX(cost) FROM visits;
-- E_AGGREGATE at line 1, column 12: the aggregate MAX() is not supported
-- hint: one row decides it; a quantile needs a domain (or bins) of cost in the catalog

SELECT ward, person_id, COUNT(*) FROM visits GROUP BY ward, person_id;
-- E_DOMAIN at line 1, column 61: person_id is the privacy unit: it can be counted and nothing else
-- hint: COUNT(DISTINCT person_id) works, or SELECT n, COUNT(*) FROM (SELECT person_id, COUNT(*) AS n FROM visits GROUP BY person_id) AS p GROUP BY n

SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (ORDER BY cost) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: a window over private rows without their privacy unit is not supported
-- hint: OVER (PARTITION BY person_id ORDER BY ...): rows of different units never meet

SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY person_id ORDER BY ward) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 81: this order of private rows is not supported
-- hint: columns of numbers and dates with a domain work

SELECT COUNT(*) FROM (SELECT NTILE(3) OVER (PARTITION BY person_id) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: this window over private rows is not supported
-- hint: ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and MAX of columns work

SELECT COUNT(*) FROM (SELECT LAG(ward, 20) OVER (PARTITION BY person_id) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: LAG and LEAD by 13 rows or more, or with a default, is not supported
-- hint: LAG(day), LAG(day, 2)

SELECT COUNT(*) FROM (SELECT SUM(ward) OVER (PARTITION BY person_id) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: a sum of ward is not supported
-- hint: numbers with bounds

SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY person_id ORDER BY cost GROUPS 1 PRECEDING) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: this frame over private rows is not supported
-- hint: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW, RANGE BETWEEN 6 PRECEDING AND CURRENT ROW work

SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY person_id ORDER BY cost RANGE 1 PRECEDING) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 30: this frame over private rows is not supported
-- hint: a frame by RANGE is in the order of one column of whole numbers or days

SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY person_id, notes) AS n FROM visits) AS v;
-- E_WINDOW at line 1, column 69: this partition of private rows is not supported
-- hint: columns with a domain work

SELECT COUNT(*) FROM (SELECT cost FROM visits UNION SELECT cost FROM visits) AS u;
-- E_SET_OP at line 1, column 30: UNION of private rows without their privacy unit is not supported
-- hint: list the columns, the privacy unit among them; or UNION ALL

SELECT COUNT(*) FROM (SELECT ward FROM visits EXCEPT ALL SELECT ward FROM visits) AS u;
-- E_SET_OP at line 1, column 30: EXCEPT of private rows without their privacy unit is not supported
-- hint: the privacy unit first on both sides: SELECT unit, ... EXCEPT SELECT unit, ...; or answers on both: SELECT k FROM ... GROUP BY k HAVING COUNT(*) > 10 EXCEPT ...

SELECT COUNT(*) FROM (SELECT person_id, cost FROM visits EXCEPT ALL SELECT person_id, cost FROM visits) AS u;
-- E_SET_OP at line 1, column 30: EXCEPT by cost, of which a cell has several values, is not supported
-- hint: what is alike in its whole cell: CASE WHEN x < 10 THEN 'low' ELSE 'high' END

SELECT COUNT(*) FROM (SELECT person_id FROM visits UNION ALL SELECT ward FROM visits) AS u;
-- E_SET_OP at line 1, column 69: a privacy unit beside another column is not supported
-- hint: the privacy unit at one place on both sides

SELECT COUNT(*) FROM (SELECT ward FROM visits UNION ALL SELECT cost FROM visits) AS u;
-- E_SET_OP at line 1, column 64: a union of columns ward with different domains is not supported
-- hint: columns with one domain, or texts, whole numbers and dates with a domain each

SELECT SUM(DISTINCT q) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate SUM(DISTINCT) is not supported
-- hint: SUM(q) works

SELECT STDDEV(DISTINCT q) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate STDDEV(DISTINCT) is not supported
-- hint: STDDEV(q) works

SELECT string_agg(b, ',') FROM t;
-- E_AGGREGATE at line 1, column 19: the aggregate STRING_AGG() is not supported
-- hint: SELECT b, COUNT(*) ... GROUP BY b works: a row for every declared value

SELECT FIRST(a) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate FIRST() is not supported
-- hint: one row decides it; MODE(a) works

SELECT COUNT(*, contribution_bounds_per_group => (2, 3)) FROM t;
-- E_EXPR_IN_AGG at line 1, column 8: bounds of counts where a privacy unit has one row, other than these, is not supported
-- hint: contribution_bounds_per_group => (0, 1)

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = a) COUNT(*) FROM t;
-- E_SETTING at line 1, column 43: the privacy unit of t is one row
-- hint: leave the option out: the catalog says whose a row is, by privacy_unit

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 5) a, COUNT(*) FROM (SELECT a FROM t GROUP BY a) AS s GROUP BY a;
-- E_SETTING at line 1, column 43: the privacy units of this statement's groups cannot be counted
-- hint: SELECT ... FROM one private table GROUP BY ..., or HAVING COUNT(*) >= 10

SELECT COUNT(*) FROM t WHERE (a, b) = (1, 'x', TRUE);
-- E_PREDICATE at line 1, column 31: this list of values is not supported here
-- hint: (a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4)) work: lists of one length

SELECT COUNT(*) FILTER (WHERE COUNT(*) > 1) FROM t;
-- E_AGGREGATE at line 1, column 31: the aggregate COUNT() is not supported here
-- hint: WHERE, ON and GROUP BY are about rows; HAVING COUNT(*) > 10 is about groups

SELECT COUNT(*) FROM t WHERE COUNT(*) > 1;
-- E_AGGREGATE at line 1, column 30: the aggregate COUNT() is not supported here
-- hint: WHERE, ON and GROUP BY are about rows; HAVING COUNT(*) > 10 is about groups

SELECT SUM(b) FROM t;
-- E_EXPR_IN_AGG at line 1, column 12: b is text: it cannot be summed
-- hint: sum a number

SELECT SUM(notes) FROM visits;
-- E_NO_BOUNDS at line 1, column 12: column notes has no bounds: one row could change its sum by anything
-- hint: declare bounds = [lowest, highest] for notes in the catalog

SELECT SUM(m * m * m) FROM t;
-- E_EXPR_IN_AGG at line 1, column 12: m appears to a power above 2
-- hint: declare a domain for it to sum any function of it

SELECT SUM(m, contribution_bounds_per_group => (5, 5)) FROM t;
-- E_DEGENERATE_BOUNDS at line 1, column 15: the bounds (5, 5) leave nothing between them
-- hint: contribution_bounds_per_group => (0, 100)

SELECT MEDIAN(m) FROM t;
-- E_DOMAIN at line 1, column 15: MEDIAN counts the rows of every bin: column m has bounds and no bins
-- hint: declare bins beside the bounds of m in the catalog: bins = 100

SELECT QUANTILE_CONT(b, 0.5) FROM t;
-- E_AGGREGATE at line 1, column 22: interpolation of text values is not supported
-- hint: QUANTILE_DISC(b, 0.5) works

SELECT QUANTILE_CONT(a, 1.5) FROM t;
-- E_LITERAL at line 1, column 22: the quantile 1.5 is not between 0 and 1
-- hint: QUANTILE_CONT(column, 0.9)

SELECT SUM(m ORDER BY a) FROM t;
-- E_EXPR_IN_AGG at line 1, column 12: this expression cannot be summed exactly
-- hint: sums, differences and products of columns work, measures up to their square; a column with a domain works in any expression of its own

SELECT DP_RANGES(b), COUNT(*) FROM t GROUP BY 1;
-- E_FUNCTION at line 1, column 8: DP_RANGES of b: it has no order or belongs to a public table
-- hint: numbers and dates have ranges

SELECT DP_STDDEV(a) FROM t GROUP BY a;
-- E_UNKNOWN_COLUMN at line 1, column 18: DP_STDDEV(a): no select item has this alias
-- hint: DP_STDDEV(COUNT(*)) works

SELECT a, COUNT(*) FROM t GROUP BY a LIMIT a;
-- E_LIMIT at line 1, column 44: LIMIT takes a whole number
-- hint: LIMIT 10

SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 5 PERCENT;
-- E_LIMIT at line 1, column 44: LIMIT takes a whole number
-- hint: LIMIT 10

SELECT QUANTILE_CONT(a, [0.5, b]) FROM t;
-- E_AGGREGATE at line 1, column 26: a quantile that is not a number is not supported
-- hint: 0.5, or [0.25, 0.5, 0.75]

SELECT APPROX_QUANTILES(a, 1000) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate APPROX_QUANTILES() is not supported
-- hint: APPROX_QUANTILES(x, 4): a whole number up to 100

SELECT COUNT(*, report_format => PROTO) FROM t;
-- E_SETTING at line 1, column 34: report_format => PROTO is not supported
-- hint: report_format => 'JSON'

SELECT COUNT(*, report_format => 'JSON', 1) FROM t;
-- E_PARSE at line 1, column 40: report_format comes before another argument
-- hint: COUNT(*, report_format => 'JSON')

SELECT SUM(n, report_format => 'JSON') FROM (SELECT COUNT(*) AS n FROM t GROUP BY a) AS s;
-- E_AGGREGATE at line 1, column 8: a report of what sub-queries compute is not supported over aggregated results
-- hint: report_format in the SELECT over rows, whose report others may read

SELECT BOOL_OR(a > 3) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate BOOL_OR() is not supported
-- hint: one row decides it; COUNT_IF(a > 3) works

SELECT PRODUCT(a) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate PRODUCT() is not supported
-- hint: COUNT, SUM, AVG, VAR_POP, VAR_SAMP, STDDEV, CORR, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE work

SELECT MIN(a + 1) FROM t;
-- E_AGGREGATE at line 1, column 12: the aggregate MIN() is not supported
-- hint: one row decides it; QUANTILE_DISC(a + 1, 0.05) works

SELECT ANY_VALUE(b) FROM t GROUP BY a;
-- E_AGGREGATE at line 1, column 18: the aggregate ANY_VALUE() is not supported
-- hint: one row decides it; MODE(b) works

SELECT LIST(b) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate LIST() is not supported
-- hint: SELECT b, COUNT(*) ... GROUP BY b works: a row for every declared value

SELECT HISTOGRAM(b) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate HISTOGRAM() is not supported
-- hint: SELECT b, COUNT(*) ... GROUP BY b works: a row for every declared value

SELECT APPROX_TOP_K(a, 2) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate APPROX_TOP_K() is not supported
-- hint: SELECT a, COUNT(*) ... GROUP BY a ORDER BY 2 DESC LIMIT 3 works

SELECT MAD(a) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate MAD() is not supported
-- hint: QUANTILE_CONT(a, [0.25, 0.5, 0.75]) works

SELECT COUNT(DISTINCT a + e) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate COUNT(DISTINCT) is not supported
-- hint: SELECT COUNT(*) FROM (SELECT a, e ... GROUP BY a, e HAVING COUNT(*) > 10) AS g works

SELECT COUNT(DISTINCT person_id || ward) FROM visits;
-- E_AGGREGATE at line 1, column 8: the aggregate COUNT(DISTINCT) is not supported
-- hint: SELECT SUM(n) FROM (SELECT ward, COUNT(DISTINCT person_id) AS n ... GROUP BY ward) AS g works

SELECT MEDIAN(upper(b)) FROM t;
-- E_AGGREGATE at line 1, column 15: interpolation of values of type VARCHAR is not supported
-- hint: QUANTILE_DISC(x, 0.5) takes values of any type

SELECT a, COUNT(DISTINCT a) OVER () FROM t GROUP BY a;
-- E_WINDOW at line 1, column 11: DISTINCT in a window is not supported
-- hint: a sub-query that counts them, and a window over its answers

SELECT a, COUNT(*) FROM t GROUP BY a WITH ROLLUP;
-- E_GROUP_BY at line 1, column 36: ROLLUP after the keys is not supported
-- hint: GROUP BY ROLLUP (a, b)

SELECT COUNT(*) FROM t WHERE repeat(b, a) = 'xx';
-- E_TOO_COMPLEX at line 1, column 30: REPEAT could make texts of over 100000 characters
-- hint: shorter texts, and lengths that are written out, work

SELECT COUNT(*) FROM t WHERE lpad(b, 1000000, '-') = 'x';
-- E_TOO_COMPLEX at line 1, column 30: PAD could make texts of over 100000 characters
-- hint: shorter texts, and lengths that are written out, work

PIVOT t ON m USING COUNT(*) GROUP BY a;
-- E_DOMAIN at line 1, column 7: PIVOT over values that nobody listed
-- hint: list the values: ON column IN ('x', 'y')

SELECT * FROM t UNPIVOT (v FOR n IN (a, e));
-- E_NO_AGGREGATE at line 1, column 8: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT SUM(~a - e) FROM t;
-- E_FUNCTION at line 1, column 13: ~ beside other operators is not supported
-- hint: write (~x)

PIVOT t ON USING COUNT(*) GROUP BY a;
-- E_STATEMENT at line 1, column 7: PIVOT ON nothing is not supported
-- hint: PIVOT t ON b USING COUNT(*) GROUP BY c

SELECT AVG(DISTINCT 1 + INTERVAL '1' YEAR) FROM t;
-- E_AGGREGATE at line 1, column 8: the aggregate AVG(DISTINCT) is not supported
-- hint: COUNT, SUM, AVG, VAR_POP, VAR_SAMP, STDDEV, CORR, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE work

PIVOT (SELECT * FROM t) ON b IN ('x') USING COUNT(*);
-- E_GROUP_BY at line 1, column 15: PIVOT of this without GROUP BY is not supported
-- hint: PIVOT t ON b USING COUNT(*) GROUP BY c


--- sub-queries and joins

SELECT MEDIAN(a) FROM t WHERE a > (SELECT AVG(a) FROM t);
-- E_SUBQUERY at line 1, column 43: a sub-query in a condition or an expression over private rows is not supported
-- hint: ask for its value in a statement of its own, and write the value here

SELECT COUNT(*) FROM t WHERE a IN (SELECT a FROM t);
-- E_SUBQUERY at line 1, column 30: IN with a sub-query over private rows is not supported
-- hint: a list of values, or a column of a public table, works

SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.a = t.a);
-- E_SUBQUERY at line 1, column 71: the sub-query depends on a of the SELECT around it
-- hint: join the two on their keys instead

SELECT COUNT(*) FROM t JOIN t AS u ON t.a = u.a;
-- E_JOIN at line 1, column 22: a join of t, each row of which is a privacy unit, is not supported
-- hint: declare whose rows they are: privacy_unit with a column, and [unit.NAME]

SELECT COUNT(*) FROM t, adult;
-- E_JOIN at line 1, column 22: a join of t, each row of which is a privacy unit, is not supported
-- hint: declare whose rows they are: privacy_unit with a column, and [unit.NAME]

SELECT COUNT(*) FROM t NATURAL JOIN bands;
-- E_JOIN at line 1, column 37: NATURAL JOIN of tables without a common column is not supported
-- hint: JOIN public_table ON private_column = public_column, or BETWEEN two public columns

SELECT COUNT(*) FROM t ASOF JOIN bands ON t.a >= bands.lo;
-- E_JOIN at line 1, column 34: ASOF JOIN is not supported
-- hint: JOIN public_table ON private_column = public_column, or BETWEEN two public columns

SELECT COUNT(*) FROM bands LEFT JOIN t ON t.a = bands.lo;
-- E_JOIN at line 1, column 8: COUNT(*) where public rows stay without private ones is not supported
-- hint: COUNT(t.column) and SUM(t.column) work, by columns of the public rows; or JOIN

SELECT name, COUNT(t.a) FROM bands CROSS JOIN (VALUES (1)) AS v(x) LEFT JOIN t ON t.a = bands.lo GROUP BY name;
-- E_JOIN at line 1, column 78: private rows on the outer side of a join is not supported
-- hint: public rows that stay are one table or sub-query: FROM (SELECT ...) AS p LEFT JOIN t ON ..

SELECT lo, COUNT(t.a) FROM bands LEFT JOIN t ON t.a = lo GROUP BY ROLLUP (lo);
-- E_JOIN at line 1, column 44: a join of public keys that are not all declared where public rows stay without private ones is not supported
-- hint: WHERE with columns of public rows alone leaves out those that no declared value meets; or JOIN

WITH RECURSIVE r AS (SELECT 1 AS x) SELECT COUNT(*) FROM t;
-- E_CTE at line 1, column 16: WITH RECURSIVE is not supported
-- hint: a CTE may use those before it

SELECT COUNT(*) FROM t PIVOT (COUNT(*) FOR b IN ('x'));
-- E_GROUP_BY at line 1, column 31: PIVOT of this without GROUP BY is not supported
-- hint: PIVOT t ON b USING COUNT(*) GROUP BY c

SELECT COUNT(*) FROM (VALUES (1), (2, 3)) AS v(x) JOIN t ON t.a = v.x;
-- E_STATEMENT at line 1, column 31: VALUES of different lengths is not supported
-- hint: VALUES (1), (2)

--- options

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = -1) COUNT(*) FROM t;
-- E_EPSILON: epsilon must be a plain number between 0.000001 and 100
-- hint: write it as digits, such as 0.5 or 5e-1

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilom = 1) COUNT(*) FROM t;
-- E_SETTING at line 1, column 43: there is no option 'epsilom'
-- hint: did you mean epsilon?

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS epsilon = 1 COUNT(*) FROM t;
-- E_PARSE at line 1, column 8: the OPTIONS clause is malformed
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS () COUNT(*) FROM t;
-- E_PARSE at line 1, column 43: an option is missing before this
-- hint: OPTIONS(epsilon = 0.5, ...)

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1,) COUNT(*) FROM t;
-- E_PARSE at line 1, column 55: an option is missing before this
-- hint: OPTIONS(epsilon = 0.5, ...)

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon 1) COUNT(*) FROM t;
-- E_PARSE at line 1, column 43: the OPTIONS clause is malformed
-- hint: OPTIONS(epsilon = 0.5, ...)

SELECT COUNT(*) FROM t WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1);
-- E_PARSE at line 1, column 24: WITH DIFFERENTIAL_PRIVACY OPTIONS(...) stands right after SELECT
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) COUNT(*) FROM t

SELECT a, COUNT(*) FROM t GROUP BY a OPTIONS (epsilon = 1);
-- E_PARSE at line 1, column 38: OPTIONS(...) of a SELECT stands after SELECT WITH DIFFERENTIAL_PRIVACY
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t

SELECT OPTIONS (epsilon = 1) COUNT(*) FROM t;
-- E_PARSE at line 1, column 8: OPTIONS(...) of a SELECT stands after SELECT WITH DIFFERENTIAL_PRIVACY
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t

WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) SELECT COUNT(*) FROM t;
-- E_PARSE at line 1, column 1: WITH DIFFERENTIAL_PRIVACY OPTIONS(...) stands right after SELECT
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) COUNT(*) FROM t

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM t UNION ALL SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2) COUNT(*) FROM t;
-- E_SETTING at line 1, column 89: the OPTIONS of one statement differ: they hold for all of it
-- hint: give them once, or the same ones everywhere

SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1) ANON_MAX(a) FROM t;
-- E_NO_AGGREGATE at line 1, column 65: rows cannot be returned, only aggregates
-- hint: SELECT COUNT(*) FROM ..., with GROUP BY for one count per value

SELECT DISTINCT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM t;
-- E_PARSE at line 1, column 17: WITH DIFFERENTIAL_PRIVACY OPTIONS(...) stands right after SELECT
-- hint: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) COUNT(*) FROM t

SET epsilon = 0;
-- E_EPSILON: epsilon must be a plain number between 0.000001 and 100
-- hint: write it as digits, such as 0.5 or 5e-1

SET clip = 5;
-- E_SETTING at line 1, column 5: no such setting: clip
-- hint: for one statement: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = ...)

SET model = 'rap';
-- E_SETTING at line 1, column 5: no such setting: model
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (model = ...) or SET mechanism

SET noise = 'uniform';
-- E_SETTING: noise = uniform
-- hint: one of auto, laplace, gaussian

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (reconstruct = 'magic') COUNT(*) FROM t;
-- E_SETTING: reconstruct = magic
-- hint: one of gls, nonnegative, pgm, mbi

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (mechanism = 'magic') COUNT(*) FROM t;
-- E_SETTING: mechanism = magic
-- hint: one of auto, identity, workload, tree, kron, union, residual, joint, separate, symmetric, hdmm, fixed_marginals, opt_0, opt_kron, opt_plus, opt_m, coa, mwem, rap, marginals, adaptive

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = -1) SUM(q) FROM t;
-- E_SETTING at line 1, column 43: clip = -1
-- hint: one of 'none', 'svt', 'svt-ratio', 'recursive', 'quantile', 'approx-bounds', 'sure', 'eb', 'r2t', or a number above 0

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = 5, clip = 6) SUM(q) FROM t;
-- E_SETTING at line 1, column 53: the option clip is given twice
-- hint: give clip one value

--- synthetic tables

CREATE SYNTHETIC TABLE people FROM t;
-- E_PARSE at line 1, column 36: the workload is missing
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))

CREATE SYNTHETIC TABLE people FOR (SELECT COUNT(*) FROM t) FROM t;
-- E_PARSE at line 1, column 31: not understood near 'FOR'
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))

CREATE SYNTHETIC TABLE people FROM t FOR ();
-- E_PARSE at line 1, column 43: the workload is missing
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))

CREATE SYNTHETIC TABLE people FROM t FOR (SELECT a, COUNT(*) FROM t GROUP BY a) FOR (SELECT c, COUNT(*) FROM t GROUP BY c);
-- E_PARSE at line 1, column 81: not understood near 'FOR'
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))

CREATE SYNTHETIC TABLE people FROM t OPTIONS (model = 'magic') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 55: model = magic
-- hint: one of auto, mwem, marginals, mixture, pgm, rap

CREATE SYNTHETIC TABLE people FROM t OPTIONS (seed = 5) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 47: there is no option 'seed'
-- hint: options: epsilon, delta, noise, model, metric, rounds, per_round

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = 0) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = 0
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = -1) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = -1
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = 2.5) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = 2.5
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = 1e9) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = 1e9
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = 1000000000) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = 1000000000
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, rounds = 'many') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 69: rounds = many
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, per_round = 0) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING at line 1, column 72: per_round = 0
-- hint: a whole number from 1 to 10,000, or auto

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = 'mwem', per_round = 5) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING: per_round = 5 is for 'rap': 'mwem' asks one query in a round
-- hint: leave per_round out; rounds = 10 is a number of rounds

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = 'rap', rounds = 'annealing') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING: 'rap' has no schedule 'annealing'
-- hint: a number of rounds, or 'mwem' or 'marginals'

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = 'pgm', rounds = 'doubling') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING: 'marginals' has no schedule 'doubling'
-- hint: a number of rounds, or 'mwem'

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = 'rap', rounds = 1, per_round = 5) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING: per_round = 5 contradicts rounds = 1, which asks all queries at once
-- hint: leave per_round out, or have two rounds or more

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1, model = 'rap', metric = 'max') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_SETTING: metric = 'max' weights tables by their cells, and 'rap' has no weights
-- hint: leave metric out, or use 'marginals'

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, mechanism = 'mwem', rounds = 0) a, COUNT(*) FROM t GROUP BY a;
-- E_SETTING at line 1, column 85: rounds = 0
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, mechanism = 'mwem', rounds = 3, rounds = 4) a, COUNT(*) FROM t GROUP BY a;
-- E_SETTING at line 1, column 88: the option rounds is given twice
-- hint: give rounds one value

SET rounds = 1.5;
-- E_SETTING at line 1, column 14: rounds = 1.5
-- hint: a whole number from 1 to 10,000, or auto or doubling or annealing

SET per_round = 'doubling';
-- E_SETTING at line 1, column 17: per_round = doubling
-- hint: a whole number from 1 to 10,000, or auto

DESCRIBE SYNTHETIC TABLE t;
-- E_UNKNOWN_TABLE: there is no synthetic table 't'
-- hint: synthetic tables: there are none

CREATE SYNTHETIC TABLE t FROM t FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_STATEMENT: there is a table 't' already
-- hint: a synthetic table needs a name of its own

CREATE SYNTHETIC TABLE people FROM bands FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_UNKNOWN_TABLE: there is no private table 'bands' in the catalog
-- hint: tables: t, adult, visits

CREATE SYNTHETIC TABLE people FROM t FOR (EXPLAIN SELECT a, COUNT(*) FROM t GROUP BY a);
-- E_STATEMENT at line 1, column 43: a workload consists of plain SELECTs
-- hint: FOR (SELECT ...; SELECT ...)

CREATE SYNTHETIC TABLE people FROM t FOR (SELECT MAX(a) FROM t);
-- E_AGGREGATE at line 1, column 54: the aggregate MAX() is not supported
-- hint: one row decides it; QUANTILE_DISC(a, 0.95) works

CREATE SYNTHETIC TABLE people FROM t FOR WORKLOAD queries;
-- E_PARSE at line 1, column 51: not understood near 'queries'
-- hint: FOR WORKLOAD 'queries.sql'

CREATE SYNTHETIC VIEW people FROM t FOR (SELECT COUNT(*) FROM t);
-- E_PARSE at line 1, column 18: not understood near 'VIEW'
-- hint: CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b))

CREATE SYNTHETIC TABLE people FROM t OPTIONS (mechanism = 'rap') FOR (SELECT COUNT(*) FROM t);
-- E_SETTING at line 1, column 47: there is no option 'mechanism'
-- hint: did you mean model?

CREATE SYNTHETIC TABLE people FROM t OPTIONS () FOR (SELECT COUNT(*) FROM t);
-- E_PARSE at line 1, column 47: an option is missing before this
-- hint: OPTIONS(epsilon = 0.5, ...)

MATERIALIZE SYNTHETIC VIEW people INTO 'people.csv';
-- E_PARSE at line 1, column 23: not understood near 'VIEW'
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.parquet'

DROP SYNTHETIC TABLE people;
-- E_STATEMENT at line 1, column 1: DROP is not supported: a released synthetic table is final, and its budget is spent
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.csv' writes rows that are yours to change

MATERIALIZE SYNTHETIC TABLE people;
-- E_PARSE at line 1, column 29: not understood near 'people'
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.parquet'

MATERIALIZE SYNTHETIC TABLE people INTO people;
-- E_PARSE at line 1, column 41: not understood near 'people'
-- hint: MATERIALIZE SYNTHETIC TABLE s INTO 's.parquet'

MATERIALIZE SYNTHETIC TABLE people INTO 'people.csv' ROWS = 0;
-- E_PARSE at line 1, column 54: not understood near 'ROWS'
-- hint: ROWS = 10000, at most 100000000

MATERIALIZE SYNTHETIC TABLE people INTO 'people.txt';
-- E_OUTPUT: rows cannot be written to 'people.txt'
-- hint: INTO 's.csv' or INTO 's.parquet'

MATERIALIZE SYNTHETIC TABLE nobody INTO 'people.csv';
-- E_UNKNOWN_TABLE: there is no synthetic table 'nobody'
-- hint: synthetic tables: there are none

CREATE DOMAIN products FROM t a;
-- E_PARSE at line 1, column 31: not understood near 'a'
-- hint: CREATE DOMAIN d FROM t (c) OPTIONS (epsilon = 0.3)

CREATE DOMAIN products FROM t (a, 7);
-- E_PARSE at line 1, column 35: not understood near '7'
-- hint: CREATE DOMAIN d FROM t (c) OPTIONS (epsilon = 0.3)

DROP DOMAIN;
-- E_PARSE at line 1, column 6: not understood near 'DOMAIN'
-- hint: DROP DOMAIN and its name; SHOW domains lists them
