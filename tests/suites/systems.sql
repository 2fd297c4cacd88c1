-- Statements as the documentation and tests of other systems have them, over tables of our own: Tumult Analytics, PipelineDP, Uber's SQL differential privacy (FLEX, Chorus), ZetaSQL's analyzer.

-- Tumult 1
SELECT COUNT(*) AS count FROM members;

-- Tumult 2
SELECT COUNT(*) AS count FROM members WHERE age < 18;

-- Tumult 3
SELECT COUNT(*) AS count FROM members WHERE education IN ('master', 'doctorate');

-- Tumult 4
SELECT AVG(age) AS age_average FROM members;

-- Tumult 5
-- exact: SELECT AVG(LEAST(GREATEST(age, 5), 60)) FROM members
SELECT AVG(age, contribution_bounds_per_group => (5, 60)) AS age_average FROM members;

-- Tumult 6
SELECT SUM(borrowed) AS borrowed_sum FROM members;

-- Tumult 7
-- exact: SELECT SUM(LEAST(borrowed, 30)) FROM members WHERE borrowed IS NOT NULL
SELECT SUM(borrowed, contribution_bounds_per_group => (0, 30)) AS borrowed_sum FROM members;

-- Tumult 8
SELECT education, AVG(age) AS age_average FROM members GROUP BY education ORDER BY age_average;

-- Tumult 9
SELECT age, COUNT(*) AS count FROM members WHERE age BETWEEN 5 AND 17 GROUP BY age ORDER BY age;

-- Tumult 10
SELECT age, education, COUNT(*) AS count FROM members WHERE age BETWEEN 13 AND 21 GROUP BY age, education;

-- Tumult 11: public keys, of which one cannot be there
-- exact: SELECT a.age, COUNT(member_id) FROM (VALUES (5), (6), (7)) a(age) LEFT JOIN members USING (age) GROUP BY a.age
SELECT keys.age, COUNT(member_id) AS count FROM members RIGHT JOIN (VALUES (5), (6), (7)) AS keys(age) USING (age) GROUP BY keys.age;

-- Tumult 12: a key set of two columns that are not all combinations
SELECT k.age, k.education, COUNT(*) AS count FROM members m JOIN (VALUES (17, 'school'), (17, 'diploma'), (18, 'school'), (21, 'bachelor')) AS k(age, education) ON m.age = k.age AND m.education = k.education GROUP BY k.age, k.education;

-- Tumult 13: a key set as the product of two
SELECT a.age, e.education, COUNT(*) AS count FROM members m JOIN (VALUES (20), (30), (40)) AS a(age) ON m.age = a.age JOIN (VALUES ('master'), ('doctorate')) AS e(education) ON m.education = e.education GROUP BY a.age, e.education;

-- Tumult 14
SELECT age // 10 * 10 || '-' || (age // 10 * 10 + 9) AS binned_age, gender, COUNT(*) AS count FROM members GROUP BY binned_age, gender;

-- Tumult 15
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'senior' END AS band, COUNT(*) AS count FROM members GROUP BY band;

-- Tumult 16: a flat map: one row for each genre that a member likes
SELECT genre, COUNT(*) AS count FROM (SELECT first_genre AS genre FROM members UNION ALL SELECT second_genre FROM members UNION ALL SELECT third_genre FROM members) AS g WHERE genre IS NOT NULL GROUP BY genre;

-- Tumult 17
SELECT genre, COUNT(*) AS count FROM members UNPIVOT (genre FOR place IN (first_genre, second_genre, third_genre)) GROUP BY genre;

-- Tumult 18
-- refused: E_FUNCTION UNPIVOT and UNION ALL make rows of columns
-- exact: SELECT genre, COUNT(*) FROM (SELECT unnest([first_genre, second_genre, third_genre]) AS genre FROM members) WHERE genre IS NOT NULL GROUP BY genre
SELECT genre, COUNT(*) AS count FROM (SELECT UNNEST([first_genre, second_genre, third_genre]) AS genre FROM members) AS g WHERE genre IS NOT NULL GROUP BY genre;

-- Tumult 19
SELECT city, COUNT(*) AS count FROM members JOIN zips USING (zip) GROUP BY city ORDER BY count DESC;

-- Tumult 20
SELECT z.county, AVG(m.age) AS mean FROM members m LEFT JOIN zips z ON m.zip = z.zip GROUP BY z.county;

-- Tumult 21
SELECT city, 1000.0 * COUNT(*) / total AS per_thousand FROM members JOIN zips USING (zip) JOIN (SELECT city, SUM(population) AS total FROM zips GROUP BY city) AS p USING (city) GROUP BY city, total;

-- Tumult 22
SELECT c.city, 1000.0 * c.count / p.population AS per_thousand FROM (SELECT city, COUNT(*) AS count FROM members JOIN zips USING (zip) GROUP BY city) c JOIN (SELECT city, SUM(population) AS population FROM zips GROUP BY city) p ON c.city = p.city;

-- Tumult 23
SELECT QUANTILE_CONT(age, 0.6) AS age_quantile FROM members;

-- Tumult 24
SELECT MEDIAN(borrowed) AS borrowed_median FROM members WHERE borrowed IS NOT NULL;

-- Tumult 25
SELECT education, QUANTILE_DISC(age, [0.25, 0.5, 0.75]) AS quartiles FROM members GROUP BY education;

-- Tumult 26
SELECT education, STDDEV(age) AS age_stdev, VARIANCE(age) AS age_variance FROM members GROUP BY education;

-- Tumult 27
-- beyond: E_AGGREGATE exact extremes: one row decides
SELECT MIN(age) AS age_min, MAX(age) AS age_max FROM members;

-- Tumult 28: quantiles 0 and 1 in place of the extremes
-- exact: SELECT 6, 85
SELECT QUANTILE_DISC(age, 0.0) AS low, QUANTILE_DISC(age, 1.0) AS high FROM members;

-- Tumult 29
SELECT COUNT(DISTINCT zip) AS zips FROM members;

-- Tumult 30
SELECT COUNT(DISTINCT member_id) AS people FROM checkouts;

-- Tumult 31
SELECT COUNT(*) AS loans FROM checkouts;

-- Tumult 32: MaxRowsPerID: some rows of each member
-- exact: SELECT SUM(LEAST(n, 3)) FROM (SELECT COUNT(*) AS n FROM checkouts GROUP BY member_id)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 3) COUNT(*) AS loans FROM checkouts;

-- Tumult 33: MaxGroupsPerID and MaxRowsPerGroupPerID
-- exact: SELECT isbn, COUNT(DISTINCT member_id) FROM checkouts GROUP BY isbn
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 8) isbn, COUNT(*, contribution_bounds_per_group => (0, 1)) AS readers FROM checkouts GROUP BY isbn;

-- Tumult 34
SELECT b.genre, COUNT(*) AS loans FROM checkouts c JOIN books b ON c.isbn = b.isbn GROUP BY b.genre;

-- Tumult 35
SELECT genre, COUNT(DISTINCT member_id) AS readers, AVG(days_kept) AS kept FROM checkouts JOIN books USING (isbn) WHERE published >= 1990 GROUP BY genre;

-- Tumult 36: private join of two tables of one identifier
SELECT m.education, COUNT(*) AS loans FROM checkouts c JOIN members m ON c.member_id = m.member_id GROUP BY m.education;

-- Tumult 37
SELECT m.gender, b.genre, COUNT(*) AS loans FROM checkouts c JOIN members m USING (member_id) JOIN books b USING (isbn) GROUP BY m.gender, b.genre;

