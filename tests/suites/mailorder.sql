-- What a mail order asks of its customers: sums of their own, whom they send to, and keys that answers pick.

-- exists 1
SELECT plan, COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND channel = 'web') AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.author = c.customer_id) GROUP BY plan;

-- exists 2
SELECT plan, COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o, stores s WHERE o.customer_id = c.customer_id AND o.store_id = s.store_id AND s.region = 'north' AND o.ordered >= DATE '2024-06-01') OR EXISTS (SELECT 1 FROM reviews r JOIN products p USING (product_id) WHERE r.author = c.customer_id AND p.category = 'books') GROUP BY plan;

-- exists 3
SELECT city, SUM(CASE WHEN EXISTS (SELECT 1 FROM tickets t WHERE t.customer_id = c.customer_id AND topic = 'billing') THEN 1 ELSE 0 END) AS complained, COUNT(*) FROM customers c GROUP BY city;

-- gifts 1
SELECT channel, COUNT(*) FROM orders o WHERE o.gift_to = o.customer_id GROUP BY channel;

-- gifts 2
SELECT channel, COUNT(*) FROM orders o WHERE o.gift_to IS NULL GROUP BY channel;

-- gifts 3
-- exact: SELECT c.plan, COUNT(*) FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o JOIN customers c ON o.gift_to = c.customer_id GROUP BY c.plan
SELECT c.plan, COUNT(*) FROM orders o JOIN customers c ON o.gift_to = c.customer_id GROUP BY c.plan;

-- gifts 4
-- exact: SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT gift_to FROM orders WHERE gift_to = customer_id AND channel = 'web') GROUP BY plan
SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT gift_to FROM orders WHERE channel = 'web') GROUP BY plan;

-- gifts 5
-- exact: SELECT topic, COUNT(*) FROM tickets t WHERE EXISTS (SELECT 1 FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o WHERE o.gift_to = t.customer_id AND o.ordered < t.opened) GROUP BY topic
SELECT topic, COUNT(*) FROM tickets t WHERE EXISTS (SELECT 1 FROM orders o WHERE o.gift_to = t.customer_id AND o.ordered < t.opened) GROUP BY topic;

-- counts 1
SELECT plan, COUNT(*) FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders WHERE channel = 'phone') GROUP BY plan;

-- steps 1
SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM orders GROUP BY customer_id HAVING COUNT(*) >= 8) GROUP BY plan;

-- steps 2
SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM orders GROUP BY customer_id HAVING SUM(shipping) > 1200) GROUP BY plan;

-- steps 3
SELECT CAST(total / 500 AS INT) AS bucket, COUNT(*) AS customers FROM (SELECT customer_id, SUM(shipping) AS total FROM orders GROUP BY customer_id) t GROUP BY bucket;

-- steps 4
SELECT CASE WHEN total >= 2000 THEN 'high' WHEN total >= 800 THEN 'mid' ELSE 'low' END AS tier, COUNT(*), AVG(n) FROM (SELECT customer_id, SUM(shipping) AS total, COUNT(*) AS n FROM orders GROUP BY customer_id) t GROUP BY tier;

-- steps 5
SELECT c.plan, FLOOR(t.secs / 3600) AS hours, COUNT(*) FROM customers c JOIN (SELECT customer_id, SUM(seconds) AS secs FROM tickets GROUP BY customer_id) t USING (customer_id) GROUP BY 1, 2;

-- steps 6
SELECT c.plan, COUNT(*) FILTER (WHERE t.secs > 10000) AS heavy, COUNT(*) AS n FROM customers c LEFT JOIN (SELECT customer_id, SUM(seconds) AS secs FROM tickets GROUP BY customer_id) t ON t.customer_id = c.customer_id GROUP BY c.plan;

-- steps 7
WITH spend AS (SELECT customer_id, SUM(price) AS spent FROM lines JOIN orders USING (order_id) GROUP BY customer_id) SELECT spent > 500 AS big, COUNT(*) FROM spend GROUP BY big;

-- steps 8
WITH spend AS (SELECT customer_id, SUM(price) AS spent FROM lines JOIN orders USING (order_id) GROUP BY customer_id) SELECT ROUND(spent, -2) AS about, COUNT(*) AS n FROM spend GROUP BY about ORDER BY about;

