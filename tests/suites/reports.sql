-- Reports as analysts of a hospital, a shop and a web server write them for DuckDB; 150 more.

-- clinic 1
SELECT ward, COUNT(*) AS admissions, ROUND(AVG(days), 2) AS mean_stay FROM visits GROUP BY ward ORDER BY admissions DESC;

-- clinic 2
SELECT year(arrived) AS yr, month(arrived) AS mon, COUNT(*) AS admissions FROM visits GROUP BY yr, mon ORDER BY yr, mon;

-- clinic 3
SELECT strftime(arrived, '%Y-%m') AS month, ward, COUNT(*) AS n FROM visits WHERE ward IN ('emergency', 'surgery') GROUP BY month, ward ORDER BY month, ward;

-- clinic 4
SELECT date_trunc('quarter', arrived) AS quarter, SUM(cost) AS total_cost FROM visits GROUP BY quarter ORDER BY quarter;

-- clinic 5
SELECT CASE WHEN hour(arrived) BETWEEN 8 AND 17 THEN 'day' WHEN hour(arrived) BETWEEN 18 AND 23 THEN 'evening' ELSE 'night' END AS shift, COUNT(*) AS n FROM visits GROUP BY shift;

-- clinic 6
SELECT dayname(arrived) AS weekday, COUNT(*) AS n FROM visits WHERE ward = 'emergency' GROUP BY weekday;

-- clinic 7
SELECT ward, COUNT(*) FILTER (WHERE days = 0) AS same_day, COUNT(*) FILTER (WHERE days > 7) AS long_stay FROM visits GROUP BY ward;

-- clinic 8
SELECT ward, 100.0 * COUNT(*) FILTER (WHERE days > 7) / COUNT(*) AS pct_long FROM visits GROUP BY ward HAVING COUNT(*) > 50;

-- clinic 9
SELECT ward, MEDIAN(days) AS median_stay, QUANTILE_CONT(days, 0.9) AS p90 FROM visits GROUP BY ward;

-- clinic 10
SELECT COUNT(DISTINCT patient_id) AS patients, COUNT(*) AS visits, COUNT(*) * 1.0 / COUNT(DISTINCT patient_id) AS visits_per_patient FROM visits;

-- clinic 11
SELECT p.region, COUNT(*) AS visits, COUNT(DISTINCT v.patient_id) AS patients FROM visits v JOIN patients p ON v.patient_id = p.patient_id GROUP BY p.region;

-- clinic 12
SELECT p.sex, v.ward, AVG(v.days) AS mean_stay FROM visits AS v INNER JOIN patients AS p USING (patient_id) GROUP BY p.sex, v.ward ORDER BY v.ward, p.sex;

-- clinic 13
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'senior' END AS age_group, COUNT(*) AS n FROM patients GROUP BY age_group;

-- clinic 14
SELECT region, AVG(age) AS mean_age, STDDEV_SAMP(age) AS sd_age FROM patients GROUP BY region;

-- clinic 15
SELECT region, COUNT(*) AS n, SUM(CASE WHEN age IS NULL THEN 1 ELSE 0 END) AS missing_age FROM patients GROUP BY region;

-- clinic 16
SELECT n_visits, COUNT(*) AS patients FROM (SELECT patient_id, COUNT(*) AS n_visits FROM visits GROUP BY patient_id) GROUP BY n_visits ORDER BY n_visits;

-- clinic 17
SELECT COUNT(*) AS frequent FROM (SELECT patient_id FROM visits GROUP BY patient_id HAVING COUNT(*) >= 5) t;

-- clinic 18
SELECT AVG(total_days) AS mean_days FROM (SELECT patient_id, SUM(days) AS total_days FROM visits GROUP BY patient_id) t;

-- clinic 19
SELECT drug, COUNT(*) AS scripts, SUM(packs) AS packs FROM prescriptions GROUP BY drug ORDER BY packs DESC LIMIT 5;

-- clinic 20
SELECT drug, SUM(packs * price) AS revenue FROM prescriptions GROUP BY drug ORDER BY revenue DESC;

-- clinic 21
SELECT v.ward, pr.drug, COUNT(*) AS n FROM prescriptions pr JOIN visits v ON v.visit_id = pr.visit_id GROUP BY v.ward, pr.drug ORDER BY n DESC;

