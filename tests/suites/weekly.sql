-- What analysts of a hospital, a shop, a web site and a survey ask in a week; 147 more.

-- ward 29
SELECT first_ward, COUNT(*) AS n FROM (SELECT patient_id, ARG_MIN(ward, arrived) AS first_ward FROM visits GROUP BY patient_id) t GROUP BY first_ward;

-- ward 1
SELECT p.region, COUNT(DISTINCT v.patient_id) AS seen, ROUND(100.0 * COUNT(DISTINCT v.patient_id) / SUM(COUNT(DISTINCT v.patient_id)) OVER (), 1) AS pct FROM visits v JOIN patients p USING (patient_id) WHERE v.ward = 'emergency' GROUP BY p.region ORDER BY seen DESC;

-- ward 2
SELECT strftime(arrived, '%Y') AS y, strftime(arrived, '%B') AS m, COUNT(*) AS n FROM visits GROUP BY 1, 2 ORDER BY 1, n DESC;

-- ward 3
SELECT ward, AVG(LEAST(days, 14)) AS capped_stay, AVG(days) AS stay FROM visits GROUP BY ward ORDER BY ward;

-- ward 4
SELECT datediff('day', DATE '2023-01-01', CAST(arrived AS DATE)) // 7 AS week_no, COUNT(*) AS n FROM visits WHERE ward = 'children' GROUP BY week_no ORDER BY week_no;

-- ward 5
-- within: 0.1
SELECT ward, REGR_SLOPE(cost, days) AS cost_per_day, REGR_INTERCEPT(cost, days) AS base, REGR_R2(cost, days) AS r2 FROM visits GROUP BY ward;

-- ward 6
SELECT ward, CORR(days, cost) AS r FROM visits WHERE days > 0 GROUP BY ward HAVING COUNT(*) > 100;

-- ward 7
SELECT SKEWNESS(days), KURTOSIS(days) FROM visits WHERE ward = 'surgery';

-- ward 8
SELECT sex, CASE WHEN age IS NULL THEN 'unknown' WHEN age >= 65 THEN '65+' WHEN age >= 18 THEN '18-64' ELSE '0-17' END AS band, COUNT(*) AS n FROM patients GROUP BY ALL ORDER BY ALL;

-- ward 9
SELECT ward, n, NTH_VALUE(ward, 2) OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) t ORDER BY ward;

-- ward 10
PIVOT (SELECT ward, year(arrived) AS y FROM visits) ON y IN (2023, 2024) USING COUNT(*) GROUP BY ward;

-- ward 11
SELECT ward, COUNT(*) FILTER (year(arrived) = 2023) AS y23, COUNT(*) FILTER (year(arrived) = 2024) AS y24, COUNT(*) FILTER (year(arrived) = 2024) - COUNT(*) FILTER (year(arrived) = 2023) AS diff FROM visits GROUP BY ward ORDER BY diff DESC;

-- ward 12
SELECT hour(arrived) AS h, dayofweek(arrived) AS d, COUNT(*) AS n FROM visits WHERE ward = 'emergency' AND arrived >= '2024-01-01' AND arrived < '2024-07-01' GROUP BY h, d ORDER BY d, h;

-- ward 13
SELECT isodow(arrived) IN (6, 7) AS weekend, AVG(days) AS stay, COUNT(*) AS n FROM visits GROUP BY weekend;

-- ward 14
SELECT monthname(arrived) AS m, COUNT(*) AS n, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM visits WHERE year(arrived) = 2024 GROUP BY m;

-- ward 15
SELECT upper(left(ward, 3)) AS code, COUNT(*) AS n FROM visits GROUP BY code ORDER BY code;

-- ward 16
SELECT regexp_extract(drug, '^[a-z]') AS initial, SUM(packs) AS packs FROM prescriptions GROUP BY initial ORDER BY initial;

-- ward 17
SELECT regexp_matches(drug, '(in|ol)$') AS suffix, COUNT(*) AS n, AVG(price) AS price FROM prescriptions GROUP BY suffix;

-- ward 18
SELECT drug, COUNT(*) AS n FROM prescriptions WHERE drug LIKE '%ol' OR drug SIMILAR TO '.*in' GROUP BY drug ORDER BY n DESC LIMIT 3;