-- Tumult 38: replace_null_and_nan and drop_null_and_nan
SELECT AVG(COALESCE(borrowed, 0)) AS mean FROM members;

-- Tumult 39
SELECT education, AVG(borrowed) AS mean FROM members WHERE borrowed IS NOT NULL GROUP BY education;

-- Tumult 40: rename and select
SELECT learned, COUNT(*) AS count FROM (SELECT education AS learned, age FROM members) AS t WHERE age >= 40 GROUP BY learned;

-- Tumult 41: bin_column
SELECT FLOOR(age / 20) * 20 AS bin, COUNT(*) AS count FROM members GROUP BY bin ORDER BY bin;

-- Tumult 42
SELECT date_trunc('month', joined) AS month, COUNT(*) AS count FROM members GROUP BY month ORDER BY month;

-- Tumult 43: a count below a threshold is suppressed
-- exact: SELECT age, COUNT(*) FROM members GROUP BY age HAVING COUNT(*) > 12
SELECT age, COUNT(*) AS count FROM members GROUP BY age HAVING COUNT(*) > 12;

-- Tumult 44: a histogram in named bins
SELECT CASE WHEN borrowed IS NULL THEN 'unknown' WHEN borrowed < 10 THEN '0 to 9' WHEN borrowed < 30 THEN '10 to 29' ELSE '30 or more' END AS bin, COUNT(*) AS count FROM members GROUP BY bin;

-- Tumult 45
SELECT COUNT(*) FILTER (WHERE second_genre IS NULL) AS one, COUNT(*) FILTER (WHERE second_genre IS NOT NULL) AS more FROM members;

-- Tumult 46: group by the identifier, and a histogram of it
SELECT loans, COUNT(*) AS members FROM (SELECT member_id, COUNT(*) AS loans FROM checkouts GROUP BY member_id) AS t GROUP BY loans ORDER BY loans;

-- Tumult 47
SELECT AVG(loans) AS mean FROM (SELECT member_id, COUNT(*) AS loans FROM checkouts GROUP BY member_id) AS t;

-- Tumult 48
SELECT MEDIAN(loans) AS typical FROM (SELECT member_id, COUNT(*) AS loans FROM checkouts GROUP BY member_id) AS t;

-- Tumult 49
-- refused: E_AGGREGATE a map of values
SELECT HISTOGRAM(education) AS h FROM members;

-- Tumult 50
SELECT ENTROPY(education) AS bits FROM members;

-- Tumult 51
SELECT education, ENTROPY(gender) AS bits FROM members GROUP BY education;

-- Tumult 52
SELECT COUNT(*) FROM members WHERE age IS NOT NULL AND NOT (education = 'school' OR gender IN ('male', 'female'));

-- Tumult 53
SELECT gender, SUM(borrowed) / COUNT(*) AS each FROM members GROUP BY gender HAVING COUNT(*) > 100;

-- Tumult 54
SELECT b.author, COUNT(*) AS loans FROM checkouts c JOIN books b USING (isbn) JOIN members m ON m.member_id = c.member_id WHERE m.age < 30 GROUP BY b.author ORDER BY loans DESC LIMIT 3;

-- Tumult 55
SELECT isbn, loans FROM (SELECT isbn, COUNT(*) AS loans FROM checkouts GROUP BY isbn) AS t WHERE loans > 90 ORDER BY loans DESC;

-- Tumult 56: members and how often they borrow their favourite genre
SELECT COUNT(*) FROM checkouts c JOIN members m USING (member_id) JOIN books b USING (isbn) WHERE b.genre = m.first_genre;

-- Tumult 57
SELECT m.education, COUNT(DISTINCT c.member_id) AS active, COUNT(DISTINCT m.member_id) AS members FROM members m LEFT JOIN checkouts c ON m.member_id = c.member_id GROUP BY m.education;

-- Tumult 58
SELECT bin, COUNT(*) FROM (SELECT CASE WHEN n < 3 THEN 'rare' ELSE 'often' END AS bin FROM (SELECT member_id, COUNT(*) AS n FROM checkouts GROUP BY member_id)) AS t GROUP BY bin;

-- Tumult 59
SELECT COUNT(*) FILTER (WHERE age < 30) * 100.0 / COUNT(*) AS percent FROM members;

-- PipelineDP 1
SELECT day, COUNT(*) AS count FROM restaurant_visits GROUP BY day ORDER BY day;

-- PipelineDP 2
SELECT day, SUM(euros) AS sum FROM restaurant_visits GROUP BY day;

-- PipelineDP 3
SELECT day, AVG(euros) AS mean FROM restaurant_visits GROUP BY day;

-- PipelineDP 4
SELECT day, COUNT(DISTINCT visitor_id) AS privacy_id_count FROM restaurant_visits GROUP BY day;

-- PipelineDP 5
SELECT day, VAR_POP(euros) AS variance FROM restaurant_visits GROUP BY day;

-- PipelineDP 6
SELECT day, COUNT(*) AS count, SUM(euros) AS sum, AVG(euros) AS mean, VARIANCE(euros) AS variance, COUNT(DISTINCT visitor_id) AS privacy_id_count FROM restaurant_visits GROUP BY day;

-- PipelineDP 7: values are clipped to a least and a largest one
-- exact: SELECT day, SUM(LEAST(GREATEST(euros, 10), 40)) FROM restaurant_visits GROUP BY day
SELECT day, SUM(LEAST(GREATEST(euros, 10), 40)) AS sum FROM restaurant_visits GROUP BY day;

-- PipelineDP 8
-- exact: SELECT day, AVG(LEAST(euros, 40)) FROM restaurant_visits GROUP BY day
SELECT day, SUM(LEAST(euros, 40)) / COUNT(*) AS mean FROM restaurant_visits GROUP BY day;

-- PipelineDP 9: sums are clipped per partition
-- exact: SELECT day, SUM(LEAST(euros, 50)) FROM restaurant_visits GROUP BY day
SELECT day, SUM(euros, contribution_bounds_per_group => (0, 50)) AS sum FROM restaurant_visits GROUP BY day;

-- PipelineDP 10: max_partitions_contributed beyond what anybody has
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 7) day, COUNT(*) AS count, SUM(euros) AS sum FROM restaurant_visits GROUP BY day;

-- PipelineDP 11: public partitions
-- exact: SELECT d.day, COUNT(visitor_id) FROM (VALUES (1), (2), (7)) d(day) LEFT JOIN restaurant_visits USING (day) GROUP BY d.day
SELECT d.day, COUNT(visitor_id) AS count FROM restaurant_visits RIGHT JOIN (VALUES (1), (2), (7)) AS d(day) USING (day) GROUP BY d.day;

-- PipelineDP 12
SELECT day, COUNT(*) AS count FROM restaurant_visits WHERE day IN (1, 3, 5) GROUP BY day;

-- PipelineDP 13: percentiles
SELECT day, QUANTILE_CONT(euros, 0.5) AS p50, QUANTILE_CONT(euros, 0.9) AS p90 FROM restaurant_visits GROUP BY day;

-- PipelineDP 14
SELECT QUANTILE_DISC(euros, [0.1, 0.5, 0.9]) AS percentiles FROM restaurant_visits;

-- PipelineDP 15
-- exact: SELECT day, QUANTILE_CONT(minutes, 0.25) FROM restaurant_visits GROUP BY day
SELECT day, PERCENTILE_CONT(minutes, 0.25, contribution_bounds_per_row => (0, 60)) AS p25 FROM restaurant_visits GROUP BY day;

-- PipelineDP 16
SELECT day, entered, COUNT(*) AS count FROM restaurant_visits GROUP BY day, entered;

