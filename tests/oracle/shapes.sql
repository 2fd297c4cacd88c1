-- CTEs, views, sub-queries, joins and set operations over t and bands of test_shapes.py.
WITH x AS (SELECT a // 2 AS g, b FROM t WHERE a > 2) SELECT g, COUNT(*) FROM x GROUP BY g;
SELECT k, COUNT(*) AS n FROM (SELECT a // 2 AS k, c FROM (SELECT a, c FROM t WHERE b = 'x') q WHERE a < 5) AS z WHERE
k > 0 GROUP BY k ORDER BY n DESC, k;
SELECT p, COUNT(*) FROM (SELECT a, b FROM t) AS s(p, q) WHERE q = 'y' GROUP BY p;
SELECT pair, COUNT(*), SUM(m) FROM old GROUP BY pair;
SELECT OLD.Pair, COUNT(*) FROM old WHERE flag GROUP BY old.pair;
WITH x AS (SELECT * FROM t WHERE c) SELECT b, COUNT(*) FROM x GROUP BY b;
WITH x(g, h) AS (SELECT a, b FROM t) SELECT g, COUNT(h) FROM x GROUP BY g;
WITH x AS (SELECT a + 1 AS b, b AS a FROM t) SELECT b, COUNT(a) FROM x GROUP BY b ORDER BY b;
WITH x AS (SELECT a + 1 AS c FROM t) SELECT c AS a, COUNT(*) FROM x GROUP BY c ORDER BY a DESC;
WITH t AS (SELECT a FROM t WHERE c) SELECT COUNT(*) FROM t;
WITH x AS (SELECT a, m * 2 AS mm, b || '!' AS z FROM t) SELECT a, SUM(mm), AVG(mm) FROM x GROUP BY a;
WITH x AS (SELECT a FROM t), y AS (SELECT a + 1 AS a FROM x), z AS (SELECT a * 2 AS a FROM y) SELECT a, COUNT(*) FROM
z GROUP BY a;
WITH x AS (SELECT CASE WHEN a < 2 THEN 'lo' ELSE 'hi' END AS g, c FROM t) SELECT g, COUNT(*) FILTER (WHERE c),
COUNT(*) AS n FROM x GROUP BY g HAVING n > 1 ORDER BY n;
SELECT COUNT(*) FROM t WHERE a IN (SELECT lo FROM bands);
SELECT COUNT(*) FROM t WHERE a NOT IN (SELECT lo FROM bands WHERE lo > 0);
SELECT name, COUNT(*) FROM (SELECT a AS z FROM t WHERE c) q JOIN bands ON z BETWEEN lo AND hi GROUP BY name;
SELECT name, COUNT(*) FROM (SELECT a, name FROM t LEFT JOIN bands ON a = lo) q GROUP BY name;
SELECT AVG(v.y), STDDEV_POP(v.y) FROM t JOIN (VALUES (1, 70), (2, 900)) v(k, y) ON t.a = v.k;
SELECT name, COUNT(*) FROM bands JOIN (SELECT a, c FROM t) q ON q.a = bands.lo WHERE c GROUP BY name;
SELECT lo, COUNT(*) FROM t JOIN (SELECT lo, hi FROM bands WHERE lo > 0) b ON t.a BETWEEN b.lo AND b.hi GROUP BY lo;
SELECT pair, flag, COUNT(*) FROM old GROUP BY CUBE (pair, flag);
SELECT COUNT(*) FROM (SELECT a FROM t ORDER BY b) q;
SELECT COUNT(*) FROM (SELECT a, b FROM t WHERE c) x WHERE x.a = 3 OR x.b = 'x';
WITH x AS (SELECT a, c, name FROM t JOIN bands ON a = lo) SELECT x.name, v.y, COUNT(*) FROM x JOIN (VALUES (true,
'T'), (false, 'F')) v(f, y) ON x.c = v.f GROUP BY x.name, v.y;
WITH x AS (SELECT a AS lo, b FROM t) SELECT name, COUNT(*) FROM x JOIN bands USING (lo) GROUP BY name;
WITH x AS (SELECT a AS lo, b FROM t) SELECT lo, COUNT(*) FROM bands JOIN x USING (lo) GROUP BY lo;
-- The outer shell.
SELECT * FROM flags;
SELECT flag, n * 2 FROM flags WHERE NOT flag;
SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM t;
SELECT b, COUNT(*) AS n FROM t GROUP BY b UNION ALL SELECT 'all', COUNT(*) FROM t;
SELECT AVG(n), MAX(n), MIN(n), COUNT(*), MEDIAN(n), STDDEV(n) FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q;
WITH x AS (SELECT a, c, COUNT(*) AS n FROM t GROUP BY a, c) SELECT a, SUM(n) AS s FROM x GROUP BY a HAVING s > 3 ORDER
BY s DESC, a LIMIT 3;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a), y AS (SELECT a, COUNT(*) AS k FROM t WHERE c GROUP BY a) SELECT
x.a, n, k, 1.0 * k / n AS share FROM x JOIN y ON x.a = y.a;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT * FROM x LEFT JOIN (SELECT a, COUNT(*) AS k FROM t WHERE
a > 2 GROUP BY a) y USING (a) ORDER BY a;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, n, k FROM x FULL JOIN (SELECT a + 2 AS a, COUNT(*) AS
k FROM t GROUP BY 1) y USING (a) ORDER BY a;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT * FROM x RIGHT JOIN bands ON a = lo ORDER BY lo, hi;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT p.a, q.a, p.n + q.n FROM x p, x q WHERE p.a < q.a;
SELECT b, COUNT(*) AS n, COUNT(*) / (SELECT COUNT(*) FROM t) AS share FROM t GROUP BY b;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, n FROM x WHERE n > (SELECT AVG(n) FROM x);
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, n FROM x WHERE a IN (SELECT lo FROM bands);
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, n, a NOT IN (SELECT hi FROM bands) FROM x;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, EXISTS (SELECT 1 FROM bands WHERE lo = 8) AS e FROM x;
SELECT name, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q JOIN bands ON q.a = bands.lo;
SELECT a, n, SUM(n) OVER (ORDER BY a) AS cum, rank() OVER (ORDER BY n DESC) AS r, n - lag(n) OVER (ORDER BY a) AS step
FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q ORDER BY a;
SELECT a, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q QUALIFY row_number() OVER (ORDER BY n DESC, a) <= 2;
SELECT c, SUM(n) AS s, SUM(SUM(n)) OVER (ORDER BY c) FROM (SELECT a, c, COUNT(*) AS n FROM t GROUP BY a, c) q GROUP BY
c ORDER BY c;
SELECT a FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q WHERE n > 2 INTERSECT SELECT lo FROM bands;
SELECT a FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q EXCEPT SELECT lo FROM bands ORDER BY 1 DESC LIMIT 3;
SELECT a FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q UNION SELECT hi FROM bands;
SELECT DISTINCT a // 2 AS h FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q ORDER BY h DESC;
(SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY n LIMIT 2) UNION ALL (SELECT 'z', COUNT(*) FROM t WHERE c) ORDER
BY n DESC;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT CASE WHEN a > 3 THEN 'big' ELSE 'small' END AS size,
COUNT(*) AS k, SUM(n) FILTER (WHERE a > 2), COUNT(DISTINCT a // 2) FROM x GROUP BY size ORDER BY size;
SELECT (SELECT COUNT(*) FROM t WHERE c) AS yes, (SELECT COUNT(*) FROM t) AS whole;
SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > (SELECT COUNT(*) / 8 FROM t) ORDER BY n DESC, a;
SELECT x.a, y, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) x JOIN (VALUES (1, 'one'), (2, 'two')) v(i, y) ON
x.a = v.i;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a), y AS (SELECT SUM(n) AS s FROM x) SELECT a, n / s FROM x, y;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a FROM x WHERE n > 0 ORDER BY n DESC, a LIMIT 2 OFFSET 1;
SELECT q.* FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q WHERE n BETWEEN 0 AND 1000;
SELECT pair, n, (SELECT SUM(n) FROM flags) AS s FROM (SELECT pair, COUNT(*) AS n FROM old GROUP BY pair) z;
SELECT b, CORR(a, m), COVAR_POP(a, m), COVAR_SAMP(m, a), REGR_COUNT(a, m) FROM t GROUP BY b;
SELECT REGR_SLOPE(m, a), REGR_INTERCEPT(m, a), REGR_R2(m, a), REGR_AVGX(m, a), REGR_AVGY(m, a) FROM t WHERE c;
SELECT c, REGR_SXX(a, m + a), REGR_SYY(a, m), REGR_SXY(a * 2, m) FROM t GROUP BY c;
SELECT SKEWNESS(a), KURTOSIS(a // 2) FROM t;
SELECT c, SKEWNESS(a) AS s, ROUND(KURTOSIS(a), 3) AS k FROM t GROUP BY c HAVING COUNT(*) > 4 ORDER BY ALL;
SELECT CORR(a, m) FILTER (WHERE b = 'x') AS x, CORR(a, m * 2 - 1) FILTER (WHERE c) AS y, CORR(a, a) FROM t;
SELECT b, SUM(m / (a + 1)), AVG(m / NULLIF(a, 0)), SUM((m + a) / NULLIF(a - 2, 0)) FROM t GROUP BY b;
SELECT DISTINCT COUNT(*) AS n FROM t WHERE c;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a, n FROM x ORDER BY ALL FETCH NEXT 3 ROWS ONLY;
WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) SELECT a FROM x WHERE (a, n) >= (3, 2) ORDER BY a;
SELECT a, NTH_VALUE(COUNT(*), 3) OVER (ORDER BY a ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM t GROUP BY a;
SELECT i, k FROM range(3) AS r(i) LEFT JOIN (SELECT a, COUNT(*) AS k FROM t GROUP BY a) AS q ON q.a = i ORDER BY i;
SELECT b, q[1] AS low, q[-1] AS high FROM (SELECT b, QUANTILE_DISC(a, [0.1, 0.9]) AS q FROM t GROUP BY b) AS s ORDER BY b;
SELECT x FROM (SELECT unnest(['p', 'q']) AS x) AS u CROSS JOIN (SELECT COUNT(*) AS n FROM t) AS c WHERE n > 0 ORDER BY x;
-- names of earlier select items
SELECT b, COUNT(*) AS k, k * 2 AS twice, twice + k AS thrice FROM t GROUP BY b;
SELECT a // 3 AS g, COUNT(*) AS k FROM t WHERE g > 0 AND g <> 2 GROUP BY g;
SELECT b, COUNT(*) AS k, k / SUM(k) OVER () AS share FROM t GROUP BY b;
SELECT a + 1 AS b, b AS c, COUNT(*) AS k FROM t GROUP BY a, t.b;
SELECT s.g AS h, h || '!' AS i, COUNT(*) AS k, k + 1 AS l FROM (SELECT coalesce(b, 'none') AS g, g || '?' AS q FROM t WHERE q <> 'x?') s WHERE h <> 'it''s' GROUP BY h;
SELECT k AS m, m + 1 AS n1, n1 * m AS o FROM (SELECT b, COUNT(*) AS k FROM t GROUP BY b) WHERE m > 2;
SELECT CASE WHEN a < 3 THEN 'lo' ELSE 'hi' END AS band, COUNT(*) AS k, COUNT(*) FILTER (WHERE c) AS yes, 100.0 * yes / k AS pct FROM t WHERE band = 'hi' GROUP BY band;
SELECT COUNT(*) AS k, SUM(m) AS k, k + 1 AS l FROM t;
SELECT name, a % 3 AS e, lo + a AS q, CASE WHEN c THEN a END AS ca, c, lo AS a, COUNT(*) AS k FROM t JOIN bands ON t.a BETWEEN lo AND hi GROUP BY ALL HAVING COUNT(*) > 0;
SELECT a + length(b) AS k, (SELECT SUM(lo + hi) FROM bands) AS s, COUNT(*) AS n FROM t GROUP BY a + length(b);
SELECT list(b ORDER BY n DESC, b) AS l, string_agg(b || ':' || n, ', ' ORDER BY b) AS s, FIRST(b ORDER BY n DESC, b) AS f, LAST(b ORDER BY n DESC, b) AS z FROM (SELECT b, COUNT(*) AS n FROM t GROUP BY b) q;
SELECT b, string_agg(DISTINCT a // 2, '/' ORDER BY a // 2 DESC) AS s, list(DISTINCT c ORDER BY c) AS l, list(a ORDER BY a) FILTER (WHERE n > 5) AS f FROM (SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY ALL) q GROUP BY b;
SELECT CORR(n, a) AS r, REGR_SLOPE(n, a) AS s, REGR_INTERCEPT(n, a) AS i, REGR_R2(n, a) AS q, COVAR_POP(n, a) AS p, COVAR_SAMP(n, a) AS v, REGR_COUNT(n, a) AS c FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q;
SELECT SKEWNESS(n) AS s, KURTOSIS(n) AS k, MODE(a // 4) AS m, product(n) AS p, mad(n) AS d, arg_max(a, n, 2) AS g FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q;
SELECT b, c, SUM(n) AS s, GROUPING(b) AS g, GROUPING(b, c) AS h FROM (SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY ALL) q GROUP BY CUBE (b, c) HAVING SUM(n) > 1 ORDER BY ALL;
SELECT CASE WHEN GROUPING(b) = 1 THEN 'all' ELSE b END AS k, MAX(n) AS m FROM (SELECT b, c, COUNT(*) AS n FROM t GROUP BY ALL) q GROUP BY ROLLUP (b);
SELECT a % 2 AS e, b, AVG(n) AS m FROM (SELECT a, b, COUNT(*) AS n FROM t GROUP BY ALL) q GROUP BY GROUPING SETS ((e, b), (b), ());
SELECT a, SUM(n) FILTER (WHERE a > 2) OVER (PARTITION BY a % 2) AS s, BOOL_OR(n > 30) OVER () AS o, QUANTILE_CONT(n, 0.25) OVER () AS q FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) z;
SELECT b, BOOL_AND(COUNT(*) > 10) OVER () AS o, SUM(COUNT(*)) FILTER (WHERE b = 'x') OVER () AS x, COUNT_IF(COUNT(*) > 20) OVER () AS k FROM t GROUP BY b;
SELECT b, format('{:>8.1f}|{}', AVG(m), b) AS f, printf('%d rows, %.2f', COUNT(*), AVG(m)) AS p FROM t GROUP BY b;
SELECT format('{:02d}', a) AS k, COUNT(*) FROM t GROUP BY k;
SELECT b, COUNT(*) AS n, (SELECT COUNT(*) FROM t u WHERE u.b = t.b AND u.c) AS yes, COUNT(*) * 1.0 / (SELECT AVG(u.m) FROM t u WHERE u.b = t.b) AS r FROM t WHERE b IS NOT NULL GROUP BY b ORDER BY n DESC, b;
SELECT a, (SELECT MAX(hi - lo) FROM bands WHERE lo = a) AS width, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > 0;
SELECT a, (SELECT k.y FROM (VALUES (1, 70), (2, 900)) k(x, y) WHERE k.x = 1) AS c, COUNT(*) AS n FROM t GROUP BY a;
SELECT a, COUNT(*) FROM t SEMI JOIN bands ON t.a = bands.lo AND hi > 1 GROUP BY a;
SELECT b, COUNT(*) FROM t ANTI JOIN bands ON lo = a GROUP BY b;
SELECT COUNT(*) FROM t WHERE c OR EXISTS (SELECT 1 FROM bands WHERE lo = a AND hi > 2);
SELECT COUNT(*) FROM t WHERE NOT EXISTS (SELECT * FROM bands WHERE bands.lo = t.a + 1);
SELECT q.b, q.n FROM (SELECT b, COUNT(*) AS n FROM t GROUP BY b) q SEMI JOIN (SELECT b FROM t WHERE c GROUP BY b HAVING COUNT(*) > 15) r ON q.b = r.b;
SELECT DISTINCT ON (b) b, a, n FROM (SELECT a, b, COUNT(*) AS n FROM t GROUP BY ALL) q ORDER BY b, n DESC, a;
SELECT DISTINCT ON (c) c, b, COUNT(*) AS n FROM t GROUP BY c, b ORDER BY c, n DESC, b;
SELECT COUNT(DISTINCT a) AS k, COUNT(DISTINCT b) AS l, COUNT(DISTINCT a // 4) FILTER (WHERE c) AS d FROM t WHERE a <> 3;
SELECT b, COUNT(DISTINCT a) FILTER (WHERE c AND a > 2) AS k, COUNT(*) AS n FROM t GROUP BY ROLLUP (b);
SELECT b, SUM(DISTINCT a) AS s, AVG(DISTINCT a) AS m, SUM(DISTINCT a % 3 * 2) FILTER (WHERE a > 1) AS f, COUNT(*) AS n FROM t GROUP BY CUBE (b, c) HAVING SUM(DISTINCT a) > 3;
SELECT a % 3 AS r, SUM(DISTINCT a) AS s, AVG(DISTINCT CASE WHEN c AND b = 'x' THEN a / 4.0 END) AS l, SUM(DISTINCT 0 * a) AS z FROM t GROUP BY r;
SELECT a % 3 AS r, COUNT(DISTINCT a) AS k, COUNT(DISTINCT CASE WHEN c AND b = 'x' THEN a END) AS l FROM t GROUP BY r HAVING COUNT(DISTINCT b) > 1;
SELECT name, COUNT(DISTINCT a) AS k, COUNT(DISTINCT b) AS l FROM t JOIN bands ON a BETWEEN lo AND hi WHERE a < 5 GROUP BY name;
SELECT name, COUNT(*), SUM(m * lo), AVG(hi) FROM t CROSS JOIN bands GROUP BY name;
SELECT COUNT(*), SUM(m) FROM bands, t WHERE lo > 1 AND a < 4;
SELECT x, b, COUNT(*) FILTER (WHERE a > x) FROM t, UNNEST([1, 3]) AS u(x) GROUP BY x, b;
SELECT lo, COUNT(*) FROM t LEFT JOIN bands ON lo > 1 GROUP BY lo;
SELECT place, COUNT(*) FROM t JOIN UNNEST([3, 1]) WITH ORDINALITY AS u(x, place) ON a = x GROUP BY place;
SELECT COUNT(*) FROM t WHERE a > (SELECT AVG(lo) FROM bands) AND a <> (SELECT MAX(hi) FROM bands WHERE hi > 99);
SELECT COUNT(*) FROM t WHERE EXISTS (SELECT * FROM bands WHERE lo > 9) OR a = (SELECT MIN(lo) FROM bands);
SELECT SUM(CASE WHEN a < (SELECT MAX(lo) FROM bands) THEN m END) FROM t WHERE NOT EXISTS (SELECT 1 FROM bands WHERE lo > 99);
WITH r AS (SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b) SELECT a, b FROM r AS one WHERE n > (SELECT AVG(n) FROM r AS two WHERE two.a = one.a);
SELECT 'all' AS scope, 7, a, COUNT(*) FROM t GROUP BY ALL;
SELECT 1 AS one, COUNT(*) FROM t GROUP BY 1;
SELECT k, b, COUNT(*) FROM (SELECT 2 AS k, b FROM t) AS q GROUP BY k, b;
SELECT SUM(ATANH(a / 10)), SUM(ASINH(a)), SUM(ACOSH(a + 1)) FROM t;
SELECT b, COUNT(DISTINCT a), COUNT(*) FROM t, bands WHERE lo > 1 GROUP BY b;
SELECT name, COUNT(*) FROM (t JOIN bands ON a = lo) WHERE hi > 1 GROUP BY name;
SELECT j.name, SUM(j.m) FROM (t LEFT JOIN bands ON a = lo) AS j GROUP BY j.name;
SELECT b, COUNT(*) FROM t JOIN (bands JOIN (VALUES (2)) AS v(x) ON lo <= v.x) ON a = bands.lo GROUP BY b;
SELECT a, SUM(n) OVER (ORDER BY CAST('2024-01-01' AS DATE) + CAST(a AS INTEGER) RANGE BETWEEN INTERVAL 2 DAYS PRECEDING AND INTERVAL '1 day' FOLLOWING) AS s FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q ORDER BY a;
SELECT * EXCLUDE (s) REPLACE (n * 2 AS n) RENAME (a AS k) FROM (SELECT a, COUNT(*) AS n, SUM(a) AS s FROM t GROUP BY a) q ORDER BY 1;
SELECT b, COUNT(*) AS n FROM (SELECT * EXCLUDE (c) REPLACE (a // 2 AS a) FROM t) q WHERE a = 1 GROUP BY b;
SELECT which, SUM(n) AS n FROM (UNPIVOT (SELECT a, COUNT(*) FILTER (WHERE c) AS yes, COUNT(*) FILTER (WHERE NOT c) AS no FROM t GROUP BY a) ON yes, no INTO NAME which VALUE n) q GROUP BY which ORDER BY which;
SELECT a, g, n FROM (SELECT a, COUNT(*) AS x, COUNT(*) FILTER (WHERE b = 'x') AS y FROM t GROUP BY a) UNPIVOT (n FOR g IN (x AS 'all', y)) ORDER BY a, g;
WITH s AS (SELECT a, c, COUNT(*) AS n FROM t GROUP BY a, c) PIVOT s ON c IN (true, false) USING SUM(n) GROUP BY a;
SELECT a, COUNT(*) AS n, SUM(COUNT(DISTINCT b)) OVER (ORDER BY a) AS s FROM t GROUP BY a ORDER BY a;
