-- The Star Schema Benchmark's tables with its domains, in small: O'Neil, O'Neil and Chen, "Star Schema Benchmark", revision 3.
CREATE TABLE nations AS
SELECT * FROM (VALUES
    ('ALGERIA', 'AFRICA'), ('ETHIOPIA', 'AFRICA'), ('KENYA', 'AFRICA'), ('MOROCCO', 'AFRICA'), ('MOZAMBIQUE', 'AFRICA'),
    ('ARGENTINA', 'AMERICA'), ('BRAZIL', 'AMERICA'), ('CANADA', 'AMERICA'), ('PERU', 'AMERICA'), ('UNITED STATES', 'AMERICA'),
    ('CHINA', 'ASIA'), ('INDIA', 'ASIA'), ('INDONESIA', 'ASIA'), ('JAPAN', 'ASIA'), ('VIETNAM', 'ASIA'),
    ('FRANCE', 'EUROPE'), ('GERMANY', 'EUROPE'), ('ROMANIA', 'EUROPE'), ('RUSSIA', 'EUROPE'), ('UNITED KINGDOM', 'EUROPE'),
    ('EGYPT', 'MIDDLE EAST'), ('IRAN', 'MIDDLE EAST'), ('IRAQ', 'MIDDLE EAST'), ('JORDAN', 'MIDDLE EAST'), ('SAUDI ARABIA', 'MIDDLE EAST')) v(nation, region);

-- A city is nine characters of its nation and a digit.
CREATE MACRO city_of(nation, digit) AS rpad(nation, 9, ' ')[1:9] || digit;
CREATE MACRO nation_of(i) AS (SELECT list(nation ORDER BY nation)[i % 25 + 1] FROM nations);
CREATE MACRO draw(i, salt, n) AS CAST(hash(i, salt) % n AS BIGINT);

CREATE TABLE customer AS
SELECT i AS c_custkey, nation AS c_nation, city_of(nation, draw(i, 'c2', 2) * 4 + 1) AS c_city, region AS c_region,
    ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'][draw(i, 'c3', 5) + 1] AS c_mktsegment
FROM (SELECT i, nation_of(draw(i, 'c1', 25)) AS nation FROM range(1, 401) r(i)) JOIN nations USING (nation);

CREATE TABLE supplier AS
SELECT i AS s_suppkey, 'Supplier#' || lpad(i::VARCHAR, 9, '0') AS s_name, nation AS s_nation,
    city_of(nation, draw(i, 's2', 2) * 4 + 1) AS s_city, region AS s_region
FROM (SELECT i, nation_of(i) AS nation FROM range(1, 101) r(i)) JOIN nations USING (nation);

CREATE TABLE part AS
SELECT i AS p_partkey, 'MFGR#' || m AS p_mfgr, 'MFGR#' || m || c AS p_category, 'MFGR#' || m || c || b AS p_brand1,
    1 + draw(i, 'p4', 50) AS p_size
FROM (SELECT i, 1 + draw(i, 'p1', 5) AS m, 1 + draw(i, 'p2', 5) AS c, 1 + draw(i, 'p3', 40) AS b FROM range(1, 2001) r(i));

CREATE TABLE date AS
SELECT CAST(strftime(d, '%Y%m%d') AS BIGINT) AS d_datekey, year(d) AS d_year, month(d) AS d_monthnuminyear,
    year(d) * 100 + month(d) AS d_yearmonthnum, strftime(d, '%b%Y') AS d_yearmonth,
    CAST(dayofyear(d) - 1 AS BIGINT) // 7 + 1 AS d_weeknuminyear, strftime(d, '%A') AS d_dayofweek
FROM (SELECT CAST(unnest(range(DATE '1992-01-01', DATE '1999-01-01', INTERVAL 1 DAY)) AS DATE) AS d);

CREATE TABLE lineorder AS
SELECT i AS lo_orderkey, 1 + draw(i, 'l1', 400) AS lo_custkey, 1 + draw(i, 'l2', 2000) AS lo_partkey,
    1 + draw(i, 'l3', 100) AS lo_suppkey,
    CAST(strftime(DATE '1992-01-01' + CAST(draw(i, 'l4', 2406) AS INTEGER), '%Y%m%d') AS BIGINT) AS lo_orderdate,
    quantity AS lo_quantity, price AS lo_extendedprice, discount AS lo_discount,
    price * (100 - discount) // 100 AS lo_revenue, 6 * price // 10 // quantity AS lo_supplycost
FROM (
    SELECT i, 1 + draw(i, 'l5', 50) AS quantity, draw(i, 'l7', 11) AS discount,
        quantity * (50 + draw(i, 'l6', 31)) AS price
    FROM range(12000) r(i));
