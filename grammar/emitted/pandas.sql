-- emitted by pandas 3.1.1, captured by grammar/emitted/capture.py

SELECT COUNT(*) AS n FROM adult;

SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex;

SELECT race, AVG(age) AS mean
    FROM adult
    GROUP BY race;

SELECT education, COUNT(*) AS n FROM adult WHERE age >= 25 GROUP BY 1 ORDER BY 2 DESC;
