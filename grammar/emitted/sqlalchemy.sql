-- emitted by sqlalchemy 2.1.9, captured by grammar/emitted/capture.py

SELECT count(*) AS count_1 
FROM adult;

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.age > 30;

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.age > 30 AND adult.sex = 'Female';

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.age > 60 OR adult.education = 'Doctorate';

SELECT count(*) AS count_1 
FROM adult 
WHERE (adult.race NOT IN ('White', 'Black'));

SELECT count(*) AS count_1 
FROM adult 
WHERE (adult.race NOT IN ('White', 'Black'));

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.age BETWEEN 25 AND 34;

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.education LIKE '%%th';

SELECT count(*) AS count_1 
FROM adult 
WHERE (adult.education LIKE 'Pre' || '%%');

SELECT count(*) AS count_1 
FROM adult 
WHERE adult.sex IS NOT NULL AND adult.age != 40;

SELECT adult.sex, count(*) AS count_1 
FROM adult GROUP BY adult.sex;

SELECT adult.sex, adult.race, count(*) AS n, sum(adult.age) AS sum_1 
FROM adult GROUP BY adult.sex, adult.race;

SELECT adult.sex, avg(adult.age) AS mean 
FROM adult GROUP BY adult.sex ORDER BY adult.sex;

SELECT adult.race, count(*) AS n 
FROM adult GROUP BY adult.race ORDER BY n DESC 
 LIMIT 3 OFFSET 1;

SELECT adult.race, count(*) AS n 
FROM adult GROUP BY adult.race 
HAVING count(*) > 100;

SELECT FLOOR(adult.age / 10) AS decade, count(*) AS n 
FROM adult GROUP BY decade;

SELECT CASE WHEN (adult.age < 30) THEN 'young' ELSE 'old' END AS b, count(*) AS count_1 
FROM adult GROUP BY b;

SELECT sum(CASE WHEN (adult.income = '>50K') THEN 1 ELSE 0 END) AS sum_1 
FROM adult;

SELECT count(*) FILTER (WHERE adult.age > 60) AS anon_1, count(adult.sex) AS count_1 
FROM adult;

SELECT adult.age, sum(count(*)) OVER (ORDER BY adult.age) AS upto 
FROM adult GROUP BY adult.age;

SELECT adult.sex, adult.race, count(*) AS count_1 
FROM adult GROUP BY CUBE(adult.sex, adult.race);

SELECT adult.sex, adult.race, count(*) AS count_1 
FROM adult GROUP BY ROLLUP(adult.sex, adult.race);

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY adult.age) AS percentile_cont_1 
FROM adult;

SELECT bands.name, count(*) AS count_1 
FROM adult JOIN bands ON adult.age BETWEEN bands.lo AND bands.hi GROUP BY bands.name;

SELECT sum(adult.capital_gain) AS sum_1, avg(adult.capital_gain) AS avg_1 
FROM adult;
