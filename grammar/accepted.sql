-- What dpsql accepts: every statement is followed by the products it compiles to, one a line. A
-- product names its columns; "age: 1x74 Dense" is a matrix of one row over the 74 cells of age, and
-- "m: 0 + 1 v + 0 v^2" a polynomial of a measure; a column without factor is summed over.
-- The catalog is that of tests/support/oracle.py. Made anew by: python -m tests.support.make_cases


--- counts

SELECT COUNT(*) FROM t;
-- everything

SELECT COUNT(*) AS n, COUNT(b) AS known, COUNT(e) FROM t;
-- everything
-- b: 1x6 Dense
-- e: 1x8 Dense

SELECT CORR(a, n) AS r, SKEWNESS(a) FROM t WHERE (a, b) IN ((1, 'x'), (2, 'y')) OR (b, a) < ('x', 3) ORDER BY ALL FETCH FIRST ROW ONLY;
-- a: 1x8 Dense; b: 1x6 Dense; n: 1 + 0 v + 0 v^2
-- a: 1x8 Dense; b: 1x6 Dense; n: 0 + 1 v + 0 v^2
-- a: 1x8 Dense; b: 1x6 Dense; n: 0 + 0 v + 1 v^2
-- a: 1x8 Dense; b: 1x6 Dense

SELECT COUNT(*, contribution_bounds_per_group => (0, 1)) AS n, MEDIAN(a, contribution_bounds_per_row => (1, 5)) FROM t;
-- everything
-- a: 5x8 Dense

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1, min_privacy_units_per_group = 10, group_selection_strategy = PUBLIC_GROUPS) b, QUANTILE_CONT(a, 0.5, contribution_bounds_per_row => (1, 5)), SUM(a, contribution_bounds_per_group => (0, 4)) FROM t GROUP BY b;
-- a: 5x8 Dense; b: 6x6 Identity
-- a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) ward, VAR_POP(cost), COUNT(DISTINCT person_id) FROM visits GROUP BY ward;
-- ward: 3x3 Identity; cost: -50 + 1 v + 0 v^2
-- ward: 3x3 Identity; cost: 2500 + -100 v + 1 v^2
-- ward: 3x3 Identity; cost: 1 + 0 v + 0 v^2
-- ward: 3x3 Identity

SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) AS n, COUNT(DISTINCT person_id, contribution_bounds_per_group => (0, 1)) AS m FROM visits;
-- everything

SELECT b, ENTROPY(a) AS bits, SUM(2 * CASE WHEN b = 'x' THEN a ELSE 0 END) AS s, AVG(IF(b = 'y', a, NULL)) AS m FROM t GROUP BY b;
-- a: 1x8 Dense; b: 6x6 Identity
-- a: 1x8 Dense; b: 6x6 Dense
-- b: 6x6 Dense

SELECT MEDIAN(CASE WHEN b = 'x' THEN a END) AS m, SUM(ABS(a - e)) AS d, SUM(COALESCE(a, e)) AS c FROM t;
-- a: 8x8 Prefix; b: 1x6 Dense
-- -1 x a: 1x8 Dense; e: 1x8 Dense
-- a: 1x8 Dense; e: 1x8 Dense
-- a: 1x8 Dense

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 5) ward, AVG(cost) FROM (SELECT person_id, ward, cost FROM visits WHERE ward <> 'B') AS v GROUP BY ward;
-- ward: 2x3 Dense; cost: -50 + 1 v + 0 v^2
-- ward: 2x3 Dense; cost: 1 + 0 v + 0 v^2
-- ward: 2x3 Dense

SELECT k.b, MEDIAN(a) AS m, VAR_POP(a) AS v FROM t RIGHT JOIN (VALUES ('x'), ('y')) AS k(b) ON t.b = k.b GROUP BY k.b;
-- a: 8x8 Prefix; b: 2x6 Dense
-- 4 x a: 1x8 Dense; b: 2x6 Dense
-- 16 x a: 1x8 Dense; b: 2x6 Dense
-- b: 2x6 Dense

SELECT (SELECT MAX(name) FROM bands d WHERE d.lo = t.a) AS band, COUNT(*) FROM t GROUP BY band;
-- a: 3x8 Dense

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 1) COUNT(*) AS n, AVG(cost) FROM visits;
-- everything
-- cost: -50 + 1 v + 0 v^2
-- cost: 1 + 0 v + 0 v^2

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) COUNT(*, contribution_bounds_per_group => (0, 2)) AS n FROM visits;
-- count(*): 1x2 Dense

SELECT COUNT(*) AS n FROM main.t WHERE t.a > 3;
-- a: 1x8 Dense

SELECT COUNT(t.*) AS n FROM t WHERE a > (SELECT 3) AND a IN (SELECT 2 + 3);
-- a: 1x8 Dense

SELECT COUNT_IF(a > 3) AS big FROM t;
-- a: 1x8 Dense

SELECT COUNT(*) FILTER (WHERE a > 2 OR c) AS f, COUNT(*) AS k FROM t;
-- a: 1x8 Dense; c: 1x3 Dense
-- a: 1x8 Dense
-- everything

SELECT COUNT(*) AS limit FROM t;
-- everything

SELECT COUNT(DISTINCT education) FROM adult;
-- education: 16x16 Dense

