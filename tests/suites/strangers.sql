-- Statements as strangers write them: in the styles of SmartNoise, Qrlew, Chorus, ZetaSQL, Snowflake, Tumult, PipelineDP, and analysts'.

-- SmartNoise 1
SELECT COUNT(*) AS n FROM adult;

-- SmartNoise 2
SELECT sex, COUNT(*) AS n, AVG(age) AS mean_age FROM adult GROUP BY sex ORDER BY sex;

-- SmartNoise 3
SELECT COUNT(age) AS c, SUM(age) AS s, AVG(age) AS a, VARIANCE(age) AS v, STDDEV(age) AS d FROM adult;

-- SmartNoise 4
SELECT education, income, COUNT(*) AS c FROM adult WHERE age > 30 GROUP BY education, income ORDER BY c DESC LIMIT 10;

-- SmartNoise 5
SELECT AVG(hours_per_week) AS h FROM adult WHERE education_num BETWEEN 9 AND 13;

-- SmartNoise 6
SELECT race, sex, COUNT(*) AS n FROM adult GROUP BY race, sex HAVING COUNT(*) > 50;

-- SmartNoise 7
SELECT marital_status, SUM(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS rich, COUNT(*) AS n FROM adult GROUP BY marital_status;

-- SmartNoise 8
SELECT marital_status, 100.0 * SUM(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) / COUNT(*) AS pct FROM adult GROUP BY marital_status;

-- SmartNoise 9
SELECT adult.sex AS gender, COUNT(DISTINCT occupation) AS occupations FROM adult GROUP BY adult.sex;

-- SmartNoise 10
SELECT SUM(capital_gain) AS total, AVG(capital_gain) AS mean FROM adult WHERE sex = 'Male';

-- SmartNoise 11
SELECT age // 10 * 10 AS decade, COUNT(*) AS n FROM adult GROUP BY 1 ORDER BY 1;

-- SmartNoise 12
SELECT FLOOR(age / 10) AS bucket, COUNT(*) AS n FROM adult GROUP BY bucket;

-- SmartNoise 13
SELECT COUNT(*) FROM (SELECT age, income FROM adult WHERE sex = 'Female') AS t WHERE t.income = '>50K';

-- SmartNoise 14
SELECT t.education AS e, AVG(t.age) AS a FROM (SELECT education, age FROM adult) AS t GROUP BY t.education;

-- SmartNoise 15
-- beyond: E_AGGREGATE exact extremes: one row decides
SELECT MIN(age), MAX(age) FROM adult;

-- SmartNoise 16
-- exact: SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation ORDER BY n DESC LIMIT 5
SELECT TOP 5 occupation, COUNT(*) AS n FROM adult GROUP BY occupation ORDER BY n DESC;

-- SmartNoise 17
SELECT SQRT(COUNT(*)) AS r, POWER(AVG(age), 2) AS p, ABS(SUM(age) - 100) AS d FROM adult;

-- SmartNoise 18
SELECT COUNT(*) AS n FROM adult WHERE (age, sex) = (30, 'Male') OR workclass LIKE 'Self%';

-- SmartNoise 19
SELECT UPPER(sex) AS s, COUNT(*) AS n FROM adult GROUP BY UPPER(sex);

-- SmartNoise 20
SELECT CASE WHEN age < 25 THEN 'young' WHEN age < 60 THEN 'adult' ELSE 'senior' END AS band, AVG(hours_per_week) AS h, COUNT(*) AS n FROM adult GROUP BY band;

-- Qrlew 1
SELECT AVG(age) AS avg_age FROM adult WHERE age > 20 AND age < 70;

-- Qrlew 2
WITH rich AS (SELECT * FROM adult WHERE income = '>50K') SELECT sex, COUNT(*) AS n, AVG(hours_per_week) AS h FROM rich GROUP BY sex;

-- Qrlew 3
WITH tab1 AS (SELECT age AS a, sex AS s FROM adult WHERE age > 25), tab2 AS (SELECT s, SUM(a) AS sa FROM tab1 GROUP BY s) SELECT * FROM tab2;

-- Qrlew 4
SELECT p.sex, SUM(v.cost) AS spent FROM visits AS v JOIN patients AS p ON v.patient_id = p.patient_id GROUP BY p.sex;

-- Qrlew 5
SELECT p.region, COUNT(DISTINCT v.patient_id) AS persons FROM visits v INNER JOIN patients p ON (p.patient_id = v.patient_id) WHERE v.ward IN ('surgery', 'eye') GROUP BY p.region;

-- Qrlew 6
SELECT COUNT(*) AS n, SUM(x) AS s FROM (SELECT 2 * days + 1 AS x FROM visits WHERE ward = 'eye') AS q;

-- Qrlew 7
SELECT SUM(quantity * price) AS revenue FROM items;

-- Qrlew 8
SELECT o.channel, SUM(i.quantity * i.price) AS revenue FROM items i JOIN orders o ON i.order_id = o.order_id GROUP BY o.channel;

-- Qrlew 9
SELECT c.country, o.channel, COUNT(*) AS n FROM orders o JOIN customers c USING (customer_id) GROUP BY c.country, o.channel;

-- Qrlew 10
SELECT c.country, SUM(i.quantity) AS pieces FROM customers c JOIN orders o ON o.customer_id = c.customer_id JOIN items i ON i.order_id = o.order_id WHERE c.newsletter GROUP BY c.country;

-- Qrlew 11
SELECT AVG(i.price) AS mean, STDDEV(i.price) AS sd FROM items i;

-- Qrlew 12
SELECT segment, COUNT(*) AS n FROM customers LEFT JOIN orders ON customers.customer_id = orders.customer_id GROUP BY segment;

-- Qrlew 13
SELECT COUNT(*) FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders);