-- ward 19
SELECT drug, SUM(packs * price) AS spend, SUM(packs * price) / SUM(SUM(packs * price)) OVER () AS share, RANK() OVER (ORDER BY SUM(packs * price) DESC) AS rnk FROM prescriptions GROUP BY drug QUALIFY rnk <= 5;

-- ward 20
SELECT COUNT(*) AS n FROM visits WHERE (ward, days) IN (('surgery', 1), ('surgery', 2), ('eye', 0));

-- ward 21
SELECT COUNT(*) AS n FROM visits WHERE (days, ward) >= (3, 'medicine');

-- ward 22
SELECT ward, QUANTILE_DISC(days, [0.25, 0.5, 0.75]) AS quartiles FROM visits GROUP BY ward;

-- ward 23
SELECT COUNT(*) AS readmitted FROM (SELECT patient_id, ward, COUNT(*) AS k FROM visits GROUP BY patient_id, ward HAVING COUNT(*) > 1) t WHERE ward = 'oncology';

-- ward 24
SELECT CASE WHEN k = 1 THEN 'once' WHEN k <= 3 THEN '2-3' ELSE '4+' END AS freq, COUNT(*) AS patients, AVG(total) AS mean_days FROM (SELECT patient_id, COUNT(*) AS k, SUM(days) AS total FROM visits GROUP BY patient_id) t GROUP BY freq;

-- ward 25
SELECT p.region, AVG(k) AS visits_each FROM patients p JOIN (SELECT patient_id, COUNT(*) AS k FROM visits GROUP BY patient_id) v ON v.patient_id = p.patient_id GROUP BY p.region;

-- ward 26
SELECT COUNT(*) AS never FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id);

-- ward 27
SELECT p.sex, COUNT(*) AS n FROM patients p ANTI JOIN visits v ON p.patient_id = v.patient_id GROUP BY p.sex;

-- ward 28
SELECT region, COUNT(*) AS n, COUNT(*) FILTER (WHERE patient_id IN (SELECT patient_id FROM visits WHERE ward = 'cardiology')) AS cardio FROM patients GROUP BY region;

-- ward 30
SELECT date_trunc('month', first_seen) AS cohort, COUNT(*) AS n FROM (SELECT patient_id, MIN(arrived) AS first_seen FROM visits GROUP BY patient_id) t GROUP BY cohort ORDER BY cohort;

-- ward 31
SELECT ward, SUM(n) OVER (PARTITION BY ward ORDER BY m) AS running, m FROM (SELECT ward, date_trunc('month', arrived) AS m, COUNT(*) AS n FROM visits GROUP BY 1, 2) t WHERE ward = 'eye' ORDER BY m;

-- ward 32
SELECT m, n, AVG(n) OVER (ORDER BY m RANGE BETWEEN INTERVAL 2 MONTHS PRECEDING AND CURRENT ROW) AS ma3 FROM (SELECT date_trunc('month', arrived) AS m, COUNT(*) AS n FROM visits GROUP BY 1) t ORDER BY m;

-- ward 33
SELECT ward, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC) / SUM(COUNT(*)) OVER () AS pareto FROM visits GROUP BY ward ORDER BY n DESC;

-- ward 34
SELECT ward, ROUND(STDDEV_POP(days), 2) AS sd, ROUND(VAR_SAMP(days), 2) AS v FROM visits GROUP BY ward;

-- ward 35
SELECT SUM(cost) FILTER (WHERE ward = 'surgery') / NULLIF(SUM(cost), 0) AS surgical_share FROM visits;

-- ward 36
-- refused: E_BIN_EDGE > 1000 cuts through the bin from 1000 on
SELECT SUM(CASE WHEN cost > 1000 THEN 1 ELSE 0 END) AS dear, COUNT(cost) AS known, COUNT(*) - COUNT(cost) AS missing FROM visits;

-- ward 37
-- refused: E_BIN_EDGE the last bin holds its upper edge, which FLOOR tells from the rest
SELECT floor(cost / 500) * 500 AS band, COUNT(*) AS n FROM visits WHERE cost IS NOT NULL GROUP BY band ORDER BY band;