-- PipelineDP 17
SELECT entered, AVG(minutes) AS stayed FROM restaurant_visits GROUP BY entered ORDER BY entered;

-- PipelineDP 18
SELECT CASE WHEN day >= 6 THEN 'weekend' ELSE 'workday' END AS kind, COUNT(*) AS visits, AVG(euros) AS spent FROM restaurant_visits GROUP BY kind;

-- PipelineDP 19
SELECT euros // 10 AS band, COUNT(*) AS count FROM restaurant_visits GROUP BY band ORDER BY band;

-- PipelineDP 20: select_partitions: which keys there are
-- exact: SELECT day FROM range(1, 8) r(day)
SELECT DISTINCT day FROM restaurant_visits;

-- PipelineDP 21: pre-aggregated data: rows of a visitor and a day first
SELECT day, SUM(n) AS count, SUM(s) AS sum FROM (SELECT visitor_id, day, COUNT(*) AS n, SUM(euros) AS s FROM restaurant_visits GROUP BY visitor_id, day) AS pre GROUP BY day;

-- PipelineDP 22
SELECT day, AVG(s) AS mean FROM (SELECT visitor_id, day, SUM(euros) AS s FROM restaurant_visits GROUP BY visitor_id, day) AS pre GROUP BY day;

-- PipelineDP 23: how many days visitors come
SELECT days, COUNT(*) AS visitors FROM (SELECT visitor_id, COUNT(DISTINCT day) AS days FROM restaurant_visits GROUP BY visitor_id) AS v GROUP BY days ORDER BY days;

-- PipelineDP 24
SELECT SUM(euros) / COUNT(DISTINCT visitor_id) AS per_visitor FROM restaurant_visits;

-- PipelineDP 25: films
SELECT movie_id, COUNT(*) AS views FROM movie_views GROUP BY movie_id ORDER BY views DESC;

-- PipelineDP 26
SELECT movie_id, COUNT(DISTINCT user_id) AS viewers FROM movie_views GROUP BY movie_id;

-- PipelineDP 27
SELECT movie_id, AVG(rating) AS mean, SUM(rating) AS sum, COUNT(*) AS count FROM movie_views GROUP BY movie_id;

-- PipelineDP 28
SELECT movie_id, VAR_POP(rating) AS variance, STDDEV_POP(rating) AS deviation FROM movie_views GROUP BY movie_id;

-- PipelineDP 29
SELECT movie_id, MEDIAN(rating) AS median FROM movie_views GROUP BY movie_id;

-- PipelineDP 30
SELECT rating, COUNT(*) AS count FROM movie_views GROUP BY rating ORDER BY rating;

-- PipelineDP 31
SELECT movie_id, rating, COUNT(*) AS count FROM movie_views GROUP BY movie_id, rating;

-- PipelineDP 32
SELECT title, AVG(rating) AS mean FROM movie_views JOIN movies USING (movie_id) GROUP BY title;

-- PipelineDP 33
SELECT m.year // 10 * 10 AS decade, COUNT(*) AS views, AVG(v.rating) AS mean FROM movie_views v JOIN movies m ON v.movie_id = m.movie_id GROUP BY decade;

-- PipelineDP 34
SELECT date_trunc('month', day) AS month, COUNT(*) AS views, COUNT(DISTINCT user_id) AS viewers FROM movie_views GROUP BY month;

-- PipelineDP 35
SELECT movie_id, COUNT(*) FILTER (WHERE rating >= 4) AS liked, 1.0 * COUNT(*) FILTER (WHERE rating >= 4) / COUNT(*) AS share FROM movie_views GROUP BY movie_id;

-- PipelineDP 36: the best films by a noisy mean
-- exact: SELECT movie_id, AVG(rating) AS mean FROM movie_views GROUP BY movie_id ORDER BY mean DESC, movie_id LIMIT 5
SELECT movie_id, AVG(rating) AS mean FROM movie_views GROUP BY movie_id ORDER BY mean DESC, movie_id LIMIT 5;

-- PipelineDP 37
SELECT AVG(mean) AS of_viewers FROM (SELECT user_id, AVG(rating) AS mean FROM movie_views GROUP BY user_id) AS u;

-- PipelineDP 38
-- exact: SELECT AVG(LEAST(GREATEST(m, 2), 4)) FROM (SELECT AVG(rating) AS m FROM movie_views GROUP BY user_id)
SELECT AVG(rating, contribution_bounds_per_group => (2, 4)) AS mean FROM movie_views;

-- PipelineDP 39: bounds of contributions: some rows, and once in each partition
-- exact: SELECT COUNT(*) FROM (SELECT DISTINCT user_id, movie_id FROM movie_views)
SELECT COUNT(*) AS pairs FROM (SELECT DISTINCT user_id, movie_id FROM movie_views) AS p;

-- PipelineDP 40
-- exact: SELECT movie_id, COUNT(DISTINCT user_id), QUANTILE_DISC(rating, 0.5) FROM movie_views WHERE day < DATE '2005-10-01' GROUP BY movie_id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 11) movie_id, COUNT(DISTINCT user_id) AS viewers, QUANTILE_DISC(rating, 0.5) AS middle FROM movie_views WHERE day < DATE '2005-10-01' GROUP BY movie_id;

-- PipelineDP 41: tuning: of several bounds, what would be kept
-- exact: SELECT k, SUM(LEAST(n, k)) FROM (SELECT COUNT(*) AS n FROM restaurant_visits GROUP BY visitor_id), (VALUES (1), (2), (3)) v(k) GROUP BY k
SELECT k, SUM(LEAST(n, k)) AS kept FROM (SELECT visitor_id, COUNT(*) AS n FROM restaurant_visits GROUP BY visitor_id) AS t CROSS JOIN (VALUES (1), (2), (3)) AS v(k) GROUP BY k;

-- PipelineDP 42
SELECT SUM(LEAST(n, 2)) AS kept, SUM(n) - SUM(LEAST(n, 2)) AS dropped FROM (SELECT visitor_id, COUNT(*) AS n FROM restaurant_visits GROUP BY visitor_id) AS t;

-- PipelineDP 43: a vector sum: one number for each coordinate
SELECT day, SUM(CASE WHEN entered < 12 THEN euros ELSE 0 END) AS morning, SUM(CASE WHEN entered BETWEEN 12 AND 16 THEN euros ELSE 0 END) AS noon, SUM(CASE WHEN entered > 16 THEN euros ELSE 0 END) AS evening FROM restaurant_visits GROUP BY day;

-- PipelineDP 44: partitions of two columns
SELECT m.year // 10 * 10 AS decade, v.rating, COUNT(DISTINCT v.user_id) AS viewers FROM movie_views v JOIN movies m USING (movie_id) GROUP BY decade, v.rating;

-- PipelineDP 45
SELECT movie_id, SUM(rating) / COUNT(DISTINCT user_id) AS each FROM movie_views GROUP BY movie_id HAVING COUNT(DISTINCT user_id) >= 60;

-- PipelineDP 46
-- exact: SELECT day, SUM(LEAST(euros, 60)), COUNT(*), COUNT(DISTINCT visitor_id), MEDIAN(minutes) FROM restaurant_visits GROUP BY day
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 7) day, SUM(euros, contribution_bounds_per_group => (0, 60)) AS s, COUNT(*) AS n, COUNT(DISTINCT visitor_id) AS v, MEDIAN(minutes) AS m FROM restaurant_visits GROUP BY day;

-- PipelineDP 47
SELECT day, entered < 14 AS early, QUANTILE_CONT(euros, 0.9) AS p90, COUNT(*) AS n FROM restaurant_visits GROUP BY ALL;