-- Qrlew 14
SELECT pr.category, SUM(i.quantity) AS q FROM items i JOIN products pr ON i.product_id = pr.product_id GROUP BY pr.category;

-- Qrlew 15
SELECT pr.category, pr.brand, SUM(i.quantity * i.price) AS rev, SUM(i.quantity * pr.cost) AS cost FROM items i JOIN products pr ON i.product_id = pr.product_id GROUP BY pr.category, pr.brand;

-- Qrlew 16
WITH sales AS (SELECT o.order_date, i.quantity * i.price AS amount FROM orders o JOIN items i ON o.order_id = i.order_id) SELECT EXTRACT(month FROM order_date) AS m, SUM(amount) AS a FROM sales GROUP BY m ORDER BY m;

-- Chorus 1
SELECT count(*) FROM orders WHERE order_date > '2024-06-30';

-- Chorus 2
SELECT count(*) FROM orders o JOIN customers c ON o.customer_id = c.customer_id WHERE c.country = 'DE';

-- Chorus 3
SELECT o.channel, count(*) FROM orders o, customers c WHERE o.customer_id = c.customer_id AND c.segment = 'business' GROUP BY o.channel;

-- Chorus 4
SELECT count(distinct customer_id) FROM orders WHERE channel = 'web';

-- Chorus 5
SELECT avg(cnt) FROM (SELECT customer_id, count(*) AS cnt FROM orders GROUP BY customer_id) t;

-- Chorus 6
SELECT cnt, count(*) FROM (SELECT customer_id, count(*) AS cnt FROM orders WHERE channel <> 'phone' GROUP BY customer_id) t GROUP BY cnt ORDER BY cnt;

-- Chorus 7
SELECT count(*) FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING count(*) >= 5) frequent;

-- Chorus 8
SELECT count(*) FROM orders WHERE customer_id IN (SELECT customer_id FROM customers WHERE country = 'US');

-- Chorus 9
SELECT channel, sum(discount), avg(discount) FROM orders GROUP BY channel;

-- Chorus 10
SELECT date_trunc('month', order_date) AS month, count(*) FROM orders GROUP BY 1 ORDER BY 1;

-- Chorus 11
SELECT c.country, date_trunc('quarter', o.order_date) AS q, count(*) AS n FROM orders o JOIN customers c ON c.customer_id = o.customer_id GROUP BY 1, 2;