-- numbers of a row 1
WITH spend AS (SELECT customer_id, SUM(qty * price) AS spent FROM lines JOIN orders USING (order_id) GROUP BY customer_id) SELECT FLOOR(spent / 1000) AS k, COUNT(*) AS n FROM spend GROUP BY k;

-- steps 9
SELECT AVG(spent) FROM (SELECT customer_id, SUM(price) AS spent FROM lines JOIN orders USING (order_id) GROUP BY customer_id HAVING SUM(price) > 300) t;

-- steps 10
SELECT COUNT(*) FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING AVG(shipping) BETWEEN 100 AND 160) t;

-- steps 11
SELECT plan, COUNT(*) FROM customers c JOIN (SELECT author, AVG(stars) AS mean FROM reviews GROUP BY author) r ON r.author = c.customer_id WHERE mean >= 3.5 GROUP BY plan;

-- sets of keys 1
SELECT p.category, COUNT(*) FROM lines l JOIN products p USING (product_id) WHERE p.category IN (SELECT category FROM reviews JOIN products USING (product_id) GROUP BY category ORDER BY COUNT(*) DESC LIMIT 2) GROUP BY ROLLUP (p.category);

-- sets of keys 2
SELECT region, city, COUNT(*) AS n FROM orders JOIN stores USING (store_id) WHERE region IN (SELECT region FROM (SELECT region, rank() OVER (ORDER BY COUNT(*) DESC) AS r FROM orders JOIN stores USING (store_id) GROUP BY region) t WHERE r <= 2) GROUP BY ROLLUP (region, city);

-- sets of keys 3
SELECT category, brand, SUM(qty) AS q, GROUPING(category, brand) AS g FROM lines JOIN products USING (product_id) WHERE brand IN (SELECT brand FROM lines JOIN products USING (product_id) GROUP BY brand HAVING SUM(qty) > 10000) GROUP BY CUBE (category, brand);

-- sets of keys 4
SELECT category, brand, SUM(qty) AS q, rank() OVER (PARTITION BY GROUPING(brand) ORDER BY SUM(qty) DESC) AS place FROM lines JOIN products USING (product_id) GROUP BY ROLLUP (category, brand);

-- several columns 1
SELECT channel, region, COUNT(*) FROM orders JOIN stores USING (store_id) WHERE (channel, region) IN (SELECT channel, region FROM orders JOIN stores USING (store_id) GROUP BY 1, 2 HAVING COUNT(*) > 300) GROUP BY 1, 2;

-- sets 2
-- refused: E_DOMAIN column price is a measure with bounds: it cannot be used in a predicate or GROUP
SELECT product_id FROM lines WHERE qty = 9 AND price > 70 EXCEPT SELECT product_id FROM reviews WHERE stars > 3;

-- steps 12
SELECT category, COUNT(*) FROM products WHERE product_id NOT IN (SELECT product_id FROM reviews WHERE stars = 5 GROUP BY product_id HAVING COUNT(*) > 8) GROUP BY category;

-- sets 6
SELECT COUNT(*) FROM (SELECT DISTINCT city FROM customers WHERE plan = 'pro' INTERSECT SELECT DISTINCT city FROM customers WHERE plan = 'free') t;

-- sets 8
SELECT COUNT(*) FROM (SELECT customer_id FROM orders WHERE channel = 'web' INTERSECT SELECT author FROM reviews EXCEPT SELECT customer_id FROM tickets) t;

-- sets 9
SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM orders UNION SELECT author FROM reviews) GROUP BY plan;

-- sets 10
SELECT src, COUNT(*), COUNT(DISTINCT who) FROM (SELECT customer_id AS who, 'order' AS src FROM orders UNION ALL SELECT author, 'review' FROM reviews UNION ALL SELECT customer_id, 'ticket' FROM tickets) e GROUP BY src;

-- counts 2
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(DISTINCT channel) AS n FROM orders GROUP BY customer_id) t GROUP BY n;

-- counts 3
SELECT c.city, AVG(t.total) FROM customers c JOIN (SELECT customer_id, SUM(shipping) AS total FROM orders GROUP BY customer_id) t USING (customer_id) WHERE t.total < 2500 GROUP BY c.city;