-- PipelineDP 48
SELECT COUNT(*) FROM (SELECT visitor_id FROM restaurant_visits GROUP BY visitor_id HAVING SUM(euros) > 60) AS rich;

-- PipelineDP 49
SELECT AVG(euros) FILTER (WHERE day >= 6) - AVG(euros) FILTER (WHERE day < 6) AS more FROM restaurant_visits;

-- PipelineDP 50
SELECT first_day, COUNT(*) FROM (SELECT visitor_id, MIN(day) AS first_day FROM restaurant_visits GROUP BY visitor_id) AS f GROUP BY first_day;

-- PipelineDP 51
SELECT title, n FROM (SELECT title, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, title) AS k FROM movie_views JOIN movies USING (movie_id) GROUP BY title) WHERE k <= 3;

-- Uber 1
SELECT COUNT(*) FROM purchases WHERE product_id = 1;

-- Uber 2
SELECT COUNT(purchase_id) FROM purchases;

-- Uber 3
WITH t1 AS (SELECT * FROM purchases) SELECT COUNT(*) FROM t1;

-- Uber 4
WITH t1 AS (SELECT COUNT(*) FROM purchases) SELECT * FROM t1;

-- Uber 5
SELECT COUNT(ROUND(quantity, 1)) FROM purchases;

-- Uber 6
SELECT COUNT(DISTINCT purchase_id) FROM purchases;

-- Uber 7
SELECT day, COUNT(*) FROM purchases GROUP BY 1;

-- Uber 8
SELECT day AS bin, COUNT(*) FROM purchases GROUP BY bin;

-- Uber 9
SELECT product_id, ROUND(COUNT(*), 0) FROM purchases GROUP BY 1;

-- Uber 10
-- beyond: E_DOMAIN a row for each person
SELECT buyer_id, COUNT(*) FROM purchases GROUP BY 1;

-- Uber 11
-- beyond: E_DOMAIN a bin that one person decides
SELECT quantity + buyer_id, COUNT(*) FROM purchases GROUP BY 1;

-- Uber 12
-- beyond: E_DOMAIN a bin that one person decides
SELECT CASE WHEN buyer_id = 0 THEN 0 ELSE 1 END, COUNT(*) FROM purchases GROUP BY 1;

-- Uber 13
-- exact: SELECT FALSE
SELECT COUNT(purchase_id) = 100 FROM purchases;

-- Uber 14
SELECT COUNT(*) FROM purchases JOIN recommendations ON purchases.buyer_id = recommendations.buyer_id WHERE purchases.product_id = 1;

-- Uber 15
SELECT purchases.product_id, COUNT(*) FROM purchases JOIN recommendations ON purchases.buyer_id = recommendations.buyer_id WHERE purchases.product_id = 1 GROUP BY 1;

-- Uber 16
SELECT COUNT(*) FROM purchases JOIN buyers ON purchases.buyer_id = buyers.buyer_id WHERE product_id = 1;

-- Uber 17
SELECT COUNT(*) FROM purchases JOIN goods ON purchases.product_id = goods.product_id WHERE purchases.product_id = 1;

-- Uber 18
WITH t1 AS (SELECT purchases.buyer_id FROM purchases JOIN buyers ON purchases.buyer_id = buyers.buyer_id) SELECT COUNT(*) FROM t1 JOIN recommendations ON t1.buyer_id = recommendations.buyer_id;

-- Uber 19
WITH t1 AS (SELECT purchases.buyer_id FROM purchases JOIN goods ON purchases.product_id = goods.product_id) SELECT COUNT(*) FROM t1 JOIN recommendations ON t1.buyer_id = recommendations.buyer_id;

-- Uber 20
-- beyond: E_JOIN rows of different persons meet
WITH t1 AS (SELECT purchases.buyer_id FROM purchases JOIN buyers ON purchases.quantity = buyers.address) SELECT COUNT(*) FROM t1 JOIN recommendations ON t1.buyer_id = recommendations.buyer_id;

-- Uber 21
SELECT COUNT(*) FROM purchases p1 JOIN purchases p2 ON p1.purchase_id = p2.purchase_id;

-- Uber 22
SELECT COUNT(*) FROM purchases p1 JOIN purchases p2 ON p1.buyer_id = p2.buyer_id;

-- Uber 23
WITH t1 AS (SELECT purchases.purchase_id, purchases.buyer_id FROM purchases JOIN buyers ON purchases.buyer_id = buyers.buyer_id) SELECT COUNT(*) FROM t1 JOIN purchases ON t1.purchase_id = purchases.purchase_id;

-- Uber 24
WITH t1 AS (SELECT * FROM purchases JOIN buyers USING (buyer_id)) SELECT COUNT(*) FROM t1 JOIN purchases ON t1.purchase_id = purchases.purchase_id;

-- Uber 25
WITH t1 AS (SELECT COUNT(*) AS mycount FROM purchases JOIN buyers ON purchases.buyer_id = buyers.buyer_id) SELECT mycount FROM t1;

-- Uber 26
-- beyond: E_NO_AGGREGATE rows themselves
SELECT address, day FROM purchases JOIN buyers ON purchases.buyer_id = buyers.buyer_id;

-- Uber 27
SELECT COUNT(*) + 100 FROM purchases;

-- Uber 28
SELECT COUNT(cnt) FROM (SELECT COUNT(*) AS cnt FROM purchases);

-- Uber 29
WITH t1 AS (SELECT COUNT(*) AS mycount FROM purchases) SELECT mycount / 100 FROM t1;

-- Uber 30
WITH t1 AS (SELECT product_id, AVG(quantity) AS avg_quantity FROM purchases GROUP BY 1) SELECT COUNT(avg_quantity) FROM t1;

-- Uber 31
WITH t1 AS (SELECT day, COUNT(*) + 1 AS plus_one FROM purchases GROUP BY 1) SELECT COUNT(day) FROM t1 WHERE plus_one < 20;

-- Uber 32
-- beyond: E_JOIN rows of different persons meet
SELECT COUNT(*) FROM purchases JOIN buyers ON purchases.purchase_id < buyers.buyer_id;

-- Uber 33
-- beyond: E_JOIN rows of different persons meet
SELECT COUNT(*) FROM purchases JOIN buyers ON purchases.product_id = 1;

-- Uber 34
SELECT COUNT(*) FROM purchases, buyers WHERE purchases.buyer_id = buyers.buyer_id;

-- Uber 35
-- beyond: E_JOIN rows of different persons meet
SELECT COUNT(*) FROM purchases, buyers;

-- Uber 36
-- beyond: E_JOIN rows of different persons meet
WITH t1 AS (SELECT buyer_id + 1 AS buyer_id FROM buyers) SELECT COUNT(*) FROM recommendations JOIN t1 ON recommendations.buyer_id = t1.buyer_id;

-- Uber 37
WITH counted AS (SELECT COUNT(*) AS product_id FROM purchases) SELECT COUNT(*) FROM counted JOIN goods ON counted.product_id = goods.product_id;

-- Uber 38
SELECT (AVG(quantity) / COUNT(*)) AS "result" FROM purchases;

-- Uber 39
SELECT COUNT(*) AS my_count, SUM(quantity) AS my_sum, AVG(quantity) AS my_avg FROM purchases;

-- Uber 40
SELECT SUM(g.price * p.quantity) AS revenue FROM purchases p JOIN goods g ON p.product_id = g.product_id;

-- Uber 41
SELECT AVG(g.price) AS paid FROM purchases p JOIN goods g ON p.product_id = g.product_id WHERE g.price > 20;