-- Chorus 12
SELECT count(*) FROM items i JOIN orders o ON i.order_id = o.order_id JOIN customers c ON o.customer_id = c.customer_id WHERE c.country = 'FR' AND i.quantity >= 3 AND o.channel = 'web';

-- Chorus 13
SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.ward = 'cardiology');

-- Chorus 14
SELECT count(*) FROM patients p JOIN visits v ON p.patient_id = v.patient_id AND v.ward = 'eye' AND p.age > 60;

-- Chorus 15
SELECT sex, count(*) FROM patients WHERE age IS NULL GROUP BY sex;

-- Chorus 16
SELECT v.ward, count(*) FROM visits v JOIN prescriptions r ON r.visit_id = v.visit_id WHERE r.drug = 'insulin' GROUP BY v.ward;

-- Chorus 17
SELECT count(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id WHERE a.ward = 'surgery' AND b.ward = 'eye';

-- Chorus 18
SELECT median(days) FROM visits WHERE ward = 'surgery';

-- ZetaSQL 1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20) channel, COUNT(*) AS n FROM orders GROUP BY channel;

-- ZetaSQL 2
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 10, delta = 1e-10, max_groups_contributed = 3) channel, COUNT(*) AS n FROM orders GROUP BY channel;

-- ZetaSQL 3
-- refused: E_PARSE bounds of rows are for quantiles
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20) item.product_id, AVG(item.quantity, contribution_bounds_per_row => (1, 5)) AS average_quantity FROM items AS item GROUP BY item.product_id;

-- ZetaSQL 4
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 10) SUM(quantity, contribution_bounds_per_group => (0, 400)) AS q FROM items;

-- ZetaSQL 5
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 10) COUNT(*, contribution_bounds_per_group => (0, 20)) AS n FROM orders;

-- ZetaSQL 6
-- exact: SELECT ward, QUANTILE_CONT(days, 0.5) AS med FROM visits GROUP BY ward
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20) ward, PERCENTILE_CONT(days, 0.5, contribution_bounds_per_row => (0, 60)) AS med FROM visits GROUP BY ward;

-- ZetaSQL 7
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20) ward, VAR_POP(days, contribution_bounds_per_row => (0, 60)) AS v, STDDEV_POP(days, contribution_bounds_per_row => (0, 60)) AS s FROM visits GROUP BY ward;

-- ZetaSQL 8
SELECT COUNTIF(quantity > 3) AS many, COUNTIF(price >= 64) AS dear FROM items;

-- ZetaSQL 9
SELECT EXTRACT(YEAR FROM order_date) AS y, EXTRACT(QUARTER FROM order_date) AS q, COUNT(*) AS n FROM orders GROUP BY y, q;

-- ZetaSQL 10
-- exact: SELECT strftime(order_date, '%Y-%m') AS ym, COUNT(*) AS n FROM orders GROUP BY ym
SELECT FORMAT_DATE('%Y-%m', order_date) AS ym, COUNT(*) AS n FROM orders GROUP BY ym;

-- ZetaSQL 11
-- exact: SELECT date_trunc('month', order_date) AS m, COUNT(*) AS n FROM orders GROUP BY m
SELECT DATE_TRUNC(order_date, MONTH) AS m, COUNT(*) AS n FROM orders GROUP BY m;

-- ZetaSQL 12
-- exact: SELECT SUM(discount) / COUNT(*) FROM orders
SELECT SAFE_DIVIDE(SUM(discount), COUNT(*)) AS r FROM orders;

-- ZetaSQL 13
SELECT IF(discount IS NULL, 'none', 'some') AS d, COUNT(*) AS n FROM orders GROUP BY d;

-- ZetaSQL 14
SELECT channel, COUNT(*) AS n FROM orders WHERE order_date BETWEEN '2024-03-01' AND '2024-03-31' GROUP BY channel;

-- ZetaSQL 15
-- exact: SELECT (order_date - DATE '2024-01-01') // 30 AS month_no, COUNT(*) AS n FROM orders GROUP BY month_no
SELECT DATE_DIFF(order_date, DATE '2024-01-01', DAY) // 30 AS month_no, COUNT(*) AS n FROM orders GROUP BY month_no;

