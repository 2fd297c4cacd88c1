-- Rows of privacy units over visits (who, ward, age, cost) of test_per_unit.py.
SELECT n, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who) AS p GROUP BY n;
SELECT COUNT(*), AVG(n), SUM(n) FROM (SELECT who, COUNT(*) AS n FROM visits WHERE ward = 'a' GROUP BY who) AS p WHERE n > 1;
SELECT w, COUNT(*) FROM (SELECT who, MIN(age) AS w, COUNT(DISTINCT ward) AS k FROM visits GROUP BY 1) AS p WHERE k >= 2 GROUP BY w;
SELECT ward, COUNT(*), SUM(n) FROM (SELECT who, ward, COUNT(*) AS n FROM visits GROUP BY who, ward) AS p GROUP BY ward;
SELECT ward, COUNT(*) FROM (SELECT DISTINCT who, ward FROM visits) AS p GROUP BY ward;
SELECT COUNT(*), SUM(s), AVG(s) FROM (SELECT who, SUM(age) AS s FROM visits GROUP BY who HAVING COUNT(*) > 2) AS p;
SELECT AVG(c), SUM(c) FROM (SELECT who, SUM(cost) AS c FROM visits GROUP BY who) AS p;
SELECT COUNT(*) FILTER (WHERE x > 0), COUNT(*) FROM (SELECT who, SUM(CASE WHEN ward = 'b' OR age > 5 THEN 1 ELSE 0 END) AS x
FROM visits GROUP BY who) AS p;
SELECT k, COUNT(*) FROM (SELECT who, SUM(CASE WHEN ward = 'b' THEN age ELSE 0 END) AS k FROM visits WHERE age IS NOT NULL GROUP BY who) AS p
GROUP BY k;
SELECT x, y, COUNT(*) FROM (SELECT who, COUNT(*) FILTER (WHERE ward = 'a') AS x, COUNT(CASE WHEN ward = 'b' AND age < 5 THEN 1 END) AS y
FROM visits GROUP BY ALL) AS p GROUP BY ALL;
WITH p AS (SELECT who, MAX(age) AS top FROM visits GROUP BY who) SELECT top, COUNT(*) AS n, COUNT(DISTINCT who) AS k FROM p GROUP BY top;
SELECT k, COUNT(*) FROM (SELECT who, COUNT(*) AS k FROM (SELECT DISTINCT who, ward FROM visits WHERE age IS NOT NULL) AS d GROUP BY who) AS p
GROUP BY k;
SELECT n * 2 + 1 AS odd, COUNT(*) FROM (SELECT who, COUNT(age) + 0 AS n FROM visits WHERE ward >= 'a' OR TRUE GROUP BY who) AS p GROUP BY 1;
SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who HAVING MAX(age) >= 8 AND COUNT(*) FILTER (WHERE ward = 'a') = 0) AS p;
SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who HAVING BOOL_OR(ward = 'a') AND NOT BOOL_OR(ward = 'b')) AS p;
SELECT x, y, COUNT(*) FROM (SELECT who, BOOL_AND(age > 3) AS x, BOOL_OR(age > 7) FILTER (WHERE ward <> 'c') AS y FROM visits GROUP BY who) AS p
GROUP BY x, y;
SELECT MEDIAN(n), QUANTILE_DISC(n, 0.9) FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who) AS p;
SELECT ward, AVG(a) FROM (SELECT who, ward, AVG(age) AS a FROM visits GROUP BY who, ward) AS p GROUP BY ward;
SELECT COUNT(*) FROM visits WHERE who IN (SELECT who FROM visits WHERE ward = 'b' AND age > 3);
SELECT ward, COUNT(*), COUNT(DISTINCT who) FROM visits WHERE who NOT IN (SELECT who FROM visits WHERE ward = 'b') GROUP BY ward;
SELECT ward, COUNT(*) FROM visits AS v WHERE EXISTS (SELECT 1 FROM visits x WHERE x.who = v.who AND x.age = 3) AND age < 8 GROUP BY ward;
SELECT ward, COUNT(*) FROM visits AS v WHERE NOT EXISTS (SELECT 1 FROM visits x WHERE v.who = x.who AND x.age = 3)
AND v.who IN (SELECT who FROM visits GROUP BY who HAVING COUNT(*) > 2) GROUP BY ward;
SELECT n, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits WHERE who IN (SELECT who FROM visits WHERE ward = 'c') GROUP BY who) AS p
GROUP BY n;
WITH old AS (SELECT who FROM visits GROUP BY who HAVING MAX(age) > 7) SELECT ward, COUNT(*), AVG(cost) FROM visits
WHERE who IN (SELECT who FROM old) GROUP BY ward;
SELECT COUNT(*) FROM (SELECT who, ward FROM visits GROUP BY who, ward HAVING NOT (MIN(age) < 3)) AS p
WHERE who NOT IN (SELECT who FROM visits WHERE age IS NULL);
SELECT ward, COUNT(*) / (SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who) AS q) AS rate FROM visits GROUP BY ward;
SELECT m, n, COUNT(*) FROM (SELECT who, date_trunc('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY 1, 2) AS p GROUP BY ALL;
SELECT m, COUNT(*) FROM (SELECT who, month(day) AS m, SUM(age) AS n FROM visits GROUP BY who, month(day)) AS p GROUP BY ALL;
SELECT old, n, COUNT(*) FROM (SELECT who, age > 5 AS old, COUNT(*) AS n FROM visits GROUP BY ALL) AS p GROUP BY ALL;
SELECT n, COUNT(*) FROM (SELECT who, COUNT(DISTINCT age // 3) AS n FROM visits GROUP BY who) AS p GROUP BY n;
SELECT n, COUNT(*) FROM (SELECT who, MAX(age * 2 - 3) AS n, COUNT(*) AS k FROM visits GROUP BY who) AS p GROUP BY n;
SELECT n, COUNT(*) FROM (SELECT who, SUM(CASE WHEN ward = 'a' THEN 2 WHEN ward = 'b' THEN 1 ELSE 0 END) AS n FROM visits GROUP BY who) AS p GROUP BY n;
SELECT s, COUNT(*) FROM (SELECT who, SUM(DISTINCT age) AS s FROM visits GROUP BY who) AS p GROUP BY s;
SELECT AVG(s), SUM(k) FROM (SELECT who, AVG(DISTINCT age) AS s, SUM(DISTINCT age) FILTER (WHERE ward = 'a') AS k FROM visits GROUP BY who) AS p;
SELECT w, COUNT(*) FROM (SELECT DISTINCT who, ward || '!' AS w FROM visits) AS p GROUP BY w;
SELECT w, COUNT(*) FROM (SELECT who, ward || 'x' AS w, COUNT(*) AS n FROM visits GROUP BY ALL HAVING COUNT(*) > 1) AS p GROUP BY w;
SELECT ward, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who) JOIN visits USING (who) WHERE n > 1 GROUP BY ward;
SELECT n, k FROM (SELECT COUNT(*) AS n FROM visits), (SELECT COUNT(DISTINCT who) AS k FROM visits);
SELECT n, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits CROSS JOIN (VALUES (1), (2), (3)) AS u(k) GROUP BY who) AS p GROUP BY n;
SELECT k, n, COUNT(*) FROM (SELECT who, k, COUNT(age) AS n FROM visits, UNNEST([2, 5]) AS u(k) WHERE age > k GROUP BY who, k) AS p GROUP BY k, n;
SELECT n, COUNT(*) FROM (SELECT who, SUM(f) AS n FROM visits JOIN (VALUES ('a', 1), ('b', 2), ('b', 3)) AS g(w, f) ON ward = w GROUP BY who) AS p GROUP BY n;
SELECT n, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits LEFT JOIN (VALUES ('a', 1), ('b', 2), ('b', 3)) AS g(w, f) ON ward = w GROUP BY who) AS p GROUP BY n;
SELECT r, f, COUNT(*) FROM (SELECT who, f, ROW_NUMBER() OVER (PARTITION BY who ORDER BY day, f) AS r FROM visits, (VALUES (1), (4)) AS g(f)) AS p GROUP BY r, f;