-- clinic 22
SELECT p.sex, pr.drug, COUNT(DISTINCT p.patient_id) AS patients FROM patients p JOIN visits v USING (patient_id) JOIN prescriptions pr USING (visit_id) GROUP BY ALL;

-- clinic 23
SELECT ward, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS rnk FROM visits GROUP BY ward ORDER BY rnk;

-- clinic 24
SELECT month, n, n - LAG(n) OVER (ORDER BY month) AS change FROM (SELECT date_trunc('month', arrived) AS month, COUNT(*) AS n FROM visits GROUP BY 1) t ORDER BY month;

-- clinic 25
WITH monthly AS (SELECT date_trunc('month', arrived) AS m, COUNT(*) AS n FROM visits GROUP BY m) SELECT m, n, AVG(n) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS moving_avg FROM monthly ORDER BY m;

-- clinic 26
SELECT ward, SUM(cost) / COUNT(DISTINCT patient_id) AS cost_per_patient FROM visits GROUP BY ward;

-- clinic 27
SELECT region, COUNT(*) AS without_visit FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id) GROUP BY region;

-- clinic 28
SELECT COUNT(*) AS diabetics FROM patients WHERE patient_id IN (SELECT v.patient_id FROM visits v JOIN prescriptions r USING (visit_id) WHERE r.drug IN ('insulin', 'metformin'));

-- clinic 29
SELECT ward, AVG(cost) AS avg_cost, AVG(cost) - (SELECT AVG(cost) FROM visits) AS vs_hospital FROM visits GROUP BY ward;

-- clinic 30
SELECT ward, year(arrived) AS yr, COUNT(*) AS n FROM visits GROUP BY CUBE (ward, yr) ORDER BY ward NULLS LAST, yr NULLS LAST;

-- clinic 31
SELECT COALESCE(region, 'total') AS region, COUNT(*) AS n FROM patients GROUP BY ROLLUP (region);

-- clinic 32
SELECT ward, COUNT(*) AS n FROM visits WHERE arrived >= DATE '2024-01-01' AND arrived < DATE '2024-04-01' GROUP BY ward;

-- clinic 33
SELECT COUNT(*) AS weekend FROM visits WHERE dayofweek(arrived) IN (0, 6);

-- clinic 34
SELECT ward, COUNT(cost) AS billed, COUNT(*) - COUNT(cost) AS unbilled FROM visits GROUP BY ward;

-- clinic 35
SELECT CAST(FLOOR(age / 20) AS INT) AS bucket, COUNT(*) AS n FROM patients WHERE age IS NOT NULL GROUP BY bucket;

-- clinic 36
SELECT age // 10 * 10 AS decade, sex, COUNT(*) AS n FROM patients WHERE age IS NOT NULL GROUP BY decade, sex ORDER BY decade;

-- clinic 37
SELECT first_ward, COUNT(*) AS n FROM (SELECT patient_id, ward AS first_ward FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY arrived) = 1) t GROUP BY first_ward;

-- clinic 38
SELECT COUNT(*) AS readmitted FROM (SELECT patient_id, arrived, LAG(arrived) OVER (PARTITION BY patient_id ORDER BY arrived) AS prev FROM visits) t WHERE date_diff('day', prev, arrived) <= 30;

-- clinic 39
SELECT ward, VAR_SAMP(days) AS v, SKEWNESS(days) AS s FROM visits GROUP BY ward;

-- clinic 40
-- within: 0.01
SELECT CORR(days, cost) AS r FROM visits;

-- clinic 41
SELECT REGR_SLOPE(cost, days) AS per_day, REGR_INTERCEPT(cost, days) AS base FROM visits;

-- clinic 42
SELECT ward, list(month ORDER BY month) AS busy_months FROM (SELECT ward, month(arrived) AS month, COUNT(*) AS n FROM visits GROUP BY 1, 2 HAVING COUNT(*) > 20) t GROUP BY ward;

-- clinic 43
SELECT ward, arg_max(month, n) AS peak_month, MAX(n) AS peak FROM (SELECT ward, monthname(arrived) AS month, COUNT(*) AS n FROM visits GROUP BY 1, 2) t GROUP BY ward;

