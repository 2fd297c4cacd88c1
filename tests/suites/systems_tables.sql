-- Small tables of the kinds that other systems show their statements on: a library, restaurants, films, rides, a shop, and columns of every type.
CREATE MACRO draw(i, salt, n) AS CAST(hash(CAST(i AS VARCHAR) || salt) % n AS BIGINT);
CREATE MACRO pick(i, salt, list) AS list[1 + draw(i, salt, len(list))];

CREATE TABLE members AS
SELECT i AS member_id, 6 + draw(i, 'a', 80) AS age, pick(i, 'b', ['female', 'male', 'nonbinary', 'unspecified']) AS gender,
    pick(i, 'c', ['school', 'diploma', 'bachelor', 'master', 'doctorate']) AS education, 27500 + draw(i, 'd', 20) AS zip,
    CASE WHEN draw(i, 'e', 12) > 0 THEN draw(i, 'e2', 60) END AS borrowed, pick(i, 'f', ['crime', 'history', 'poetry', 'romance', 'science']) AS first_genre,
    CASE WHEN draw(i, 'g', 3) > 0 THEN pick(i, 'g2', ['crime', 'history', 'poetry', 'romance', 'science']) END AS second_genre,
    CASE WHEN draw(i, 'h', 3) = 0 THEN pick(i, 'h2', ['crime', 'history', 'poetry', 'romance', 'science']) END AS third_genre,
    DATE '2021-01-01' + CAST(draw(i, 'j', 365) AS INTEGER) AS joined
FROM range(1, 901) r(i);

CREATE TABLE checkouts AS
SELECT m.member_id, 1 + draw(m.member_id * 100 + j, 'k', 40) AS isbn, DATE '2022-01-01' + CAST(draw(m.member_id * 100 + j, 'l', 180) AS INTEGER) AS day,
    1 + draw(m.member_id * 100 + j, 'm', 28) AS days_kept
FROM members m, range(8) r(j) WHERE j < draw(m.member_id, 'n', 9);

CREATE TABLE books AS
SELECT i AS isbn, 'title ' || i AS title, pick(i, 'o', ['Ay', 'Be', 'Ce', 'De']) AS author, pick(i, 'p', ['crime', 'history', 'poetry', 'romance', 'science']) AS genre, 1950 + draw(i, 'q', 70) AS published
FROM range(1, 41) r(i);

