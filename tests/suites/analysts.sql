-- survey 1
SELECT gender, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct FROM survey GROUP BY gender ORDER BY n DESC;

-- survey 2
SELECT city, AVG(satisfaction) AS mean_satisfaction, COUNT(satisfaction) AS answers FROM survey GROUP BY city ORDER BY mean_satisfaction DESC;

-- survey 3
SELECT satisfaction, COUNT(*) AS n FROM survey WHERE satisfaction IS NOT NULL GROUP BY satisfaction ORDER BY satisfaction;

-- survey 4
SELECT 100.0 * (SUM(CASE WHEN nps >= 9 THEN 1 ELSE 0 END) - SUM(CASE WHEN nps <= 6 THEN 1 ELSE 0 END)) / COUNT(*) AS net_promoter_score FROM survey;

-- survey 5
SELECT city, 100.0 * (COUNT(*) FILTER (WHERE nps >= 9) - COUNT(*) FILTER (WHERE nps <= 6)) / COUNT(*) AS score FROM survey GROUP BY city HAVING COUNT(*) > 100;

-- survey 6
SELECT CASE WHEN nps >= 9 THEN 'promoter' WHEN nps >= 7 THEN 'passive' ELSE 'detractor' END AS kind, COUNT(*) AS n, AVG(satisfaction) AS s FROM survey GROUP BY 1;

-- survey 7
SELECT CASE WHEN age < 30 THEN '18-29' WHEN age < 45 THEN '30-44' WHEN age < 65 THEN '45-64' ELSE '65+' END AS age_band, gender, AVG(nps) AS mean_nps FROM survey GROUP BY age_band, gender ORDER BY age_band, gender;

-- survey 8
SELECT COUNT(*) FILTER (WHERE would_return) AS yes, COUNT(*) FILTER (WHERE NOT would_return) AS no, COUNT(*) FILTER (WHERE would_return IS NULL) AS unknown FROM survey;

-- survey 9
SELECT city, AVG(CASE WHEN would_return THEN 1.0 ELSE 0.0 END) AS share FROM survey GROUP BY city;

-- survey 10
SELECT city, AVG(would_return::INT) AS share FROM survey GROUP BY city;

-- survey 11
SELECT date_trunc('week', answered) AS week, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY date_trunc('week', answered)) AS so_far FROM survey GROUP BY week ORDER BY week;

-- survey 12
SELECT date_trunc('month', answered) AS month, AVG(satisfaction) AS s, AVG(satisfaction) - LAG(AVG(satisfaction)) OVER (ORDER BY date_trunc('month', answered)) AS change FROM survey GROUP BY 1 ORDER BY 1;

-- survey 13
SELECT MEDIAN(age) AS med, QUANTILE_CONT(age, 0.9) AS p90, AVG(age) AS mean, STDDEV(age) AS sd FROM survey;

-- survey 14
SELECT city, MEDIAN(age) AS med FROM survey WHERE gender IN ('female', 'male') GROUP BY city;

-- survey 15
SELECT COALESCE(CAST(satisfaction AS VARCHAR), 'no answer') AS answer, COUNT(*) AS n FROM survey GROUP BY answer;

-- survey 16
SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY ROLLUP (city, gender) ORDER BY city NULLS LAST, gender NULLS LAST;

-- survey 17
SELECT city, gender, would_return, COUNT(*) AS n FROM survey GROUP BY CUBE (city, gender, would_return);

-- survey 18
SELECT COALESCE(city, 'all') AS city, COUNT(*) AS n FROM survey GROUP BY ROLLUP (city);

-- survey 19
SELECT CASE WHEN GROUPING(city) = 1 THEN 'total' ELSE city END AS city_, COUNT(*) AS n FROM survey GROUP BY ROLLUP (city);

-- survey 20
SELECT upper(left(city, 1)) AS initial, COUNT(*) AS n FROM survey GROUP BY initial;

-- survey 21
SELECT city, COUNT(*) AS n FROM survey WHERE city LIKE 'B%' OR city ILIKE '%burg' GROUP BY city;

-- survey 22
SELECT length(city) AS letters, COUNT(*) AS n FROM survey GROUP BY letters ORDER BY letters;

-- survey 23
SELECT FLOOR(income / 2000) * 2000 AS band, COUNT(*) AS n FROM survey GROUP BY band ORDER BY band;

-- survey 24
SELECT age // 10 * 10 AS decade, COUNT(*) AS n, AVG(income) AS mean_income FROM survey GROUP BY ALL ORDER BY decade;

-- survey 25
SELECT CAST(FLOOR(age / 10.0) AS INT) * 10 AS decade, COUNT(*) AS n FROM survey GROUP BY decade;

-- survey 26
SELECT gender, AVG(income) AS mean_income, AVG(income) / (SELECT AVG(income) FROM survey) - 1 AS gap FROM survey GROUP BY gender;

-- survey 27
-- within: 0.05
SELECT CORR(age, nps) AS r, REGR_SLOPE(nps, age) AS slope, REGR_INTERCEPT(nps, age) AS i FROM survey;

-- survey 28
WITH banded AS (SELECT CASE WHEN income < 3000 THEN 'low' WHEN income < 6000 THEN 'middle' ELSE 'high' END AS band, nps, would_return FROM survey) SELECT band, COUNT(*) AS n, AVG(nps) AS mean_nps, COUNT_IF(would_return) AS back FROM banded GROUP BY band;

-- survey 29
WITH t AS (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) SELECT city, n, RANK() OVER (ORDER BY n DESC) AS place, n * 1.0 / SUM(n) OVER () AS share FROM t ORDER BY place;

-- survey 30
WITH t AS (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY 1, 2) SELECT city, gender, n, n * 100.0 / SUM(n) OVER (PARTITION BY city) AS pct_of_city FROM t;

-- survey 31
SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY city, gender QUALIFY ROW_NUMBER() OVER (PARTITION BY city ORDER BY COUNT(*) DESC) = 1;

-- survey 32
SELECT * FROM (SELECT city, gender, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY city ORDER BY COUNT(*) DESC) AS rn FROM survey GROUP BY city, gender) WHERE rn = 1;

-- survey 33
SELECT city, MAX(n) - MIN(n) AS spread FROM (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY city, gender) AS t GROUP BY city;

-- survey 34
SELECT AVG(nps) FILTER (WHERE gender = 'female') - AVG(nps) FILTER (WHERE gender = 'male') AS gap FROM survey;

-- survey 35
SELECT VAR_SAMP(nps) AS v, STDDEV_POP(nps) AS s, SQRT(VAR_SAMP(nps) / COUNT(*)) AS stderr FROM survey;

-- survey 36
SELECT dayname(answered) AS day, COUNT(*) AS n FROM survey GROUP BY day ORDER BY n DESC;

-- survey 37
SELECT EXTRACT(isodow FROM answered) IN (6, 7) AS weekend, AVG(satisfaction) AS s FROM survey GROUP BY weekend;

-- survey 38
SELECT COUNT(*) AS n FROM survey WHERE answered BETWEEN DATE '2024-06-01' AND DATE '2024-06-30' AND city IN ('Berlin', 'Hamburg') AND age BETWEEN 25 AND 34;

-- survey 39
SELECT city, SUM(income) AS total FROM survey WHERE gender <> 'diverse' GROUP BY city HAVING SUM(income) > 1000000;

-- survey 40
SELECT city, COUNT(*) AS n FROM survey WHERE would_return IS TRUE GROUP BY city ORDER BY n DESC LIMIT 3;

-- survey 41
SELECT city, COUNT(*) AS n FROM survey WHERE would_return IS NOT TRUE GROUP BY city;

-- survey 42
SELECT COUNT(*) AS n, COUNT(satisfaction) AS answered, COUNT(*) - COUNT(satisfaction) AS missing, 1 - COUNT(satisfaction) * 1.0 / COUNT(*) AS missing_rate FROM survey;

-- survey 43
SELECT MODE(city) AS most FROM survey;

-- survey 44
SELECT satisfaction >= 4 AS happy, COUNT(*) AS n FROM survey GROUP BY happy;

-- survey 45
SELECT income >= 5000 AS well_off, AVG(nps) AS n FROM survey GROUP BY 1;

-- survey 46
-- refused: E_BIN_EDGE this would cut through a cell of income
SELECT COUNT(*) AS n FROM survey WHERE income > 5000;

-- survey 47
-- refused: E_BIN_EDGE this would cut through a cell of income
SELECT COUNT(*) AS n FROM survey WHERE income BETWEEN 2000 AND 5000;

-- survey 48
SELECT SUM(CASE WHEN gender = 'female' THEN income END) / SUM(income) AS share_of_income FROM survey;

-- survey 49
SELECT city, SUM(IF(gender = 'female', 1, 0)) AS women, SUM(IF(gender = 'male', 1, 0)) AS men FROM survey GROUP BY city;

-- survey 50
SELECT city, COUNT(CASE WHEN nps > 8 THEN 1 END) AS fans FROM survey GROUP BY city;

-- survey 51
SELECT city, AVG(NULLIF(nps, 0)) AS mean_without_zero FROM survey GROUP BY city;

-- survey 52
SELECT answered, COUNT(*) AS n, AVG(COUNT(*)) OVER (ORDER BY answered ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS week_mean FROM survey GROUP BY answered ORDER BY answered;

-- survey 53
SELECT month(answered) AS m, COUNT(*) FILTER (WHERE nps >= 9) AS p, COUNT(*) AS n, COUNT(*) FILTER (WHERE nps >= 9) * 1.0 / COUNT(*) AS rate FROM survey GROUP BY m ORDER BY m;

-- survey 54
SELECT concat(gender, ', ', city) AS who, COUNT(*) AS n FROM survey GROUP BY who ORDER BY n DESC LIMIT 5;

-- survey 55
SELECT gender || '/' || city AS who, COUNT(*) AS n FROM survey GROUP BY 1;

-- survey 56
SELECT DISTINCT city FROM survey ORDER BY city;

-- survey 57
SELECT COUNT(DISTINCT city) AS cities FROM survey;

-- survey 58
SELECT age, COUNT(*) AS n FROM survey GROUP BY age HAVING COUNT(*) >= 40 ORDER BY age;

-- survey 59
SELECT a.city, a.n AS women, b.n AS men, a.n * 1.0 / b.n AS ratio FROM (SELECT city, COUNT(*) AS n FROM survey WHERE gender = 'female' GROUP BY city) a JOIN (SELECT city, COUNT(*) AS n FROM survey WHERE gender = 'male' GROUP BY city) b USING (city);

-- survey 60
SELECT s.city, s.gender, COUNT(*) AS n, COUNT(*) * 1.0 / MAX(t.total) AS share FROM survey s JOIN (SELECT city, COUNT(*) AS total FROM survey GROUP BY city) t ON s.city = t.city GROUP BY s.city, s.gender;

-- survey 61
SELECT s.city, AVG(s.nps) AS mean_nps, t.n FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON s.city = t.city GROUP BY s.city, t.n;

-- survey 62
SELECT COUNT(*) AS n FROM survey WHERE nps > (SELECT AVG(nps) FROM survey);

-- survey 63
SELECT city, COUNT(*) AS above FROM survey WHERE age > (SELECT MEDIAN(age) FROM survey) GROUP BY city;

-- survey 64
SELECT 'survey' AS source, COUNT(*) AS n FROM survey UNION ALL SELECT 'customers', COUNT(*) FROM customers UNION ALL SELECT 'patients', COUNT(*) FROM patients;

-- survey 65
SELECT SUM(n) AS n FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t WHERE n > (SELECT AVG(n) FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) u);

-- survey 66
SELECT city, gender, AVG(income) AS mean, AVG(AVG(income)) OVER (PARTITION BY city) AS unweighted FROM survey GROUP BY city, gender;