-- Uber 42: rides
SELECT COUNT(*) FROM trips WHERE status = 'completed';

-- Uber 43
SELECT city_id, COUNT(*) AS trips FROM trips WHERE day BETWEEN DATE '2017-02-01' AND DATE '2017-02-28' GROUP BY city_id;

-- Uber 44
SELECT c.name, COUNT(*) AS trips FROM trips t JOIN cities c ON t.city_id = c.city_id GROUP BY c.name;

-- Uber 45
SELECT c.name, COUNT(DISTINCT t.rider_id) AS riders FROM trips t JOIN cities c USING (city_id) WHERE t.status = 'completed' GROUP BY c.name;

-- Uber 46
SELECT COUNT(DISTINCT t.driver_id) FROM trips t JOIN drivers d ON t.driver_id = d.driver_id WHERE d.vehicle = 'van';

-- Uber 47
SELECT d.vehicle, COUNT(*) AS trips, AVG(t.fare) AS fare FROM trips t JOIN drivers d ON t.driver_id = d.driver_id WHERE t.status = 'completed' GROUP BY d.vehicle;

-- Uber 48
SELECT COUNT(*) FROM trips t JOIN drivers d ON t.driver_id = d.driver_id WHERE t.city_id = d.city_id;

-- Uber 49
SELECT COUNT(*) FROM trips t JOIN drivers d ON t.driver_id = d.driver_id AND t.city_id <> d.city_id;

-- Uber 50
SELECT COUNT(*) FROM trips t JOIN riders r ON t.rider_id = r.rider_id WHERE r.banned AND t.status <> 'completed';

-- Uber 51
SELECT r.pays, c.region, COUNT(*) AS trips FROM trips t JOIN riders r ON t.rider_id = r.rider_id JOIN cities c ON t.city_id = c.city_id GROUP BY r.pays, c.region;

-- Uber 52
SELECT COUNT(*) FROM trips t JOIN riders r ON t.rider_id = r.rider_id WHERE t.city_id = r.home_city;

-- Uber 53
SELECT hour, SUM(CASE WHEN status = 'completed' THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS completed FROM trips GROUP BY hour ORDER BY hour;

-- Uber 54
SELECT day, COUNT(*) AS trips, SUM(COUNT(*)) OVER (ORDER BY day) AS so_far FROM trips GROUP BY day ORDER BY day;

-- Uber 55
SELECT COUNT(*) FROM (SELECT rider_id, COUNT(*) AS n FROM trips WHERE status = 'completed' GROUP BY rider_id HAVING COUNT(*) >= 3) AS active;

-- Uber 56
SELECT r.pays, COUNT(*) AS riders FROM riders r WHERE r.rider_id NOT IN (SELECT rider_id FROM trips) GROUP BY r.pays;

-- Uber 57
SELECT COUNT(*) FROM riders r LEFT JOIN trips t ON r.rider_id = t.rider_id WHERE t.rider_id IS NULL;

-- Uber 58
SELECT n, COUNT(*) AS riders FROM (SELECT r.rider_id, COUNT(t.trip_id) AS n FROM riders r LEFT JOIN trips t ON r.rider_id = t.rider_id GROUP BY r.rider_id) AS c GROUP BY n ORDER BY n;

-- Uber 59
SELECT COUNT(*) FROM trips a JOIN trips b ON a.rider_id = b.rider_id AND a.day < b.day WHERE a.city_id <> b.city_id;

-- Uber 60
SELECT COUNT(DISTINCT a.rider_id) FROM trips a JOIN trips b ON a.rider_id = b.rider_id WHERE a.city_id = 1 AND b.city_id = 2;

-- Uber 61
SELECT (SELECT COUNT(*) FROM trips WHERE status = 'completed') * 1.0 / (SELECT COUNT(DISTINCT rider_id) FROM trips) AS per_rider;

-- Uber 62
SELECT AVG(stars) AS rating, COUNT(stars) AS rated, COUNT(*) - COUNT(stars) AS unrated FROM trips;

-- Uber 63
SELECT CASE WHEN km < 5 THEN 'short' WHEN km < 15 THEN 'middle' ELSE 'long' END AS length, AVG(fare) AS fare, SUM(fare) / SUM(km) AS per_km FROM trips GROUP BY length;

-- Uber 64
SELECT t.city_id, AVG(t.fare) AS fare FROM trips t WHERE EXISTS (SELECT 1 FROM riders r WHERE r.rider_id = t.rider_id AND r.signed_up < DATE '2016-06-01') GROUP BY t.city_id;

-- Uber 65
WITH weekly AS (SELECT date_trunc('week', day) AS week, city_id, COUNT(*) AS n FROM trips GROUP BY 1, 2) SELECT week, SUM(n) AS trips, AVG(n) AS per_city FROM weekly GROUP BY week ORDER BY week;

-- Uber 66
SELECT city_id, trips, RANK() OVER (ORDER BY trips DESC) AS place FROM (SELECT city_id, COUNT(*) AS trips FROM trips GROUP BY city_id) AS c;

-- Uber 67
SELECT c.name, t.n * 1000.0 / c.people AS per_thousand FROM (SELECT city_id, COUNT(*) AS n FROM trips GROUP BY city_id) t JOIN cities c ON t.city_id = c.city_id ORDER BY c.name;

-- Uber 68
SELECT status, COUNT(*) FROM trips GROUP BY status UNION ALL SELECT 'all', COUNT(*) FROM trips;

-- Uber 69
SELECT COUNT(*) FROM trips WHERE city_id IN (SELECT city_id FROM cities WHERE people > 300000);

-- Uber 70
SELECT city_id, COUNT(DISTINCT trip_id) AS trips, COUNT(DISTINCT rider_id) AS riders, COUNT(DISTINCT driver_id) AS drivers FROM trips GROUP BY city_id;

-- Uber 71
SELECT c.name, COUNT(DISTINCT t.trip_id) FILTER (WHERE t.status = 'completed') * 1.0 / COUNT(DISTINCT t.trip_id) AS rate FROM trips t JOIN cities c USING (city_id) GROUP BY c.name ORDER BY rate;

-- Uber 72
SELECT AVG(n) AS per_driver FROM (SELECT driver_id, COUNT(*) AS n FROM trips GROUP BY driver_id) AS d;

-- Uber 73
SELECT COUNT(*) FROM (SELECT driver_id, COUNT(*) AS n FROM trips GROUP BY driver_id HAVING COUNT(*) > 60) AS busy;

-- Uber 74
SELECT driver_id, COUNT(*) AS n FROM trips GROUP BY driver_id ORDER BY n DESC, driver_id LIMIT 10;

-- Uber 75
SELECT city_id, QUANTILE_CONT(fare, 0.5) AS median, QUANTILE_CONT(fare, 0.95) AS p95 FROM trips WHERE status = 'completed' GROUP BY city_id;

-- Uber 76
WITH w AS (SELECT date_trunc('week', day) AS week, COUNT(*) AS n FROM trips GROUP BY 1) SELECT week, n, n - LAG(n) OVER (ORDER BY week) AS more FROM w ORDER BY week;

-- Uber 77
SELECT city_id FROM trips GROUP BY city_id HAVING COUNT(DISTINCT rider_id) > 300;

-- Uber 78
SELECT COUNT(DISTINCT t.rider_id) FROM trips t WHERE t.day < DATE '2017-02-01' AND EXISTS (SELECT 1 FROM trips u WHERE u.rider_id = t.rider_id AND u.day >= DATE '2017-03-01');

-- Uber 79
SELECT date_trunc('month', first_day) AS cohort, COUNT(*) AS riders FROM (SELECT rider_id, MIN(day) AS first_day FROM trips GROUP BY rider_id) AS f GROUP BY cohort ORDER BY cohort;

-- Uber 80
SELECT pays, AVG(n) AS mean FROM (SELECT r.rider_id, r.pays, COUNT(*) AS n FROM riders r JOIN trips t ON t.rider_id = r.rider_id GROUP BY r.rider_id, r.pays) AS x GROUP BY pays;

-- Uber 81
SELECT dayofweek(day) AS d, hour, COUNT(*) AS trips FROM trips GROUP BY d, hour HAVING COUNT(*) > 15;

-- Uber 82
SELECT COUNT(*) FROM trips WHERE status LIKE '%canceled' AND fare BETWEEN 10 AND 20;

-- Uber 83
-- beyond: E_JOIN rows of different persons meet
SELECT COUNT(*) FROM trips a JOIN trips b ON a.driver_id = b.driver_id AND a.day = b.day;

-- Uber 84
SELECT city_id, SUM(fare) AS gross, SUM(fare) * 0.2 AS fee, SUM(CASE WHEN stars >= 4 THEN fare END) AS good FROM trips GROUP BY city_id;

-- Uber 85
SELECT CASE WHEN signed_up < DATE '2016-07-01' THEN 'old' ELSE 'new' END AS age, COUNT(*) AS riders, COUNT(*) FILTER (WHERE banned) AS banned FROM riders GROUP BY age;

-- Uber 86
SELECT d.since, COUNT(DISTINCT t.rider_id) AS riders, COUNT(DISTINCT t.trip_id) AS trips FROM trips t JOIN drivers d USING (driver_id) GROUP BY d.since ORDER BY d.since;

-- Uber 87
SELECT c.region, SUM(x.n) AS trips FROM (SELECT city_id, COUNT(*) AS n FROM trips GROUP BY city_id) x JOIN cities c USING (city_id) GROUP BY c.region;

-- Uber 88
SELECT COUNT(*) AS n FROM trips t JOIN drivers d ON t.driver_id = d.driver_id JOIN cities c ON d.city_id = c.city_id WHERE c.region = 'north' AND NOT d.suspended;

-- Uber 89
SELECT (SELECT COUNT(*) FROM riders) - (SELECT COUNT(DISTINCT rider_id) FROM trips) AS idle;

-- Uber 90
SELECT city_id, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM trips GROUP BY city_id;

-- Uber 91
SELECT g.name, COUNT(p.purchase_id) AS bought FROM purchases p JOIN goods g USING (product_id) GROUP BY g.name ORDER BY bought DESC LIMIT 3;

-- Uber 92
SELECT COUNT(*) FROM recommendations r WHERE EXISTS (SELECT 1 FROM purchases p WHERE p.buyer_id = r.buyer_id AND p.product_id = r.product_id);

-- Uber 93
SELECT score, COUNT(*) FROM recommendations JOIN buyers USING (buyer_id) WHERE buyers.status = 'gold' GROUP BY score;

-- Uber 94: values looked up of the row around
SELECT (SELECT name FROM cities c WHERE c.city_id = t.city_id) AS city, COUNT(*) FROM trips t GROUP BY city;

-- Uber 95
SELECT COUNT(*) FROM trips t WHERE (SELECT people FROM cities c WHERE c.city_id = t.city_id) > 300000;

-- Uber 96
SELECT SUM(p.quantity * (SELECT price FROM goods g WHERE g.product_id = p.product_id)) AS revenue FROM purchases p;

-- Uber 97
SELECT city_id, n * 1.0 / (SELECT people FROM cities c WHERE c.city_id = x.city_id) AS rate FROM (SELECT city_id, COUNT(*) AS n FROM trips GROUP BY city_id) x;

-- Uber 98
SELECT COUNT(*) FROM trips WHERE trip_id IS NOT NULL;

-- Uber 99
SELECT COUNT(*) FROM riders r LEFT JOIN trips t ON r.rider_id = t.rider_id WHERE t.trip_id IS NULL;

-- Uber 100
SELECT city_id, MEDIAN(fare - 2 * km) AS m FROM trips WHERE status = 'completed' GROUP BY city_id;

-- Uber 101
SELECT r.pays, QUANTILE_DISC(date_diff('day', r.signed_up, t.day), 0.5) AS days FROM trips t JOIN riders r USING (rider_id) GROUP BY r.pays;

-- ZetaSQL 1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) COUNT(*) AS n FROM typed;