-- steps 13
SELECT plan, CASE WHEN total IS NULL THEN 'none' WHEN total > 1000 THEN 'much' ELSE 'some' END AS k, COUNT(*) FROM customers LEFT JOIN (SELECT customer_id AS who, SUM(shipping) AS total FROM orders WHERE channel = 'phone' GROUP BY customer_id) t ON who = customer_id GROUP BY 1, 2;

-- steps 14
SELECT total >= 1000 AND c.plan = 'pro' AS vip, COUNT(*) FROM customers c, (SELECT customer_id, SUM(shipping) AS total FROM orders GROUP BY customer_id) t WHERE c.customer_id = t.customer_id GROUP BY vip;

-- steps 15
SELECT COUNT(*) FROM (SELECT customer_id, SUM(shipping) FILTER (WHERE channel = 'web') AS web, SUM(shipping) FILTER (WHERE channel = 'shop') AS shop FROM orders GROUP BY customer_id) t WHERE web > 500 AND shop > 500;

-- steps 16
SELECT COUNT(*) FROM (SELECT customer_id, SUM(shipping) FILTER (WHERE channel = 'web') AS web, SUM(shipping) FILTER (WHERE channel = 'shop') AS shop FROM orders GROUP BY customer_id) t WHERE web > shop;

-- steps 17
SELECT m, COUNT(*) FROM (SELECT customer_id, month(ordered) AS m, SUM(shipping) AS s FROM orders GROUP BY customer_id, month(ordered)) t WHERE s > 250 GROUP BY m;

-- steps 18
SELECT LEAST(FLOOR(s / 100), 5) AS h, COUNT(*) FROM (SELECT order_id, SUM(price) AS s FROM lines GROUP BY order_id) t GROUP BY h;

-- steps 19
SELECT COUNT(*), AVG(s) FROM (SELECT order_id, SUM(price) AS s FROM lines GROUP BY order_id HAVING SUM(price) > 150) t;

-- steps 20
SELECT channel, COUNT(*) FROM orders WHERE order_id IN (SELECT order_id FROM lines GROUP BY order_id HAVING SUM(price) > 150) GROUP BY channel;

-- steps 21
SELECT channel, COUNT(*) FROM orders o JOIN (SELECT order_id, SUM(price) AS s FROM lines GROUP BY order_id) t USING (order_id) WHERE s > 150 GROUP BY channel;

-- steps 22
SELECT COUNT(DISTINCT customer_id) FROM orders WHERE order_id IN (SELECT order_id FROM lines WHERE qty >= 9);

-- beside 1
SELECT plan, COUNT(*) FROM customers c WHERE (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.customer_id) > 8 GROUP BY plan;

-- beside 2
SELECT plan, COUNT(*) FROM customers c WHERE (SELECT SUM(shipping) FROM orders o WHERE o.customer_id = c.customer_id) > 1200 GROUP BY plan;

-- beside 3
SELECT plan, AVG((SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.customer_id)) FROM customers c GROUP BY plan;

-- steps 23
-- refused: E_DOMAIN column price is a measure with bounds: it cannot be used in a predicate or GROUP
SELECT category, COUNT(*) FROM lines JOIN products USING (product_id) WHERE price > 0.5 * list_price GROUP BY category;

-- counts 4
SELECT s.region, SUM(l.qty) FROM lines l JOIN orders o USING (order_id) JOIN stores s USING (store_id) JOIN customers c USING (customer_id) WHERE c.plan = 'pro' AND c.city = s.city GROUP BY s.region;

-- windows 1
-- refused: E_WINDOW this window over private rows is not supported
SELECT bucket, COUNT(*) FROM (SELECT customer_id, ntile(4) OVER (PARTITION BY customer_id ORDER BY ordered) AS bucket FROM orders) t GROUP BY bucket;

-- exists 4
SELECT plan, COUNT(*) FROM customers c WHERE EXISTS (SELECT customer_id FROM orders o WHERE o.customer_id = c.customer_id GROUP BY customer_id HAVING COUNT(*) > 8) GROUP BY plan;

-- numbers of a row 2
SELECT k, COUNT(*) FROM (SELECT customer_id, COALESCE(SUM(shipping), 0) > 700 AS k FROM orders WHERE channel = 'web' GROUP BY customer_id) t GROUP BY k;