-- survey 67
SELECT city, AVG(income) AS a, (SELECT AVG(income) FROM survey s2 WHERE s2.city = s.city AND s2.gender = 'female') AS f FROM survey s GROUP BY city;

-- survey 68
SELECT city, COUNT(*) AS n, LAG(city) OVER (ORDER BY COUNT(*) DESC) AS before FROM survey GROUP BY city;

-- survey 69
SELECT gender, PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) AS med FROM survey GROUP BY gender;

-- survey 70
SELECT city, QUANTILE_CONT(age, [0.25, 0.5, 0.75]) AS q FROM survey GROUP BY city;

-- survey 71
SELECT city, AVG(age) FILTER (gender = 'female') AS f FROM survey GROUP BY city;

-- survey 72
SELECT city, SUM(age * (gender = 'male')::INT) AS s FROM survey GROUP BY city;

-- survey 73
SELECT EXTRACT(quarter FROM answered) AS q, COUNT(*) AS n FROM survey GROUP BY q;

-- survey 74
SELECT answered - INTERVAL 1 DAY AS d, COUNT(*) AS n FROM survey GROUP BY d ORDER BY d LIMIT 3;

-- survey 75
SELECT date_trunc('month', answered) AS m, city, COUNT(*) AS n, SUM(COUNT(*)) OVER (PARTITION BY city ORDER BY date_trunc('month', answered)) AS running FROM survey GROUP BY m, city ORDER BY city, m;

-- survey 76
SELECT city, COUNT(*) AS n, CUME_DIST() OVER (ORDER BY COUNT(*)) AS cd, PERCENT_RANK() OVER (ORDER BY COUNT(*)) AS pr FROM survey GROUP BY city;

-- survey 77
SELECT city, COUNT(*) AS n FROM survey GROUP BY city UNION ALL SELECT 'all cities', COUNT(*) FROM survey ORDER BY n DESC;

-- survey 78
SELECT gender, 'women and men' AS note, COUNT(*) AS n FROM survey WHERE gender <> 'diverse' GROUP BY gender;

-- survey 79
SELECT TRUE AS t, COUNT(*) AS n FROM survey;

-- survey 80
SELECT COUNT(*) AS n, COUNT(*) > 1000 AS many FROM survey;

-- survey 81
SELECT IF(COUNT(*) > 1000, 'many', 'few') AS answer FROM survey WHERE city = 'Berlin';

-- survey 82
SELECT city, CASE WHEN AVG(nps) > 5 THEN 'good' ELSE 'bad' END AS verdict FROM survey GROUP BY city;

-- survey 83
SELECT city, ROUND(AVG(nps), 1) || ' of 10' AS text FROM survey GROUP BY city;

-- survey 84
SELECT city, printf('%.1f %%', 100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()) AS pct FROM survey GROUP BY city;

-- survey 85
SELECT city, format('{:.1f}', AVG(nps)) AS x FROM survey GROUP BY city;

-- survey 86
SELECT city, COUNT(*)::VARCHAR AS n FROM survey GROUP BY city;

-- survey 87
SELECT SUM(would_return::INT) AS yes FROM survey;

-- survey 88
SELECT COUNT(*) FILTER (would_return AND satisfaction >= 4) AS both FROM survey;

-- survey 89
SELECT city, SUM(CASE WHEN satisfaction >= 4 THEN 1 END) * 100 / COUNT(satisfaction) AS top2box FROM survey GROUP BY city;

-- survey 90
SELECT satisfaction, would_return, COUNT(*) AS n FROM survey GROUP BY satisfaction, would_return ORDER BY satisfaction NULLS FIRST;

-- survey 91
SELECT CASE WHEN satisfaction IN (1, 2) THEN 'low' WHEN satisfaction = 3 THEN 'mid' WHEN satisfaction IN (4, 5) THEN 'high' END AS level, COUNT(*) AS n FROM survey GROUP BY level;

-- survey 92
SELECT gender, CASE WHEN age BETWEEN 18 AND 34 THEN 'young' WHEN age BETWEEN 35 AND 59 THEN 'middle' ELSE 'old' END AS life, AVG(satisfaction) AS s FROM survey WHERE satisfaction IS NOT NULL GROUP BY gender, life HAVING COUNT(*) > 20 ORDER BY s DESC LIMIT 3;

-- survey 93
SELECT city FROM survey GROUP BY city HAVING COUNT(*) > 590 ORDER BY COUNT(*) DESC;

-- survey 94
SELECT age FROM survey GROUP BY age ORDER BY COUNT(*) DESC LIMIT 1;

-- survey 95
SELECT substring(city, 1, 3) AS c, COUNT(*) AS n FROM survey GROUP BY c;

-- survey 96
SELECT city = 'Berlin' OR city = 'Hamburg' AS big, COUNT(*) FROM survey GROUP BY 1;

-- survey 97
SELECT COUNT(*) AS n FROM survey WHERE lower(city) = 'berlin';

-- survey 98
SELECT COUNT(*) AS n FROM survey WHERE age % 10 = 0;

-- survey 99
SELECT COUNT(*) AS n FROM survey WHERE NOT would_return;

-- survey 100
SELECT COUNT(*) AS n FROM survey WHERE satisfaction <> 5;

-- survey 101
SELECT COUNT(*) AS n FROM survey WHERE COALESCE(satisfaction, 0) < 3;

-- survey 102
SELECT COUNT(*) AS n FROM survey WHERE satisfaction + nps >= 12;

-- survey 103
SELECT AVG(satisfaction * 2) AS out_of_ten, AVG(satisfaction) / 5 AS rel FROM survey;

-- survey 104
-- beyond: E_AGGREGATE exact extremes: one row decides
SELECT city, MIN(age) AS youngest FROM survey GROUP BY city;

-- survey 105
SELECT city, MAX(COUNT(*)) OVER () - COUNT(*) AS behind FROM survey GROUP BY city;

-- survey 106
SELECT LOG10(COUNT(*)) AS l FROM survey;

-- survey 107
SELECT city, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY city ROWS UNBOUNDED PRECEDING) AS run FROM survey GROUP BY city;

-- survey 108
SELECT city, n, n - AVG(n) OVER () AS dev, (n - AVG(n) OVER ()) / STDDEV(n) OVER () AS z FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 109
SELECT VARIANCE(n) AS v FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 110
SELECT MEDIAN(n) AS med, QUANTILE_CONT(n, 0.25) AS q1 FROM (SELECT age, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age) t;

-- survey 111
SELECT list(city ORDER BY n DESC) AS cities FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 112
SELECT string_agg(city, ', ' ORDER BY n DESC) AS cities FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 113
SELECT ARG_MAX(city, n) AS biggest FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 114
SELECT city, FIRST_VALUE(gender) OVER (PARTITION BY city ORDER BY n DESC) AS first FROM (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY city, gender) t;

-- survey 115
SELECT COUNT(*) AS cities FROM (SELECT city FROM survey GROUP BY city HAVING COUNT(*) > 500) t;

-- survey 116
SELECT bool_and(n > 100) AS all_big FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 117
SELECT SUM(n) FILTER (WHERE city LIKE 'B%') AS b FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 118
SELECT s.city, s.n, t.n AS events FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) s CROSS JOIN (SELECT COUNT(*) AS n FROM events) t;

-- survey 119
SELECT s.city, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r, SUM(COUNT(*)) OVER () AS alln FROM survey s JOIN (SELECT city, AVG(age) AS a FROM survey GROUP BY city) t ON t.city = s.city GROUP BY s.city;

-- survey 120
SELECT s.gender, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS alln, AVG(t.n) AS mean_city FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city GROUP BY s.gender;

-- survey 121
SELECT s.gender, SUM(s.age / t.n) AS x, SUM(t.n) AS y, SUM(2 * t.n * s.nps) AS z FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t USING (city) GROUP BY s.gender HAVING COUNT(*) > 10 ORDER BY x;

-- survey 122
SELECT gender, COUNT(*) AS n FROM survey s JOIN (SELECT city AS c, COUNT(*) AS m FROM survey GROUP BY city) t ON s.city = t.c WHERE m > 600 AND age > 40 GROUP BY gender;

-- survey 123
SELECT COUNT(*) AS n FROM survey WHERE city NOT IN (SELECT city FROM survey GROUP BY city ORDER BY COUNT(*) LIMIT 2) AND age < 50;

-- survey 124
WITH big AS (SELECT city FROM survey GROUP BY city HAVING COUNT(*) > 590) SELECT city, MEDIAN(age) AS m, COUNT(*) AS n FROM survey WHERE city IN (SELECT city FROM big) GROUP BY city;

-- survey 125
-- refused: E_SUBQUERY IN with a sub-query over private rows is not supported
WITH big AS (SELECT city FROM survey GROUP BY city HAVING COUNT(*) > 590) SELECT CASE WHEN city IN (SELECT city FROM big) THEN city ELSE 'other' END AS c, COUNT(*) AS n FROM survey GROUP BY c;

-- survey 126
WITH big AS (SELECT city FROM survey GROUP BY city HAVING COUNT(*) > 590), base AS (SELECT * FROM survey WHERE age > 30) SELECT city, COUNT(*) AS n FROM base JOIN big USING (city) GROUP BY city;

-- survey 127
SELECT t.n AS size, COUNT(*) AS x FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city GROUP BY t.n;

-- survey 128
SELECT t.city, AVG(s.nps) AS a FROM survey s JOIN (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY city, gender) t ON t.city = s.city GROUP BY t.city;

-- survey 129
SELECT COUNT(*) FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city WHERE s.age > 30 OR t.n > 600;

-- survey 130
SELECT s.city, COUNT(*) FILTER (WHERE s.age > 30) AS x, COUNT(*) FILTER (WHERE t.n > 600) AS y FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city GROUP BY s.city;

-- survey 131
SELECT s.city, s.city || '!' AS e, AVG(age) AS a FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city GROUP BY s.city, e;

-- survey 132
SELECT SUM(CASE WHEN t.n > 600 THEN s.nps ELSE 0 END) AS big, COUNT(*) AS n FROM survey s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t ON t.city = s.city;

-- survey 133
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM survey WHERE age < 80 GROUP BY age;