-- ward 38
SELECT ward, COALESCE(ROUND(AVG(cost), 0), 0) AS mean_cost FROM visits GROUP BY ward ORDER BY mean_cost DESC NULLS LAST LIMIT 4;

-- ward 39
SELECT sex, MODE(region) AS home, MEDIAN(age) AS med FROM patients GROUP BY sex;

-- ward 40
WITH stays AS (SELECT ward, days, CASE WHEN days = 0 THEN 'day case' ELSE 'inpatient' END AS kind FROM visits) SELECT ward, kind, COUNT(*) AS n, AVG(days) AS stay FROM stays GROUP BY ward, kind ORDER BY ward, kind;

-- ward 41
WITH m AS (SELECT date_trunc('month', arrived) AS month, COUNT(*) AS n FROM visits GROUP BY month) SELECT month, n, n / LAG(n) OVER (ORDER BY month) - 1 AS growth FROM m ORDER BY month;

-- ward 42
WITH a AS (SELECT ward, AVG(days) AS stay FROM visits GROUP BY ward), b AS (SELECT AVG(days) AS overall FROM visits) SELECT a.ward, a.stay, a.stay - b.overall AS diff FROM a CROSS JOIN b ORDER BY diff DESC;

-- ward 43
-- refused: E_BIN_EDGE 23:00 is one instant of an hour
SELECT COUNT(*) AS n FROM visits WHERE arrived BETWEEN '2024-03-01' AND '2024-03-31 23:00:00';

-- ward 44
SELECT COUNT(*) FROM visits WHERE extract(year FROM arrived) = 2024 AND extract(quarter FROM arrived) = 1;

-- ward 45
SELECT lpad(CAST(month(arrived) AS VARCHAR), 2, '0') || '/' || year(arrived) AS my, COUNT(*) AS n FROM visits GROUP BY my ORDER BY my;

-- ward 46
SELECT DISTINCT ward FROM visits ORDER BY ward;

-- shop 1
SELECT country, COUNT(*) AS customers, COUNT(*) FILTER (WHERE newsletter) AS subscribed, 100 * AVG(CASE WHEN newsletter THEN 1 ELSE 0 END) AS pct FROM customers GROUP BY country ORDER BY customers DESC;

-- shop 2
SELECT date_trunc('quarter', signup) AS q, segment, COUNT(*) AS n FROM customers GROUP BY 1, 2 ORDER BY 1, 2;

-- shop 3
SELECT year(signup) AS y, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY year(signup)) AS total FROM customers GROUP BY y;

-- shop 4
SELECT channel, COUNT(*) AS orders, AVG(discount) AS disc, COUNT(discount) AS with_disc FROM orders GROUP BY channel;

-- shop 5
SELECT channel, SUM(DISTINCT discount) AS tiers_total, COUNT(DISTINCT discount) AS tiers FROM orders GROUP BY channel;

-- shop 6
SELECT strftime(order_date, '%Y-W%W') AS week, COUNT(*) AS n FROM orders GROUP BY week ORDER BY week;

-- shop 7
SELECT order_date, COUNT(*) AS n FROM orders WHERE order_date BETWEEN DATE '2024-11-25' AND DATE '2024-12-01' GROUP BY order_date ORDER BY order_date;

-- shop 8
SELECT date_part('week', order_date) AS w, COUNT(*) AS n FROM orders WHERE channel = 'web' GROUP BY w ORDER BY w;

-- shop 9
SELECT last_day(order_date) AS month_end, COUNT(*) AS n FROM orders GROUP BY month_end ORDER BY month_end;

-- shop 10
SELECT date_diff('month', DATE '2024-01-01', order_date) AS age_months, COUNT(*) AS n FROM orders GROUP BY age_months ORDER BY age_months;

-- shop 11
SELECT c.country, COUNT(*) AS orders, COUNT(DISTINCT o.customer_id) AS buyers FROM orders o JOIN customers c ON c.customer_id = o.customer_id GROUP BY c.country;

-- shop 12
SELECT c.segment, o.channel, COUNT(*) AS n, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (PARTITION BY c.segment) AS pct FROM customers c JOIN orders o USING (customer_id) GROUP BY c.segment, o.channel ORDER BY 1, 2;

-- shop 13
SELECT c.country, SUM(i.quantity * i.price) AS revenue FROM items i JOIN orders o USING (order_id) JOIN customers c USING (customer_id) GROUP BY c.country ORDER BY revenue DESC;

