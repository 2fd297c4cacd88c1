-- A mail order: customers, whom they send to, what they order, review and complain about.
CREATE MACRO draw(a, b) AS (hash(a::BIGINT * 1000003 + b::BIGINT) % 1000003)::BIGINT;
CREATE TABLE products AS SELECT n::INTEGER AS product_id, 'prod' || n AS name, ['toys','food','books','tools'][1 + n % 4] AS category, ['acme','best','core'][1 + n % 3] AS brand, (5 + n % 17)::INTEGER AS list_price FROM range(1, 37) r(n);
CREATE TABLE stores AS SELECT n::INTEGER AS store_id, ['north','south','east'][1 + n % 3] AS region, 'city' || (n % 5) AS city FROM range(1, 11) r(n);
CREATE TABLE customers AS SELECT n::INTEGER AS customer_id, 'city' || (draw(n,1) % 6) AS city, ['free','plus','pro'][1 + draw(n,2) % 3] AS plan, (1950 + draw(n,3) % 55)::INTEGER AS born FROM range(1, 401) r(n);
CREATE TABLE orders AS SELECT n::INTEGER AS order_id, (1 + draw(n, 11) % 430)::INTEGER AS customer_id, CASE WHEN draw(n,12) % 6 = 0 THEN (1 + draw(n,13) % 400)::INTEGER WHEN draw(n,12) % 6 = 1 THEN NULL ELSE (1 + draw(n, 11) % 430)::INTEGER END AS gift_to,
 (1 + draw(n,14) % 10)::INTEGER AS store_id, DATE '2024-01-01' + (draw(n,15) % 366)::INTEGER AS ordered, (draw(n,16) % 30000 / 100.0)::DOUBLE AS shipping, ['web','shop','phone'][1 + draw(n,17) % 3] AS channel FROM range(1, 3001) r(n);
CREATE TABLE lines AS SELECT (1 + n // 3)::INTEGER AS order_id, (1 + draw(n, 21) % 36)::INTEGER AS product_id, (1 + draw(n,22) % 9)::INTEGER AS qty, (1 + draw(n,23) % 80)::INTEGER AS price FROM range(0, 9000) r(n);
CREATE TABLE reviews AS SELECT (1 + draw(n,31) % 420)::INTEGER AS author, (1 + draw(n,32) % 36)::INTEGER AS product_id, (1 + draw(n,33) % 5)::INTEGER AS stars, DATE '2024-01-01' + (draw(n,34) % 366)::INTEGER AS written FROM range(0, 1500) r(n);
CREATE TABLE tickets AS SELECT (1 + draw(n,41) % 410)::INTEGER AS customer_id, DATE '2024-01-01' + (draw(n,42) % 366)::INTEGER AS opened, (draw(n,43) % 5000)::INTEGER AS seconds, ['billing','delivery','other'][1 + draw(n,44) % 3] AS topic FROM range(0, 900) r(n);