-- clinic 44
SELECT ward, COUNT(DISTINCT month(arrived)) AS active_months FROM visits WHERE days > 20 GROUP BY ward;

-- clinic 45
-- refused: E_DOMAIN a measure without bins
SELECT COUNT(DISTINCT drug) AS drugs_used FROM prescriptions WHERE packs = 5 AND price > 48;

-- clinic 46
PIVOT (SELECT ward, year(arrived) AS yr FROM visits) ON yr IN (2023, 2024) USING COUNT(*) GROUP BY ward;

-- clinic 47
FROM visits SELECT ward, COUNT(*) AS n GROUP BY ward;

-- clinic 48
SELECT ward, SUM(days) AS bed_days, ROUND(100 * SUM(days) / SUM(SUM(days)) OVER (), 1) AS share FROM visits GROUP BY ward ORDER BY share DESC;

-- clinic 49
SELECT p.region, SUM(v.cost) AS cost, COUNT(DISTINCT p.patient_id) AS patients, SUM(v.cost) / COUNT(DISTINCT p.patient_id) AS per_patient FROM patients p LEFT JOIN visits v USING (patient_id) GROUP BY p.region;

-- clinic 50
SELECT 'all' AS grp, COUNT(*) AS n FROM patients UNION ALL SELECT sex, COUNT(*) FROM patients GROUP BY sex;

-- retail 1
SELECT channel, COUNT(*) AS orders, COUNT(DISTINCT customer_id) AS buyers FROM orders GROUP BY channel;

-- retail 2
SELECT date_trunc('month', o.order_date) AS month, SUM(i.quantity * i.price) AS revenue FROM orders o JOIN items i USING (order_id) GROUP BY month ORDER BY month;

-- retail 3
SELECT p.category, SUM(i.quantity) AS units, SUM(i.quantity * i.price) AS revenue FROM items i JOIN products p USING (product_id) GROUP BY p.category ORDER BY revenue DESC;

-- retail 4
SELECT p.name, SUM(i.quantity) AS units FROM items i JOIN products p ON p.product_id = i.product_id GROUP BY p.name ORDER BY units DESC LIMIT 10;

-- retail 5
SELECT p.brand, p.category, COUNT(*) AS lines FROM items i JOIN products p USING (product_id) GROUP BY GROUPING SETS ((p.brand, p.category), (p.brand), ());

-- retail 6
SELECT c.country, COUNT(DISTINCT o.customer_id) AS buyers, COUNT(*) AS orders FROM customers c JOIN orders o USING (customer_id) GROUP BY c.country ORDER BY orders DESC;

-- retail 7
-- refused: E_AGGREGATE orders are told by a column without a domain
SELECT c.segment, SUM(i.quantity * i.price) / COUNT(DISTINCT o.order_id) AS basket FROM customers c JOIN orders o USING (customer_id) JOIN items i USING (order_id) GROUP BY c.segment;

-- retail 8
SELECT k.union_name, COUNT(*) AS customers FROM customers c JOIN countries k ON k.code = c.country GROUP BY k.union_name;

-- retail 9
SELECT discount, COUNT(*) AS n FROM orders WHERE discount IS NOT NULL GROUP BY discount ORDER BY discount;

-- retail 10
SELECT channel, AVG(COALESCE(discount, 0)) AS mean_discount FROM orders GROUP BY channel;

-- retail 11
SELECT channel, COUNT(*) FILTER (WHERE discount > 0) * 100.0 / COUNT(*) AS pct_discounted FROM orders GROUP BY channel;

-- retail 12
SELECT dayname(order_date) AS d, isodow(order_date) AS i, COUNT(*) AS n FROM orders GROUP BY d, i ORDER BY i;

-- retail 13
SELECT weekofyear(order_date) AS wk, COUNT(*) AS n FROM orders GROUP BY wk ORDER BY wk;

-- retail 14
SELECT order_date, COUNT(*) AS n FROM orders WHERE order_date BETWEEN DATE '2024-11-25' AND DATE '2024-12-01' GROUP BY order_date ORDER BY order_date;

-- retail 15
SELECT month(order_date) AS m, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY month(order_date)) AS ytd FROM orders GROUP BY m ORDER BY m;