-- ZetaSQL 16
SELECT IFNULL(discount, 0) AS d, COUNT(*) AS n FROM orders GROUP BY d;

-- ZetaSQL 17
SELECT channel, COUNT(*) AS n FROM orders GROUP BY channel QUALIFY RANK() OVER (ORDER BY COUNT(*) DESC) = 1;

-- ZetaSQL 18
SELECT channel, ANY_VALUE(channel) AS c, COUNT(*) AS n FROM orders GROUP BY channel;

-- ZetaSQL 19
-- exact: SELECT COUNT(DISTINCT customer_id) FROM orders
SELECT APPROX_COUNT_DISTINCT(customer_id) AS n FROM orders;

-- ZetaSQL 20
-- beyond: E_AGGREGATE whether any row is so: one row decides
SELECT LOGICAL_OR(newsletter) AS any_newsletter FROM customers;

-- ZetaSQL 21
SELECT COUNT(DISTINCT IF(channel = 'web', customer_id, NULL)) AS web_users FROM orders;

-- Snowflake 1
-- exact: SELECT channel, COUNT(*) AS n, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM orders GROUP BY channel
SELECT channel, COUNT(*) AS n, RATIO_TO_REPORT(COUNT(*)) OVER () AS share FROM orders GROUP BY channel;

-- Snowflake 2
-- exact: SELECT IF(country = 'US', 'domestic', 'foreign') AS where_, COUNT(*) AS n FROM customers GROUP BY where_
SELECT IFF(country = 'US', 'domestic', 'foreign') AS where_, COUNT(*) AS n FROM customers GROUP BY where_;

-- Snowflake 3
SELECT DATE_PART('month', order_date) AS m, COUNT(*) AS n FROM orders GROUP BY DATE_PART('month', order_date);

-- Snowflake 4
SELECT YEAR(signup) AS y, MONTH(signup) AS m, COUNT(*) AS n FROM customers GROUP BY ALL;

-- Snowflake 5
-- exact: SELECT COALESCE(discount, -1) AS d, COUNT(*) AS n FROM orders GROUP BY 1 HAVING COUNT(*) > 100
SELECT NVL(discount, -1) AS d, COUNT(*) AS n FROM orders GROUP BY 1 HAVING n > 100;

-- Snowflake 6
SELECT country, COUNT_IF(newsletter) AS yes, COUNT_IF(NOT newsletter) AS no FROM customers GROUP BY country;

-- Snowflake 7
-- exact: SELECT CASE channel WHEN 'web' THEN 1 WHEN 'shop' THEN 2 ELSE 3 END AS code, COUNT(*) AS n FROM orders GROUP BY code
SELECT DECODE(channel, 'web', 1, 'shop', 2, 3) AS code, COUNT(*) AS n FROM orders GROUP BY code;

-- Snowflake 8
-- exact: SELECT COALESCE(SUM(discount), 0) AS s FROM orders WHERE channel = 'phone'
SELECT ZEROIFNULL(SUM(discount)) AS s FROM orders WHERE channel = 'phone';

-- Snowflake 9
-- exact: SELECT date_trunc('month', order_date) + INTERVAL 1 MONTH AS next_month, COUNT(*) AS n FROM orders GROUP BY 1
SELECT DATEADD(month, 1, DATE_TRUNC('month', order_date)) AS next_month, COUNT(*) AS n FROM orders GROUP BY 1;

-- Snowflake 10
SELECT DATEDIFF('month', signup, DATE '2024-01-01') AS age_months, COUNT(*) AS n FROM customers GROUP BY age_months;

-- Snowflake 11
SELECT DAYNAME(order_date) AS d, COUNT(*) AS n FROM orders GROUP BY d;

-- Snowflake 12
-- exact: SELECT strftime(order_date, '%Y-%m') AS ym, COUNT(*) AS n FROM orders GROUP BY ym
SELECT TO_CHAR(order_date, 'YYYY-MM') AS ym, COUNT(*) AS n FROM orders GROUP BY ym;

-- Snowflake 13
-- exact: SELECT days // 10 + 1 AS b, COUNT(*) AS n FROM visits GROUP BY b
SELECT WIDTH_BUCKET(days, 0, 60, 6) AS b, COUNT(*) AS n FROM visits GROUP BY b;