-- survey 134
SELECT age, SUM(n) OVER (ORDER BY age GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM (SELECT age, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age) t;

-- survey 135
SELECT age, gender, SUM(n) OVER (ORDER BY age GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM (SELECT age, gender, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age, gender) t;

-- survey 136
SELECT age, gender, SUM(COUNT(*)) OVER (ORDER BY age GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM survey WHERE age < 80 GROUP BY age, gender;

-- survey 137
SELECT age, AVG(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM survey WHERE age < 80 GROUP BY age;

-- survey 138
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM survey WHERE age < 80 GROUP BY age;

-- survey 139
SELECT age, gender, SUM(COUNT(*)) OVER (ORDER BY age RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE TIES) AS s FROM survey WHERE age < 80 GROUP BY age, gender;

-- survey 140
SELECT age, gender, SUM(COUNT(*)) OVER (ORDER BY age RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE GROUP) AS s FROM survey WHERE age < 80 GROUP BY age, gender;

-- survey 141
SELECT age, gender, COUNT(*) - AVG(COUNT(*)) OVER (PARTITION BY age ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS s FROM survey WHERE age < 80 GROUP BY age, gender;

-- survey 142
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE NO OTHERS) AS s FROM survey WHERE age < 80 GROUP BY age;

-- survey 143
SELECT city, n, (n - AVG(n) OVER ()) / STDDEV(n) OVER () AS z FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 144
SELECT city, (COUNT(*) - AVG(COUNT(*)) OVER ()) / STDDEV_POP(COUNT(*)) OVER () AS z FROM survey GROUP BY city;

-- survey 145
SELECT city, n, MEDIAN(n) OVER () AS m FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 146
SELECT city, n, SUM(n) FILTER (WHERE city <> 'Berlin') OVER () AS m FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 147
SELECT city, BOOL_AND(COUNT(*) > 10) OVER () AS m FROM survey GROUP BY city;

-- survey 148
SELECT string_agg(city, ', ' ORDER BY city) AS cities FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t WHERE n > 590;

-- survey 149
SELECT city, FIRST(gender ORDER BY n DESC) AS g FROM (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY city, gender) t GROUP BY city;

-- survey 150
-- within: 0.05
SELECT CORR(n, age) AS r, REGR_SLOPE(n, age) AS s FROM (SELECT age, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age) t;

-- survey 151
SELECT MODE(n) FROM (SELECT age, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age) t;

-- survey 152
SELECT SKEWNESS(n) AS s, MAX(n) / AVG(n) AS x, COUNT(DISTINCT n) AS d, QUANTILE_CONT(n, 0.5) AS q FROM (SELECT age, COUNT(*) AS n FROM survey WHERE age < 80 GROUP BY age) t;

-- survey 153
SELECT city, SUM(n) AS n FROM (SELECT city, gender, COUNT(*) AS n FROM survey GROUP BY ALL) t GROUP BY ROLLUP (city);

-- survey 154
SELECT city, (SELECT COUNT(*) FROM survey s2 WHERE s2.city = s.city AND age > 60) AS old FROM survey s GROUP BY city;

-- survey 155
SELECT city, n, (SELECT millions FROM countries WHERE code = 'DE') AS m FROM (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t;

-- survey 156
SELECT LEAST(satisfaction, 4) + nps AS x, COUNT(*) AS n FROM survey WHERE satisfaction IS NOT NULL GROUP BY x;

-- survey 157
SELECT CASE WHEN satisfaction >= 4 AND nps >= 9 THEN 'fan' WHEN nps <= 6 THEN 'critic' ELSE 'other' END AS kind, COUNT(*) AS n, AVG(age) AS a FROM survey GROUP BY kind;

-- survey 158
SELECT gender = 'male' AND nps > 5 AS x, COUNT(*) AS n, SUM(income) AS s, COUNT(*) FILTER (WHERE city = 'Berlin') AS b FROM survey GROUP BY x HAVING COUNT(*) > 100 ORDER BY n DESC;

-- survey 159
WITH base AS (SELECT *, CASE WHEN age < 30 AND income < 3000 THEN 'young poor' WHEN age >= 60 THEN 'old' ELSE 'rest' END AS seg FROM survey) SELECT seg, COUNT(*) AS n, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS pct, AVG(nps) AS a FROM base GROUP BY seg ORDER BY n DESC;

-- survey 160
WITH base AS (SELECT *, CASE WHEN age < 30 AND income < 3000 THEN 'young poor' WHEN age >= 60 THEN 'old' ELSE 'rest' END AS seg FROM survey) SELECT seg, city, COUNT(*) AS n FROM base WHERE gender <> 'diverse' GROUP BY ALL;

-- survey 161
SELECT concat(gender, ', ', city) AS who, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM survey GROUP BY who QUALIFY r <= 3;

-- survey 162
SELECT year(answered) || '-' || lpad(month(answered)::VARCHAR, 2, '0') AS ym, COUNT(*) AS n FROM survey GROUP BY ym;

-- survey 163
SELECT greatest(nps, satisfaction) AS g, COUNT(*) AS n FROM survey WHERE satisfaction IS NOT NULL GROUP BY g ORDER BY g;

-- survey 164
SELECT COALESCE(satisfaction, nps) AS g, COUNT(*) AS n FROM survey GROUP BY 1;

-- survey 165
SELECT (age >= 40)::INT + (nps >= 5)::INT AS score, COUNT(*) AS n FROM survey GROUP BY score;

-- survey 166
SELECT MEDIAN(age) AS m, gender || city AS g FROM survey GROUP BY g;

-- survey 167
-- refused: E_BIN_EDGE this would cut through a cell of income
SELECT income + nps AS x, COUNT(*) AS n FROM survey GROUP BY x;

-- survey 168
-- refused: E_BIN_EDGE this would cut through a cell of income
SELECT CASE WHEN income >= 5000 AND nps > 5 THEN income // 1000 ELSE 0 END AS x, COUNT(*) AS n FROM survey GROUP BY x;

-- survey 169
SELECT COUNT(*) AS n FROM survey WHERE CASE WHEN age > 40 AND nps > 3 THEN 1 WHEN age < 30 THEN 2 ELSE nps END = 2;

-- survey 170
SELECT COUNT(*) AS n FROM survey WHERE income >= (SELECT -AVG(income) FROM survey);

-- survey 171
SELECT COUNT(*) AS n FROM survey WHERE income < (SELECT 10 * AVG(income) FROM survey);

-- survey 172
SELECT COUNT(*) AS n FROM survey WHERE income > (SELECT 10 * AVG(income) FROM survey);

-- shop 1
SELECT (SELECT COUNT(*) FROM customers) AS customers, (SELECT COUNT(*) FROM orders) AS orders, (SELECT COUNT(*) FROM items) AS items;

-- shop 2
SELECT country, COUNT(*) AS customers, SUM(COUNT(*)) OVER () AS all_customers FROM customers GROUP BY country;

-- shop 3
SELECT date_trunc('quarter', signup) AS q, COUNT(*) AS n FROM customers GROUP BY q ORDER BY q;

-- shop 4
SELECT year(signup) AS y, quarter(signup) AS q, COUNT(*) AS n FROM customers GROUP BY y, q ORDER BY y, q;

-- shop 5
SELECT EXTRACT(YEAR FROM signup) AS y, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY EXTRACT(YEAR FROM signup)) AS growth FROM customers GROUP BY 1 ORDER BY 1;

-- shop 6
SELECT channel, COUNT(*) AS orders, COUNT(DISTINCT customer_id) AS buyers, COUNT(*) * 1.0 / COUNT(DISTINCT customer_id) AS orders_per_buyer FROM orders GROUP BY channel;

-- shop 7
SELECT date_trunc('month', order_date) AS month, COUNT(*) AS n, ROUND(100.0 * (COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY date_trunc('month', order_date))) / LAG(COUNT(*)) OVER (ORDER BY date_trunc('month', order_date)), 1) AS growth_pct FROM orders GROUP BY 1 ORDER BY 1;

-- shop 8
WITH m AS (SELECT date_trunc('month', order_date) AS month, COUNT(*) AS n FROM orders GROUP BY 1) SELECT month, n, n - LAG(n, 1, 0) OVER (ORDER BY month) AS diff, n * 1.0 / FIRST_VALUE(n) OVER (ORDER BY month) AS idx FROM m ORDER BY month;

-- shop 9
WITH m AS (SELECT date_trunc('month', order_date) AS month, COUNT(DISTINCT customer_id) AS active FROM orders GROUP BY 1) SELECT month, active, LAG(active) OVER (ORDER BY month) AS before FROM m ORDER BY month;

-- shop 10
SELECT c.country, COUNT(DISTINCT o.customer_id) AS buyers FROM orders o JOIN customers c USING (customer_id) GROUP BY c.country;

-- shop 11
SELECT c.country, c.segment, COUNT(*) AS n, AVG(o.discount) AS mean_discount FROM customers c JOIN orders o ON o.customer_id = c.customer_id GROUP BY 1, 2 ORDER BY 3 DESC;

-- shop 12
SELECT c.segment, COUNT(o.order_id) AS orders, COUNT(DISTINCT c.customer_id) AS customers, COUNT(o.order_id) * 1.0 / COUNT(DISTINCT c.customer_id) AS per_customer FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.segment;

-- shop 13
SELECT COUNT(*) AS never_bought FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id WHERE o.order_id IS NULL;

-- shop 14
SELECT country, COUNT(*) AS n FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders) GROUP BY country;

-- shop 15
SELECT n_orders, COUNT(*) AS customers FROM (SELECT customer_id, COUNT(*) AS n_orders FROM orders GROUP BY customer_id) GROUP BY n_orders ORDER BY n_orders;

-- shop 16
SELECT CASE WHEN n = 1 THEN 'once' WHEN n <= 3 THEN 'some' ELSE 'often' END AS loyalty, COUNT(*) AS customers FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) t GROUP BY loyalty;

-- shop 17
WITH per AS (SELECT customer_id, COUNT(*) AS n, MIN(order_date) AS first_order FROM orders GROUP BY customer_id) SELECT date_trunc('month', first_order) AS cohort, COUNT(*) AS customers, AVG(n) AS orders_each FROM per GROUP BY cohort ORDER BY cohort;

-- shop 18
WITH firsts AS (SELECT customer_id, MIN(order_date) AS first_order FROM orders GROUP BY customer_id) SELECT date_trunc('month', f.first_order) AS cohort, date_trunc('month', o.order_date) AS month, COUNT(DISTINCT o.customer_id) AS active FROM orders o JOIN firsts f USING (customer_id) GROUP BY 1, 2 ORDER BY 1, 2;

-- shop 19
WITH firsts AS (SELECT customer_id, MIN(order_date) AS first_order FROM orders GROUP BY customer_id) SELECT date_diff('month', f.first_order, o.order_date) AS age, COUNT(DISTINCT o.customer_id) AS active FROM orders o JOIN firsts f ON f.customer_id = o.customer_id GROUP BY age ORDER BY age;

-- shop 20
SELECT COUNT(*) AS returning FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING COUNT(*) > 1) t;

-- shop 21
SELECT COUNT(*) FILTER (WHERE n > 1) * 1.0 / COUNT(*) AS repeat_rate FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) t;

-- shop 22
WITH x AS (SELECT customer_id, order_date, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_date) AS k FROM orders) SELECT date_trunc('month', order_date) AS month, COUNT(*) AS new_customers FROM x WHERE k = 1 GROUP BY month;

-- shop 23
SELECT gap, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(order_date) OVER (PARTITION BY customer_id ORDER BY order_date), order_date) AS gap FROM orders) t WHERE gap IS NOT NULL AND gap < 30 GROUP BY gap ORDER BY gap;

-- shop 24
SELECT AVG(gap) AS mean_gap FROM (SELECT order_date - LAG(order_date) OVER (PARTITION BY customer_id ORDER BY order_date) AS gap FROM orders) t;

-- shop 25
SELECT p.category, SUM(i.quantity) AS units, SUM(i.quantity * i.price) AS revenue FROM items i JOIN products p ON p.product_id = i.product_id GROUP BY p.category ORDER BY revenue DESC;

-- shop 26
SELECT p.brand, p.category, COUNT(*) AS n FROM items i JOIN products p USING (product_id) WHERE p.category IN ('books', 'food') GROUP BY GROUPING SETS ((p.brand), (p.category), ());

-- shop 27
SELECT p.name, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY p.name ORDER BY n DESC LIMIT 10;

-- shop 28
SELECT p.category, SUM(i.quantity * p.cost) AS cost FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- shop 29
SELECT p.category, SUM(i.quantity * (i.price - p.cost)) AS margin FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- shop 30
SELECT o.channel, p.category, COUNT(*) AS n FROM items i JOIN orders o ON i.order_id = o.order_id JOIN products p ON p.product_id = i.product_id GROUP BY o.channel, p.category;

-- shop 31
SELECT c.country, SUM(i.quantity * i.price) / COUNT(DISTINCT o.customer_id) AS revenue_per_buyer FROM items i JOIN orders o USING (order_id) JOIN customers c USING (customer_id) GROUP BY c.country;

-- shop 32
SELECT COUNT(DISTINCT customer_id) AS buyers FROM orders WHERE order_date >= '2024-12-01';

-- shop 33
SELECT date_trunc('month', order_date)::DATE AS month, channel, COUNT(*) AS n FROM orders WHERE order_date BETWEEN '2024-01-01' AND '2024-03-31' GROUP BY 1, 2;