-- shop 14
SELECT pr.category, SUM(i.quantity) AS units, SUM(i.quantity * i.price) AS revenue, SUM(i.quantity * pr.cost) AS cost FROM items i JOIN products pr ON pr.product_id = i.product_id GROUP BY pr.category;

-- shop 15
SELECT pr.brand, pr.category, SUM(i.quantity) AS units FROM items i JOIN products pr USING (product_id) GROUP BY ROLLUP (pr.brand, pr.category) ORDER BY 1 NULLS LAST, 2 NULLS LAST;

-- shop 16
SELECT pr.name, SUM(i.quantity) AS units FROM items i JOIN products pr USING (product_id) GROUP BY pr.name ORDER BY units DESC, pr.name LIMIT 10;

-- shop 17
-- refused: E_BIN_EDGE the bins of price have an edge at 48 and at 64
SELECT SUM(LEAST(price, 50)) AS capped, SUM(price) AS plain FROM items;

-- shop 18
-- refused: E_BIN_EDGE the same
SELECT SUM(GREATEST(price - 20, 0) * quantity) AS above FROM items;

-- shop 19
SELECT AVG(quantity) AS q, CORR(quantity, price) AS r, COVAR_POP(quantity, price) AS cv FROM items;

-- shop 20
SELECT SUM(quantity * price * 1.19) AS gross, SUM(quantity * price) * 0.19 AS vat FROM items;

-- shop 21
SELECT AVG(basket) AS mean_basket, COUNT(*) AS orders FROM (SELECT customer_id, COUNT(*) AS basket FROM orders GROUP BY customer_id) t;

-- shop 22
SELECT n_orders, COUNT(*) AS customers FROM (SELECT customer_id, COUNT(*) AS n_orders FROM orders WHERE order_date >= '2024-07-01' GROUP BY customer_id) t GROUP BY n_orders ORDER BY n_orders;

-- shop 23
SELECT COUNT(*) AS inactive FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders);

-- shop 24
SELECT c.country, COUNT(o.order_id) AS orders FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.country;

-- shop 25
SELECT u.union_name, COUNT(*) AS n FROM customers c JOIN countries u ON u.code = c.country GROUP BY u.union_name;

-- shop 26
SELECT c.country, COUNT(*) * 1.0 / ANY_VALUE(u.millions) AS per_million FROM customers c JOIN countries u ON u.code = c.country GROUP BY c.country;

-- shop 27
SELECT COUNT(*) FROM customers WHERE country IN (SELECT code FROM countries WHERE millions > 70);

-- shop 28
-- refused: E_BIN_EDGE signup is known by month
SELECT datediff('day', c.signup, o.order_date) > 180 AS late, COUNT(*) AS n FROM customers c JOIN orders o USING (customer_id) GROUP BY late;

-- shop 29
SELECT channel, COUNT(*) AS n FROM orders WHERE order_date >= DATE '2024-12-31' - INTERVAL 30 DAY GROUP BY channel;

-- shop 30
SELECT CASE EXTRACT(dow FROM order_date) WHEN 0 THEN 'Sun' WHEN 6 THEN 'Sat' ELSE 'weekday' END AS d, COUNT(*) AS n FROM orders GROUP BY d;