SELECT b, COUNT(DISTINCT a // 2) FILTER (WHERE a > 1) AS k FROM t GROUP BY b;
-- a: 4x8 Dense; b: 6x6 Identity

SELECT b, SUM(DISTINCT a) AS s, AVG(DISTINCT a) AS m, STDDEV(DISTINCT a) AS d, VAR_POP(DISTINCT a + 1) AS v FROM t GROUP BY b;
-- a: 8x8 Identity; b: 6x6 Identity

SELECT COUNT(DISTINCT person_id) AS people FROM visits;
-- everything

SELECT COUNT(DISTINCT CASE WHEN ward <> 'C' THEN person_id END) AS people FROM visits;
-- ward: 1x3 Dense

SELECT COUNT(DISTINCT IF(ward IN ('A', 'B'), person_id, NULL)) AS people FROM visits;
-- ward: 1x3 Dense

WITH v AS (SELECT * FROM visits WHERE ward < 'C') SELECT ward, COUNT(DISTINCT v.person_id) AS people FROM v GROUP BY ward;
-- ward: 2x3 Dense

SELECT g, COUNT(DISTINCT person_id) AS people FROM visits JOIN (VALUES ('A', 1), ('A', 2), ('B', 2)) v(w, g) ON ward = w GROUP BY g;
-- ward: 2x3 Dense

SELECT n, COUNT(*) AS k FROM (SELECT person_id, COUNT(*) AS n FROM visits GROUP BY person_id) AS p GROUP BY n;
-- count(*): 3x3 Identity

SELECT w, COUNT(*) AS k FROM (SELECT person_id, lower(ward) AS w, SUM(cost) AS c FROM visits GROUP BY ALL HAVING COUNT(*) > 1) AS p GROUP BY w;
-- lower(ward): 3x3 Identity; count(*): 1x3 Dense

SELECT ward, COUNT(*) AS k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY person_id) AS n FROM visits) AS v WHERE n = 1 GROUP BY ward;
-- ward: 3x3 Identity

SELECT n, COUNT(*) AS k FROM (SELECT ward, COUNT(*) OVER (PARTITION BY person_id) AS n FROM visits QUALIFY n > 1) AS v GROUP BY n;
-- running_count: 2x3 Dense