-- shop 34
SELECT channel, AVG(COALESCE(discount, 0)) AS mean_discount, AVG(discount) AS mean_of_given, COUNT(discount) AS given FROM orders GROUP BY channel;

-- shop 35
SELECT discount // 10 * 10 AS band, COUNT(*) AS n FROM orders WHERE discount IS NOT NULL GROUP BY band ORDER BY band;

-- shop 36
SELECT channel, SUM(CASE WHEN discount > 0 THEN 1 ELSE 0 END)::DOUBLE / COUNT(*) AS discounted FROM orders GROUP BY channel;

-- shop 37
SELECT channel, COUNT(*) AS n FROM orders GROUP BY channel HAVING COUNT(*) > (SELECT COUNT(*) / 3 FROM orders);

-- shop 38
SELECT order_date, COUNT(*) AS n FROM orders GROUP BY order_date ORDER BY n DESC, order_date LIMIT 5;

-- shop 39
SELECT strftime(order_date, '%A') AS weekday, COUNT(*) AS n FROM orders GROUP BY weekday;

-- shop 40
SELECT weekofyear(order_date) AS w, COUNT(*) AS n FROM orders GROUP BY w ORDER BY w;

-- shop 41
SELECT price >= 64 AS dear, SUM(quantity) AS q FROM items GROUP BY dear;

-- shop 42
SELECT product_id, SUM(quantity) AS q, DENSE_RANK() OVER (ORDER BY SUM(quantity) DESC) AS r FROM items GROUP BY product_id QUALIFY r <= 3;

-- shop 43
SELECT product_id, AVG(quantity) AS a FROM items GROUP BY product_id HAVING AVG(quantity) > 3 AND COUNT(*) > 10;

-- shop 44
WITH r AS (SELECT product_id, SUM(quantity * price) AS revenue FROM items GROUP BY product_id) SELECT product_id, revenue, SUM(revenue) OVER (ORDER BY revenue DESC) / SUM(revenue) OVER () AS cumulative_share FROM r ORDER BY revenue DESC;

-- shop 45
WITH r AS (SELECT product_id, SUM(quantity) AS q FROM items GROUP BY product_id) SELECT p.category, MAX(r.q) AS best, COUNT(*) AS products FROM r JOIN products p USING (product_id) GROUP BY p.category;

-- shop 46
SELECT p.product_id, p.name, COALESCE(s.q, 0) AS q FROM products p LEFT JOIN (SELECT product_id, SUM(quantity) AS q FROM items GROUP BY product_id) s ON s.product_id = p.product_id ORDER BY q DESC;

-- shop 47
SELECT AVG(basket) AS mean_basket, MEDIAN(basket) AS median_basket FROM (SELECT order_id, SUM(quantity) AS basket FROM items GROUP BY order_id) t;

-- shop 48
SELECT lines, COUNT(*) AS orders FROM (SELECT order_id, COUNT(*) AS lines FROM items GROUP BY order_id) t GROUP BY lines;

-- shop 49
-- refused: E_JOIN a join of private tables that leaves out their privacy unit is not supported
SELECT o.channel, AVG(t.units) AS units_per_order FROM orders o JOIN (SELECT order_id, SUM(quantity) AS units FROM items GROUP BY order_id) t ON t.order_id = o.order_id GROUP BY o.channel;

-- shop 50
SELECT o.channel, COUNT(*) AS n FROM orders o JOIN (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) s ON o.customer_id = s.customer_id WHERE s.n >= 5 GROUP BY o.channel;

-- shop 51
SELECT s.n AS orders_of_customer, COUNT(*) AS items FROM items i JOIN orders o USING (order_id) JOIN (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) s ON o.customer_id = s.customer_id GROUP BY s.n;

-- shop 52
SELECT c.country, AVG(COALESCE(s.n, 0)) AS orders_each FROM customers c LEFT JOIN (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) s USING (customer_id) GROUP BY c.country;

-- shop 53
SELECT COUNT(*) AS both FROM (SELECT customer_id FROM orders WHERE channel = 'web' INTERSECT SELECT customer_id FROM orders WHERE channel = 'shop') t;

-- shop 54
SELECT COUNT(DISTINCT customer_id) FILTER (WHERE channel = 'web') AS web, COUNT(DISTINCT CASE WHEN channel = 'shop' THEN customer_id END) AS shop FROM orders;

-- shop 55
SELECT country, COUNT(*) FILTER (WHERE newsletter) * 100.0 / COUNT(*) AS pct FROM customers GROUP BY country ORDER BY pct DESC LIMIT 1;

-- shop 56
SELECT co.union_name, SUM(co.millions) AS m, COUNT(*) AS n FROM customers c JOIN countries co ON co.code = c.country GROUP BY co.union_name;

-- shop 57
-- refused: E_JOIN COUNT(*) where public rows stay without private ones is not supported
SELECT co.union_name, COUNT(*) AS customers FROM countries co LEFT JOIN customers c ON c.country = co.code GROUP BY co.union_name;

-- shop 58
SELECT product_id, COUNT(*) AS n FROM items WHERE product_id IN (SELECT product_id FROM items GROUP BY product_id HAVING COUNT(*) > 250) GROUP BY product_id;

-- shop 59
SELECT COUNT(*) AS n FROM items WHERE product_id IN (SELECT product_id FROM items GROUP BY product_id ORDER BY COUNT(*) DESC LIMIT 5);

-- shop 60
SELECT o.channel, COUNT(*) AS n FROM orders o WHERE o.channel IN (SELECT channel FROM orders GROUP BY channel HAVING AVG(discount) > 20) GROUP BY o.channel;

-- shop 61
WITH top AS (SELECT product_id FROM items GROUP BY product_id ORDER BY SUM(quantity) DESC LIMIT 3) SELECT i.product_id, AVG(i.quantity) AS q FROM items i JOIN top t ON t.product_id = i.product_id GROUP BY i.product_id;

-- shop 62
WITH t AS (SELECT product_id, SUM(quantity) AS q FROM items GROUP BY product_id) SELECT CASE WHEN t.q > 700 THEN 'top' ELSE 'rest' END AS grp, COUNT(*) AS n FROM items i JOIN t USING (product_id) GROUP BY grp;

-- shop 63
SELECT COUNT(*) * 1.0 / (SELECT SUM(millions) FROM countries) AS per_million FROM customers;

-- shop 64
SELECT c.country, co.millions, COUNT(*) * 1.0 / co.millions AS per_million FROM customers c JOIN countries co ON c.country = co.code GROUP BY c.country, co.millions;

-- shop 65
SELECT country, COUNT(*) * 1.0 / (SELECT millions FROM countries WHERE code = country) AS per_million FROM customers GROUP BY country;

-- shop 66
SELECT COUNT(*) AS n FROM customers WHERE country IN (SELECT code FROM countries WHERE union_name = 'EU');

-- shop 67
SELECT country, COUNT(*) AS n FROM customers GROUP BY country HAVING country IN (SELECT code FROM countries WHERE millions > 70);

-- shop 68
SELECT o.customer_id IS NOT NULL AS ordered, COUNT(*) AS n FROM customers c LEFT JOIN (SELECT DISTINCT customer_id FROM orders) o ON o.customer_id = c.customer_id GROUP BY 1;

-- shop 69
SELECT COUNT(*) AS n FROM orders WHERE customer_id IS NOT NULL;

-- shop 70
SELECT COUNT(customer_id) AS n FROM orders;

-- shop 71
SELECT COUNT(order_id) AS n FROM orders;

-- shop 72
-- refused: E_AGGREGATE the aggregate COUNT(DISTINCT) is not supported
SELECT COUNT(DISTINCT order_id) AS n FROM orders;

-- shop 73
-- refused: E_AGGREGATE the aggregate COUNT(DISTINCT) is not supported
SELECT COUNT(DISTINCT order_id) AS n FROM items;

-- shop 74
SELECT COUNT(DISTINCT product_id) AS n FROM items;

-- shop 75
SELECT channel, COUNT(DISTINCT order_date) AS days FROM orders GROUP BY channel;

-- shop 76
SELECT COUNT(*) / COUNT(DISTINCT order_date) AS per_day FROM orders;

-- shop 77
-- beyond: E_AGGREGATE exact extremes: one row decides
SELECT channel, MIN(order_date) AS first, MAX(order_date) AS last FROM orders GROUP BY channel;

-- shop 78
SELECT AVG(n) AS per_day FROM (SELECT order_date, COUNT(*) AS n FROM orders GROUP BY order_date) t;

-- shop 79
SELECT dayname(order_date) AS d, AVG(n) AS mean_orders FROM (SELECT order_date, COUNT(*) AS n FROM orders GROUP BY order_date) t GROUP BY d;

-- shop 80
WITH d AS (SELECT order_date, COUNT(*) AS n FROM orders GROUP BY order_date) SELECT date_trunc('month', order_date) AS m, MAX(n) AS busiest, SUM(n) AS total FROM d GROUP BY m ORDER BY m;

-- shop 81
SELECT channel, SUM(n) FILTER (WHERE m <= 6) AS h1, SUM(n) FILTER (WHERE m > 6) AS h2 FROM (SELECT channel, MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY ALL) t GROUP BY channel;

-- shop 82
SELECT m, web, shop, web * 1.0 / (web + shop) AS online FROM (SELECT MONTH(order_date) AS m, COUNT(*) FILTER (WHERE channel = 'web') AS web, COUNT(*) FILTER (WHERE channel = 'shop') AS shop FROM orders GROUP BY m) t ORDER BY m;

-- shop 83
SELECT y.m, y.n - x.n AS change FROM (SELECT MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY 1) x JOIN (SELECT MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY 1) y ON y.m = x.m + 1;

-- shop 84
SELECT COUNT(*) AS n FROM orders WHERE order_date >= date_trunc('month', DATE '2024-12-15');

-- shop 85
SELECT COUNT(*) AS n FROM orders WHERE order_date > DATE '2024-12-31' - 30;

-- shop 86
SELECT COUNT(*) AS n FROM orders WHERE YEAR(order_date) = 2024 AND MONTH(order_date) IN (11, 12);

-- shop 87
SELECT COUNT(*) AS n FROM orders WHERE strftime(order_date, '%Y-%m') = '2024-05';

-- shop 88
SELECT COUNT(*) AS n FROM orders WHERE order_date::TEXT LIKE '2024-05%';

-- shop 89
SELECT CONCAT('Q', quarter(order_date)) AS q, COUNT(*) AS n FROM orders GROUP BY q;

-- shop 90
SELECT 'Q' || quarter(order_date) || ' ' || year(order_date) AS q, COUNT(*) AS n FROM orders GROUP BY q;

-- shop 91
SELECT year(order_date) * 100 + month(order_date) AS ym, COUNT(*) AS n FROM orders GROUP BY ym;

-- shop 92
SELECT order_date >= '2024-07-01' AS second_half, channel, COUNT(*) AS n FROM orders GROUP BY ALL;

-- shop 93
SELECT channel, discount >= 25 AS high, COUNT(*) AS n FROM orders GROUP BY channel, high;

-- shop 94
-- within: 0.05
SELECT channel, CORR(discount, MONTH(order_date)) AS r FROM orders GROUP BY channel;

-- shop 95
SELECT o.channel, o.discount, SUM(i.quantity) AS q FROM orders o JOIN items i ON i.order_id = o.order_id GROUP BY o.channel, o.discount;

-- shop 96
SELECT DISTINCT c.country, o.channel FROM customers c JOIN orders o USING (customer_id);

-- shop 97
SELECT c.country, COUNT(DISTINCT CASE WHEN o.order_id IS NULL THEN c.customer_id END) AS idle FROM customers c LEFT JOIN orders o USING (customer_id) GROUP BY c.country;

-- shop 98
SELECT date_diff('month', c.signup, o.order_date) AS age, COUNT(*) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY age;