-- retail 16
WITH m AS (SELECT month(order_date) AS mo, channel, COUNT(*) AS n FROM orders GROUP BY ALL) SELECT mo, channel, n, n * 1.0 / SUM(n) OVER (PARTITION BY mo) AS share FROM m ORDER BY mo, channel;

-- retail 17
WITH per_customer AS (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) SELECT CASE WHEN n = 1 THEN 'once' WHEN n < 5 THEN 'some' ELSE 'loyal' END AS kind, COUNT(*) AS customers FROM per_customer GROUP BY kind;

-- retail 18
SELECT AVG(n) AS mean_orders, MEDIAN(n) AS median_orders FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id);

-- retail 19
SELECT COUNT(*) AS repeat_buyers FROM (SELECT customer_id, COUNT(*) AS n FROM orders WHERE channel = 'web' GROUP BY customer_id) WHERE n > 1;

-- retail 20
SELECT country, COUNT(*) AS inactive FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders) GROUP BY country;

-- retail 21
SELECT c.country, COUNT(o.order_date) AS orders FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.country;

-- retail 22
SELECT date_trunc('month', signup) AS cohort, COUNT(*) AS signups FROM customers GROUP BY cohort ORDER BY cohort;

-- retail 23
SELECT year(signup) AS y, quarter(signup) AS q, COUNT(*) AS n FROM customers GROUP BY y, q ORDER BY y, q;

-- retail 24
SELECT segment, newsletter, COUNT(*) AS n FROM customers GROUP BY segment, newsletter;

-- retail 25
SELECT segment, AVG(newsletter::INT) AS opt_in FROM customers GROUP BY segment;

-- retail 26
SELECT country, COUNT(*) FILTER (newsletter) AS subscribed FROM customers GROUP BY country;

-- retail 27
SELECT p.category, o.channel, SUM(i.quantity) AS units FROM orders o JOIN items i USING (order_id) JOIN products p USING (product_id) GROUP BY p.category, o.channel;

-- retail 28
SELECT p.category, SUM(i.quantity * (i.price - p.cost)) AS margin FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- retail 29
SELECT i.product_id, SUM(i.quantity) AS units, RANK() OVER (ORDER BY SUM(i.quantity) DESC) AS r FROM items i GROUP BY i.product_id QUALIFY r <= 3;

-- retail 30
SELECT quantity, COUNT(*) AS lines, AVG(price) AS mean_price FROM items GROUP BY quantity ORDER BY quantity;

-- retail 31
SELECT COUNT(*) AS lines, SUM(quantity) AS units, SUM(quantity * price) AS revenue, AVG(price) AS mean_price FROM items;

-- retail 32
SELECT FLOOR(price / 32) * 32 AS band, COUNT(*) AS n FROM items GROUP BY band ORDER BY band;

-- retail 33
SELECT COUNT(DISTINCT order_date) AS trading_days FROM orders WHERE channel = 'phone';

-- retail 34
SELECT month(order_date) AS m, COUNT(DISTINCT order_date) AS days, COUNT(*) * 1.0 / COUNT(DISTINCT order_date) AS per_day FROM orders GROUP BY m ORDER BY m;

-- retail 35
SELECT p.category, COUNT(DISTINCT i.product_id) AS products_sold, (SELECT COUNT(*) FROM products q WHERE q.category = p.category) AS in_range FROM items i JOIN products p USING (product_id) GROUP BY p.category;

-- retail 36
SELECT string_agg(channel, ' > ' ORDER BY n DESC) AS ranking FROM (SELECT channel, COUNT(*) AS n FROM orders GROUP BY channel);

-- retail 37
-- within: 0.1
SELECT channel, first_order_month, COUNT(*) AS n FROM (SELECT customer_id, channel, month(order_date) AS first_order_month, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_date) AS rn FROM orders) WHERE rn = 1 GROUP BY channel, first_order_month;

-- retail 38
SELECT gap, COUNT(*) AS n FROM (SELECT date_diff('day', LAG(order_date) OVER (PARTITION BY customer_id ORDER BY order_date), order_date) AS gap FROM orders) WHERE gap IS NOT NULL GROUP BY gap ORDER BY gap;

