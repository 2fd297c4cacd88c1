-- A tour of dpsql on the Adult table: one file, one budget, one joint measurement.

-- How many people are there?
SELECT COUNT(*) AS people FROM adult;

-- One column.
SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex;

-- Two columns, with the standard error of every number as a column of its own.
SELECT education, income, COUNT(*) AS people, DP_STDDEV(people) AS stddev
FROM adult
GROUP BY education, income;

-- A computed key: decades of age.
SELECT age // 10 * 10 AS decade, COUNT(*) AS people FROM adult GROUP BY decade ORDER BY decade;

-- Conditions on several columns.
SELECT workclass, COUNT(*) AS full_time
FROM adult
WHERE age BETWEEN 25 AND 54 AND hours_per_week >= 40
GROUP BY workclass;

-- Patterns.
SELECT relationship, COUNT(*) AS married
FROM adult
WHERE marital_status LIKE 'Married%'
GROUP BY relationship;

-- Lists of values, and a confidence interval.
SELECT race, COUNT(*) AS graduates, DP_INTERVAL_LOW(graduates) AS low, DP_INTERVAL_HIGH(graduates) AS high
FROM adult
WHERE education IN ('Bachelors', 'Masters', 'Prof-school', 'Doctorate')
GROUP BY race;

-- CASE as a key.
SELECT CASE WHEN hours_per_week < 35 THEN 'part time'
            WHEN hours_per_week <= 40 THEN 'full time'
            ELSE 'overtime' END AS hours,
       COUNT(*) AS people
FROM adult
GROUP BY hours;

-- Groups chosen and ordered by noisy counts: post-processing, free of charge.
SELECT native_country, COUNT(*) AS people
FROM adult
WHERE native_country NOT IN ('United-States', '?')
GROUP BY native_country
HAVING COUNT(*) >= 150
ORDER BY people DESC
LIMIT 10;

-- A rate: the ratio of two counts.
SELECT sex,
       COUNT(*) AS people,
       COUNT(*) FILTER (WHERE income = '>50K') AS well_paid,
       100.0 * COUNT(*) FILTER (WHERE income = '>50K') / COUNT(*) AS percent
FROM adult
GROUP BY sex;

-- The most frequent occupations of the young.
SELECT occupation, COUNT(*) AS people
FROM adult
WHERE age < 30 AND occupation <> '?'
GROUP BY occupation
ORDER BY people DESC
LIMIT 5;

-- Several conditions side by side.
SELECT COUNT(*) FILTER (WHERE age < 25) AS under_25,
       COUNT(*) FILTER (WHERE age BETWEEN 25 AND 64) AS working_age,
       COUNT(*) FILTER (WHERE age >= 65) AS over_64
FROM adult;

-- Means of groups, from one measurement with their counts: values are clipped to the declared bounds.
SELECT sex, COUNT(*) AS people, AVG(capital_gain) AS mean_gain FROM adult GROUP BY sex;

-- OR across columns.
SELECT COUNT(*) AS busy_or_well_paid FROM adult WHERE hours_per_week >= 60 OR income = '>50K';

-- Several groupings in one statement; GROUPING tells totals from groups.
SELECT sex, income, GROUPING(sex, income) AS level, COUNT(*) AS people
FROM adult
GROUP BY GROUPING SETS ((sex, income), (sex), (income), ());

-- A running total.
SELECT age // 10 * 10 AS decade, SUM(COUNT(*)) OVER (ORDER BY age // 10 * 10) AS up_to_this_decade
FROM adult
GROUP BY decade;

-- A median and quartiles, read from noisy running totals.
SELECT QUANTILE_DISC(education_num, 0.25) AS lower_quartile,
       MEDIAN(education_num) AS median_years,
       QUANTILE_DISC(education_num, 0.75) AS upper_quartile
FROM adult;