CREATE TABLE zips AS
SELECT 27500 + i AS zip, pick(i // 3, 'r', ['Alder', 'Birch', 'Cedar', 'Dogwood']) AS city, pick(i, 's', ['North', 'South']) AS county, 1000 * (1 + draw(i, 't', 50)) AS population
FROM range(20) r(i);

CREATE TABLE restaurant_visits AS
SELECT v AS visitor_id, d AS day, 9 + draw(v * 10 + d, 'a1', 12) AS entered, 10 + draw(v * 10 + d, 'b1', 50) AS minutes, 5 + draw(v * 10 + d, 'c1', 60) AS euros
FROM range(1, 701) r(v), range(1, 8) s(d) WHERE draw(v * 10 + d, 'd1', 3) = 0;

CREATE TABLE movie_views AS
SELECT u AS user_id, 1 + draw(u * 100 + j, 'e1', 30) AS movie_id, 1 + draw(u * 100 + j, 'f1', 5) AS rating, DATE '2005-01-01' + CAST(draw(u * 100 + j, 'g1', 365) AS INTEGER) AS day
FROM range(1, 401) r(u), range(12) s(j) WHERE j < draw(u, 'h1', 13);

CREATE TABLE movies AS SELECT i AS movie_id, 'film ' || i AS title, 1970 + draw(i, 'i1', 35) AS year FROM range(1, 31) r(i);

CREATE TABLE riders AS
SELECT i AS rider_id, pick(i, 'a2', ['card', 'cash', 'voucher']) AS pays, DATE '2016-01-01' + CAST(draw(i, 'b2', 366) AS INTEGER) AS signed_up, draw(i, 'c2', 6) = 0 AS banned, 1 + draw(i, 'c3', 5) AS home_city
FROM range(1, 501) r(i);

CREATE TABLE trips AS
SELECT r.rider_id * 100 + j AS trip_id, r.rider_id, 1 + draw(r.rider_id * 100 + j, 'd2', 40) AS driver_id, 1 + draw(r.rider_id * 100 + j, 'e2', 5) AS city_id,
    pick(r.rider_id * 100 + j, 'f2', ['completed', 'completed', 'completed', 'rider_canceled', 'driver_canceled']) AS status,
    3 + draw(r.rider_id * 100 + j, 'g2', 60) AS fare, 1 + draw(r.rider_id * 100 + j, 'h2', 25) AS km,
    CASE WHEN draw(r.rider_id * 100 + j, 'i2', 3) > 0 THEN 1 + draw(r.rider_id * 100 + j, 'i3', 5) END AS stars,
    DATE '2017-01-01' + CAST(draw(r.rider_id * 100 + j, 'j2', 90) AS INTEGER) AS day, draw(r.rider_id * 100 + j, 'k2', 24) AS hour
FROM riders r, range(10) s(j) WHERE j < draw(r.rider_id, 'l2', 11);

CREATE TABLE drivers AS
SELECT i AS driver_id, pick(i, 'm2', ['car', 'van', 'bike']) AS vehicle, 1 + draw(i, 'n2', 5) AS city_id, 2010 + draw(i, 'o2', 7) AS since, draw(i, 'p2', 4) = 0 AS suspended
FROM range(1, 41) r(i);

CREATE TABLE cities AS SELECT * FROM (VALUES (1, 'Ada', 'north', 900000), (2, 'Bel', 'north', 400000), (3, 'Cor', 'south', 650000), (4, 'Dun', 'south', 120000), (5, 'Eld', 'east', 80000)) v(city_id, name, region, people);

CREATE TABLE buyers AS SELECT i AS buyer_id, 1 + draw(i, 'a3', 9) AS address, pick(i, 'b3', ['gold', 'silver', 'none']) AS status FROM range(1, 401) r(i);

CREATE TABLE purchases AS
SELECT b.buyer_id * 10 + j AS purchase_id, b.buyer_id, 1 + draw(b.buyer_id * 10 + j, 'c3', 12) AS product_id, 1 + draw(b.buyer_id * 10 + j, 'd3', 9) AS quantity,
    DATE '2016-01-01' + CAST(draw(b.buyer_id * 10 + j, 'e3', 60) AS INTEGER) AS day
FROM buyers b, range(6) s(j) WHERE j < draw(b.buyer_id, 'f3', 7);

CREATE TABLE recommendations AS
SELECT b.buyer_id, 1 + draw(b.buyer_id * 10 + j, 'g3', 12) AS product_id, 1 + draw(b.buyer_id * 10 + j, 'h3', 10) AS score
FROM buyers b, range(4) s(j) WHERE j < draw(b.buyer_id, 'i3', 5);

CREATE TABLE goods AS SELECT i AS product_id, 'good ' || i AS name, 5 * (1 + draw(i, 'j3', 20)) AS price FROM range(1, 13) r(i);

CREATE TABLE typed AS
SELECT u AS uid, draw(u * 10 + j, 'a4', 20) AS whole, draw(u * 10 + j, 'b4', 100) AS big, CAST(draw(u * 10 + j, 'c4', 1000) AS DOUBLE) / 10 AS real,
    pick(u * 10 + j, 'd4', ['aa', 'bb', 'cc']) AS word, draw(u * 10 + j, 'e4', 2) = 0 AS flag, DATE '2020-01-01' + CAST(draw(u * 10 + j, 'f4', 31) AS INTEGER) AS day,
    CASE WHEN draw(u * 10 + j, 'g4', 5) > 0 THEN draw(u * 10 + j, 'g5', 10) END AS maybe
FROM range(1, 301) r(u), range(4) s(j) WHERE j < 1 + draw(u, 'h4', 4);

CREATE TABLE others AS
SELECT u AS uid, pick(u, 'a5', ['x', 'y']) AS kind, draw(u, 'b5', 50) AS big FROM range(1, 301) r(u) WHERE draw(u, 'c5', 5) > 0;

CREATE TABLE plain AS SELECT i AS big, 'word ' || i AS word, i % 3 = 0 AS flag FROM range(100) r(i);