-- retail 39
SELECT CASE WHEN discount IS NULL THEN 'none' WHEN discount < 20 THEN 'low' ELSE 'high' END AS lvl, SUM(i.quantity) AS units FROM orders o JOIN items i ON o.order_id = i.order_id GROUP BY lvl;

-- retail 40
SELECT c.country, c.segment, COUNT(*) AS n FROM customers c SEMI JOIN orders o ON o.customer_id = c.customer_id GROUP BY ALL;

-- retail 41
SELECT c.country, c.segment, COUNT(*) AS n FROM customers c ANTI JOIN orders o ON o.customer_id = c.customer_id GROUP BY ALL;

-- retail 42
SELECT country, n, ROUND(n * 100.0 / SUM(n) OVER (), 1) || '%' AS share FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY country);

-- retail 43
SELECT country, COUNT(*) AS customers, COUNT(*) * 1e6 / (SELECT k.millions * 1000000 FROM countries k WHERE k.code = country) AS per_million FROM customers GROUP BY country;

-- retail 44
SELECT o.channel, COUNT(*) AS n FROM orders o JOIN customers c USING (customer_id) WHERE c.country <> 'US' AND o.discount >= 10 GROUP BY o.channel;

-- retail 45
SELECT channel, COUNT(*) AS n FROM orders WHERE order_date >= '2024-06-01' AND order_date < '2024-07-01' GROUP BY 1 ORDER BY 2 DESC;

-- retail 46
SELECT last_day(order_date) AS month_end, COUNT(*) AS n FROM orders GROUP BY month_end ORDER BY month_end;

-- retail 47
SELECT channel, COUNT(*) AS n FROM orders WHERE month(order_date) = 12 OR (month(order_date) = 11 AND day(order_date) > 24) GROUP BY channel;

-- retail 48
SELECT channel, SUM(n) AS n FROM (SELECT channel, month(order_date) AS m, COUNT(*) AS n FROM orders GROUP BY ALL) GROUP BY ROLLUP (channel);

-- web log 1
SELECT page, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS users FROM events GROUP BY page ORDER BY hits DESC;

-- web log 2
SELECT date_trunc('hour', seen) AS hour, COUNT(*) AS hits FROM events WHERE seen >= '2024-03-10' AND seen < '2024-03-11' GROUP BY hour ORDER BY hour;

-- web log 3
SELECT seen::DATE AS day, COUNT(*) AS hits, COUNT(DISTINCT user_id) AS dau FROM events GROUP BY day ORDER BY day;

-- web log 4
SELECT hour(seen) AS h, COUNT(*) AS hits FROM events GROUP BY h ORDER BY h;

-- web log 5
SELECT status // 100 AS class, COUNT(*) AS n FROM events GROUP BY class ORDER BY class;

-- web log 6
SELECT page, COUNT(*) FILTER (WHERE status >= 500) * 100.0 / COUNT(*) AS error_rate FROM events GROUP BY page ORDER BY error_rate DESC;

-- web log 7
-- within: 0.02
SELECT device, AVG(ms) AS mean_ms, QUANTILE_CONT(ms, 0.95) AS p95 FROM events WHERE ms IS NOT NULL GROUP BY device;

-- web log 8
-- within: 0.02
SELECT page, approx_quantile(ms, 0.5) AS p50, approx_quantile(ms, 0.99) AS p99 FROM events GROUP BY page;

-- web log 9
SELECT COALESCE(referrer, 'direct') AS source, COUNT(*) AS n FROM events GROUP BY source ORDER BY n DESC;

-- web log 10
SELECT device, page, COUNT(*) AS n FROM events WHERE status = 200 GROUP BY device, page ORDER BY device, n DESC;

-- web log 11
SELECT day, hits, AVG(hits) OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS week_avg FROM (SELECT CAST(seen AS DATE) AS day, COUNT(*) AS hits FROM events GROUP BY day) ORDER BY day;

-- web log 12
SELECT strftime(seen, '%a') AS wd, COUNT(*) AS n FROM events GROUP BY wd;