-- steps 24
SELECT plan, t.total // 400 AS step, COUNT(*) FROM customers JOIN (SELECT customer_id, SUM(seconds) AS total FROM tickets GROUP BY customer_id) t USING (customer_id) GROUP BY ALL;

-- steps 25
SELECT COUNT(*) FROM (SELECT customer_id, MAX(shipping) AS top FROM orders GROUP BY customer_id) t WHERE top > 250;

-- several columns 2
SELECT channel, COUNT(*) FROM orders WHERE (customer_id, store_id) IN (SELECT customer_id, store_id FROM orders WHERE channel = 'phone') GROUP BY channel;

-- several columns 3
-- refused: E_SUBQUERY IN with a sub-query over private rows is not supported
SELECT channel, COUNT(*) FROM orders WHERE (customer_id, month(ordered)) NOT IN (SELECT customer_id, month(opened) FROM tickets) GROUP BY channel;

-- several columns 4
SELECT category, brand, COUNT(*) AS n FROM lines JOIN products USING (product_id) WHERE (category, brand) IN (SELECT category, brand FROM reviews JOIN products USING (product_id) GROUP BY category, brand ORDER BY COUNT(*) DESC, category, brand LIMIT 3) GROUP BY 1, 2;

-- several columns 5
SELECT channel, store_id, COUNT(*) AS n FROM orders WHERE (store_id, channel) IN (SELECT s, c FROM (SELECT store_id AS s, channel AS c, rank() OVER (PARTITION BY channel ORDER BY COUNT(*) DESC) AS r FROM orders GROUP BY 1, 2) t WHERE r <= 2) AND ordered < DATE '2024-07-01' GROUP BY ALL;

-- several columns 6
SELECT city, COUNT(*) FROM customers WHERE (city, plan) IN (SELECT city, 'pro' FROM stores) GROUP BY city;

-- several columns 7
SELECT name FROM products WHERE (category, brand) IN (SELECT category, brand FROM lines JOIN products USING (product_id) GROUP BY 1, 2 HAVING COUNT(*) > 800);

-- numbers of a row 3
SELECT plan, AVG(spent) FROM customers c JOIN (SELECT customer_id, SUM(qty * price) AS spent FROM lines JOIN orders USING (order_id) GROUP BY customer_id) t USING (customer_id) GROUP BY plan;

-- numbers of a row 4
SELECT COUNT(*) FROM (SELECT customer_id, SUM(qty * price) - SUM(price) AS extra FROM lines JOIN orders USING (order_id) GROUP BY customer_id) t WHERE extra > 1500;

-- steps 26
SELECT CASE WHEN web IS NULL THEN 'no web' WHEN web > shop THEN 'web' ELSE 'shop' END AS k, COUNT(*) FROM (SELECT customer_id, SUM(shipping) FILTER (WHERE channel = 'web') AS web, SUM(shipping) FILTER (WHERE channel = 'shop') AS shop FROM orders GROUP BY customer_id) t GROUP BY k;

-- beside 4
SELECT c.plan, COUNT(*) AS n FROM customers c WHERE (SELECT AVG(stars) FROM reviews r WHERE r.author = c.customer_id) >= 4 GROUP BY c.plan;

-- beside 5
SELECT c.plan, SUM((SELECT SUM(seconds) FROM tickets t WHERE t.customer_id = c.customer_id)) AS s FROM customers c GROUP BY c.plan;

-- beside 6
SELECT c.plan, (SELECT COUNT(*) FROM tickets t WHERE t.customer_id = c.customer_id) AS k, COUNT(*) FROM customers c GROUP BY 1, 2;

-- beside 7
SELECT c.city, COUNT(*) FILTER (WHERE (SELECT MAX(stars) FROM reviews r WHERE r.author = c.customer_id) = 5) AS fans FROM customers c GROUP BY c.city;

-- beside 8
SELECT COUNT(*) FROM orders o WHERE shipping > (SELECT AVG(x.shipping) FROM orders x WHERE x.customer_id = o.customer_id);

-- beside 9
SELECT channel, COUNT(*) FROM orders o WHERE o.ordered = (SELECT MIN(x.ordered) FROM orders x WHERE x.customer_id = o.customer_id) GROUP BY channel;