-- shop 31
SELECT order_date, n, AVG(n) OVER (ORDER BY order_date ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS ma7 FROM (SELECT order_date, COUNT(*) AS n FROM orders GROUP BY order_date) t ORDER BY order_date LIMIT 30;

-- shop 32
SELECT quarter(order_date) AS q, SUM(i.quantity * i.price) AS revenue, LAG(SUM(i.quantity * i.price)) OVER (ORDER BY quarter(order_date)) AS before FROM orders o JOIN items i USING (order_id) GROUP BY q ORDER BY q;

-- shop 33
SELECT COUNT(*) FROM orders WHERE discount IN (SELECT unnest([10, 20, 30]));

-- shop 34
SELECT COALESCE(discount, 0) AS d, COUNT(*) AS n FROM orders GROUP BY d ORDER BY d;

-- shop 35
SELECT CASE WHEN discount BETWEEN 1 AND 15 THEN 'small' WHEN discount > 15 THEN 'large' ELSE 'none' END AS tier, COUNT(*) AS n FROM orders GROUP BY tier HAVING n > 10 ORDER BY n DESC;

-- shop 36
SELECT channel, discount, COUNT(*) AS n FROM orders WHERE discount IS NOT NULL GROUP BY GROUPING SETS ((channel), (discount), ());

-- shop 37
SELECT greatest(discount, 10) AS g, least(discount, 20) AS l, COUNT(*) AS n FROM orders WHERE discount IS NOT NULL GROUP BY g, l ORDER BY g, l;

-- shop 38
SELECT bool_and(n > 5) AS all_busy FROM (SELECT order_date, COUNT(*) AS n FROM orders WHERE month(order_date) = 5 GROUP BY order_date) t;

-- shop 39
SELECT product_id % 5 AS shelf, SUM(quantity) AS q FROM items GROUP BY shelf ORDER BY shelf;

-- shop 40
SELECT MAX(n) AS best, MIN(n) AS worst, AVG(n) AS mean FROM (SELECT channel, COUNT(*) AS n FROM orders GROUP BY channel) t;

-- shop 41
SELECT channel FROM orders GROUP BY channel HAVING COUNT(*) > 500 ORDER BY COUNT(*) DESC;

-- shop 42
SELECT 'orders' AS what, COUNT(*) AS n FROM orders UNION ALL SELECT 'customers', COUNT(*) FROM customers ORDER BY what;

-- shop 43
SELECT (SELECT COUNT(*) FROM orders) AS orders, (SELECT COUNT(*) FROM customers) AS customers, (SELECT COUNT(*) FROM orders) * 1.0 / (SELECT COUNT(*) FROM customers) AS rate;

-- web 1
SELECT page, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS users, AVG(ms) AS mean_ms FROM events GROUP BY page ORDER BY hits DESC;

-- web 2
SELECT status // 100 || 'xx' AS class, COUNT(*) AS n FROM events GROUP BY class ORDER BY class;

-- web 3
SELECT device, COUNT_IF(status >= 400) / COUNT(*) AS error_rate FROM events GROUP BY device;

-- web 4
SELECT hour(seen) AS h, COUNT(*) AS n FROM events WHERE device = 'phone' GROUP BY h ORDER BY n DESC LIMIT 5;

-- web 5
SELECT date_trunc('day', seen) AS d, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS users FROM events GROUP BY d ORDER BY d;

-- web 6
SELECT CAST(seen AS DATE) AS d, device, COUNT(*) AS n FROM events WHERE seen >= TIMESTAMP '2024-03-10' AND seen < TIMESTAMP '2024-03-17' GROUP BY ALL ORDER BY ALL;

-- web 7
SELECT time_bucket(INTERVAL '6 hours', seen) AS t, COUNT(*) AS n FROM events GROUP BY t ORDER BY t LIMIT 8;

-- web 8
SELECT COALESCE(referrer, 'direct') AS source, COUNT(*) AS n, COUNT(DISTINCT user_id) AS users FROM events GROUP BY source;

-- web 9
SELECT referrer IS NULL AS direct, page, COUNT(*) AS n FROM events GROUP BY direct, page ORDER BY direct, page;

-- web 10
SELECT replace(page, '/', '') AS p, COUNT(*) AS n FROM events WHERE page <> '/' GROUP BY p;

-- web 11
SELECT split_part(page, '/', 2) AS section, COUNT(*) AS n FROM events GROUP BY section;

-- web 12
SELECT regexp_replace(page, '^/(.).*', '\1') AS letter, COUNT(*) AS n FROM events GROUP BY letter ORDER BY letter;

-- web 13
SELECT length(page) AS len, COUNT(*) AS n FROM events GROUP BY len ORDER BY len;

-- web 14
SELECT COUNT(DISTINCT user_id) FILTER (WHERE page = '/cart') AS carts, COUNT(DISTINCT user_id) FILTER (WHERE page = '/checkout') AS bought FROM events;

-- web 15
SELECT COUNT(*) AS both FROM (SELECT user_id FROM events WHERE page = '/cart' INTERSECT SELECT user_id FROM events WHERE page = '/checkout') t;

-- web 16
SELECT COUNT(*) AS users FROM (SELECT user_id FROM events GROUP BY user_id HAVING COUNT(*) FILTER (WHERE page = '/cart') > 0 AND COUNT(*) FILTER (WHERE page = '/checkout') = 0) t;

-- web 17
SELECT AVG(k) AS hits_each, STDDEV(k) AS sd FROM (SELECT user_id, COUNT(*) AS k FROM events GROUP BY user_id) t;

-- web 18
SELECT last_page, COUNT(*) AS n FROM (SELECT user_id, ARG_MAX(page, seen) AS last_page FROM events GROUP BY user_id) t GROUP BY last_page;

-- web 19
SELECT AVG(LEAST(ms, 1000)) AS capped FROM events WHERE status = 200;

-- web 20
SELECT device, SUM(CASE WHEN ms > 1000 THEN 1000 ELSE ms END) AS total FROM events GROUP BY device;

-- web 21
SELECT device, COUNT(*) FILTER (WHERE ms >= 1000) * 100.0 / COUNT(ms) AS slow_pct FROM events GROUP BY device;

-- web 22
SELECT page, device, COUNT(*) AS n FROM events GROUP BY CUBE (page, device) ORDER BY page NULLS FIRST, device NULLS FIRST;

-- web 23
PIVOT events ON device IN ('phone', 'tablet', 'desktop') USING COUNT(*) GROUP BY page;

-- web 24
SELECT * FROM (SELECT page, device, COUNT(*) AS n FROM events GROUP BY page, device) PIVOT (SUM(n) FOR device IN ('phone', 'tablet', 'desktop')) ORDER BY page;

-- web 25
UNPIVOT (SELECT COUNT(*) FILTER (WHERE status = 200) AS ok, COUNT(*) FILTER (WHERE status >= 400) AS bad FROM events) ON ok, bad INTO NAME outcome VALUE n;

-- web 26
SELECT page, n, NTILE(2) OVER (ORDER BY n) AS half, PERCENT_RANK() OVER (ORDER BY n) AS pr, CUME_DIST() OVER (ORDER BY n) AS cd FROM (SELECT page, COUNT(*) AS n FROM events GROUP BY page) t ORDER BY n;

-- web 27
SELECT page, n, FIRST_VALUE(page) OVER (ORDER BY n DESC) AS top, n / MAX(n) OVER () AS rel FROM (SELECT page, COUNT(*) AS n FROM events GROUP BY page) t;

-- web 28
SELECT string_agg(page, ', ' ORDER BY n DESC) AS pages FROM (SELECT page, COUNT(*) AS n FROM events GROUP BY page) t;

-- web 29
SELECT d, n, n - AVG(n) OVER () AS dev, (n - AVG(n) OVER ()) / STDDEV(n) OVER () AS z FROM (SELECT CAST(seen AS DATE) AS d, COUNT(*) AS n FROM events GROUP BY d) t ORDER BY d;

-- web 30
SELECT COUNT(*) FROM events e WHERE seen::DATE = DATE '2024-03-08' AND e.device != 'tablet';

-- web 31
SELECT COUNT(*) AS n FROM events WHERE page ILIKE '%CH%' AND NOT regexp_matches(page, 'search');

-- poll 1
SELECT gender, COUNT(*) AS n, AVG(satisfaction) AS sat, STDDEV(satisfaction) AS sd, COUNT(satisfaction) AS answered FROM survey GROUP BY gender;

-- poll 2
SELECT COUNT(*) FILTER (WHERE nps >= 9) * 100.0 / COUNT(*) - COUNT(*) FILTER (WHERE nps <= 6) * 100.0 / COUNT(*) AS nps FROM survey;

-- poll 3
SELECT city, (SUM(CASE WHEN nps >= 9 THEN 1 WHEN nps <= 6 THEN -1 ELSE 0 END) * 100.0) / COUNT(*) AS nps FROM survey GROUP BY city ORDER BY nps DESC;

-- poll 4
SELECT CASE WHEN age < 30 THEN '18-29' WHEN age < 50 THEN '30-49' WHEN age < 65 THEN '50-64' ELSE '65+' END AS grp, gender, AVG(nps) AS nps FROM survey GROUP BY grp, gender ORDER BY grp, gender;

-- poll 5
SELECT age // 10 * 10 AS decade, COUNT(*) AS n, AVG(income) AS income FROM survey GROUP BY decade ORDER BY decade;

-- poll 6
SELECT satisfaction, COUNT(*) AS n, ROUND(COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (), 1) AS pct FROM survey WHERE satisfaction IS NOT NULL GROUP BY satisfaction ORDER BY satisfaction;

-- poll 7
SELECT would_return, satisfaction >= 4 AS happy, COUNT(*) AS n FROM survey GROUP BY ALL;

-- poll 8
SELECT COUNT(*) FILTER (WHERE would_return) AS yes, COUNT(*) FILTER (WHERE NOT would_return) AS no, COUNT(*) FILTER (WHERE would_return IS NULL) AS unknown FROM survey;

-- poll 9
SELECT date_trunc('week', answered) AS w, COUNT(*) AS n FROM survey GROUP BY w ORDER BY w;

-- poll 10
SELECT answered - INTERVAL 1 DAY AS d, COUNT(*) AS n FROM survey WHERE city = 'Berlin' GROUP BY d ORDER BY d LIMIT 5;

-- poll 11
SELECT month(answered) AS m, AVG(satisfaction) AS sat, AVG(satisfaction) - LAG(AVG(satisfaction)) OVER (ORDER BY month(answered)) AS change FROM survey GROUP BY m ORDER BY m;

-- poll 12
SELECT CORR(age, nps) AS r, REGR_SLOPE(nps, age) AS slope, COVAR_SAMP(age, nps) AS cov FROM survey;

-- poll 13
SELECT gender, CORR(satisfaction, nps) AS r FROM survey GROUP BY gender;

-- poll 14
SELECT SUM((nps - 5) * (nps - 5)) / COUNT(*) AS msq, AVG(ABS(nps - 5)) AS mad FROM survey;

-- poll 15
SELECT city, STDDEV(nps) / AVG(nps) AS cv, SUM(DISTINCT nps) AS s FROM survey GROUP BY city;

-- poll 16
SELECT COUNT(*) AS n FROM survey WHERE city LIKE 'B%' AND age BETWEEN 25 AND 40 AND gender <> 'diverse' AND coalesce(satisfaction, 3) >= 3;

-- poll 17
SELECT substr(city, 1, 1) AS letter, COUNT(*) AS n FROM survey GROUP BY letter ORDER BY n DESC;

-- poll 18
SELECT city || ' / ' || gender AS cell, COUNT(*) AS n FROM survey GROUP BY cell ORDER BY cell;

-- poll 19
SELECT income >= 5000 AS rich, AVG(satisfaction) AS sat FROM survey GROUP BY rich;

-- poll 20
SELECT city, gender, COUNT(*) AS n, RANK() OVER (PARTITION BY gender ORDER BY COUNT(*) DESC) AS r FROM survey GROUP BY city, gender ORDER BY gender, r, city;

-- poll 21
SELECT city, AVG(nps) AS a FROM survey GROUP BY city HAVING AVG(nps) > (SELECT AVG(nps) FROM survey) ORDER BY city;

-- poll 22
SELECT MAX(a) - MIN(a) AS spread FROM (SELECT city, AVG(nps) AS a FROM survey GROUP BY city) t;

-- poll 23
SELECT s.city, s.n, t.n AS total FROM (SELECT city, COUNT(*) AS n FROM survey WHERE nps >= 9 GROUP BY city) s JOIN (SELECT city, COUNT(*) AS n FROM survey GROUP BY city) t USING (city) ORDER BY s.city;

-- poll 24
-- refused: E_AGGREGATE HISTOGRAM
SELECT HISTOGRAM(satisfaction) FROM survey;

-- poll 25
SELECT age, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY age) * 100.0 / SUM(COUNT(*)) OVER () AS cum_pct FROM survey WHERE age < 88 GROUP BY age ORDER BY age;

-- poll 26
SELECT gender, LIST(city ORDER BY n DESC)[1] AS best FROM (SELECT gender, city, COUNT(*) AS n FROM survey GROUP BY gender, city) t GROUP BY gender;

-- poll 27
SELECT TRUNC(age / 20) AS g, ENTROPY(nps) FROM survey GROUP BY g;