-- web log 13
SELECT COUNT(*) FILTER (WHERE page = '/product') AS views, COUNT(*) FILTER (WHERE page = '/cart') AS carts, COUNT(*) FILTER (WHERE page = '/checkout') AS checkouts FROM events;

-- web log 14
WITH u AS (SELECT user_id, MAX(CASE WHEN page = '/product' THEN 1 ELSE 0 END) AS saw, MAX(CASE WHEN page = '/cart' THEN 1 ELSE 0 END) AS carted, MAX(CASE WHEN page = '/checkout' THEN 1 ELSE 0 END) AS bought FROM events GROUP BY user_id) SELECT SUM(saw) AS saw, SUM(carted) AS carted, SUM(bought) AS bought FROM u;

-- web log 15
SELECT hits, COUNT(*) AS users FROM (SELECT user_id, COUNT(*) AS hits FROM events GROUP BY user_id) GROUP BY hits ORDER BY hits;

-- web log 16
SELECT AVG(pages) AS mean_pages FROM (SELECT user_id, COUNT(DISTINCT page) AS pages FROM events GROUP BY user_id);

-- web log 17
SELECT device, COUNT(DISTINCT user_id) AS users FROM events WHERE page = '/checkout' AND status = 200 GROUP BY device;

-- web log 18
SELECT COUNT(*) AS users_with_errors FROM (SELECT user_id FROM events WHERE status IN (404, 500) GROUP BY user_id);

-- web log 19
SELECT active_days, COUNT(*) AS users FROM (SELECT user_id, COUNT(DISTINCT seen::DATE) AS active_days FROM events GROUP BY user_id) GROUP BY active_days ORDER BY active_days;

-- web log 20
-- within: 0.05
SELECT landing, COUNT(*) AS users FROM (SELECT DISTINCT ON (user_id) user_id, page AS landing FROM events ORDER BY user_id, seen) GROUP BY landing;

-- web log 21
-- within: 0.05
SELECT landing, COUNT(*) AS users FROM (SELECT user_id, FIRST_VALUE(page) OVER (PARTITION BY user_id ORDER BY seen) AS landing, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY seen) AS k FROM events) WHERE k = 1 GROUP BY landing;

-- web log 22
-- within: 0.05
SELECT page, next_page, COUNT(*) AS n FROM (SELECT page, LEAD(page) OVER (PARTITION BY user_id ORDER BY seen) AS next_page FROM events) WHERE next_page IS NOT NULL GROUP BY page, next_page ORDER BY n DESC;

-- web log 23
SELECT page, COUNT(*) AS n FROM events WHERE page LIKE '/c%' GROUP BY page;

-- web log 24
SELECT page, COUNT(*) AS n FROM events WHERE regexp_matches(page, '^/(cart|checkout)$') GROUP BY page;

-- web log 25
SELECT page, COUNT(*) AS n FROM events WHERE referrer IS NOT DISTINCT FROM 'google' GROUP BY page;

-- web log 26
SELECT device, SUM(ms) / 1000 AS seconds FROM events GROUP BY device;

-- web log 27
SELECT time_bucket(INTERVAL '6 hours', seen) AS bucket, COUNT(*) AS n FROM events WHERE seen < '2024-03-04' GROUP BY bucket ORDER BY bucket;

-- web log 28
SELECT date_part('week', seen) AS week, device, COUNT(*) AS n FROM events GROUP BY week, device ORDER BY week, device;

-- web log 29
SELECT day(seen) AS d, COUNT(*) AS n, COUNT(*) > 150 AS busy FROM events GROUP BY d ORDER BY d;

-- web log 30
SELECT MIN(n) AS quietest, MAX(n) AS busiest, AVG(n) AS typical FROM (SELECT seen::DATE AS d, COUNT(*) AS n FROM events GROUP BY d);

-- web log 31
SELECT hour(seen) AS h, COUNT(*) AS n FROM events GROUP BY h ORDER BY n DESC LIMIT 3;

-- web log 32
SELECT device, page, n FROM (SELECT device, page, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY device ORDER BY COUNT(*) DESC) AS r FROM events GROUP BY device, page) WHERE r = 1;

-- web log 33
SELECT device, COUNT(*) AS n, COUNT(*) FILTER (WHERE ms IS NULL) AS untimed, COUNT(ms) AS timed FROM events GROUP BY device;