-- Snowflake 14
-- exact: SELECT SUM(quantity) / COUNT(*) FROM items
SELECT DIV0(SUM(quantity), COUNT(*)) AS r FROM items;

-- Snowflake 15
SELECT country, segment, COUNT(*) AS n FROM customers GROUP BY GROUPING SETS ((country), (segment), ());

-- Snowflake 16
SELECT country, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, country) AS r FROM customers GROUP BY country;

-- Snowflake 17
SELECT m, n, SUM(n) OVER (ORDER BY m) AS running FROM (SELECT MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY 1) t ORDER BY m;

-- Snowflake 18
SELECT m, n - LAG(n) OVER (ORDER BY m) AS growth FROM (SELECT MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY 1) t ORDER BY m;

-- Snowflake 19
SELECT country, n, n * 1.0 / SUM(n) OVER () AS share FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY country) t;

-- Snowflake 20
-- refused: E_FUNCTION not a function of values that others have too
SELECT HASH(country) % 2 AS h, COUNT(*) AS n FROM customers GROUP BY h;

-- Snowflake 21
SELECT HOUR(arrived) AS h, COUNT(*) AS n FROM visits GROUP BY h ORDER BY h;

-- Snowflake 22
SELECT DAYOFWEEK(arrived) AS d, COUNT(*) AS n FROM visits GROUP BY d;

-- Tumult 1
SELECT country, COUNT(*) AS count FROM customers WHERE newsletter = TRUE GROUP BY country;

-- Tumult 2
-- refused: E_JOIN products that nobody bought are rows, too: COUNT(i.product_id) works
SELECT pr.category, COUNT(*) AS n FROM products pr LEFT JOIN items i ON i.product_id = pr.product_id GROUP BY pr.category;

-- Tumult 3
SELECT co.union_name, COUNT(*) AS n FROM customers c JOIN countries co ON c.country = co.code GROUP BY co.union_name;

-- Tumult 4
-- refused: E_AGGREGATE a public column is a key, or joined to the answer
SELECT co.union_name, COUNT(*) * 1.0 / MAX(co.millions) AS per_million FROM customers c JOIN countries co ON c.country = co.code GROUP BY co.union_name;

-- Tumult 5
SELECT co.code, co.millions, COUNT(*) AS n FROM customers c JOIN countries co ON c.country = co.code GROUP BY co.code, co.millions;

-- Tumult 6
SELECT x.country, x.n * 1.0 / co.millions AS rate FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY country) x JOIN countries co ON x.country = co.code;

-- Tumult 7
SELECT age_bin, income, COUNT(*) AS n FROM (SELECT CASE WHEN age <= 30 THEN '0-30' WHEN age <= 60 THEN '31-60' ELSE '61+' END AS age_bin, income FROM adult) t GROUP BY age_bin, income;

-- Tumult 8
SELECT QUANTILE_CONT(age, 0.25) AS q1, QUANTILE_CONT(age, 0.5) AS q2, QUANTILE_CONT(age, 0.75) AS q3 FROM adult;

-- Tumult 9
SELECT sex, QUANTILE_DISC(hours_per_week, 0.9) AS q FROM adult GROUP BY sex;

-- Tumult 10
SELECT education_num, AVG(age) AS a, STDDEV_SAMP(age) AS s, VAR_POP(age) AS v FROM adult GROUP BY education_num;

-- Tumult 11
SELECT COUNT(DISTINCT patient_id) AS n FROM visits WHERE arrived >= TIMESTAMP '2024-01-01 00:00:00';

-- Tumult 12
SELECT SUM(LEAST(GREATEST(days, 1), 10)) AS clipped FROM visits;

-- Tumult 13
SELECT SUM(price) AS s FROM items WHERE quantity = 1;

-- Tumult 14
SELECT COUNT(*) AS n FROM items WHERE price < 32;

-- Tumult 15
-- refused: E_BIN_EDGE prices are known by steps
SELECT COUNT(*) AS n FROM items WHERE price > 10;