-- shop 99
SELECT date_trunc('month', c.signup) AS cohort, COUNT(DISTINCT o.customer_id) AS buyers, COUNT(*) AS orders FROM customers c JOIN orders o USING (customer_id) GROUP BY cohort ORDER BY cohort;

-- shop 100
SELECT date_trunc('quarter', c.signup) AS cohort, quarter(o.order_date) AS q, COUNT(DISTINCT o.customer_id) AS active FROM customers c JOIN orders o USING (customer_id) GROUP BY ALL ORDER BY ALL;

-- shop 101
WITH cohort AS (SELECT customer_id, date_trunc('month', MIN(order_date)) AS m FROM orders GROUP BY customer_id), size AS (SELECT m, COUNT(*) AS n FROM cohort GROUP BY m), act AS (SELECT c.m, date_diff('month', c.m, date_trunc('month', o.order_date)) AS k, COUNT(DISTINCT o.customer_id) AS active FROM orders o JOIN cohort c USING (customer_id) GROUP BY 1, 2) SELECT act.m, act.k, act.active * 1.0 / size.n AS retention FROM act JOIN size USING (m) ORDER BY 1, 2;

-- shop 102
WITH f AS (SELECT customer_id, MIN(order_date) AS d FROM orders GROUP BY customer_id) SELECT COUNT(DISTINCT o.customer_id) FILTER (WHERE o.order_date > f.d AND o.order_date <= f.d + 30) * 1.0 / COUNT(DISTINCT o.customer_id) AS back_in_30 FROM orders o JOIN f USING (customer_id);

-- shop 103
SELECT country, SUM(total) AS revenue, AVG(total) AS per_customer FROM (SELECT c.country, c.customer_id, SUM(i.quantity * i.price) AS total FROM customers c JOIN orders o USING (customer_id) JOIN items i USING (order_id) GROUP BY c.country, c.customer_id) t GROUP BY country;

-- shop 104
SELECT COUNT(*) AS vips FROM (SELECT o.customer_id, SUM(i.quantity) AS q FROM orders o JOIN items i USING (order_id) GROUP BY o.customer_id HAVING SUM(i.quantity) >= 40) t;

-- shop 105
SELECT n_channels, AVG(n) AS orders FROM (SELECT customer_id, COUNT(DISTINCT channel) AS n_channels, COUNT(*) AS n FROM orders GROUP BY customer_id) t GROUP BY n_channels;

-- shop 106
SELECT has_web, has_shop, COUNT(*) AS customers FROM (SELECT customer_id, SUM(CASE WHEN channel = 'web' THEN 1 ELSE 0 END) > 0 AS has_web, SUM(CASE WHEN channel = 'shop' THEN 1 ELSE 0 END) > 0 AS has_shop FROM orders GROUP BY customer_id) t GROUP BY has_web, has_shop;

-- shop 107
SELECT COUNT(*) AS n FROM (SELECT customer_id FROM orders WHERE channel = 'web' UNION SELECT customer_id FROM orders WHERE channel = 'phone') t;

-- shop 108
SELECT recency // 30 AS months, COUNT(*) AS n FROM (SELECT customer_id, date_diff('day', MAX(order_date), DATE '2024-12-31') AS recency FROM orders GROUP BY customer_id) t GROUP BY months ORDER BY months;

-- shop 109
SELECT CASE WHEN last < DATE '2024-10-01' THEN 'lapsed' ELSE 'active' END AS state, COUNT(*) AS n FROM (SELECT customer_id, MAX(order_date) AS last FROM orders GROUP BY customer_id) t GROUP BY state;

-- shop 110
SELECT AVG(span) AS mean_span FROM (SELECT customer_id, date_diff('day', MIN(order_date), MAX(order_date)) AS span FROM orders GROUP BY customer_id) t;

-- shop 111
SELECT p.category, i.quantity >= 4 AS bulk, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY ALL;

-- shop 112
SELECT p.category, SUM(quantity) AS q, RANK() OVER (ORDER BY SUM(quantity) DESC) AS r FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- shop 113
SELECT p.category, SUM(i.quantity) * 100.0 / SUM(SUM(i.quantity)) OVER () AS share FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- shop 114
SELECT CASE WHEN p.cost < 7 THEN 'cheap' WHEN p.cost < 14 THEN 'mid' ELSE 'dear' END AS tier, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY tier;

-- shop 115
SELECT p.category, COUNT(DISTINCT i.product_id) AS sold FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- shop 116
SELECT COUNT(*) AS n FROM items i JOIN products p ON i.product_id = p.product_id AND p.category = 'food' AND i.quantity > 2;

-- shop 117
SELECT a.category, b.category AS other, COUNT(*) AS n FROM (SELECT o.order_id, o.customer_id, p.category FROM orders o JOIN items i USING (order_id) JOIN products p USING (product_id)) a JOIN (SELECT o.order_id, o.customer_id, p.category FROM orders o JOIN items i USING (order_id) JOIN products p USING (product_id)) b ON a.customer_id = b.customer_id AND a.order_id = b.order_id GROUP BY 1, 2;

-- shop 118
SELECT dow, AVG(revenue) AS mean_revenue FROM (SELECT o.order_date, dayofweek(o.order_date) AS dow, SUM(i.quantity * i.price) AS revenue FROM orders o JOIN items i USING (order_id) GROUP BY 1, 2) t GROUP BY dow;

-- shop 119
SELECT COUNT(DISTINCT o.customer_id) AS n, o.channel FROM orders o JOIN (SELECT channel, COUNT(*) AS n FROM orders GROUP BY channel) t ON t.channel = o.channel WHERE t.n > 900 GROUP BY o.channel;

-- shop 120
SELECT o.channel, COUNT(*) AS n, COUNT(*) * 1.0 / ANY_VALUE(t.n) AS share FROM orders o CROSS JOIN (SELECT COUNT(*) AS n FROM orders) t GROUP BY o.channel;

-- shop 121
SELECT o.channel, COUNT(*) AS n FROM orders o, (SELECT AVG(discount) AS a FROM orders) t WHERE o.discount > t.a GROUP BY o.channel;

-- shop 122
SELECT date_trunc('month', o.order_date) AS m, COUNT(*) AS n, MAX(t.n) AS y FROM orders o JOIN (SELECT year(order_date) AS y, COUNT(*) AS n FROM orders GROUP BY 1) t ON t.y = year(o.order_date) GROUP BY 1 ORDER BY 1;

-- shop 123
SELECT p.category, COUNT(*) AS n FROM items i JOIN products p USING (product_id) JOIN (SELECT product_id, SUM(quantity) AS q FROM items GROUP BY product_id) t ON t.product_id = i.product_id WHERE t.q > 500 GROUP BY p.category;

-- shop 124
SELECT p.category, SUM(t.q) AS n FROM products p JOIN (SELECT product_id, SUM(quantity) AS q FROM items GROUP BY product_id) t ON t.product_id = p.product_id GROUP BY p.category;

-- shop 125
SELECT channel, COUNT(*) AS n FROM orders WHERE customer_id IS NOT NULL AND channel <> 'web' GROUP BY channel;

-- shop 126
SELECT COUNT(*) AS n FROM orders WHERE customer_id IS NULL;

-- shop 127
SELECT COUNT(*) FILTER (WHERE customer_id IS NULL OR channel = 'web') AS n FROM orders;

-- shop 128
SELECT COUNT(*) AS n FROM items WHERE order_id IS NOT NULL;

-- shop 129
SELECT n, COUNT(*) AS k FROM (SELECT customer_id, COUNT(*) AS n FROM orders WHERE customer_id IS NOT NULL GROUP BY customer_id) t GROUP BY n;

-- shop 130
-- refused: E_DOMAIN customer_id is the privacy unit: it can be counted and nothing else
SELECT CASE WHEN customer_id IS NULL THEN 'guest' ELSE 'member' END AS who, COUNT(*) AS n FROM orders GROUP BY who;

-- shop 131
-- refused: E_DOMAIN customer_id is the privacy unit: it can be counted and nothing else
SELECT SUM(CASE WHEN customer_id IS NOT NULL THEN 1 ELSE 0 END) AS n FROM orders;

-- shop 132
SELECT month(o.order_date) - month(c.signup) AS age, COUNT(*) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY age;

-- shop 133
SELECT (year(o.order_date) - year(c.signup)) * 12 + month(o.order_date) - month(c.signup) AS age, COUNT(*) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY age;

-- shop 134
SELECT AVG(span) AS mean_span FROM (SELECT customer_id, MAX(order_date) - MIN(order_date) AS span FROM orders GROUP BY customer_id) t;

-- shop 135
-- refused: E_BIN_EDGE this would cut through a cell of customers.signup
SELECT SUM(date_diff('day', c.signup, o.order_date)) AS x FROM customers c JOIN orders o USING (customer_id);

-- shop 136
SELECT AVG(date_diff('day', f.d, o.order_date)) AS x FROM (SELECT customer_id, MIN(order_date) AS d FROM orders GROUP BY customer_id) f JOIN orders o USING (customer_id);

-- shop 137
SELECT CASE WHEN p.category = 'food' AND i.quantity > 2 THEN 'bulk food' ELSE p.category END AS c, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY c;

-- shop 138
SELECT n >= 3 AND w AS loyal, COUNT(*) AS people FROM (SELECT customer_id, COUNT(*) AS n, MAX(CASE WHEN channel = 'web' THEN 1 ELSE 0 END) = 1 AS w FROM orders GROUP BY customer_id) t GROUP BY loyal;

-- shop 139
SELECT p.category, p.category || p.brand AS k, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY ALL;

-- shop 140
SELECT p.category || o.channel AS k, COUNT(*) AS n, SUM(i.quantity) AS q FROM items i JOIN products p USING (product_id) JOIN orders o USING (order_id) GROUP BY k;

-- shop 141
SELECT p.category || co.union_name AS k, COUNT(*) AS n FROM items i JOIN products p USING (product_id) JOIN orders o USING (order_id) JOIN customers c USING (customer_id) JOIN countries co ON co.code = c.country GROUP BY k;

-- shop 142
SELECT i.product_id + p.cost AS k, COUNT(*) AS n FROM items i JOIN products p USING (product_id) GROUP BY k;

-- shop 143
-- refused: E_BIN_EDGE this would cut through a cell of customers.signup
SELECT date_diff('day', c.signup, o.order_date) AS age, COUNT(*) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY age;

-- shop 144
SELECT date_diff('year', c.signup, o.order_date) AS age, COUNT(DISTINCT o.customer_id) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY age;

-- shop 145
WITH firsts AS (SELECT customer_id, MIN(order_date) AS first_order FROM orders GROUP BY customer_id) SELECT age, COUNT(*) AS active FROM (SELECT DISTINCT o.customer_id, date_diff('month', f.first_order, o.order_date) AS age FROM orders o JOIN firsts f ON f.customer_id = o.customer_id) t GROUP BY age ORDER BY age;

-- shop 146
WITH x AS (SELECT o.customer_id, date_diff('month', f.first_order, o.order_date) AS age FROM orders o JOIN (SELECT customer_id, MIN(order_date) AS first_order FROM orders GROUP BY customer_id) f ON f.customer_id = o.customer_id) SELECT age, COUNT(DISTINCT customer_id) AS active FROM x GROUP BY age;

-- web 1
SELECT page, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS users FROM events GROUP BY page ORDER BY hits DESC;

-- web 2
SELECT date_trunc('day', seen) AS day, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS dau FROM events GROUP BY 1 ORDER BY 1;

-- web 3
SELECT CAST(seen AS DATE) AS day, COUNT(*) AS hits FROM events GROUP BY 1 ORDER BY 1;

-- web 4
SELECT seen::DATE AS day, device, COUNT(*) AS hits FROM events GROUP BY ALL;