SELECT n, COUNT(*) AS k FROM (SELECT COUNT(*) OVER (PARTITION BY person_id ORDER BY cost ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM visits) AS v GROUP BY n;
-- running_count: 2x2 Identity

SELECT c, COUNT(*) AS k, AVG(n) AS m FROM t WHERE a > (SELECT AVG(a) FROM t) GROUP BY c;
-- a: 8x8 Dense; c: 3x3 Identity
-- a: 8x8 Dense; c: 3x3 Identity; n: 0 + 1 v + 0 v^2
-- 4 x a: 1x8 Dense
-- everything

SELECT COUNT(*) AS k FROM t WHERE a < (SELECT AVG(u.a) FROM t AS u WHERE u.c = t.c);
-- a: 8x8 Prefix; c: 3x3 Identity
-- c: 3x3 Identity
-- 4 x a: 1x8 Dense; c: 3x3 Identity

SELECT latest, COUNT(*) AS k FROM (SELECT LAST_VALUE(ward) OVER (PARTITION BY person_id ORDER BY cost) AS latest FROM visits) AS v GROUP BY latest;
-- last_value(ward): 4x4 Identity

SELECT before, COUNT(*) AS k FROM (SELECT LAG(ward) OVER (PARTITION BY person_id ORDER BY cost) AS before FROM visits) AS v GROUP BY before;
-- previous(ward): 4x4 Identity

SELECT g, b, COUNT(*) AS k FROM (SELECT 'low' AS g, b FROM t WHERE a < 3 UNION ALL SELECT 'even', b FROM t WHERE a % 2 = 0) AS u GROUP BY g, b;
-- a: 2x8 Dense; b: 6x6 Identity

SELECT which, AVG(v) AS m, COUNT(*) AS k FROM (UNPIVOT t ON a, e INTO NAME which VALUE v) AS u GROUP BY which;
-- a: 1x8 Dense
-- 2 x a: 1x8 Dense
-- 3 x a: 1x8 Dense
-- 4 x a: 1x8 Dense
-- 5 x a: 1x8 Dense
-- 6 x a: 1x8 Dense
-- ... 7 more

SELECT w, COUNT(*) AS k FROM (SELECT ward AS w FROM visits UNION ALL SELECT 'none' FROM visits WHERE ward = 'A') AS u GROUP BY w;
-- w: 4x4 Identity

SELECT ward, COUNT(*) AS k FROM (SELECT person_id, ward FROM visits UNION SELECT person_id, 'B' FROM visits) AS u GROUP BY ward;
-- ward: 3x3 Identity

SELECT ward, COUNT(*) AS k FROM (SELECT person_id, ward FROM visits EXCEPT ALL SELECT person_id, ward FROM visits WHERE ward = 'A') AS u GROUP BY ward;
-- ward: 3x3 Identity

SELECT COUNT(*) AS k FROM (SELECT person_id FROM visits EXCEPT SELECT person_id FROM visits WHERE ward = 'A') AS u;
-- everything

SELECT COUNT(*) AS k FROM visits WHERE person_id IN (SELECT person_id FROM visits INTERSECT SELECT person_id FROM visits WHERE ward = 'A');
-- in 1 exists: 1x2 Dense

SELECT b, SUM(CASE WHEN c THEN 1 ELSE 0 END) AS yes FROM t GROUP BY b;
-- b: 6x6 Identity; c: 1x3 Dense

--- conditions on one column

SELECT COUNT(*) FROM t WHERE a BETWEEN 2 AND 5 AND b <> 'x';
-- a: 1x8 Dense; b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE a NOT BETWEEN 2 AND 5 AND e NOT IN (1, 2) AND b NOT LIKE '%t%';
-- a: 1x8 Dense; b: 1x6 Dense; e: 1x8 Dense

SELECT COUNT(*) FROM t WHERE a IN (1, 3, 5) AND b IN ('x', 'y');
-- a: 1x8 Dense; b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE b LIKE '%s' ESCAPE '!' OR b ILIKE 'X' OR b GLOB 'i*';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE c IS NOT TRUE AND d IS NOT NULL AND e IS DISTINCT FROM 3;
-- c: 1x3 Dense; d: 1x6 Dense; e: 1x8 Dense

SELECT COUNT(*) FROM t WHERE d >= DATE '2024-01-01' AND d < TIMESTAMP '2024-03-01';
-- d: 1x6 Dense

SELECT COUNT(*) FROM t WHERE n < 2 AND n >= 0;
-- n: 1x3 Dense

SELECT COUNT(*) FROM t WHERE (a & 3) = 1 OR a % 2 = 0 OR a // 2 = 3 OR -a < -4;
-- a: 1x8 Dense

SELECT COUNT(*) FROM t WHERE upper(b) = 'X' OR length(b) > 2 OR substring(b, 1, 1) = 'i';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE replace(b, 'x', 'z') = 'z' OR coalesce(b, 'none') = 'none';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE starts_with(b, 'i') OR b || 'z' = 'xz' OR left(b, 1) = 'r';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE CAST(a AS DECIMAL(4, 1)) > 2.5 AND TRY_CAST(b AS INTEGER) IS NULL;
-- a: 1x8 Dense

SELECT COUNT(*) FROM t WHERE a::DOUBLE / 2 > 1.5 AND round(a / 3.0, 1) < 2;
-- a: 1x8 Dense

SELECT COUNT(*) FROM t WHERE EXTRACT(month FROM d) = 1 OR year(d) = 2023;
-- d: 1x6 Dense

SELECT COUNT(*) FROM t WHERE NULL OR TRUE;
-- everything

SELECT COUNT(*) FROM t WHERE sin(a) + atan2(a, 3) > degrees(a) - pi() OR gcd(a, 6) = 2 OR xor(a, 1) = 2 OR mod(a, 3) = 1;
-- a: 1x8 Dense

SELECT COUNT(*) FROM t WHERE levenshtein(b, 'xy') < 2 OR lpad(b, 3, '-') = '--x' OR repeat(b, 2) = 'xx' OR concat_ws('-', b, 'z') = 'x-z' OR b[1] = 'i';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE translate(b, 'xy', 'ab') = 'a' OR trim(b, 's') = 'it' OR regexp_replace(b, 'x', 'yy', 'g') = 'yy' OR regexp_extract(b, '[a-z]') = 'i';
-- b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE days_in_month(d) = 31 OR strftime(d, '%Y-%m') = '2024-01' OR date_diff('month', DATE '2023-11-01', d) > 2 OR d + INTERVAL 1 MONTH >= DATE '2024-02-01';
-- d: 1x6 Dense

SELECT COUNT(*) FROM t WHERE date_part('month', d) = 1 OR timestamp_trunc(d, MONTH) = DATE '2024-01-01' OR time_bucket(INTERVAL 1 YEAR, d) = DATE '2024-01-01' OR if(c, 1, 0) = 1;
-- c: 1x3 Dense; d: 1x6 Dense
-- c: 1x3 Dense

SELECT COUNT(*) FROM t WHERE date_add(DATE '2024-01-01', INTERVAL 1 MONTH) <= d;
-- d: 1x6 Dense

SELECT COUNT(*) FROM t WHERE d < CURRENT_DATE OR d < TODAY();
-- d: 1x6 Dense

SELECT b[1:2] AS g, COUNT(*) AS n FROM t WHERE b[:1] <> 'y' OR b[2:] = '' GROUP BY g;
-- b: 5x6 Dense

SELECT COUNT(*) FROM t WHERE b ~ '^x' OR b !~* 'Y' AND ~a < -3;
-- a: 1x8 Dense; b: 1x6 Dense

SELECT COUNT(*) FROM t WHERE a IN (VALUES (1), (3)) OR (a, b) NOT IN (VALUES (1, 'x'), (2, 'y'));
-- a: 1x8 Dense
-- a: 1x8 Dense; b: 1x6 Dense


--- conditions across columns

SELECT COUNT(*) FROM t WHERE a > 3 OR b = 'x';
-- a: 1x8 Dense; b: 1x6 Dense
-- a: 1x8 Dense

SELECT COUNT(*) FROM t WHERE NOT (a > 3 AND c);
-- a: 1x8 Dense
-- a: 1x8 Dense; c: 1x3 Dense

SELECT COUNT(*) FROM t WHERE (a > 3 OR b = 'x') AND (c OR d IS NULL);
-- a: 1x8 Dense; b: 1x6 Dense; c: 1x3 Dense; d: 1x6 Dense
-- a: 1x8 Dense; b: 1x6 Dense; c: 1x3 Dense
-- a: 1x8 Dense; c: 1x3 Dense; d: 1x6 Dense
-- a: 1x8 Dense; c: 1x3 Dense

SELECT a, c, COUNT(*) FROM t WHERE a > length(b) GROUP BY a, c;
-- a: 8x8 Dense; b: 1x6 Dense; c: 3x3 Identity

SELECT COUNT(*) FROM t WHERE a = e;
-- a: 1x8 Dense; e: 1x8 Dense

--- keys

SELECT a, COUNT(*) FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a + e AS s, COUNT(*) AS k FROM t GROUP BY s;
-- a: 1x8 Dense; e: 1x8 Dense
-- e: 1x8 Dense

SELECT CASE WHEN a > 4 AND b = 'x' THEN 'one' ELSE 'other' END AS g, COUNT(*) AS k FROM t GROUP BY g;
-- a: 1x8 Dense
-- a: 1x8 Dense; b: 1x6 Dense

SELECT a // 3 AS g, COUNT(*) AS k FROM t GROUP BY g;
-- a: 3x8 Dense

SELECT d, b, COUNT(*) AS k FROM t WHERE a > 2 GROUP BY 2, 1;
-- a: 1x8 Dense; b: 6x6 Identity; d: 6x6 Identity

SELECT CASE WHEN a < 2 THEN 'lo' WHEN a < 6 THEN 'mid' END AS g, COUNT(*) FROM t GROUP BY 1;
-- a: 3x8 Dense

SELECT CASE b WHEN 'x' THEN 1 ELSE 0 END AS g, COUNT(*) FROM t GROUP BY ALL;
-- b: 2x6 Dense

SELECT * EXCLUDE (a, d, e, n, w, m, q, r), COUNT(*) AS k FROM t GROUP BY ALL;
-- b: 6x6 Identity; c: 3x3 Identity

SELECT n < 2 AS low, COUNT(*) FROM t GROUP BY low;
-- n: 2x3 Dense

SELECT date_trunc('quarter', d) AS part, COUNT(*) FROM t GROUP BY part;
-- d: 3x6 Dense

SELECT "b" AS "group", COUNT(*) AS "how many" FROM "t" GROUP BY "b";
-- b: 6x6 Identity

SELECT t.a, COUNT(*) FROM t AS t GROUP BY t.a;
-- a: 8x8 Identity

SELECT a, b, COUNT(*), GROUPING(a), GROUPING(a, b) FROM t GROUP BY CUBE (a, b);
-- a: 8x8 Identity; b: 6x6 Identity
-- a: 8x8 Identity
-- b: 6x6 Identity
-- everything

SELECT a, b, c, COUNT(*) AS k FROM t GROUP BY ROLLUP (a, (b, c));
-- a: 8x8 Identity; b: 6x6 Identity; c: 3x3 Identity
-- a: 8x8 Identity
-- everything

SELECT a, b, COUNT(*) AS k FROM t GROUP BY GROUPING SETS ((a), b, (), ROLLUP (c));
-- a: 8x8 Identity
-- b: 6x6 Identity
-- everything
-- c: 3x3 Identity

SELECT a, b, c, COUNT(*) AS k FROM t GROUP BY (a, (b, c));
-- a: 8x8 Identity; b: 6x6 Identity; c: 3x3 Identity

SELECT a, b, COUNT(*) AS k FROM t GROUP BY (a, b);
-- a: 8x8 Identity; b: 6x6 Identity

SELECT DP_RANGES(a), COUNT(*) FROM t GROUP BY 1;
-- a: 36x8 Dense

SELECT DP_RANGES(a) AS band, COUNT(*) FROM t GROUP BY DP_RANGES(a);
-- a: 36x8 Dense

SELECT a > 3 AS high, c, COUNT(*) AS k, GROUPING_ID() AS level FROM t GROUP BY CUBE (a > 3, c);
-- a: 2x8 Dense; c: 3x3 Identity
-- a: 2x8 Dense
-- c: 3x3 Identity
-- everything

SELECT b, a BETWEEN 2 AND 4 AS mid, COUNT(*) AS k FROM t GROUP BY GROUPING SETS ((b), (a BETWEEN 2 AND 4, b));
-- b: 6x6 Identity
-- a: 2x8 Dense; b: 6x6 Identity


--- sums, means and spreads

SELECT SUM(a) AS s, AVG(a) AS m, COUNT(*) AS k FROM t;
-- a: 1x8 Dense
-- 4 x a: 1x8 Dense
-- everything

SELECT b, SUM(a) AS s, VAR_POP(a) AS vp, VAR_SAMP(a) AS vs, STDDEV(a) AS sd FROM t GROUP BY b;
-- a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity

SELECT AVG(CAST(a > e AS INTEGER)) AS share, SUM(w IS NULL) AS missing FROM t;
-- a: 1x8 Dense; e: 1x8 Dense
-- w: 1x3 Dense

SELECT b, AVG(COLUMNS(['a', 'e'])) AS 'mean_\0', COUNT(COLUMNS('^[ae]$')) FROM t GROUP BY b;
-- a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity
-- b: 6x6 Identity; e: 1x8 Dense

SELECT SUM(a * length(b) + 1) AS s FROM t;
-- a: 1x8 Dense; b: 1x6 Dense
-- b: 1x6 Dense

SELECT SUM(m) AS s, COUNT(m) AS k, AVG(m) AS av FROM t;
-- m: 0 + 1 v + 0 v^2
-- m: 1 + 0 v + 0 v^2
-- m: -7.5 + 1 v + 0 v^2

SELECT SUM(2 * m + a) AS s, SUM(m * a) AS p, SUM(m * q) AS x FROM t;
-- 2 x m: 0 + 1 v + 0 v^2
-- a: 1x8 Dense; m: 1 + 0 v + 0 v^2
-- a: 1x8 Dense; m: 0 + 1 v + 0 v^2
-- m: 0 + 1 v + 0 v^2; q: 0 + 1 v + 0 v^2

SELECT SUM(CASE WHEN b = 'x' THEN a WHEN c THEN 10 ELSE q END) AS s FROM t;
-- a: 1x8 Dense; b: 1x6 Dense
-- 10 x b: 1x6 Dense; c: 1x3 Dense
-- b: 1x6 Dense; c: 1x3 Dense; q: 0 + 1 v + 0 v^2

SELECT SUM(LEAST(m, 5)) AS s, AVG(CASE WHEN 2 * q > 3 THEN 3 ELSE 2 * q END) AS av FROM t;
-- m: 0 + 1 v + 0 v^2
-- q: 0 + 2 v + 0 v^2
-- q: 1 + 0 v + 0 v^2

SELECT SUM(m) FILTER (WHERE a > 3 OR c) AS s FROM t;
-- a: 1x8 Dense; c: 1x3 Dense; m: 0 + 1 v + 0 v^2
-- a: 1x8 Dense; m: 0 + 1 v + 0 v^2

SELECT SUM(m, contribution_bounds_per_group => (-1, 10)) AS s FROM t;
-- m: 0 + 1 v + 0 v^2

SELECT VAR_POP(m, contribution_bounds_per_group => (0, 10)) AS s FROM t;
-- m: 0 + 1 v + 0 v^2
-- m: 0 + 0 v + 1 v^2
-- m: 1 + 0 v + 0 v^2

SELECT SUM(w) AS s, AVG(COALESCE(m, 0)) AS av FROM t;
-- w: 0 + 1 v + 0 v^2
-- m: 0 + 1 v + 0 v^2
-- everything

SELECT ward, SUM(cost) AS total, COUNT(*) AS n FROM visits GROUP BY ward;
-- ward: 3x3 Identity; cost: 0 + 1 v + 0 v^2
-- ward: 3x3 Identity

SELECT MEAN(a) AS m, FSUM(e) AS s, SEM(a) AS sem, GEOMEAN(a + 1) AS g, WEIGHTED_AVG(a, e) AS w, COUNT() AS k FROM t;
-- a: 1x8 Dense
-- everything
-- e: 1x8 Dense
-- 4 x a: 1x8 Dense
-- a: 1x8 Dense; e: 1x8 Dense

SELECT APPROX_COUNT_DISTINCT(person_id) AS people FROM visits;
-- everything


--- quantiles

SELECT MEDIAN(a) AS s, QUANTILE_CONT(a, 0.3) AS q3, QUANTILE_DISC(a, 0.8) AS q8, MODE(a) FROM t;
-- a: 8x8 Prefix
-- a: 8x8 Identity

SELECT b, MEDIAN(a) AS s, COUNT(*) AS k FROM t GROUP BY b;
-- a: 8x8 Prefix; b: 6x6 Identity
-- b: 6x6 Identity

SELECT a // 3 AS g, MEDIAN(a) AS s FROM t GROUP BY g;
-- a: 24x8 Dense

SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY a) AS p FROM t;
-- a: 8x8 Prefix