-- ZetaSQL 2
-- exact: SELECT SUM(LEAST(n, 100)) FROM (SELECT COUNT(*) AS n FROM typed GROUP BY uid)
SELECT WITH ANONYMIZATION ANON_COUNT(* CLAMPED BETWEEN 0 AND 100) FROM typed;

-- ZetaSQL 3
-- exact: SELECT SUM(LEAST(n, 2)) FROM (SELECT COUNT(*) AS n FROM typed GROUP BY uid)
SELECT WITH ANONYMIZATION ANON_COUNT(* CLAMPED BETWEEN 0 AND 2) AS c FROM typed;

-- ZetaSQL 4
-- exact: SELECT SUM(n) FROM (SELECT COUNT(maybe) AS n FROM typed GROUP BY uid)
SELECT WITH ANONYMIZATION ANON_COUNT(maybe) AS c FROM typed;

-- ZetaSQL 5
-- exact: SELECT SUM(LEAST(s, 20)) FROM (SELECT SUM(whole) AS s FROM typed GROUP BY uid)
SELECT WITH ANONYMIZATION ANON_SUM(whole CLAMPED BETWEEN 0 AND 20) AS s FROM typed;

-- ZetaSQL 6
-- exact: SELECT word, SUM(LEAST(s, 20)) FROM (SELECT word, SUM(whole) AS s FROM typed GROUP BY uid, word) GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_SUM(whole CLAMPED BETWEEN 0 AND 20) AS s FROM typed GROUP BY word;

-- ZetaSQL 7
-- exact: SELECT word, AVG(LEAST(m, 15)) FROM (SELECT word, AVG(whole) AS m FROM typed GROUP BY uid, word) GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_AVG(whole CLAMPED BETWEEN 0 AND 15) AS a FROM typed GROUP BY word;

-- ZetaSQL 8
-- exact: SELECT word, VAR_POP(LEAST(whole, 15)) FROM typed GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_VAR_POP(whole CLAMPED BETWEEN 0 AND 15) AS v FROM typed GROUP BY word;

-- ZetaSQL 9
-- exact: SELECT word, STDDEV_POP(LEAST(whole, 15)) FROM typed GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_STDDEV_POP(whole CLAMPED BETWEEN 0 AND 15) AS v FROM typed GROUP BY word;

-- ZetaSQL 10
-- exact: SELECT word, QUANTILE_CONT(whole, 0.5) FROM typed GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_PERCENTILE_CONT(whole, 0.5 CLAMPED BETWEEN 0 AND 19) AS p FROM typed GROUP BY word;

-- ZetaSQL 11
-- exact: SELECT word, [QUANTILE_DISC(whole, 0.0), QUANTILE_DISC(whole, 0.5), QUANTILE_DISC(whole, 1.0)] FROM typed GROUP BY word
SELECT WITH ANONYMIZATION word, ANON_QUANTILES(whole, 2 CLAMPED BETWEEN 0 AND 19) AS p FROM typed GROUP BY word;

-- ZetaSQL 12
-- exact: SELECT word, COUNT(*) FROM typed GROUP BY word
SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, delta = 1e-6, kappa = 3) word, ANON_COUNT(*) AS n FROM typed GROUP BY word;