-- web 5
SELECT EXTRACT(hour FROM seen) AS h, COUNT(*) AS hits, AVG(ms) AS latency FROM events GROUP BY h ORDER BY h;

-- web 6
SELECT hour(seen) AS h, dayofweek(seen) AS d, COUNT(*) AS n FROM events GROUP BY h, d;

-- web 7
SELECT status // 100 AS class, COUNT(*) AS n FROM events GROUP BY class;

-- web 8
SELECT page, COUNT(*) FILTER (WHERE status >= 500) * 1.0 / COUNT(*) AS error_rate FROM events GROUP BY page HAVING COUNT(*) > 50 ORDER BY error_rate DESC;

-- web 9
-- within: 0.02
SELECT page, QUANTILE_CONT(ms, 0.5) AS p50, QUANTILE_CONT(ms, 0.95) AS p95, QUANTILE_CONT(ms, 0.99) AS p99 FROM events GROUP BY page;

-- web 10
-- within: 0.01
SELECT device, PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY ms) AS p95 FROM events WHERE status = 200 GROUP BY device;

-- web 11
SELECT COALESCE(referrer, 'direct') AS source, COUNT(*) AS n FROM events GROUP BY source;

-- web 12
-- refused: E_BIN_EDGE this would cut through a cell of ms
SELECT ms // 100 * 100 AS bucket, COUNT(*) AS n FROM events WHERE ms IS NOT NULL GROUP BY bucket ORDER BY bucket;

-- web 13
-- refused: E_BIN_EDGE this would cut through a cell of ms
SELECT COUNT(*) AS slow FROM events WHERE ms > 1000;

-- web 14
SELECT COUNT(*) AS slow FROM events WHERE ms >= 1000 AND page = '/checkout';

-- web 15
SELECT COUNT(DISTINCT user_id) FILTER (WHERE page = '/cart') AS cart, COUNT(DISTINCT user_id) FILTER (WHERE page = '/checkout') AS checkout, COUNT(DISTINCT user_id) FILTER (WHERE page = '/checkout') * 1.0 / COUNT(DISTINCT user_id) FILTER (WHERE page = '/cart') AS conversion FROM events;

-- web 16
SELECT COUNT(*) AS users, COUNT(*) FILTER (WHERE bought) AS buyers FROM (SELECT user_id, MAX(CASE WHEN page = '/checkout' THEN 1 ELSE 0 END) = 1 AS bought FROM events GROUP BY user_id) t;

-- web 17
SELECT SUM(bought) AS buyers, AVG(bought) AS rate FROM (SELECT user_id, MAX(CASE WHEN page = '/checkout' THEN 1 ELSE 0 END) AS bought FROM events GROUP BY user_id) t;

-- web 18
SELECT pages, COUNT(*) AS users FROM (SELECT user_id, COUNT(DISTINCT page) AS pages FROM events GROUP BY user_id) t GROUP BY pages ORDER BY pages;

-- web 19
SELECT AVG(hits) AS mean_hits, MEDIAN(hits) AS median_hits FROM (SELECT user_id, COUNT(*) AS hits FROM events GROUP BY user_id) t;

-- web 20
SELECT days, COUNT(*) AS users FROM (SELECT user_id, COUNT(DISTINCT CAST(seen AS DATE)) AS days FROM events GROUP BY user_id) t GROUP BY days;

-- web 21
SELECT device, COUNT(DISTINCT user_id) AS users FROM events WHERE seen >= TIMESTAMP '2024-03-25' GROUP BY device;

-- web 22
-- refused: E_BIN_EDGE this would cut through a cell of seen
SELECT COUNT(*) AS n FROM events WHERE seen BETWEEN '2024-03-04' AND '2024-03-11';

-- web 23
SELECT COUNT(*) AS n FROM events WHERE seen >= '2024-03-04' AND seen < '2024-03-11';

-- web 24
SELECT COUNT(*) AS n FROM events WHERE CAST(seen AS DATE) BETWEEN '2024-03-04' AND '2024-03-10';

-- web 25
SELECT COUNT(*) AS n FROM events WHERE EXTRACT(hour FROM seen) BETWEEN 9 AND 17 AND EXTRACT(isodow FROM seen) <= 5;

-- web 26
SELECT CASE WHEN EXTRACT(hour FROM seen) BETWEEN 6 AND 11 THEN 'morning' WHEN EXTRACT(hour FROM seen) BETWEEN 12 AND 17 THEN 'afternoon' ELSE 'night' END AS part, COUNT(*) AS n FROM events GROUP BY part;

-- web 27
SELECT split_part(page, '/', 2) AS section, COUNT(*) AS n FROM events GROUP BY section;

-- web 28
SELECT regexp_extract(page, '[a-z]+') AS word, COUNT(*) AS n FROM events GROUP BY word;

-- web 29
SELECT page LIKE '/c%' AS c, COUNT(*) AS n FROM events GROUP BY c;

-- web 30
SELECT date_trunc('week', seen) AS week, COUNT(DISTINCT user_id) AS wau FROM events GROUP BY week;

-- web 31
WITH daily AS (SELECT CAST(seen AS DATE) AS day, COUNT(*) AS n FROM events GROUP BY 1) SELECT day, n, AVG(n) OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS ma7 FROM daily ORDER BY day;

-- web 32
WITH daily AS (SELECT CAST(seen AS DATE) AS day, COUNT(*) AS n FROM events GROUP BY 1) SELECT MIN(n) AS least, MAX(n) AS most, AVG(n) AS mean FROM daily;

-- web 33
WITH hourly AS (SELECT hour(seen) AS h, COUNT(*) AS n FROM events GROUP BY 1) SELECT h FROM hourly WHERE n > (SELECT AVG(n) FROM hourly) ORDER BY h;

-- web 34
SELECT device, page, COUNT(*) AS n, RANK() OVER (PARTITION BY device ORDER BY COUNT(*) DESC) AS r FROM events GROUP BY device, page QUALIFY r <= 2 ORDER BY device, r;

-- web 35
PIVOT events ON device USING COUNT(*) GROUP BY page;

-- web 36
SELECT page, SUM(CASE WHEN device = 'phone' THEN 1 ELSE 0 END) AS phone, SUM(CASE WHEN device = 'tablet' THEN 1 ELSE 0 END) AS tablet, SUM(CASE WHEN device = 'desktop' THEN 1 ELSE 0 END) AS desktop FROM events GROUP BY page;

-- web 37
SELECT e.device, COUNT(*) AS n FROM events e WHERE EXISTS (SELECT 1 FROM events f WHERE f.user_id = e.user_id AND f.page = '/checkout') GROUP BY e.device;

-- web 38
SELECT COUNT(*) AS retained FROM (SELECT user_id FROM events WHERE seen < '2024-03-08' INTERSECT SELECT user_id FROM events WHERE seen >= '2024-03-24') t;

-- web 39
SELECT COUNT(*) AS lost FROM (SELECT user_id FROM events WHERE seen < '2024-03-08' EXCEPT SELECT user_id FROM events WHERE seen >= '2024-03-24') t;

-- web 40
SELECT COUNT(DISTINCT a.user_id) AS retained FROM events a JOIN events b ON a.user_id = b.user_id WHERE a.seen < '2024-03-08' AND b.seen >= '2024-03-24';

-- web 41
SELECT device, ROUND(AVG(ms)) AS latency, COUNT(*) FILTER (WHERE ms >= 1000) * 100.0 / COUNT(ms) AS slow_pct FROM events GROUP BY device;

-- web 42
SELECT date_trunc('hour', seen) AS h, COUNT(*) AS n FROM events WHERE seen >= '2024-03-10' AND seen < '2024-03-11' GROUP BY h ORDER BY h;

-- web 43
SELECT page, COUNT(*) AS n FROM events WHERE date_trunc('day', seen) = '2024-03-08' GROUP BY page;

-- web 44
SELECT page, COUNT(*) AS n FROM events WHERE seen::DATE = DATE '2024-03-08' GROUP BY page;

-- web 45
SELECT day(seen) AS d, COUNT(*) AS n FROM events WHERE status <> 200 GROUP BY d;

-- web 46
SELECT dayofweek(seen) IN (0, 6) AS weekend, AVG(ms) AS m FROM events GROUP BY weekend;

-- web 47
SELECT strftime(seen, '%H:00') AS h, COUNT(*) AS n FROM events GROUP BY h ORDER BY h;

-- web 48
SELECT EPOCH(date_trunc('day', seen)) AS t, COUNT(*) AS n FROM events GROUP BY t;

-- web 49
SELECT time_bucket(INTERVAL '6 hours', seen) AS b, COUNT(*) AS n FROM events GROUP BY b;

-- web 50
SELECT status::TEXT LIKE '4%' AS client, COUNT(*) AS n FROM events GROUP BY client;

-- web 51
SELECT CASE WHEN status < 300 THEN '2xx' WHEN status < 400 THEN '3xx' WHEN status < 500 THEN '4xx' ELSE '5xx' END AS class, COUNT(*) AS n FROM events GROUP BY class;

-- web 52
SELECT page, COUNT(*) AS n, COUNT(*) * 1.0 / FIRST_VALUE(COUNT(*)) OVER (ORDER BY CASE page WHEN '/' THEN 1 WHEN '/search' THEN 2 WHEN '/product' THEN 3 WHEN '/cart' THEN 4 ELSE 5 END) AS funnel FROM events GROUP BY page;

-- web 53
SELECT referrer IS NULL AS direct, COUNT(DISTINCT user_id) AS users FROM events GROUP BY 1;

-- web 54
SELECT sessions, COUNT(*) AS users FROM (SELECT user_id, COUNT(DISTINCT date_trunc('day', seen)) AS sessions FROM events GROUP BY user_id) t GROUP BY sessions;

-- web 55
-- refused: E_PREDICATE differences of two columns of 744 hours
SELECT COUNT(*) FILTER (WHERE gap > 1) AS sessions FROM (SELECT date_diff('hour', LAG(seen) OVER (PARTITION BY user_id ORDER BY seen), seen) AS gap FROM events) t;

-- web 56
SELECT new, COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY seen) = 1 AS new FROM events) t GROUP BY new;

-- web 57
SELECT AVG(bounced) AS bounce_rate FROM (SELECT user_id, CASE WHEN COUNT(*) = 1 THEN 1 ELSE 0 END AS bounced FROM events GROUP BY user_id) t;

-- web 58
SELECT page, COUNT(*) AS n FROM events WHERE page ~ '^/c' GROUP BY page;

-- web 59
SELECT page, COUNT(*) AS n FROM events WHERE regexp_matches(page, '^/c') GROUP BY page;

-- web 60
SELECT page, COUNT(*) AS n FROM events WHERE starts_with(page, '/c') GROUP BY page;

-- web 61
SELECT page, AVG(ms) AS m FROM events WHERE ms IS NOT NULL AND ms < 1500 GROUP BY page;

-- web 62
-- within: 0.01
SELECT page, QUANTILE_CONT(ms, 0.75) - QUANTILE_CONT(ms, 0.25) AS iqr FROM events GROUP BY page;

-- web 63
SELECT page, AVG(CASE WHEN ms < 500 THEN 1 WHEN ms < 1000 THEN 0.5 ELSE 0 END) AS apdex FROM events GROUP BY page;

-- web 64
SELECT user_type, COUNT(*) AS n FROM (SELECT user_id, CASE WHEN MIN(seen) >= TIMESTAMP '2024-03-15' THEN 'new' ELSE 'old' END AS user_type FROM events GROUP BY user_id) t GROUP BY user_type;

-- web 65
SELECT u.first_day, COUNT(*) AS users, SUM(u.hits) AS hits FROM (SELECT user_id, MIN(CAST(seen AS DATE)) AS first_day, COUNT(*) AS hits FROM events GROUP BY user_id) u GROUP BY u.first_day ORDER BY 1;