SELECT PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY d DESC) AS p, MODE() WITHIN GROUP (ORDER BY b) FROM t;
-- d: 5x6 Dense
-- b: 5x6 Dense

SELECT QUANTILE_CONT(a, [0.25, 0.5, 0.75]) AS q, APPROX_QUANTILES(a, 2) AS thirds, APPROX_QUANTILE(a, 0.5) FROM t;
-- a: 8x8 Prefix

SELECT b, PERCENTILE_DISC([0.1, 0.9]) WITHIN GROUP (ORDER BY a) AS q, QUANTILE_DISC(a, [0.1, 0.9])[-1] AS last FROM t GROUP BY b;
-- a: 8x8 Prefix; b: 6x6 Identity

SELECT PERCENTILE_CONT(a, [0.1, 0.9], contribution_bounds_per_row => (0, 5)) AS q FROM t;
-- a: 6x8 Dense

SELECT [COUNT(*), SUM(a)] AS both FROM t;
-- everything
-- a: 1x8 Dense

SELECT MEDIAN(length(b)) AS s, QUANTILE_CONT(month(d), 0.2) AS m FROM t;
-- b: 3x6 Dense
-- d: 5x6 Dense


--- running totals and windows over answers

SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS cum FROM t GROUP BY a;
-- a: 8x8 Prefix

SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY b ORDER BY a DESC) AS cum FROM t GROUP BY a, b;
-- a: 8x8 Dense; b: 6x6 Identity

SELECT c, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM t GROUP BY c;
-- c: 3x3 Identity
-- c: 3x3 Dense

SELECT a, RANK() OVER (ORDER BY COUNT(*) DESC, a) AS r, NTILE(4) OVER (ORDER BY a) FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a, COUNT(*) - LAG(COUNT(*), 1, 0) OVER (ORDER BY a) AS r FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a, AVG(COUNT(*)) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a, FIRST_VALUE(COUNT(*)) OVER (ORDER BY a ROWS UNBOUNDED PRECEDING) AS f FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a, MAX(COUNT(*)) OVER (ORDER BY a RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS f FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT a, SUM(COUNT(*)) OVER (ORDER BY a GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS g, STDDEV(COUNT(*)) OVER () AS s, MEDIAN(COUNT(*)) OVER () AS m FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT b, ARG_MAX(a, n) AS most, MIN_BY(a, n) FILTER (WHERE n > 1) AS least, SUM(MAX(n)) OVER (ORDER BY b ROWS 1 PRECEDING EXCLUDE TIES) FROM (SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b) AS g GROUP BY b;
-- a: 8x8 Identity; b: 6x6 Identity

SELECT b, COUNT(*) AS n FROM t JOIN (SELECT b AS k, AVG(a) AS m FROM t GROUP BY b) AS g ON t.b = g.k WHERE t.a > g.m GROUP BY b;
-- a: 8x8 Identity; b: 6x6 Identity
-- 4 x a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity

SELECT COUNT(*) AS n FROM t WHERE b IN (SELECT b FROM t GROUP BY b HAVING COUNT(*) > 10);
-- b: 6x6 Identity

SELECT r.ward, r.n - q.k AS more FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) AS r NATURAL JOIN (SELECT ward, COUNT(cost) AS k FROM visits GROUP BY ward) AS q;
-- ward: 3x3 Identity
-- ward: 3x3 Identity; cost: 1 + 0 v + 0 v^2

SELECT d, SUM(n) OVER (ORDER BY d RANGE BETWEEN INTERVAL 2 MONTH PRECEDING AND CURRENT ROW) AS near FROM (SELECT d, COUNT(*) AS n FROM t GROUP BY d) AS g;
-- d: 6x6 Identity

SELECT * EXCLUDE (m) REPLACE (k / 2 AS k) FROM (SELECT a, COUNT(*) AS k, AVG(e) AS m FROM t GROUP BY a) AS g;
-- a: 8x8 Identity
-- a: 8x8 Identity; e: 1x8 Dense

UNPIVOT (SELECT COUNT(*) FILTER (WHERE c) AS yes, COUNT(*) FILTER (WHERE NOT c) AS no FROM t) ON yes, no INTO NAME answer VALUE n;
-- c: 1x3 Dense

SELECT COUNT(*) AS n FROM visits WHERE person_id IS NOT NULL;
-- everything

SELECT b, d, SUM(COUNT(*)) OVER w AS running, RANK() OVER (w) AS r, SUM(COUNT(*)) OVER (v ORDER BY d) AS other FROM t GROUP BY b, d WINDOW v AS (PARTITION BY b), w AS (v ORDER BY d);
-- b: 6x6 Identity; d: 6x6 Prefix

SELECT a, b, COUNT(*) AS k, COUNT(*) OVER (PARTITION BY b) AS shown, COUNT(*) OVER () AS groups FROM t GROUP BY a, b HAVING COUNT(*) > 2;
-- a: 8x8 Identity; b: 6x6 Identity


--- what happens to answers

SELECT a, COUNT(*) AS k FROM t GROUP BY a HAVING COUNT(*) > 3 ORDER BY k DESC, a LIMIT 4 OFFSET 1;
-- a: 8x8 Identity

SELECT a, COUNT(*) AS k FROM t GROUP BY a QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, a) <= 2;
-- a: 8x8 Identity