-- ZetaSQL 13
-- exact: SELECT word, COUNT(*) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 3) word, COUNT(*) AS n FROM typed GROUP BY word;

-- ZetaSQL 14
-- exact: SELECT word, VAR_POP(whole), QUANTILE_CONT(whole, 0.5), COUNT(*) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 3) word, VAR_POP(whole) AS v, PERCENTILE_CONT(whole, 0.5) AS p, COUNT(*) AS n FROM typed GROUP BY word;

-- ZetaSQL 15
-- exact: SELECT COUNT(DISTINCT uid) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 1) COUNT(*) AS n FROM typed;

-- ZetaSQL 16
-- exact: SELECT SUM(LEAST(n, 2)), COUNT(*) FROM (SELECT COUNT(*) AS n FROM typed GROUP BY uid)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 2) COUNT(*) AS n, COUNT(DISTINCT uid) AS people FROM typed;

-- ZetaSQL 17
-- exact: SELECT word, COUNT(*) FROM typed GROUP BY word HAVING COUNT(DISTINCT uid) >= 10
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, min_privacy_units_per_group = 10) word, COUNT(*) AS n FROM typed GROUP BY word;

-- ZetaSQL 18
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, group_selection_strategy = PUBLIC_GROUPS) word, COUNT(*) AS n FROM typed GROUP BY word;

-- ZetaSQL 19
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = uid) flag, SUM(big) AS s FROM typed GROUP BY flag;

-- ZetaSQL 20
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = t.uid) t.flag, SUM(t.big) AS s FROM typed AS t GROUP BY t.flag;

-- ZetaSQL 21
-- exact: SELECT word, SUM(real) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, SUM(real, contribution_bounds_per_group => (0, 400)) AS s FROM typed GROUP BY word;

-- ZetaSQL 22
-- exact: SELECT word, SUM(real), SUM(real) / COUNT(real) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, SUM(real) AS s, AVG(real) AS a FROM typed GROUP BY word;

-- ZetaSQL 23
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNTIF(flag) AS yes, COUNT(*) AS n FROM typed;

-- ZetaSQL 24
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) SUM(whole) + COUNT(*) AS t, 2 * SUM(whole) AS d FROM typed;

-- ZetaSQL 25
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word AS k, COUNT(*) AS n FROM typed GROUP BY k HAVING COUNT(*) > 5 ORDER BY n DESC LIMIT 2;

-- ZetaSQL 26
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) EXTRACT(DAY FROM day) AS d, COUNT(*) AS n FROM typed GROUP BY d;

-- ZetaSQL 27
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) whole + 1 AS k, COUNT(*) AS n FROM typed WHERE whole < 10 GROUP BY whole + 1;

-- ZetaSQL 28: joins
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a INNER JOIN typed b ON a.uid = b.uid;

-- ZetaSQL 29
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a INNER JOIN typed b USING (uid);

-- ZetaSQL 30
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN others b ON a.uid = b.uid AND a.big > b.big;

-- ZetaSQL 31
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) b.kind, SUM(a.whole) AS s FROM typed a LEFT JOIN others b ON a.uid = b.uid GROUP BY b.kind;

-- ZetaSQL 32
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) b.kind, COUNT(*) AS n FROM others b RIGHT JOIN typed a ON a.uid = b.uid GROUP BY b.kind;

-- ZetaSQL 33
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a FULL JOIN others b ON a.uid = b.uid;

-- ZetaSQL 34
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, big FROM typed WHERE flag) a JOIN (SELECT uid FROM others WHERE kind = 'x') b ON a.uid = b.uid;

-- ZetaSQL 35
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) p.flag, COUNT(*) AS n FROM typed a JOIN plain p ON a.big = p.big GROUP BY p.flag;

-- ZetaSQL 36
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a LEFT JOIN plain p ON a.big = p.big;

-- ZetaSQL 37
-- exact: SELECT COUNT(*) FROM typed a JOIN plain p ON a.big > p.big WHERE p.big < 5
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN plain p ON a.big > p.big WHERE p.big < 5;

-- ZetaSQL 38
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN others b ON a.uid = b.uid JOIN plain p ON p.big = b.big;

-- ZetaSQL 39
-- beyond: E_JOIN rows of different persons meet
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a, typed b;

-- ZetaSQL 40
-- beyond: E_JOIN rows of different persons meet
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN typed b ON a.uid = a.uid;

-- ZetaSQL 41
-- beyond: E_JOIN rows of different persons meet
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN typed b ON (a.uid = a.uid OR a.big = b.big);

-- ZetaSQL 42
-- refused: E_JOIN units are compared as they are
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a JOIN typed b ON CAST(a.uid AS VARCHAR) = CAST(b.uid AS VARCHAR);

-- ZetaSQL 43
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed CROSS JOIN UNNEST([1, 2, 3]) AS e;

-- ZetaSQL 44
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed JOIN UNNEST([1, 2, 3]) AS e(x) ON whole = e.x;

-- ZetaSQL 45: WITH
WITH t AS (SELECT * FROM typed) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM t;

-- ZetaSQL 46
WITH t1 AS (SELECT uid FROM typed) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT * FROM t1);

-- ZetaSQL 47
WITH t1 AS (SELECT * FROM typed), t2 AS (SELECT * FROM typed), t3 AS (SELECT * FROM plain) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT * FROM t1);

-- ZetaSQL 48
WITH t1 AS (SELECT uid, big FROM typed), t2 AS (SELECT uid FROM t1 WHERE big > 50) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM t2 JOIN others USING (uid);

-- ZetaSQL 49
WITH t1 AS (SELECT uid, word, SUM(whole) AS s FROM typed GROUP BY uid, word) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, SUM(s) AS s FROM t1 GROUP BY word;

-- ZetaSQL 50
WITH t1 AS (SELECT 1 AS one FROM typed) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT * FROM t1);

-- ZetaSQL 51: sub-queries
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed WHERE EXISTS (SELECT big FROM plain);

-- ZetaSQL 52
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed WHERE big IN (SELECT big FROM plain WHERE flag);

-- ZetaSQL 53
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed WHERE big < (SELECT MAX(big) / 2 FROM plain);

-- ZetaSQL 54
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed a WHERE EXISTS (SELECT 1 FROM plain p WHERE p.big = a.big AND p.flag);

-- ZetaSQL 55
-- beyond: E_SUBQUERY whether anybody is in the data: one row decides
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed WHERE EXISTS (SELECT uid FROM typed);

-- ZetaSQL 56
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM typed WHERE uid IN (SELECT uid FROM others);

-- ZetaSQL 57
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n, (SELECT COUNT(*) FROM plain) AS m FROM typed;

-- ZetaSQL 58
SELECT n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n FROM typed GROUP BY word) WHERE word = 'aa';

-- ZetaSQL 59
SELECT p.word, x.n FROM plain p JOIN (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) whole, COUNT(*) AS n FROM typed GROUP BY whole) x ON p.big = x.whole;

-- ZetaSQL 60
-- exact: SELECT big FROM plain WHERE big < 3
SELECT big FROM plain WHERE big < 3 AND EXISTS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM typed);

-- ZetaSQL 61: set operations
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, whole FROM typed UNION ALL SELECT uid, whole FROM typed);

-- ZetaSQL 62
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, whole FROM typed UNION DISTINCT SELECT uid, big FROM others);

-- ZetaSQL 63
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, whole FROM typed INTERSECT DISTINCT SELECT uid, big FROM others);