-- steps 27
SELECT FLOOR(AVG_s) AS a, COUNT(*) FROM (SELECT customer_id, AVG(shipping) / 50 AS AVG_s FROM orders GROUP BY customer_id) t GROUP BY 1;

-- counts 5
-- refused: E_AGGREGATE the aggregate MIN() is not supported
SELECT plan, MIN(t.k) FROM customers JOIN (SELECT customer_id, COUNT(*) AS k FROM orders GROUP BY 1) t USING (customer_id) GROUP BY plan;

-- sets of keys 5
SELECT spent >= 1000 AS big, plan, COUNT(*) AS n, AVG(spent) AS a FROM (SELECT customer_id, SUM(shipping) AS spent FROM orders GROUP BY customer_id HAVING COUNT(*) > 2) t JOIN customers USING (customer_id) GROUP BY ROLLUP (big, plan);

-- steps 28
SELECT COUNT(*) FROM (SELECT customer_id, store_id, SUM(shipping) AS s FROM orders GROUP BY customer_id, store_id) t WHERE s > 400;

-- steps 29
SELECT store_id, COUNT(*) AS loyal FROM (SELECT customer_id, store_id, SUM(shipping) AS s FROM orders GROUP BY customer_id, store_id HAVING SUM(shipping) > 300) t GROUP BY store_id;

-- steps 30
SELECT region, s > 300 AS big, COUNT(*) FROM (SELECT customer_id, store_id, SUM(shipping) AS s FROM orders GROUP BY customer_id, store_id) t JOIN stores USING (store_id) GROUP BY 1, 2;

-- steps 31
WITH a AS (SELECT customer_id, SUM(shipping) AS s FROM orders GROUP BY 1), b AS (SELECT author AS customer_id, COUNT(*) AS n FROM reviews GROUP BY 1) SELECT n, COUNT(*) FROM a JOIN b USING (customer_id) WHERE s > 500 GROUP BY n;

-- steps 32
WITH a AS (SELECT customer_id, SUM(shipping) AS s FROM orders GROUP BY 1) SELECT COUNT(*) FROM a WHERE s BETWEEN 500 AND 900 OR s > 2000;

-- steps 33
SELECT k, COUNT(*) FROM (SELECT CASE WHEN s < 500 THEN 'a' WHEN s < 1500 THEN 'b' ELSE 'c' END AS k FROM (SELECT customer_id, SUM(shipping) AS s FROM orders GROUP BY customer_id) t) u GROUP BY k HAVING COUNT(*) > 5 ORDER BY k;

-- steps 34
SELECT k, n, COUNT(*) FROM (SELECT customer_id, SUM(shipping) > 900 AS k, COUNT(*) AS n FROM orders GROUP BY customer_id) t GROUP BY k, n;

-- sets 11
SELECT COUNT(*) FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING SUM(shipping) > 900 EXCEPT SELECT author FROM reviews GROUP BY author HAVING COUNT(*) > 3) t;

-- sets 12
SELECT plan, COUNT(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM orders GROUP BY 1 HAVING SUM(shipping) > 900 INTERSECT SELECT customer_id FROM tickets GROUP BY 1 HAVING SUM(seconds) > 4000) GROUP BY plan;

-- sets 14
SELECT city FROM customers INTERSECT SELECT city FROM stores;

-- sets 15
SELECT city FROM stores EXCEPT SELECT city FROM customers WHERE plan = 'pro';

-- sets of keys 6
-- refused: E_DOMAIN column price is a measure with bounds: it cannot be used in a predicate or GROUP
SELECT category, COUNT(*) FROM products WHERE product_id IN (SELECT product_id FROM lines WHERE price > 0 GROUP BY product_id HAVING SUM(qty) > 1200) GROUP BY ROLLUP (category);

-- sets of keys 7
SELECT quarter(ordered) AS q, channel, COUNT(*) AS n, GROUPING(channel) AS g FROM orders WHERE store_id IN (SELECT store_id FROM orders GROUP BY store_id ORDER BY COUNT(*) DESC, store_id LIMIT 4) GROUP BY GROUPING SETS ((1, 2), (1)) HAVING COUNT(*) > 20;

-- sets of keys 8
SELECT channel, region, COUNT(*) AS n, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY GROUPING(region)) AS pct FROM orders JOIN stores USING (store_id) WHERE region IN (SELECT region FROM orders JOIN stores USING (store_id) GROUP BY region HAVING COUNT(*) > 900) GROUP BY ROLLUP (channel, region);

