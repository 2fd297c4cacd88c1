-- The demonstration's Adult and hospital, fewer rows of them, a shop, its web log, and a survey.
CREATE MACRO draw(i, salt, n) AS CAST(hash(i, salt) % n AS BIGINT);
CREATE MACRO pick(i, salt, words) AS words[draw(i, salt, len(words)) + 1];

CREATE TABLE adult AS FROM 'demo_data/adult.parquet' LIMIT 6000;
CREATE TABLE patients AS FROM 'demo_data/hospital_patients.parquet' WHERE patient_id < 101500;
CREATE TABLE visits AS FROM 'demo_data/hospital_visits.parquet' WHERE patient_id < 101500 AND (cost <= 5000 OR cost IS NULL);
CREATE TABLE prescriptions AS
SELECT p.* FROM 'demo_data/hospital_prescriptions.parquet' p WHERE visit_id IN (SELECT visit_id FROM visits);

CREATE TABLE customers AS
SELECT i AS customer_id, pick(i, 'a', ['DE', 'FR', 'UK', 'US']) AS country, pick(i, 'b', ['consumer', 'business']) AS segment,
    DATE '2022-01-01' + CAST(draw(i, 'c', 730) AS INTEGER) AS signup, draw(i, 'd', 3) = 0 AS newsletter
FROM range(1, 801) r(i);

CREATE TABLE orders AS
SELECT i AS order_id, 1 + draw(i, 'e', 700) AS customer_id,
    DATE '2024-01-01' + CAST(draw(i, 'f', 366) AS INTEGER) AS order_date, pick(i, 'g', ['web', 'shop', 'phone']) AS channel,
    CASE WHEN draw(i, 'h', 10) > 0 THEN draw(i, 'h2', 10) * 5 END AS discount
FROM range(1, 3001) r(i);

CREATE TABLE items AS
SELECT order_id, 1 + draw(order_id, j, 30) AS product_id, 1 + draw(order_id, j + 10, 5) AS quantity,
    (1 + draw(order_id, j + 20, 400)) / 4 AS price
FROM orders, range(4) r(j) WHERE j <= draw(order_id, 'i', 4);

CREATE TABLE products AS
SELECT i AS product_id, 'product ' || i AS name, pick(i, 'k', ['books', 'games', 'garden', 'food']) AS category,
    pick(i, 'l', ['Acme', 'Bolt', 'Core']) AS brand, draw(i, 'm', 20) AS cost
FROM range(1, 31) r(i);

CREATE TABLE countries AS SELECT * FROM (VALUES ('DE', 'EU', 84), ('FR', 'EU', 68), ('UK', 'other', 67), ('US', 'other', 333)) v(code, union_name, millions);

CREATE TABLE events AS
SELECT 1 + draw(i, 'n', 400) AS user_id, TIMESTAMP '2024-03-01' + INTERVAL 1 SECOND * CAST(draw(i, 'o', 31 * 86400) AS INTEGER) AS seen,
    pick(i, 'p', ['/', '/search', '/product', '/cart', '/checkout']) AS page, pick(i, 'q', ['phone', 'tablet', 'desktop']) AS device,
    pick(i, 'r', [200, 200, 200, 200, 301, 404, 500]) AS status,
    CASE WHEN draw(i, 's', 20) > 0 THEN 10 * (1 + draw(i, 's2', 150)) END AS ms,
    CASE WHEN draw(i, 't', 4) > 0 THEN pick(i, 't2', ['google', 'bing', 'newsletter']) END AS referrer
FROM range(1, 5001) r(i);

CREATE TABLE survey AS
SELECT pick(i, 'u', ['female', 'male', 'diverse']) AS gender, 18 + draw(i, 'v', 70) AS age, pick(i, 'w', ['Berlin', 'Bremen', 'Hamburg', 'Köln', 'München']) AS city,
    CASE WHEN draw(i, 'x', 12) > 0 THEN 1 + draw(i, 'x2', 5) END AS satisfaction, draw(i, 'y', 11) AS nps,
    CASE WHEN draw(i, 'z', 8) > 0 THEN draw(i, 'z2', 2) = 0 END AS would_return, DATE '2024-05-01' + CAST(draw(i, 'za', 92) AS INTEGER) AS answered,
    500 * (1 + draw(i, 'zb', 16)) AS income
FROM range(1, 3001) r(i);