SELECT b, COUNT(*) AS k FROM t GROUP BY b ORDER BY b ASC NULLS FIRST, k DESC NULLS LAST OFFSET 1;
-- b: 6x6 Identity

SELECT COUNT(*) AS n, DP_STDDEV(n) AS sd, DP_INTERVAL_LOW(n) AS lo, DP_INTERVAL_HIGH(n) AS hi FROM t;
-- everything

SELECT COUNT(*, report_format => 'JSON') AS r, SUM(a, report_format => JSON).result.value AS s, DP_REPORT(AVG(a)) AS mean FROM t;
-- everything
-- a: 1x8 Dense
-- 4 x a: 1x8 Dense

SELECT b, QUANTILE_DISC(a, 0.5, contribution_bounds_per_row => (1, 5), report_format => 'JSON') AS r FROM t GROUP BY b HAVING FLOAT64(COUNT(*, report_format => 'JSON').result.value) > 5;
-- a: 5x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity

SELECT b, FLOAT64(r.result.value) AS n, JSON_VALUE(r, '$.result.standard_deviation') AS sd FROM (SELECT b, COUNT(*, report_format => 'JSON') AS r FROM t GROUP BY b) AS q ORDER BY n DESC;
-- b: 6x6 Identity

SELECT FLOAT64(q[OFFSET(1)].value) AS median, ARRAY_LENGTH(q) AS n FROM (SELECT JSON_QUERY_ARRAY(APPROX_QUANTILES(a, 2, report_format => 'JSON').result) AS q FROM t) AS s;
-- a: 8x8 Prefix

SELECT ANON_COUNT(* WITH REPORT (FORMAT = JSON)) AS n FROM t;
-- everything

SELECT 100.0 * COUNT(*) FILTER (WHERE c) / COUNT(*) AS share FROM t;
-- c: 1x3 Dense
-- everything

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, delta = 0, noise = 'laplace') COUNT(*) FROM t;
-- everything

SELECT COUNT(*) // 7 AS weeks, COUNT(*) % 7 AS days, ROUND(COUNT(*) / 7, 1) AS r, COUNT(*) || ' people' AS n FROM t;
-- everything

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_stddev = 20) COUNT(*) FROM t;
-- everything

SELECT DATE_TRUNC(d, MONTH) AS k, IFF(c, 'yes', 'no') AS s, COUNT(*) FROM t GROUP BY k, s;
-- c: 2x3 Dense; d: 6x6 Identity

SELECT DATE_DIFF(d, DATE '2024-01-01', MONTH) AS k, DATEADD(day, -1, DATE_TRUNC(d, YEAR)) AS y, COUNT(*) FROM t GROUP BY k, y;
-- d: 6x6 Identity

SELECT FORMAT_DATE('%Y-%m', d) AS k, DECODE(b, 'x', 1, 'y', 2, 3) AS s, COUNT(*) FROM t GROUP BY k, s;
-- b: 3x6 Dense; d: 6x6 Identity

SELECT ZEROIFNULL(NULLIFZERO(e)) AS k, SAFE_CAST(a AS INT64) AS s, NVL2(b, 1, 2) AS z, COUNT(*) FROM t GROUP BY k, s, z;
-- a: 8x8 Identity; b: 2x6 Dense; e: 7x8 Dense

SELECT b, ANY_VALUE(b) AS same, DIV0(SUM(a), COUNT(*)) AS r, RATIO_TO_REPORT(COUNT(*)) OVER () AS share FROM t GROUP BY b;
-- b: 6x6 Identity
-- a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Dense

SELECT TOP 2 b, APPROX_PERCENTILE(a, 0.5) AS m, VAR(a) AS v FROM t GROUP BY b ORDER BY b;
-- a: 8x8 Prefix; b: 6x6 Identity
-- 4 x a: 1x8 Dense; b: 6x6 Identity
-- 16 x a: 1x8 Dense; b: 6x6 Identity
-- b: 6x6 Identity

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 1, group_selection_strategy = LAPLACE_THRESHOLD) b, COUNT(*) FROM t GROUP BY b;
-- b: 6x6 Identity

SELECT DISTINCT b, COUNT(*) > 10 AS many FROM t GROUP BY a, b ORDER BY b;
-- a: 8x8 Identity; b: 6x6 Identity


--- public rows

SELECT name, COUNT(*) AS k FROM bands JOIN t ON a BETWEEN lo AND hi GROUP BY name;
-- a: 3x8 Dense

SELECT x, COUNT(*) AS k FROM t CROSS JOIN UNNEST([1, 2]) AS u(x) GROUP BY x;
-- everything

SELECT name, b, COUNT(*) AS k FROM t, bands WHERE lo > 1 GROUP BY name, b;
-- b: 6x6 Identity

SELECT lo, hi, COUNT(*) AS k FROM t, bands WHERE a BETWEEN lo AND hi AND c GROUP BY lo, hi;
-- a: 3x8 Dense; c: 1x3 Dense

SELECT v.x, COUNT(*) AS k FROM (VALUES (1, 'p'), (3, 'q')) AS v(x, y) JOIN t ON t.a <= v.x GROUP BY v.x;
-- a: 2x8 Dense

SELECT x, COUNT(*) FROM (VALUES (-1), (NULL)) v(x) CROSS JOIN t WHERE e > x GROUP BY x;
-- e: 1x8 Dense

SELECT bands.name, b, COUNT(*) AS k FROM t LEFT JOIN bands ON t.a = bands.lo GROUP BY bands.name, b;
-- a: 4x8 Dense; b: 6x6 Identity

SELECT COUNT(t.a) AS k FROM bands LEFT JOIN t ON t.a = bands.lo WHERE name <> 'low';
-- a: 1x8 Dense

SELECT s.begun, COUNT(t.a) AS k, AVG(t.a) AS v FROM generate_series(DATE '2023-11-01', DATE '2024-06-01', INTERVAL 1 MONTH) AS s(begun) LEFT JOIN t ON date_trunc('month', t.d) = s.begun GROUP BY s.begun;
-- d: 5x6 Dense
-- 4 x a: 1x8 Dense; d: 5x6 Dense