-- Tumult 16
SELECT product_id, COUNT(*) AS n FROM items WHERE product_id IN (1, 2, 3) GROUP BY product_id;

-- Tumult 17
SELECT p.product_id, COUNT(i.order_id) AS n FROM products p LEFT JOIN items i ON p.product_id = i.product_id GROUP BY p.product_id;

-- PipelineDP 1
SELECT ward, SUM(cost) AS spent, COUNT(*) AS visits, COUNT(DISTINCT patient_id) AS visitors FROM visits GROUP BY ward;

-- PipelineDP 2
SELECT DAYOFWEEK(order_date) AS day, SUM(quantity * price) AS money FROM items JOIN orders USING (order_id) GROUP BY day;

-- PipelineDP 3
SELECT ward, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY days) AS p90 FROM visits GROUP BY ward;

-- PipelineDP 4
SELECT EXTRACT(hour FROM arrived) AS hour, AVG(days) AS d FROM visits GROUP BY hour;

-- PipelineDP 5
SELECT ward, VARIANCE(days) AS v FROM visits GROUP BY ward;

-- PipelineDP 6
-- within: 0.002
SELECT drug, SUM(packs * price) / SUM(packs) AS price_of_pack FROM prescriptions GROUP BY drug;

-- analyst 1
SELECT a.sex, a.n AS rich, b.n AS poor FROM (SELECT sex, COUNT(*) AS n FROM adult WHERE income = '>50K' GROUP BY sex) a JOIN (SELECT sex, COUNT(*) AS n FROM adult WHERE income = '<=50K' GROUP BY sex) b ON a.sex = b.sex;

-- analyst 2
SELECT education, rich * 1.0 / total AS share FROM (SELECT education, COUNT(*) FILTER (WHERE income = '>50K') AS rich, COUNT(*) AS total FROM adult GROUP BY education) t WHERE total > 100 ORDER BY share DESC;

-- analyst 3
SELECT (SELECT COUNT(*) FROM adult WHERE sex = 'Male') - (SELECT COUNT(*) FROM adult WHERE sex = 'Female') AS gap;

-- analyst 4
SELECT sex, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM adult) AS pct FROM adult GROUP BY sex;

-- analyst 5
SELECT AVG(n) AS mean_group, MAX(n) AS largest FROM (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) t;

-- analyst 6
SELECT occupation FROM adult GROUP BY occupation HAVING AVG(hours_per_week) > 42;

-- analyst 7
SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex UNION ALL SELECT 'all', COUNT(*) FROM adult;

-- analyst 8
SELECT DISTINCT sex, race FROM adult;

-- analyst 9
SELECT COUNT(*) FROM adult WHERE age > (SELECT AVG(age) FROM adult);

-- analyst 10
SELECT race, AVG(age) - (SELECT AVG(age) FROM adult) AS diff FROM adult GROUP BY race;

-- analyst 11
-- within: 0.03
SELECT CORR(age, hours_per_week) AS r, COVAR_POP(age, hours_per_week) AS c FROM adult;

-- analyst 12
SELECT REGR_SLOPE(hours_per_week, age) AS slope FROM adult;

-- analyst 13
SELECT SUM(age) FILTER (WHERE sex = 'Male') / SUM(age) AS share FROM adult;

-- analyst 14
SELECT COALESCE(NULLIF(workclass, '?'), 'unknown') AS w, COUNT(*) AS n FROM adult GROUP BY w;

-- analyst 15
SELECT LEFT(occupation, 4) AS o, COUNT(*) AS n FROM adult GROUP BY o;

-- analyst 16
SELECT education LIKE '%th' AS low, COUNT(*) AS n FROM adult GROUP BY low;

-- analyst 17
SELECT GREATEST(education_num, 8) AS g, COUNT(*) AS n FROM adult GROUP BY g;

-- analyst 18
SELECT age % 2 = 0 AS even, AVG(capital_gain) AS g FROM adult GROUP BY even;

-- analyst 19
SELECT COUNT(*) FROM adult WHERE age BETWEEN 20 AND 29 AND hours_per_week > age;