-- gifts 6
-- exact: SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o WHERE o.gift_to = c.customer_id AND o.channel = 'web') AND EXISTS (SELECT 1 FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o WHERE o.customer_id = c.customer_id AND o.channel = 'shop')
SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.gift_to = c.customer_id AND o.channel = 'web') AND EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND o.channel = 'shop');

-- gifts 7
-- exact: SELECT c.plan, COUNT(DISTINCT o.customer_id) FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o JOIN customers c ON c.customer_id = o.gift_to WHERE o.shipping >= 0 GROUP BY c.plan
-- refused: E_DOMAIN column shipping is a measure with bounds: it cannot be used in a predicate or GR
SELECT c.plan, COUNT(DISTINCT o.customer_id) FROM orders o JOIN customers c ON c.customer_id = o.gift_to WHERE o.shipping >= 0 GROUP BY c.plan;

-- gifts 8
-- exact: SELECT plan, COUNT(*) FROM customers c WHERE NOT EXISTS (SELECT 1 FROM (SELECT * REPLACE (CASE WHEN gift_to = customer_id THEN gift_to END AS gift_to) FROM orders) o JOIN stores s USING (store_id) WHERE o.gift_to = c.customer_id AND s.region = 'north') GROUP BY plan
SELECT plan, COUNT(*) FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o JOIN stores s USING (store_id) WHERE o.gift_to = c.customer_id AND s.region = 'north') GROUP BY plan;

-- exists 5
SELECT month(o.ordered) AS m, COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM tickets t WHERE t.customer_id = o.customer_id AND t.opened BETWEEN o.ordered AND o.ordered + 14) GROUP BY m;

-- exists 6
SELECT topic, COUNT(*) FROM tickets t WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = t.customer_id AND o.ordered <= t.opened) GROUP BY topic;

-- steps 35
SELECT n_topics, COUNT(*) FROM (SELECT customer_id, COUNT(DISTINCT topic) AS n_topics, SUM(seconds) AS s FROM tickets GROUP BY customer_id) t WHERE s >= 3600 GROUP BY n_topics;

-- numbers of a row 5
SELECT COUNT(*) FROM (SELECT customer_id, MAX(shipping) - MIN(shipping) AS spread FROM orders GROUP BY customer_id) t WHERE spread > 200;

-- steps 36
-- refused: E_DOMAIN column sum(shipping) is a measure with bounds: it cannot be used in a predicate 
SELECT COUNT(*) FROM (SELECT customer_id, SUM(shipping) AS s, COUNT(*) AS n FROM orders GROUP BY customer_id) t WHERE s / n > 150;

-- steps 37
SELECT COUNT(*) FROM (SELECT customer_id, SUM(shipping) AS s, COUNT(*) AS n FROM orders GROUP BY customer_id) t WHERE s > 150 * n;

-- numbers of a row 6
SELECT o.channel, SUM(l.qty * l.price * (1 - 0.1)) AS net FROM lines l JOIN orders o USING (order_id) GROUP BY o.channel;

-- numbers of a row 7
SELECT COUNT(*) FROM (SELECT order_id, SUM(qty * price) AS s FROM lines GROUP BY order_id) t WHERE s BETWEEN 100 AND 400;

-- numbers of a row 8
SELECT channel, ROUND(AVG(s), 2) FROM orders JOIN (SELECT order_id, SUM(qty * price) AS s FROM lines GROUP BY order_id) t USING (order_id) WHERE s > 200 GROUP BY channel;

-- beside 10
SELECT channel, COUNT(*) FROM orders o WHERE shipping > (SELECT AVG(x.shipping) FROM orders x WHERE x.customer_id = o.customer_id) GROUP BY channel;

-- beside 11
SELECT channel, COUNT(*) FROM orders o WHERE shipping >= (SELECT MAX(x.shipping) FROM orders x WHERE x.customer_id = o.customer_id) GROUP BY channel;

-- beside 13
SELECT stars, COUNT(*) FROM reviews r WHERE stars > (SELECT AVG(stars) FROM reviews x WHERE x.author = r.author) GROUP BY stars;