-- web 66
SELECT MAX(dau) AS peak, AVG(dau) AS mean FROM (SELECT CAST(seen AS DATE) AS day, COUNT(DISTINCT user_id) AS dau FROM events GROUP BY day) t;

-- web 67
WITH dau AS (SELECT CAST(seen AS DATE) AS day, COUNT(DISTINCT user_id) AS n FROM events GROUP BY 1), mau AS (SELECT COUNT(DISTINCT user_id) AS n FROM events) SELECT AVG(dau.n * 1.0 / mau.n) AS stickiness FROM dau, mau;

-- web 68
SELECT e.page, COUNT(*) AS n FROM (SELECT page, COUNT(*) AS c FROM events GROUP BY page HAVING COUNT(*) > 990) t JOIN events e ON e.page = t.page GROUP BY e.page;

-- web 69
-- refused: E_WINDOW this frame over private rows is not supported
SELECT x, COUNT(*) AS n FROM (SELECT COUNT(*) OVER (PARTITION BY user_id ORDER BY seen::DATE GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM events) t GROUP BY x;

-- web 70
SELECT COUNT(*) AS n FROM (SELECT user_id, SUM(ms) AS m FROM events GROUP BY user_id) t WHERE m >= 10000;

-- hospital 1
SELECT region, COUNT(*) AS n, AVG(age) AS mean_age FROM patients GROUP BY region ORDER BY mean_age DESC NULLS LAST;

-- hospital 2
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' WHEN age IS NULL THEN 'unknown' ELSE 'senior' END AS age_group, sex, COUNT(*) AS n FROM patients GROUP BY 1, 2;

-- hospital 3
SELECT sex, COUNT(*) AS n, COUNT(age) AS known, COUNT(*) - COUNT(age) AS unknown FROM patients GROUP BY sex;

-- hospital 4
SELECT LEAST(age // 10 * 10, 90) AS decade, COUNT(*) AS n FROM patients GROUP BY decade ORDER BY decade;

-- hospital 5
SELECT ward, AVG(days) AS los, STDDEV(days) AS sd, MEDIAN(days) AS med FROM visits GROUP BY ward ORDER BY los DESC;

-- hospital 6
SELECT ward, SUM(days) AS bed_days, SUM(days) * 100.0 / SUM(SUM(days)) OVER () AS pct FROM visits GROUP BY ward;

-- hospital 7
SELECT year(arrived) AS y, ward, COUNT(*) AS n FROM visits GROUP BY y, ward ORDER BY y, n DESC;

-- hospital 8
SELECT ward, COUNT(*) FILTER (WHERE year(arrived) = 2023) AS y2023, COUNT(*) FILTER (WHERE year(arrived) = 2024) AS y2024, COUNT(*) FILTER (WHERE year(arrived) = 2024) * 1.0 / NULLIF(COUNT(*) FILTER (WHERE year(arrived) = 2023), 0) - 1 AS growth FROM visits GROUP BY ward;

-- hospital 9
SELECT days > 7 AS long_stay, COUNT(*) AS n, AVG(cost) AS mean_cost FROM visits GROUP BY long_stay;

-- hospital 10
SELECT ward, SUM(cost) AS total, SUM(cost) / SUM(days) AS cost_per_day FROM visits GROUP BY ward;

-- hospital 11
SELECT ward, COUNT(*) AS n FROM visits WHERE cost IS NULL GROUP BY ward;

-- hospital 12
SELECT ward, AVG(COALESCE(cost, 0)) AS c FROM visits GROUP BY ward;

-- hospital 13
SELECT SUM(cost * days) AS weighted FROM visits;

-- hospital 14
SELECT p.region, v.ward, COUNT(*) AS n, RANK() OVER (PARTITION BY p.region ORDER BY COUNT(*) DESC) AS r FROM visits v JOIN patients p ON p.patient_id = v.patient_id GROUP BY p.region, v.ward;

-- hospital 15
SELECT p.sex, COUNT(DISTINCT v.patient_id) * 1.0 / (SELECT COUNT(*) FROM patients) AS share FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex;

-- hospital 16
SELECT p.sex, AVG(v.days) AS d FROM visits v INNER JOIN patients p ON v.patient_id = p.patient_id AND p.age >= 65 GROUP BY p.sex;

-- hospital 17
SELECT p.sex, COUNT(v.visit_id) AS visits FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND v.ward = 'surgery' GROUP BY p.sex;

-- hospital 18
SELECT r.drug, v.ward, COUNT(*) AS n FROM prescriptions r JOIN visits v ON v.visit_id = r.visit_id GROUP BY r.drug, v.ward HAVING COUNT(*) > 20;

-- hospital 19
-- within: 0.001
SELECT drug, SUM(packs) AS packs, SUM(packs * price) AS spent, SUM(packs * price) / SUM(packs) AS price_each FROM prescriptions GROUP BY drug ORDER BY spent DESC LIMIT 5;

-- hospital 20
SELECT left(drug, 1) AS letter, COUNT(*) AS n FROM prescriptions GROUP BY letter ORDER BY letter;

-- hospital 21
SELECT drug, COUNT(*) AS n FROM prescriptions WHERE drug LIKE '%in%' AND drug NOT IN ('warfarin') GROUP BY drug;

-- hospital 22
SELECT p.age // 20 * 20 AS band, AVG(s.n) AS visits FROM patients p JOIN (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) s ON s.patient_id = p.patient_id GROUP BY band;

-- hospital 23
SELECT COUNT(*) AS frequent FROM (SELECT patient_id FROM visits WHERE arrived >= '2024-01-01' GROUP BY patient_id HAVING COUNT(*) >= 3) t;

-- hospital 24
SELECT k, COUNT(*) AS n FROM (SELECT patient_id, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY arrived) AS k FROM visits) t GROUP BY k ORDER BY k;

-- hospital 25
SELECT readmitted, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(arrived) OVER (PARTITION BY patient_id ORDER BY arrived), arrived) <= 30 AS readmitted FROM visits) t GROUP BY readmitted;

-- hospital 26
SELECT first_ward, COUNT(*) AS n FROM (SELECT patient_id, ARG_MIN(ward, arrived) AS first_ward FROM visits GROUP BY patient_id) t GROUP BY first_ward;

-- hospital 27
SELECT ward, monthname(arrived) AS month, COUNT(*) AS n FROM visits GROUP BY ward, month;

-- hospital 28
SELECT ward, COUNT(*) AS n FROM visits WHERE arrived >= DATE '2024-01-01' AND arrived < DATE '2024-01-01' + INTERVAL 3 MONTH GROUP BY ward;

-- hospital 29
SELECT COUNT(*) AS n FROM patients p WHERE p.age > 60 AND EXISTS (SELECT * FROM visits v JOIN prescriptions r USING (visit_id) WHERE v.patient_id = p.patient_id AND r.drug = 'insulin');

-- hospital 30
SELECT drug, COUNT(DISTINCT patient_id) AS patients FROM prescriptions JOIN visits USING (visit_id) GROUP BY drug;

-- hospital 31
SELECT v.ward, COUNT(*) AS n FROM visits v JOIN (SELECT ward, AVG(days) AS d FROM visits GROUP BY ward) w ON w.ward = v.ward WHERE v.days > w.d GROUP BY v.ward;

-- hospital 32
SELECT v.ward, COUNT(*) AS n, w.d FROM visits v JOIN (SELECT ward, AVG(days) AS d FROM visits GROUP BY ward) w USING (ward) GROUP BY v.ward, w.d;

-- hospital 33
SELECT ward, COUNT(*) AS n FROM visits v WHERE days > (SELECT AVG(days) FROM visits w WHERE w.ward = v.ward) GROUP BY ward;

-- hospital 34
SELECT p.sex, v.ward, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY v.ward), 1) AS pct FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex, v.ward ORDER BY v.ward, p.sex;

-- hospital 35
SELECT ward, quarter(arrived) AS q, year(arrived) AS y, SUM(cost) AS total, SUM(SUM(cost)) OVER (PARTITION BY ward, year(arrived) ORDER BY quarter(arrived)) AS ytd FROM visits GROUP BY ward, q, y;

-- hospital 36
SELECT CASE WHEN p.age >= 65 THEN '65+' ELSE 'under 65' END AS grp, AVG(v.days) AS los FROM visits v JOIN patients p ON p.patient_id = v.patient_id GROUP BY grp;

-- hospital 37
SELECT v.ward, AVG(p.age) AS a, STDDEV(p.age) AS s FROM patients p JOIN visits v USING (patient_id) GROUP BY v.ward;

-- hospital 38
SELECT ward, AVG(age) AS mean_age_of_persons FROM (SELECT DISTINCT v.ward, p.patient_id, p.age FROM visits v JOIN patients p USING (patient_id)) t GROUP BY ward;

-- hospital 39
SELECT p.region, COUNT(DISTINCT p.patient_id) FILTER (WHERE r.drug = 'insulin') * 1000.0 / COUNT(DISTINCT p.patient_id) AS per_thousand FROM patients p LEFT JOIN visits v USING (patient_id) LEFT JOIN prescriptions r USING (visit_id) GROUP BY p.region;

-- hospital 40
SELECT COUNT(*) AS polypharmacy FROM (SELECT v.patient_id, COUNT(DISTINCT r.drug) AS k FROM visits v JOIN prescriptions r USING (visit_id) GROUP BY v.patient_id HAVING COUNT(DISTINCT r.drug) >= 5) t;

-- hospital 41
-- refused: E_JOIN a join of private tables by this key alone is not supported
SELECT a.drug, b.drug AS with_, COUNT(DISTINCT a.visit_id) AS n FROM prescriptions a JOIN prescriptions b ON a.visit_id = b.visit_id AND a.drug < b.drug GROUP BY 1, 2;

-- hospital 42
SELECT drug, AVG(packs) AS packs, SUM(packs) FILTER (WHERE ward = 'medicine') AS medicine FROM prescriptions JOIN visits USING (visit_id) GROUP BY drug;

-- hospital 43
SELECT v1.ward AS a, v2.ward AS b, COUNT(*) AS n FROM visits v1 JOIN visits v2 ON v1.patient_id = v2.patient_id AND v1.ward < v2.ward GROUP BY 1, 2;

-- hospital 44
SELECT before, ward, COUNT(*) AS n FROM (SELECT ward, LAG(ward) OVER (PARTITION BY patient_id ORDER BY arrived) AS before FROM visits) t WHERE before IS NOT NULL GROUP BY before, ward;

-- hospital 45
SELECT nth, AVG(days) AS d FROM (SELECT days, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY arrived) AS nth FROM visits) t WHERE nth <= 4 GROUP BY nth;

-- hospital 46
-- within: 0.002
SELECT AVG(cost - previous) AS change FROM (SELECT cost, LAG(cost) OVER (PARTITION BY patient_id ORDER BY arrived) AS previous FROM visits) t;

-- hospital 47
SELECT spent >= 5000 AS dear, COUNT(*) AS n FROM (SELECT patient_id, SUM(cost) AS spent FROM visits GROUP BY patient_id) t GROUP BY dear;

-- hospital 48
SELECT days_in, COUNT(*) AS n FROM (SELECT patient_id, SUM(days) AS days_in FROM visits GROUP BY patient_id) t WHERE days_in BETWEEN 10 AND 20 GROUP BY days_in ORDER BY days_in;

-- hospital 49
SELECT ward, COUNT(*) AS n FROM visits WHERE patient_id IN (SELECT patient_id FROM patients WHERE age < 18) GROUP BY ward;

-- hospital 50
SELECT region, COUNT(*) AS n FROM patients WHERE patient_id IN (SELECT v.patient_id FROM visits v JOIN prescriptions r USING (visit_id) WHERE r.drug IN ('insulin', 'metformin')) GROUP BY region;