-- analyst 20
SELECT COUNT(*) FROM adult WHERE NOT (sex = 'Male' AND race <> 'White') OR native_country IN ('Cuba', 'India');

-- analyst 21
SELECT income, AVG(age * hours_per_week) AS x FROM adult GROUP BY income;

-- analyst 22
SELECT MODE(occupation) AS m FROM adult;

-- analyst 23
SELECT SUM(SQRT(age)) AS s, SUM(LN(age)) AS l, AVG(age * age) AS sq FROM adult;

-- analyst 24
-- refused: E_DOMAIN a measure without bins
SELECT COUNT(*) FROM adult WHERE capital_gain > 0;

-- analyst 25
SELECT COUNT(*) FROM adult WHERE capital_loss >= 1000;

-- analyst 26
SELECT sex, COUNT(*) AS n FROM adult GROUP BY ROLLUP (sex);

-- analyst 27
SELECT KURTOSIS(age) AS k, SKEWNESS(age) AS s FROM adult;

-- analyst 28
SELECT ntile, COUNT(*) AS groups, SUM(n) AS people FROM (SELECT age, COUNT(*) AS n, NTILE(4) OVER (ORDER BY age) AS ntile FROM adult WHERE age < 75 GROUP BY age) t GROUP BY ntile;

-- analyst 29
-- beyond: E_AGGREGATE rows as they are
SELECT STRING_AGG(sex, ',') AS s FROM adult;

-- analyst 30
-- beyond: E_NO_AGGREGATE rows as they are
SELECT * FROM adult LIMIT 5;

-- analyst 31
-- beyond: E_NO_AGGREGATE rows as they are
SELECT age, ROW_NUMBER() OVER (PARTITION BY sex ORDER BY age) AS r FROM adult;

-- analyst 32
SELECT sex, AVG(age) AS a, RANK() OVER (ORDER BY AVG(age) DESC) AS r FROM adult GROUP BY sex;

-- analyst 33
-- beyond: E_DOMAIN rows of single persons
SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id ORDER BY n DESC LIMIT 10;

-- analyst 34
SELECT segment, AVG(n) AS orders_each FROM (SELECT c.customer_id, c.segment, COUNT(o.order_id) AS n FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.customer_id, c.segment) t GROUP BY segment;

-- analyst 35
SELECT AVG(total) AS mean_basket FROM (SELECT order_id, SUM(quantity) AS total FROM items GROUP BY order_id) t;

-- analyst 36
SELECT COUNT(*) AS n FROM (SELECT customer_id, COUNT(DISTINCT channel) AS k FROM orders GROUP BY customer_id) t WHERE k = 3;

-- analyst 37
SELECT channel, COUNT(*) FROM (SELECT DISTINCT customer_id, channel FROM orders) t GROUP BY channel;

-- analyst 38
-- refused: E_WINDOW an order by a key
SELECT first_channel, COUNT(*) AS n FROM (SELECT customer_id, FIRST_VALUE(channel) OVER (PARTITION BY customer_id ORDER BY order_date, order_id) AS first_channel, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_date, order_id) AS k FROM orders) t WHERE k = 1 GROUP BY first_channel;

-- analyst 39
SELECT country, COUNT(*) AS buyers FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND o.channel = 'phone') GROUP BY country;

-- analyst 40
SELECT channel, COUNT(*) AS big FROM orders o WHERE o.order_id IN (SELECT order_id FROM items WHERE quantity = 5) GROUP BY channel;

-- analyst 41
SELECT channel, COUNT(*) AS n FROM orders WHERE EXTRACT(dow FROM order_date) IN (0, 6) GROUP BY channel;

-- analyst 42
SELECT channel, COUNT(*) AS n FROM orders WHERE order_date >= DATE '2024-12-31' - INTERVAL 90 DAY GROUP BY channel;

-- analyst 43
SELECT order_date - DATE '2024-01-01' AS day_no, COUNT(*) AS n FROM orders WHERE order_date < DATE '2024-01-08' GROUP BY day_no;

-- analyst 44
SELECT strftime(order_date, '%Y-%m') AS ym, COUNT(*) AS n FROM orders GROUP BY ym;

