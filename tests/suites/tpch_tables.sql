-- TPC-H's tables with its schema, its domains and roughly its distributions, in small: TPC Benchmark H, clause 1.4 and 4.2.
-- A scale of 1 has 150,000 customers; names, addresses and comments that no statement reads are left out.
CREATE MACRO scale() AS 0.002;
CREATE MACRO draw(i, salt, n) AS CAST(hash(i, salt) % n AS BIGINT);
CREATE MACRO pick(i, salt, words) AS words[draw(i, salt, len(words)) + 1];
CREATE MACRO customers() AS CAST(150000 * scale() AS BIGINT);
CREATE MACRO suppliers() AS CAST(10000 * scale() AS BIGINT);
CREATE MACRO parts() AS CAST(200000 * scale() AS BIGINT);

CREATE TABLE region AS
SELECT * FROM (VALUES (0, 'AFRICA'), (1, 'AMERICA'), (2, 'ASIA'), (3, 'EUROPE'), (4, 'MIDDLE EAST')) v(r_regionkey, r_name);

CREATE TABLE nation AS
SELECT * FROM (VALUES
    (0, 'ALGERIA', 0), (1, 'ARGENTINA', 1), (2, 'BRAZIL', 1), (3, 'CANADA', 1), (4, 'EGYPT', 4), (5, 'ETHIOPIA', 0),
    (6, 'FRANCE', 3), (7, 'GERMANY', 3), (8, 'INDIA', 2), (9, 'INDONESIA', 2), (10, 'IRAN', 4), (11, 'IRAQ', 4),
    (12, 'JAPAN', 2), (13, 'JORDAN', 4), (14, 'KENYA', 0), (15, 'MOROCCO', 0), (16, 'MOZAMBIQUE', 0), (17, 'PERU', 1),
    (18, 'CHINA', 2), (19, 'ROMANIA', 3), (20, 'SAUDI ARABIA', 4), (21, 'VIETNAM', 2), (22, 'RUSSIA', 3),
    (23, 'UNITED KINGDOM', 3), (24, 'UNITED STATES', 1)) v(n_nationkey, n_name, n_regionkey);

CREATE TABLE supplier AS
SELECT i AS s_suppkey, 'Supplier#' || lpad(i::VARCHAR, 9, '0') AS s_name, 'Street ' || i AS s_address,
    draw(i, 's1', 25) AS s_nationkey, 10 + s_nationkey || '-' || 100 + draw(i, 's2', 900) AS s_phone
FROM range(1, suppliers() + 1) r(i);

CREATE TABLE part AS
SELECT i AS p_partkey,
    pick(i, 'p1', ['almond', 'blue', 'forest', 'green', 'lemon', 'peru']) || ' ' || pick(i, 'p2', ['ghost', 'green', 'navy']) AS p_name,
    'Brand#' || 1 + draw(i, 'p3', 5) || 1 + draw(i, 'p4', 5) AS p_brand,
    pick(i, 'p5', ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO']) || ' '
        || pick(i, 'p6', ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED']) || ' '
        || pick(i, 'p7', ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER']) AS p_type,
    1 + draw(i, 'p8', 50) AS p_size,
    pick(i, 'p9', ['SM', 'LG', 'MED', 'JUMBO', 'WRAP']) || ' '
        || pick(i, 'p10', ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM']) AS p_container
FROM range(1, parts() + 1) r(i);

-- Four suppliers of each part.
CREATE TABLE partsupp AS
SELECT p_partkey AS ps_partkey, 1 + (p_partkey + j * (suppliers() // 4 + 1)) % suppliers() AS ps_suppkey,
    1 + draw(p_partkey, j, 9999) AS ps_availqty, 1 + draw(j, p_partkey, 1000) AS ps_supplycost
FROM part, range(4) r(j);

CREATE TABLE customer AS
SELECT i AS c_custkey, draw(i, 'c1', 25) AS c_nationkey, 10 + c_nationkey AS code,
    code || '-' || 100 + draw(i, 'c2', 900) AS c_phone, draw(i, 'c3', 11000) - 1000 AS c_acctbal,
    pick(i, 'c4', ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY']) AS c_mktsegment
FROM range(1, customers() + 1) r(i);

-- Ten orders for each of two thirds of the customers.
CREATE TABLE orders AS
SELECT i AS o_orderkey, 1 + draw(i, 'o1', customers() // 3) * 3 + draw(i, 'o2', 2) AS o_custkey,
    DATE '1992-01-01' + CAST(draw(i, 'o3', 2406) AS INTEGER) AS o_orderdate,
    pick(i, 'o4', ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW']) AS o_orderpriority,
    pick(i, 'o5', ['carefully final deposits', 'special packages above the requests', 'quickly even ideas',
        'furiously special requests', 'regular accounts']) AS o_comment
FROM range(1, 10 * customers() + 1) r(i);

CREATE TABLE lineitem AS
SELECT o_orderkey AS l_orderkey, j AS l_linenumber, ps_partkey AS l_partkey, ps_suppkey AS l_suppkey,
    1 + draw(i, 'l2', 50) AS l_quantity, l_quantity * (900 + l_partkey % 1000) AS l_extendedprice,
    CAST(draw(i, 'l3', 11) / 100 AS DECIMAL(4, 2)) AS l_discount, CAST(draw(i, 'l4', 9) / 100 AS DECIMAL(4, 2)) AS l_tax,
    o_orderdate + CAST(1 + draw(i, 'l5', 121) AS INTEGER) AS l_shipdate,
    o_orderdate + CAST(30 + draw(i, 'l6', 61) AS INTEGER) AS l_commitdate,
    l_shipdate + CAST(1 + draw(i, 'l7', 30) AS INTEGER) AS l_receiptdate,
    CASE WHEN l_receiptdate > DATE '1995-06-17' THEN 'N' ELSE pick(i, 'l8', ['R', 'A']) END AS l_returnflag,
    CASE WHEN l_shipdate > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
    pick(i, 'l9', ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN']) AS l_shipinstruct,
    pick(i, 'l10', ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB']) AS l_shipmode
FROM (
    SELECT *, o_orderkey * 8 + j AS i, 1 + draw(i, 'l0', 4 * parts()) AS place
    FROM (SELECT *, unnest(range(1, 2 + draw(o_orderkey, 'o6', 7))) AS j FROM orders))
JOIN (SELECT *, row_number() OVER (ORDER BY ps_partkey, ps_suppkey) AS place FROM partsupp) USING (place);

-- An order is open while some of its lines are.
ALTER TABLE orders ADD COLUMN o_orderstatus VARCHAR;
UPDATE orders SET o_orderstatus = (
    SELECT CASE WHEN bool_and(l_linestatus = 'F') THEN 'F' WHEN bool_and(l_linestatus = 'O') THEN 'O' ELSE 'P' END
    FROM lineitem WHERE l_orderkey = o_orderkey);
ALTER TABLE orders ADD COLUMN o_totalprice BIGINT;
UPDATE orders SET o_totalprice = (SELECT CAST(SUM(l_extendedprice) AS BIGINT) FROM lineitem WHERE l_orderkey = o_orderkey);