-- hospital 51
SELECT CASE WHEN n IS NULL THEN 'none' WHEN n < 3 THEN 'few' ELSE 'many' END AS use, COUNT(*) AS patients FROM patients p LEFT JOIN (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) v USING (patient_id) GROUP BY use;

-- hospital 52
SELECT extract('year' FROM arrived) AS y, COUNT(*) AS n FROM visits GROUP BY y;

-- hospital 53
SELECT date_part('dow', arrived) AS d, COUNT(*) AS n FROM visits GROUP BY d;

-- hospital 54
SELECT arrived::DATE - DATE '2023-01-01' AS day_no, COUNT(*) AS n FROM visits WHERE arrived < '2023-01-05' GROUP BY day_no;

-- hospital 55
-- refused: E_BIN_EDGE this would cut through a cell of arrived
SELECT COUNT(*) AS n FROM visits WHERE arrived > TIMESTAMP '2024-06-30 12:00:00';

-- hospital 56
SELECT ward, COUNT(*) n FROM visits GROUP BY ward ORDER BY n DESC FETCH FIRST 3 ROWS ONLY;

-- hospital 57
-- exact: SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 3
SELECT TOP 3 ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC;

-- hospital 58
FROM visits SELECT ward, COUNT(*) AS n GROUP BY ward;

-- hospital 59
SELECT "ward", COUNT(*) AS "number of visits" FROM "visits" GROUP BY "ward";

-- hospital 60
SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVING COUNT(DISTINCT patient_id) > 100;

-- hospital 61
SELECT ward, COUNT(*) AS n, GROUPING(ward) AS g FROM visits GROUP BY GROUPING SETS ((ward), ());

-- hospital 62
SELECT ward, sum(days) FILTER (WHERE days > 3) AS s, count(*) FILTER (WHERE days > 3) AS c FROM visits GROUP BY 1;

-- hospital 63
SELECT COUNT(*) AS n FROM visits v, patients p WHERE v.patient_id = p.patient_id AND p.region = 'North' AND v.ward = 'eye';

-- hospital 64
SELECT p.region, COUNT(*) AS n FROM patients p LEFT JOIN visits v ON p.patient_id = v.patient_id AND v.arrived >= '2024-01-01' WHERE v.patient_id IS NULL GROUP BY p.region;

-- hospital 65
-- refused: E_PARSE LEFT ANTI JOIN is not of DuckDB
-- exact: SELECT p.region, COUNT(*) AS n FROM patients p ANTI JOIN visits v ON p.patient_id = v.patient_id GROUP BY p.region
SELECT p.region, COUNT(*) AS n FROM patients p LEFT ANTI JOIN visits v ON p.patient_id = v.patient_id GROUP BY p.region;

-- hospital 66
SELECT p.region, COUNT(*) AS n FROM patients p SEMI JOIN visits v ON p.patient_id = v.patient_id GROUP BY p.region;

-- hospital 67
SELECT x.ward, x.n, y.n FROM (SELECT ward, COUNT(*) n FROM visits WHERE days = 0 GROUP BY ward) x LEFT JOIN (SELECT ward, COUNT(*) n FROM visits WHERE days > 20 GROUP BY ward) y ON x.ward = y.ward AND y.n > 10;

-- hospital 68
SELECT ward, n FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) t WHERE n BETWEEN 100 AND 400;

-- hospital 69
SELECT ward, AVG(days) AS mean, AVG(days) - 1.96 * STDDEV(days) / SQRT(COUNT(*)) AS low FROM visits GROUP BY ward;

-- hospital 70
SELECT t.big, COUNT(*) AS n, AVG(v.days) AS d FROM visits v LEFT JOIN (SELECT ward, TRUE AS big FROM visits GROUP BY ward HAVING COUNT(*) > 500) t ON t.ward = v.ward GROUP BY t.big;

-- hospital 71
SELECT COALESCE(t.ward, 'other') AS w, COUNT(*) AS n FROM visits v LEFT JOIN (SELECT ward FROM visits GROUP BY ward ORDER BY COUNT(*) DESC LIMIT 3) t ON t.ward = v.ward GROUP BY 1;

-- hospital 72
SELECT p.sex, COUNT(*) AS n FROM visits v JOIN patients p USING (patient_id) WHERE v.ward IN (SELECT ward FROM visits GROUP BY ward HAVING AVG(days) > 5) GROUP BY p.sex;

-- hospital 73
SELECT p.region, w.ward, COUNT(*) * 1.0 / MAX(w.n) AS share FROM visits v JOIN patients p ON p.patient_id = v.patient_id JOIN (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) w ON w.ward = v.ward GROUP BY p.region, w.ward;

-- hospital 74
SELECT x, COUNT(*) AS n FROM (SELECT SUM(days) OVER (PARTITION BY patient_id ORDER BY arrived ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS x FROM visits) t GROUP BY x;

-- hospital 75
SELECT COUNT(*) AS n FROM visits v JOIN patients p USING (patient_id) WHERE v.patient_id IS NOT NULL;

-- hospital 76
SELECT COUNT(*) AS n FROM patients p LEFT JOIN visits v USING (patient_id) WHERE p.patient_id IS NOT NULL AND v.patient_id IS NULL;

-- hospital 77
SELECT r, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(arrived::DATE) OVER (PARTITION BY patient_id ORDER BY arrived), arrived::DATE) <= 30 AS r FROM visits) t GROUP BY r;

-- hospital 78
SELECT r, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(d) OVER (PARTITION BY patient_id ORDER BY d), d) <= 30 AS r FROM (SELECT patient_id, arrived::DATE AS d FROM visits) u) t GROUP BY r;

-- hospital 79
SELECT r, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(arrived) OVER (PARTITION BY patient_id ORDER BY arrived), arrived) <= 30 AS r FROM visits) t GROUP BY r;

-- hospital 80
-- refused: E_BIN_EDGE this would cut through a cell of previous(arrived)
SELECT COUNT(*) FILTER (WHERE prev >= arrived - INTERVAL 30 DAY) * 1.0 / COUNT(*) AS r FROM (SELECT arrived, LAG(arrived) OVER (PARTITION BY patient_id ORDER BY arrived) AS prev FROM visits) t;

-- hospital 81
SELECT CASE WHEN v.days > 7 OR p.age >= 80 THEN 'risk' ELSE 'normal' END AS r, v.ward, COUNT(*) AS n, AVG(v.cost) AS c FROM visits v JOIN patients p USING (patient_id) GROUP BY r, v.ward;

-- hospital 82
-- refused: E_JOIN a join of aggregated results to private rows is not supported
SELECT v.ward, COUNT(*) AS n FROM visits v JOIN (SELECT ward, AVG(cost) AS c FROM visits GROUP BY ward) w ON w.ward = v.ward WHERE v.cost > w.c GROUP BY v.ward;

-- hospital 83
-- refused: E_JOIN a join of aggregated results to private rows is not supported
SELECT v.ward, COUNT(*) AS n FROM (SELECT ward, cost AS k FROM visits) v JOIN (SELECT ward, AVG(cost) AS c FROM visits GROUP BY ward) w ON w.ward = v.ward WHERE v.k > w.c GROUP BY v.ward;

-- hospital 84
SELECT CASE WHEN spent < 500 THEN 'low' WHEN spent < 2000 THEN 'mid' WHEN spent IS NULL THEN 'none' ELSE 'high' END AS band, COUNT(*) AS n, SUM(spent) AS s FROM (SELECT patient_id, SUM(cost) AS spent FROM visits GROUP BY patient_id) t GROUP BY band;

-- hospital 85
SELECT AVG(spent) AS a, COUNT(*) AS n FROM (SELECT patient_id, SUM(cost) AS spent FROM visits GROUP BY patient_id) t;

-- hospital 86
SELECT COUNT(*) AS n FROM (SELECT patient_id, AVG(cost) AS m FROM visits GROUP BY patient_id HAVING AVG(cost) >= 1000) t;

-- hospital 87
SELECT p.sex, COUNT(*) AS n FROM patients p JOIN (SELECT patient_id, SUM(cost) AS spent FROM visits GROUP BY patient_id) s USING (patient_id) WHERE s.spent >= 3000 GROUP BY p.sex;

-- hospital 88
SELECT COUNT(*) AS n FROM (SELECT SUM(cost) OVER (PARTITION BY patient_id ORDER BY arrived) AS run FROM visits) t WHERE run >= 1000;

-- census 1
SELECT education, AVG(hours_per_week) AS hours, COUNT(*) AS n FROM adult GROUP BY education HAVING COUNT(*) >= 50 ORDER BY hours DESC;

-- census 2
SELECT income, marital_status IN ('Married-civ-spouse', 'Married-AF-spouse') AS married, COUNT(*) AS n FROM adult GROUP BY income, married;

-- census 3
SELECT occupation, AVG(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS rate, COUNT(*) AS n FROM adult WHERE occupation <> '?' GROUP BY occupation ORDER BY rate DESC LIMIT 5;

-- census 4
SELECT sex, race, AVG((income = '>50K')::INT) AS rate FROM adult GROUP BY sex, race;

-- census 5
SELECT sex, SUM(hours_per_week) AS h, SUM(hours_per_week) / COUNT(*) AS each FROM adult GROUP BY sex;

-- census 6
SELECT CASE education_num WHEN 13 THEN 'BSc' WHEN 14 THEN 'MSc' WHEN 16 THEN 'PhD' ELSE 'other' END AS degree, COUNT(*) AS n FROM adult GROUP BY degree;

-- census 7
SELECT native_country = 'United-States' AS us, income, COUNT(*) AS n, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY native_country = 'United-States') AS share FROM adult GROUP BY us, income;

-- census 8
SELECT workclass, COUNT(*) AS n FROM adult WHERE workclass NOT LIKE '%gov' AND workclass != '?' GROUP BY workclass;

-- census 9
SELECT replace(marital_status, '-', ' ') AS status, COUNT(*) AS n FROM adult GROUP BY status;

-- census 10
-- within: 0.01
SELECT sex, AVG(capital_gain) - AVG(capital_loss) AS net FROM adult GROUP BY sex;

-- census 11
SELECT SUM(capital_gain) FILTER (WHERE age BETWEEN 30 AND 39) AS g FROM adult;

-- census 12
-- refused: E_BIN_EDGE this would cut through a cell of capital_loss
SELECT capital_loss > 0 AS lost, COUNT(*) AS n FROM adult GROUP BY lost;

-- census 13
SELECT ROUND(AVG(age), 2) AS a, CAST(COUNT(*) AS BIGINT) AS n FROM adult WHERE sex = 'Female';

-- census 14
SELECT sex, ROUND(AVG(hours_per_week), 1) AS h FROM adult GROUP BY sex HAVING h > 36;

-- census 15
SELECT race, COUNT(*) AS n FROM adult GROUP BY race ORDER BY COUNT(*) DESC OFFSET 1;

-- census 16
SELECT hours_per_week, COUNT(*) AS n FROM adult WHERE hours_per_week IN (20, 40, 60) GROUP BY hours_per_week;

-- census 17
SELECT sex, GREATEST(AVG(age), 40) AS a FROM adult GROUP BY sex;

-- census 18
SELECT sex, income, COUNT(*) AS n FROM adult GROUP BY sex, income ORDER BY sex, income;

-- census 19
SELECT COUNT(*) FROM adult WHERE (age, education_num) IN ((30, 9), (40, 13));

-- census 20
SELECT SUM(n * n) * 1.0 / POWER(SUM(n), 2) AS herfindahl FROM (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) t;

-- census 21
SELECT -SUM(p * LN(p)) AS entropy FROM (SELECT race, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS p FROM adult GROUP BY race) t;

-- census 22
SELECT age - education_num AS x, COUNT(*) AS n FROM adult GROUP BY x;

-- census 23
SELECT sex = 'Male' AND income = '>50K' AS x, COUNT(*) AS n FROM adult GROUP BY x;