-- ZetaSQL 64
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid FROM typed EXCEPT DISTINCT SELECT uid FROM others);

-- ZetaSQL 65
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, whole FROM typed INTERSECT ALL SELECT uid, whole FROM typed);

-- ZetaSQL 66
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT uid, whole FROM typed EXCEPT ALL SELECT uid, big FROM others);

-- ZetaSQL 67
SELECT word, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n FROM typed GROUP BY word) UNION ALL SELECT 'none', 0;

-- ZetaSQL 68: reports
-- exact: SELECT word, COUNT(*) FROM typed GROUP BY word
SELECT word, CAST(FLOAT64(r.result.value) AS DOUBLE) AS n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*, report_format => 'JSON') AS r FROM typed GROUP BY word);

-- ZetaSQL 69
-- exact: SELECT word FROM typed GROUP BY word HAVING COUNT(*) > 5
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word FROM typed GROUP BY word HAVING FLOAT64(COUNT(*, report_format => 'JSON').result.value) > 5;

-- ZetaSQL 70
-- exact: SELECT word, COUNT(*) FROM typed GROUP BY word HAVING COUNT(*) > 5
SELECT word, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n, COUNT(*, report_format => 'JSON') AS r FROM typed GROUP BY word HAVING r.result.value > 5);

-- ZetaSQL 71
-- refused: E_SETTING reports are texts in JSON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*, report_format => 'PROTO') AS r FROM typed;

-- ZetaSQL 72: what the dialect refuses, too
-- beyond: E_NO_AGGREGATE rows themselves
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word FROM typed;

-- ZetaSQL 73
-- beyond: E_DOMAIN a row for each person
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) uid, COUNT(*) FROM typed GROUP BY uid;

-- ZetaSQL 74
-- beyond: E_AGGREGATE one row decides
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ANY_VALUE(big) FROM typed;

-- ZetaSQL 75
-- exact: SELECT word, COUNT(DISTINCT uid) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(DISTINCT uid, contribution_bounds_per_group => (0, 1)) AS n FROM typed GROUP BY word;

-- ZetaSQL 76
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(DISTINCT uid) AS n FROM typed GROUP BY ROLLUP (word);

-- ZetaSQL 77
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, flag, SUM(whole) AS s FROM typed GROUP BY GROUPING SETS ((word), (flag), ());

-- ZetaSQL 78
-- exact: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) AS n FROM typed;

-- ZetaSQL 79
-- exact: SELECT word, COUNT(DISTINCT uid), VAR_POP(LEAST(whole, 15)) FROM typed GROUP BY word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 3) word, COUNT(DISTINCT uid) AS people, VAR_POP(whole, contribution_bounds_per_row => (0, 15)) AS v FROM typed GROUP BY word;

-- ZetaSQL 80
-- exact: SELECT flag, word, AVG(whole), SUM(LEAST(s, 30)) FROM (SELECT uid, flag, word, SUM(whole) AS s FROM typed GROUP BY ALL) JOIN (SELECT flag, word, AVG(whole) AS whole FROM typed GROUP BY ALL) USING (flag, word) GROUP BY flag, word
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 4) flag, word, AVG(whole) AS a, SUM(whole, contribution_bounds_per_group => (0, 30)) AS s FROM typed GROUP BY flag, word;

-- ZetaSQL 81
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) APPROX_COUNT_DISTINCT(word) AS n FROM typed;

-- ZetaSQL 82
-- beyond: E_AGGREGATE rows themselves
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ARRAY_AGG(big) FROM typed;

-- ZetaSQL 83
-- beyond: E_AGGREGATE rows themselves
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) STRING_AGG(word) FROM typed;

-- ZetaSQL 84
SELECT word, n, RANK() OVER (ORDER BY n DESC) AS r FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n FROM typed GROUP BY word);

-- ZetaSQL 85
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, SUM(CASE WHEN flag THEN whole ELSE 0 END) AS s, AVG(IF(flag, whole, NULL)) AS a FROM typed GROUP BY word;

-- ZetaSQL 86
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) AS n FROM (SELECT * FROM (SELECT uid, big FROM typed WHERE big > 10) WHERE big < 90);

-- ZetaSQL 87
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) kind, COUNT(*) AS n FROM (SELECT a.uid, b.kind, a.big FROM typed a JOIN others b ON a.uid = b.uid) GROUP BY kind;

-- ZetaSQL 88
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) SUM(LEAST(real, 50)) / COUNT(*) AS m, 2 * SUM(LEAST(real, 50)) AS d FROM typed;

-- ZetaSQL 89
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) SUM(2 * LEAST(real, 50) + whole) AS s FROM typed;

-- ZetaSQL 90
-- refused: E_BIN_EDGE the last bin holds its upper edge, which FLOOR tells from the rest
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) FLOOR(real / 10) AS bin, COUNT(*) AS n, AVG(big) AS a FROM typed GROUP BY bin ORDER BY bin;

-- ZetaSQL 91
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COALESCE(maybe, -1) AS m, COUNT(*) AS n FROM typed GROUP BY m;

-- ZetaSQL 92
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) DATE_TRUNC('week', day) AS w, COUNT(DISTINCT uid) AS people FROM typed GROUP BY w;

-- ZetaSQL 93
SELECT * RENAME (n AS rows) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n FROM typed GROUP BY word) ORDER BY rows;

-- ZetaSQL 94
SELECT * REPLACE (-n AS n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, COUNT(*) AS n FROM typed GROUP BY word) ORDER BY n LIMIT 1;

-- ZetaSQL 95
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AVG(IF(flag, whole, big)) AS a, SUM(2 * IF(flag, whole, 0)) AS s, SUM(COALESCE(maybe, whole)) AS c FROM typed;

-- ZetaSQL 96
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, SUM(LEAST(maybe, whole)) AS l, AVG(ABS(whole - big)) AS d FROM typed GROUP BY word;

-- ZetaSQL 97
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) word, MEDIAN(IF(flag, whole, NULL)) AS m FROM typed GROUP BY word;

-- ZetaSQL 98: public groups that stay, quantiles and variances of them, too
-- exact: SELECT k.age, MEDIAN(borrowed), VAR_POP(borrowed), STDDEV(borrowed), QUANTILE_DISC(borrowed, 0.5), COUNT(member_id), COUNT_IF(borrowed > 20) FROM (VALUES (5), (6), (30), (31)) k(age) LEFT JOIN members USING (age) GROUP BY k.age
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, group_selection_strategy = PUBLIC_GROUPS) k.age, MEDIAN(borrowed) AS m, VAR_POP(borrowed) AS v, STDDEV(borrowed) AS s, QUANTILE_DISC(borrowed, 0.5) AS q, COUNT(member_id) AS n, COUNT_IF(borrowed > 20) AS many FROM members RIGHT JOIN UNNEST([5, 6, 30, 31]) AS k(age) USING (age) GROUP BY k.age;

-- ZetaSQL 99
-- exact: SELECT word, COUNT(*) FROM typed WHERE big < 60 GROUP BY word HAVING COUNT(DISTINCT uid) >= 10
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, min_privacy_units_per_group = 10) word, COUNT(*) AS n FROM (SELECT uid AS person, word FROM typed WHERE big < 60) AS s GROUP BY word;

-- ZetaSQL 100
-- exact: SELECT whole, AVG(big) FROM typed GROUP BY whole HAVING COUNT(DISTINCT uid) >= 40
WITH w AS (SELECT * FROM typed), v AS (SELECT uid, whole, big FROM w) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, min_privacy_units_per_group = 40) whole, AVG(big) AS a FROM v GROUP BY whole;