-- analyst 45
SELECT last_day(order_date) AS ends, COUNT(*) AS n FROM orders GROUP BY ends;

-- analyst 46
-- refused: E_BIN_EDGE signup is known by month
SELECT COUNT(*) FROM orders o JOIN customers c USING (customer_id) WHERE o.order_date > c.signup;

-- analyst 47
SELECT m, AVG(n) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS smooth FROM (SELECT MONTH(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY m) t;

-- analyst 48
WITH monthly AS (SELECT MONTH(order_date) AS m, channel, COUNT(*) AS n FROM orders GROUP BY m, channel) SELECT m, MAX(n) AS best FROM monthly GROUP BY m;

-- analyst 49
WITH a AS (SELECT channel, COUNT(*) AS n FROM orders WHERE order_date < '2024-07-01' GROUP BY channel), b AS (SELECT channel, COUNT(*) AS n FROM orders WHERE order_date >= '2024-07-01' GROUP BY channel) SELECT a.channel, b.n - a.n AS growth FROM a JOIN b USING (channel);

-- analyst 50
-- within: 0.01
SELECT channel, SUM(i.quantity * i.price * (1 - COALESCE(o.discount, 0) / 100.0)) AS net FROM items i JOIN orders o USING (order_id) GROUP BY channel;

-- analyst 51
SELECT AVG(i.price) FILTER (WHERE p.category = 'books') AS books, AVG(i.price) FILTER (WHERE p.category = 'food') AS food FROM items i JOIN products p USING (product_id);

-- analyst 52
SELECT c.country, p.category, SUM(i.quantity) AS q FROM items i JOIN orders o USING (order_id) JOIN customers c USING (customer_id) JOIN products p USING (product_id) GROUP BY ALL;

-- analyst 53
SELECT p.category, COUNT(*) AS n FROM items i, products p WHERE i.product_id = p.product_id AND p.cost > 10 GROUP BY p.category;

-- analyst 54
-- refused: E_BIN_EDGE prices are known by steps
SELECT COUNT(*) FROM items i JOIN products p ON i.product_id = p.product_id WHERE i.price < p.cost;

-- analyst 55
SELECT category, n FROM (SELECT p.category, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM items i JOIN products p USING (product_id) GROUP BY p.category) t WHERE r <= 2;

-- analyst 56
SELECT region, sex, AVG(age) AS a FROM patients GROUP BY CUBE (region, sex);

-- analyst 57
SELECT v.ward, AVG(p.age) AS mean_age, COUNT(*) AS n FROM visits v JOIN patients p USING (patient_id) WHERE p.age IS NOT NULL GROUP BY v.ward ORDER BY mean_age DESC;

-- analyst 58
SELECT p.region, AVG(x.n) AS visits_each FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) x JOIN patients p USING (patient_id) GROUP BY p.region;

-- analyst 59
SELECT drug, COUNT(*) AS n FROM prescriptions r JOIN visits v USING (visit_id) WHERE v.days > 7 GROUP BY drug ORDER BY n DESC LIMIT 3;

-- analyst 60
SELECT ward, COUNT(*) AS n FROM visits WHERE date_trunc('year', arrived) = DATE '2024-01-01' GROUP BY ward;

-- analyst 61
-- refused: E_BIN_EDGE the last midnight is within an hour
SELECT ward, COUNT(*) AS n FROM visits WHERE arrived BETWEEN '2024-01-01' AND '2024-06-30' GROUP BY ward;

-- analyst 62
-- refused: E_BIN_EDGE cost >= 1000 works
SELECT ward, SUM(cost) AS s FROM visits WHERE cost > 1000 GROUP BY ward;

-- analyst 63
SELECT CASE WHEN cost < 500 THEN 'low' WHEN cost < 2000 THEN 'mid' WHEN cost IS NULL THEN 'unknown' ELSE 'high' END AS band, COUNT(*) AS n FROM visits GROUP BY band;

-- analyst 64
-- refused: E_BIN_EDGE the last bin holds its upper edge, which FLOOR tells from the rest
SELECT width, COUNT(*) AS n FROM (SELECT FLOOR(cost / 500) * 500 AS width FROM visits) t GROUP BY width;