-- web log 34
SELECT device, SUM(CASE status WHEN 200 THEN 1 ELSE 0 END) AS ok, SUM(CASE WHEN status <> 200 THEN 1 ELSE 0 END) AS bad FROM events GROUP BY device;

-- web log 35
SELECT status, COUNT(*) AS n, ROUND(COUNT(*) * 100.0 / (SELECT COUNT(*) FROM events), 2) AS pct FROM events GROUP BY status;

-- web log 36
SELECT referrer, device, COUNT(*) AS n FROM events GROUP BY ROLLUP (referrer, device) HAVING GROUPING(referrer) = 0;

-- web log 37
SELECT d, n, n > LAG(n) OVER (ORDER BY d) AS up FROM (SELECT seen::DATE AS d, COUNT(*) AS n FROM events GROUP BY d);

-- web log 38
SELECT COUNT(*) AS n FROM events WHERE hour(seen) < 6 AND device = 'phone' AND status = 200;

-- web log 39
-- within: 0.02
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS median_ms FROM events WHERE page = '/search';

-- web log 40
SELECT ntile_ms, COUNT(*) AS n FROM (SELECT CASE WHEN ms < 200 THEN 'fast' WHEN ms < 800 THEN 'ok' ELSE 'slow' END AS ntile_ms FROM events WHERE ms IS NOT NULL) GROUP BY ntile_ms;

-- web log 41
SELECT a.day, a.n AS phone, b.n AS desktop FROM (SELECT seen::DATE AS day, COUNT(*) AS n FROM events WHERE device = 'phone' GROUP BY day) a JOIN (SELECT seen::DATE AS day, COUNT(*) AS n FROM events WHERE device = 'desktop' GROUP BY day) b ON a.day = b.day ORDER BY a.day;

-- web log 42
SELECT CORR(hits, errors) AS r FROM (SELECT seen::DATE AS d, COUNT(*) AS hits, COUNT(*) FILTER (WHERE status = 500) AS errors FROM events GROUP BY d);

-- web log 43
SELECT COUNT(DISTINCT hour(seen)) AS hours, COUNT(DISTINCT seen::DATE) AS days FROM events WHERE device = 'tablet' AND page = '/checkout' AND status = 500;

-- web log 44
SELECT user_kind, COUNT(*) AS users FROM (SELECT user_id, CASE WHEN COUNT(*) FILTER (WHERE page = '/checkout') > 0 THEN 'buyer' ELSE 'browser' END AS user_kind FROM events GROUP BY user_id) GROUP BY user_kind;

-- web log 45
SELECT cur.d, cur.n, prev.n AS week_before FROM (SELECT seen::DATE AS d, COUNT(*) AS n FROM events GROUP BY d) cur LEFT JOIN (SELECT seen::DATE AS d, COUNT(*) AS n FROM events GROUP BY d) prev ON cur.d = prev.d + 7 ORDER BY cur.d;

-- web log 46
SELECT DISTINCT page FROM events;

-- web log 47
SELECT MODE(device) AS usual_device, MODE(page) AS usual_page FROM events WHERE status = 200;

-- web log 48
-- beyond: E_STATEMENT rows as they are
SUMMARIZE events;

-- web log 49
SELECT device, COUNT(*) AS n FROM events GROUP BY device HAVING COUNT(DISTINCT user_id) > 100 ORDER BY device;

-- retail 49
SELECT c.segment, AVG(per.spent) AS mean_spent FROM (SELECT o.customer_id, SUM(i.quantity) AS spent FROM orders o JOIN items i USING (order_id) GROUP BY o.customer_id) per JOIN customers c ON c.customer_id = per.customer_id GROUP BY c.segment;

-- retail 50
SELECT date_trunc('month', order_date) AS month, channel, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (PARTITION BY channel ORDER BY date_trunc('month', order_date)) AS diff FROM orders GROUP BY 1, 2 ORDER BY channel, month;

-- web log 50
SELECT CASE WHEN n >= 20 THEN '20+' WHEN n >= 10 THEN '10-19' ELSE 'under 10' END AS intensity, COUNT(*) AS users, SUM(n) AS hits FROM (SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id) GROUP BY intensity;