SELECT v.y, COUNT(*) AS k FROM t JOIN (VALUES ('x', 'm'), ('y', 'f')) AS v(x, y) ON t.b = v.x WHERE v.y <> 'q' GROUP BY v.y;
-- b: 2x6 Dense

WITH x AS (SELECT a FROM t WHERE a > 1), SELECT v.a, COUNT(*) FROM x JOIN (VALUES (1,), (2,),) AS v(a) USING (a) GROUP BY v.a;
-- a: 1x8 Dense

SELECT v.a, COUNT(*) FROM t INNER JOIN (VALUES (1), (2)) AS v(a) USING (a) GROUP BY v.a;
-- a: 2x8 Dense

SELECT x, COUNT(*) AS k FROM UNNEST([1, 2, 9]) AS u(x) JOIN t ON t.a = u.x GROUP BY x;
-- a: 2x8 Dense

SELECT item, COUNT(*) AS k FROM t JOIN (SELECT UNNEST(ARRAY['x', 'y']) AS item) AS g ON t.b = g.item GROUP BY item;
-- b: 2x6 Dense

SELECT i, COUNT(*) AS k FROM t JOIN range(0, 8, 2) AS s(i) ON t.a >= i GROUP BY i;
-- a: 4x8 Dense

SELECT s, COUNT(*) AS k FROM t JOIN generate_series(DATE '2023-11-01', DATE '2024-03-01', INTERVAL 1 MONTH) AS g(s) ON date_trunc('month', d) = s GROUP BY s;
-- d: 5x6 Dense

SELECT COUNT(*) FROM t WHERE a IN UNNEST([1, 3]) OR b = ANY(['x', '']) OR LIST_CONTAINS([2, 4], e);
-- everything
-- -1 x a: 1x8 Dense; b: 1x6 Dense; e: 1x8 Dense

SELECT COUNT(*) FROM t WHERE NOT LIST_CONTAINS([2, NULL], e);
-- e: 1x8 Dense

SELECT 1 + 1;

SELECT COUNT(*);

SELECT COUNT(*) FROM range(10);


--- queries within queries

WITH big AS (SELECT * FROM t WHERE a > 3) SELECT b, COUNT(*) AS n FROM big GROUP BY b;
-- a: 1x8 Dense; b: 6x6 Identity

SELECT p, COUNT(*) FROM (SELECT a, b FROM t) AS s(p, q) WHERE q = 'y' GROUP BY p;
-- a: 8x8 Identity; b: 1x6 Dense

SELECT s.g, s.k FROM (SELECT a // 3 AS g, COUNT(*) AS k FROM t GROUP BY 1) AS s WHERE s.k > 2;
-- a: 3x8 Dense

SELECT MAX(k) AS most FROM (SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS s;
-- a: 8x8 Identity

SELECT b, COUNT(*) FROM t GROUP BY b UNION ALL SELECT 'all', COUNT(*) FROM t;
-- b: 6x6 Identity
-- everything

SELECT b FROM t GROUP BY b HAVING COUNT(*) > 9 EXCEPT ALL SELECT b FROM t WHERE c GROUP BY b HAVING COUNT(*) > 9;
-- b: 6x6 Identity
-- b: 6x6 Identity; c: 1x3 Dense

SELECT b, COUNT(*) AS n FROM t GROUP BY b UNION ALL BY NAME SELECT COUNT(*) AS n FROM t;
-- b: 6x6 Identity
-- everything

(SELECT COUNT(*) AS n FROM t) UNION (SELECT COUNT(*) AS n FROM t WHERE c) ORDER BY n;
-- everything
-- c: 1x3 Dense

SELECT b, COUNT(*) * 1.0 / (SELECT COUNT(*) FROM t) AS share FROM t GROUP BY b;
-- b: 6x6 Identity
-- everything

SELECT x.b, x.n, y.n FROM (SELECT b, COUNT(*) AS n FROM t GROUP BY b) AS x JOIN (SELECT b, COUNT(*) AS n FROM t WHERE c GROUP BY b) AS y ON x.b = y.b;
-- b: 6x6 Identity
-- b: 6x6 Identity; c: 1x3 Dense

SELECT (SELECT COUNT(*) FROM t WHERE c) AS yes, (SELECT COUNT(*) FROM t) AS whole;
-- c: 1x3 Dense
-- everything

SELECT COUNT(*) FROM t WHERE a IN (SELECT lo FROM bands);
-- a: 1x8 Dense

--- columns of values

PIVOT t ON c USING COUNT(*) GROUP BY b;
-- b: 6x6 Identity; c: 1x3 Dense

PIVOT (SELECT a, b FROM t WHERE e > 0) ON b IN ('x', 'rest') USING COUNT(*) AS n, SUM(a);
-- b: 1x6 Dense; e: 1x8 Dense
-- a: 1x8 Dense; b: 1x6 Dense; e: 1x8 Dense

SELECT * FROM t PIVOT (AVG(a) AS m FOR b IN ('x', 'y') c IN (TRUE) GROUP BY e) AS p;
-- 4 x a: 1x8 Dense; b: 1x6 Dense; c: 1x3 Dense; e: 8x8 Identity
-- b: 1x6 Dense; c: 1x3 Dense; e: 8x8 Identity

SELECT a, "x" - "y" AS gap FROM (PIVOT t ON b USING COUNT(*) GROUP BY a) AS p WHERE a > 2;
-- a: 8x8 Identity; b: 1x6 Dense

WITH g AS (SELECT b, c, COUNT(*) AS n FROM t GROUP BY b, c) PIVOT g ON c USING SUM(n) GROUP BY b ORDER BY b LIMIT 3;
-- b: 6x6 Identity; c: 3x3 Identity


--- session

EXPLAIN SELECT a, COUNT(*) FROM t GROUP BY a;
-- a: 8x8 Identity

SET epsilon = 0.5;
-- no query

SET noise TO 'gaussian';
-- no query

SET fresh = on;
-- no query

SET reuse = always;
-- no query

SHOW budget;
-- no query

SHOW ledger;
-- no query

SHOW epsilon;
-- no query

DESCRIBE t;
-- no query

DESC adult;
-- no query

BEGIN WORKLOAD;
-- no query

RUN WORKLOAD;
-- no query

EXPLAIN RUN WORKLOAD;
-- no query

CANCEL WORKLOAD;
-- no query

ROLLBACK;
-- no query

ROLLBACK TRANSACTION;
-- no query

SHOW ALL;
-- no query

SHOW COLUMNS FROM t;
-- no query

DESCRIBE t.a;
-- no query

SELECT 1;
-- no query

SELECT version() AS v;
-- no query

SELECT -1.5 AS a, 'it''s', NULL, DATE '2024-01-01';
-- no query

SELECT COUNT(*) FROM t WHERE a > +3;
-- a: 1x8 Dense

SET metric = max;
-- no query

SET rounds = 'doubling';
-- no query

SET per_round = 10;
-- no query

SET nonnegative = on;
-- no query

DESCRIBE SELECT a, COUNT(*) AS n FROM t GROUP BY a;
-- no query

DESC WITH g AS (SELECT b, c FROM t) PIVOT g ON c USING COUNT(*);
-- no query


--- synthetic tables

CREATE SYNTHETIC TABLE people FROM t FOR (SELECT a, b, COUNT(*) FROM t GROUP BY CUBE (a, b));
-- no query

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 0.5, model = 'marginals', metric = 'mean') FOR (SELECT a, COUNT(*) FROM t GROUP BY a; SELECT b, c, COUNT(*) FROM t GROUP BY b, c);
-- no query

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 0.5, model = 'rap', rounds = 3, per_round = 2) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- no query

CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 0.5, model = 'mwem', rounds = 'annealing') FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- no query

CREATE SYNTHETIC TABLE "people" FROM t FOR (SELECT c, COUNT(*) FROM t GROUP BY c;) SPEND (epsilon = 1);
-- no query

CREATE SYNTHETIC TABLE people FROM t FOR WORKLOAD 'queries.sql';
-- no query

EXPLAIN CREATE SYNTHETIC TABLE people FROM t OPTIONS (epsilon = 1) FOR (SELECT a, COUNT(*) FROM t GROUP BY a);
-- no query

DESCRIBE SYNTHETIC TABLE people;
-- no query

MATERIALIZE SYNTHETIC TABLE people INTO 'people.csv';
-- no query

MATERIALIZE SYNTHETIC TABLE people INTO 'people.parquet' ROWS = 1000;
-- no query

--- keys alone

SELECT DISTINCT a FROM t;

SELECT a, b FROM t WHERE a > 3 GROUP BY a, b ORDER BY a;

--- keys that nobody listed

CREATE DOMAIN products FROM t (a);
-- no query

CREATE DOMAIN products FROM t (a) OPTIONS (epsilon = 0.3, noise = gaussian, delta = 1e-9, discovery_delta = 1e-10);
-- no query

CREATE DOMAIN IF NOT EXISTS products FROM t (a);
-- no query

CREATE DOMAIN pairs FROM t (a, b) OPTIONS (epsilon = 0.3);
-- no query

CREATE BOUNDS "prices" FROM t (d) OPTIONS (epsilon = 0.3);
-- no query

EXPLAIN CREATE DOMAIN products FROM t (a) OPTIONS (epsilon = 0.3);
-- no query

DESCRIBE DOMAIN products;
-- no query

SHOW domains;
-- no query

DROP DOMAIN products;
-- no query

DROP BOUNDS prices;
-- no query

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, keys = 'private', discovery_delta = 1e-10) COUNT(*) FROM t;
-- everything

--- options

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, mechanism = 'marginals', metric = 'max', rounds = 2) a, COUNT(*) AS n FROM t GROUP BY a;
-- a: 8x8 Identity

WITH x AS (SELECT a, COUNT(*) AS k FROM t GROUP BY a) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) a, k FROM x ORDER BY k;
-- a: 8x8 Identity

EXPLAIN WITH x AS (SELECT q FROM t WHERE a > 2) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = 'svt') SUM(q) AS total FROM x;
-- a: 1x8 Dense; q: 0 + 1 v + 0 v^2

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) k FROM (SELECT COUNT(*) AS k FROM t UNION ALL SELECT COUNT(*) AS k FROM t WHERE c) AS x;
-- everything
-- c: 1x3 Dense

SELECT k FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS k FROM t) AS x;
-- everything

WITH x AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS k FROM t) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) k FROM x;
-- everything

SELECT COUNT(*) FROM t UNION ALL SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM t WHERE c;
-- everything
-- c: 1x3 Dense

SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, kappa = 1) b, ANON_COUNT(*) AS n, ANON_SUM(a CLAMPED BETWEEN 0 AND 4) AS s, ANON_AVG(a) AS m FROM t GROUP BY b;
-- b: 6x6 Identity
-- a: 1x8 Dense; b: 6x6 Identity
-- 4 x a: 1x8 Dense; b: 6x6 Identity

SELECT APPROX_QUANTILES(a, 4)[OFFSET(2)] AS half, APPROX_QUANTILES(a, 4)[ORDINAL(1)] AS least FROM t;
-- a: 8x8 Prefix

SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1) ANON_QUANTILES(a, 4 CLAMPED BETWEEN 1 AND 5) AS q, ANON_PERCENTILE_CONT(a, 0.5) AS h FROM t;
-- a: 5x8 Dense
-- a: 8x8 Prefix

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (reconstruct = 'nonnegative') a, COUNT(*) AS n FROM t GROUP BY a;
-- a: 8x8 Identity

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = 50) SUM(q) AS total FROM t;
-- q: 0 + 1 v + 0 v^2

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (clip = svt, sum_mechanism = 'tamm') SUM(q) AS total FROM t;
-- q: 0 + 1 v + 0 v^2