-- beside 14
SELECT stars, COUNT(*) FROM reviews r WHERE stars < (SELECT AVG(stars) + 0.03 FROM reviews x) GROUP BY stars;

-- beside 15
SELECT t.topic, COUNT(*) FROM tickets t WHERE t.seconds > 2 * (SELECT SUM(shipping) FROM orders o WHERE o.customer_id = t.customer_id AND o.channel = 'web') GROUP BY t.topic;

-- sets 17
SELECT COUNT(*), ROUND(SUM(x), -2) FROM (SELECT shipping * 2 AS x FROM orders UNION ALL SELECT stars FROM reviews) t;

-- sets 18
SELECT COUNT(*), ROUND(SUM(x), -2) FROM (SELECT customer_id, shipping * 2 AS x FROM orders UNION ALL SELECT author, stars * 1.5 FROM reviews) t;

-- sets 19
SELECT COUNT(*), SUM(x) FROM (SELECT qty * price AS x FROM lines UNION ALL SELECT seconds FROM tickets) t;

-- sets 20
SELECT x > 1000 AS k, COUNT(*) FROM (SELECT qty * price * 2 AS x FROM lines UNION ALL SELECT seconds FROM tickets) t GROUP BY k;

-- windows 2
-- refused: E_WINDOW this order of private rows is not supported
SELECT k, COUNT(*) FROM (SELECT channel AS k, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY shipping + 1, order_id) AS n FROM orders) t WHERE n = 1 GROUP BY k;

-- windows 3
SELECT k, COUNT(*) FROM (SELECT channel AS k, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY shipping * -2 + 1) AS n FROM orders) t WHERE n = 1 GROUP BY k;

-- windows 4
SELECT COUNT(*) FROM (SELECT channel AS k, LAG(shipping * 2) OVER (PARTITION BY customer_id ORDER BY shipping) AS n FROM orders) t WHERE n > 200;

-- windows 5
SELECT COUNT(*) FROM (SELECT SUM(shipping * 2) OVER (PARTITION BY customer_id ORDER BY ordered) AS n FROM orders) t WHERE n > 1000;

-- windows 6
SELECT k, COUNT(*) FROM (SELECT channel AS k, shipping - FIRST_VALUE(shipping) OVER (PARTITION BY customer_id ORDER BY shipping) AS n FROM orders) t WHERE n > 100 GROUP BY k;

-- windows 7
SELECT COUNT(*) FROM (SELECT MAX(shipping * 3) OVER (PARTITION BY customer_id) AS n FROM orders) t WHERE n > 800;

-- numbers of a row 9
SELECT COUNT(*) FROM (SELECT c.customer_id, SUM(o.shipping - COALESCE(t.n, 0)) AS s FROM customers c JOIN orders o USING (customer_id) LEFT JOIN (SELECT customer_id, COUNT(*) AS n FROM tickets GROUP BY 1) t ON t.customer_id = c.customer_id GROUP BY c.customer_id) u WHERE s > 900;

-- numbers of a row 10
SELECT COUNT(*) FROM customers c LEFT JOIN (SELECT customer_id, SUM(shipping) AS s FROM orders GROUP BY 1) o ON o.customer_id = c.customer_id LEFT JOIN (SELECT customer_id, SUM(seconds) AS n FROM tickets GROUP BY 1) t ON t.customer_id = c.customer_id WHERE COALESCE(o.s, 0) > COALESCE(t.n, 0) / 4;

-- numbers of a row 11
SELECT plan, COUNT(*) FROM customers c LEFT JOIN (SELECT customer_id, SUM(shipping) AS s FROM orders GROUP BY 1) o ON o.customer_id = c.customer_id LEFT JOIN (SELECT customer_id, SUM(seconds) AS n FROM tickets GROUP BY 1) t ON t.customer_id = c.customer_id WHERE COALESCE(o.s, 0) - COALESCE(t.n, 0) / 10 < 300 OR o.s IS NULL GROUP BY plan;

-- numbers of a row 12
SELECT k, COUNT(*) FROM (SELECT customer_id, COALESCE(SUM(shipping) FILTER (WHERE channel = 'web'), 0) > COALESCE(SUM(shipping) FILTER (WHERE channel = 'shop'), 0) AS k FROM orders GROUP BY customer_id) t GROUP BY k;
