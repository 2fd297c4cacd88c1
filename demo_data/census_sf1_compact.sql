-- P1: Total population
SELECT COUNT(*) AS people
FROM person;

-- P3a: Race
SELECT CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, COUNT(*) AS people
FROM person
GROUP BY race_alone;

-- P3b: Race
SELECT COUNT(*) AS people
FROM person;

-- P4a: Hispanic or Latino origin
SELECT hispanic, COUNT(*) AS people
FROM person
GROUP BY hispanic;

-- P4b: Hispanic or Latino origin
SELECT COUNT(*) AS people
FROM person;

-- P5a: Hispanic or Latino origin by race
SELECT hispanic, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, COUNT(*) AS people
FROM person
GROUP BY hispanic, race_alone;

-- P5b: Hispanic or Latino origin by race
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON hispanic BETWEEN low AND high
GROUP BY line;

-- P8a: Race: every combination, and the number of races
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 1, 1, 0, 6), (2, 2, 2, 0, 6), (3, 3, 3, 0, 6), (4, 4, 4, 0, 6), (5, 5, 5, 0, 6), (6, 6, 6, 0, 6),
  (7, 7, 7, 0, 6), (8, 8, 8, 0, 6), (9, 9, 9, 0, 6), (10, 10, 10, 0, 6), (11, 11, 11, 0, 6), (12, 12, 12, 0, 6),
  (13, 13, 13, 0, 6), (14, 14, 14, 0, 6), (15, 15, 15, 0, 6), (16, 16, 16, 0, 6), (17, 17, 17, 0, 6), (18, 18, 18, 0, 6),
  (19, 19, 19, 0, 6), (20, 20, 20, 0, 6), (21, 21, 21, 0, 6), (22, 22, 22, 0, 6), (23, 23, 23, 0, 6), (24, 24, 24, 0, 6),
  (25, 25, 25, 0, 6), (26, 26, 26, 0, 6), (27, 27, 27, 0, 6), (28, 28, 28, 0, 6), (29, 29, 29, 0, 6), (30, 30, 30, 0, 6),
  (31, 31, 31, 0, 6), (32, 32, 32, 0, 6), (33, 33, 33, 0, 6), (34, 34, 34, 0, 6), (35, 35, 35, 0, 6), (36, 36, 36, 0, 6),
  (37, 37, 37, 0, 6), (38, 38, 38, 0, 6), (39, 39, 39, 0, 6), (40, 40, 40, 0, 6), (41, 41, 41, 0, 6), (42, 42, 42, 0, 6),
  (43, 43, 43, 0, 6), (44, 44, 44, 0, 6), (45, 45, 45, 0, 6), (46, 46, 46, 0, 6), (47, 47, 47, 0, 6), (48, 48, 48, 0, 6),
  (49, 49, 49, 0, 6), (50, 50, 50, 0, 6), (51, 51, 51, 0, 6), (52, 52, 52, 0, 6), (53, 53, 53, 0, 6), (54, 54, 54, 0, 6),
  (55, 55, 55, 0, 6), (56, 56, 56, 0, 6), (57, 57, 57, 0, 6), (58, 58, 58, 0, 6), (59, 59, 59, 0, 6), (60, 60, 60, 0, 6),
  (61, 61, 61, 0, 6), (62, 62, 62, 0, 6), (63, 63, 63, 0, 6), (64, 1, 32, 1, 1), (65, 3, 48, 2, 2), (66, 7, 56, 3, 3),
  (67, 15, 60, 4, 4), (68, 31, 62, 5, 5), (69, 63, 63, 0, 6), (70, 3, 63, 2, 6)
) AS lines(line, low, high, fewest, most) ON race BETWEEN low AND high AND bit_count(race) BETWEEN fewest AND most
GROUP BY line;

-- P8b: Race: every combination, and the number of races
SELECT COUNT(*) AS people
FROM person;

-- P9a: Hispanic or Latino, and not Hispanic or Latino by race
SELECT hispanic, COUNT(*) AS people
FROM person
GROUP BY hispanic;

-- P9b: Hispanic or Latino, and not Hispanic or Latino by race
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 1, 1, 0, 6), (2, 2, 2, 0, 6), (3, 3, 3, 0, 6), (4, 4, 4, 0, 6), (5, 5, 5, 0, 6), (6, 6, 6, 0, 6),
  (7, 7, 7, 0, 6), (8, 8, 8, 0, 6), (9, 9, 9, 0, 6), (10, 10, 10, 0, 6), (11, 11, 11, 0, 6), (12, 12, 12, 0, 6),
  (13, 13, 13, 0, 6), (14, 14, 14, 0, 6), (15, 15, 15, 0, 6), (16, 16, 16, 0, 6), (17, 17, 17, 0, 6), (18, 18, 18, 0, 6),
  (19, 19, 19, 0, 6), (20, 20, 20, 0, 6), (21, 21, 21, 0, 6), (22, 22, 22, 0, 6), (23, 23, 23, 0, 6), (24, 24, 24, 0, 6),
  (25, 25, 25, 0, 6), (26, 26, 26, 0, 6), (27, 27, 27, 0, 6), (28, 28, 28, 0, 6), (29, 29, 29, 0, 6), (30, 30, 30, 0, 6),
  (31, 31, 31, 0, 6), (32, 32, 32, 0, 6), (33, 33, 33, 0, 6), (34, 34, 34, 0, 6), (35, 35, 35, 0, 6), (36, 36, 36, 0, 6),
  (37, 37, 37, 0, 6), (38, 38, 38, 0, 6), (39, 39, 39, 0, 6), (40, 40, 40, 0, 6), (41, 41, 41, 0, 6), (42, 42, 42, 0, 6),
  (43, 43, 43, 0, 6), (44, 44, 44, 0, 6), (45, 45, 45, 0, 6), (46, 46, 46, 0, 6), (47, 47, 47, 0, 6), (48, 48, 48, 0, 6),
  (49, 49, 49, 0, 6), (50, 50, 50, 0, 6), (51, 51, 51, 0, 6), (52, 52, 52, 0, 6), (53, 53, 53, 0, 6), (54, 54, 54, 0, 6),
  (55, 55, 55, 0, 6), (56, 56, 56, 0, 6), (57, 57, 57, 0, 6), (58, 58, 58, 0, 6), (59, 59, 59, 0, 6), (60, 60, 60, 0, 6),
  (61, 61, 61, 0, 6), (62, 62, 62, 0, 6), (63, 63, 63, 0, 6), (64, 1, 32, 1, 1), (65, 3, 48, 2, 2), (66, 7, 56, 3, 3),
  (67, 15, 60, 4, 4), (68, 31, 62, 5, 5), (69, 63, 63, 0, 6), (70, 3, 63, 2, 6)
) AS lines(line, low, high, fewest, most) ON race BETWEEN low AND high AND bit_count(race) BETWEEN fewest AND most
WHERE hispanic = 1
GROUP BY line;

-- P9c: Hispanic or Latino, and not Hispanic or Latino by race
SELECT COUNT(*) AS people
FROM person;

-- P10a: Race, 18 years and over
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 1, 1, 0, 6), (2, 2, 2, 0, 6), (3, 3, 3, 0, 6), (4, 4, 4, 0, 6), (5, 5, 5, 0, 6), (6, 6, 6, 0, 6),
  (7, 7, 7, 0, 6), (8, 8, 8, 0, 6), (9, 9, 9, 0, 6), (10, 10, 10, 0, 6), (11, 11, 11, 0, 6), (12, 12, 12, 0, 6),
  (13, 13, 13, 0, 6), (14, 14, 14, 0, 6), (15, 15, 15, 0, 6), (16, 16, 16, 0, 6), (17, 17, 17, 0, 6), (18, 18, 18, 0, 6),
  (19, 19, 19, 0, 6), (20, 20, 20, 0, 6), (21, 21, 21, 0, 6), (22, 22, 22, 0, 6), (23, 23, 23, 0, 6), (24, 24, 24, 0, 6),
  (25, 25, 25, 0, 6), (26, 26, 26, 0, 6), (27, 27, 27, 0, 6), (28, 28, 28, 0, 6), (29, 29, 29, 0, 6), (30, 30, 30, 0, 6),
  (31, 31, 31, 0, 6), (32, 32, 32, 0, 6), (33, 33, 33, 0, 6), (34, 34, 34, 0, 6), (35, 35, 35, 0, 6), (36, 36, 36, 0, 6),
  (37, 37, 37, 0, 6), (38, 38, 38, 0, 6), (39, 39, 39, 0, 6), (40, 40, 40, 0, 6), (41, 41, 41, 0, 6), (42, 42, 42, 0, 6),
  (43, 43, 43, 0, 6), (44, 44, 44, 0, 6), (45, 45, 45, 0, 6), (46, 46, 46, 0, 6), (47, 47, 47, 0, 6), (48, 48, 48, 0, 6),
  (49, 49, 49, 0, 6), (50, 50, 50, 0, 6), (51, 51, 51, 0, 6), (52, 52, 52, 0, 6), (53, 53, 53, 0, 6), (54, 54, 54, 0, 6),
  (55, 55, 55, 0, 6), (56, 56, 56, 0, 6), (57, 57, 57, 0, 6), (58, 58, 58, 0, 6), (59, 59, 59, 0, 6), (60, 60, 60, 0, 6),
  (61, 61, 61, 0, 6), (62, 62, 62, 0, 6), (63, 63, 63, 0, 6), (64, 1, 32, 1, 1), (65, 3, 48, 2, 2), (66, 7, 56, 3, 3),
  (67, 15, 60, 4, 4), (68, 31, 62, 5, 5), (69, 63, 63, 0, 6), (70, 3, 63, 2, 6)
) AS lines(line, low, high, fewest, most) ON race BETWEEN low AND high AND bit_count(race) BETWEEN fewest AND most
WHERE age >= 18
GROUP BY line;

-- P10b: Race, 18 years and over
SELECT COUNT(*) AS people
FROM person
WHERE age >= 18;

-- P11a: Hispanic or Latino, and not Hispanic or Latino by race, 18 years and over
SELECT hispanic, COUNT(*) AS people
FROM person
WHERE age >= 18
GROUP BY hispanic;

-- P11b: Hispanic or Latino, and not Hispanic or Latino by race, 18 years and over
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 1, 1, 0, 6), (2, 2, 2, 0, 6), (3, 3, 3, 0, 6), (4, 4, 4, 0, 6), (5, 5, 5, 0, 6), (6, 6, 6, 0, 6),
  (7, 7, 7, 0, 6), (8, 8, 8, 0, 6), (9, 9, 9, 0, 6), (10, 10, 10, 0, 6), (11, 11, 11, 0, 6), (12, 12, 12, 0, 6),
  (13, 13, 13, 0, 6), (14, 14, 14, 0, 6), (15, 15, 15, 0, 6), (16, 16, 16, 0, 6), (17, 17, 17, 0, 6), (18, 18, 18, 0, 6),
  (19, 19, 19, 0, 6), (20, 20, 20, 0, 6), (21, 21, 21, 0, 6), (22, 22, 22, 0, 6), (23, 23, 23, 0, 6), (24, 24, 24, 0, 6),
  (25, 25, 25, 0, 6), (26, 26, 26, 0, 6), (27, 27, 27, 0, 6), (28, 28, 28, 0, 6), (29, 29, 29, 0, 6), (30, 30, 30, 0, 6),
  (31, 31, 31, 0, 6), (32, 32, 32, 0, 6), (33, 33, 33, 0, 6), (34, 34, 34, 0, 6), (35, 35, 35, 0, 6), (36, 36, 36, 0, 6),
  (37, 37, 37, 0, 6), (38, 38, 38, 0, 6), (39, 39, 39, 0, 6), (40, 40, 40, 0, 6), (41, 41, 41, 0, 6), (42, 42, 42, 0, 6),
  (43, 43, 43, 0, 6), (44, 44, 44, 0, 6), (45, 45, 45, 0, 6), (46, 46, 46, 0, 6), (47, 47, 47, 0, 6), (48, 48, 48, 0, 6),
  (49, 49, 49, 0, 6), (50, 50, 50, 0, 6), (51, 51, 51, 0, 6), (52, 52, 52, 0, 6), (53, 53, 53, 0, 6), (54, 54, 54, 0, 6),
  (55, 55, 55, 0, 6), (56, 56, 56, 0, 6), (57, 57, 57, 0, 6), (58, 58, 58, 0, 6), (59, 59, 59, 0, 6), (60, 60, 60, 0, 6),
  (61, 61, 61, 0, 6), (62, 62, 62, 0, 6), (63, 63, 63, 0, 6), (64, 1, 32, 1, 1), (65, 3, 48, 2, 2), (66, 7, 56, 3, 3),
  (67, 15, 60, 4, 4), (68, 31, 62, 5, 5), (69, 63, 63, 0, 6), (70, 3, 63, 2, 6)
) AS lines(line, low, high, fewest, most) ON race BETWEEN low AND high AND bit_count(race) BETWEEN fewest AND most
WHERE hispanic = 1 AND age >= 18
GROUP BY line;

-- P11c: Hispanic or Latino, and not Hispanic or Latino by race, 18 years and over
SELECT COUNT(*) AS people
FROM person
WHERE age >= 18;

-- P12a: Sex by age
SELECT sex, CASE WHEN age < 5 THEN 0 WHEN age < 10 THEN 5 WHEN age < 15 THEN 10 WHEN age < 18 THEN 15 WHEN age < 20 THEN 18 WHEN age < 22 THEN age WHEN age < 25 THEN 22 WHEN age < 30 THEN 25 WHEN age < 35 THEN 30 WHEN age < 40 THEN 35 WHEN age < 45 THEN 40 WHEN age < 50 THEN 45 WHEN age < 55 THEN 50 WHEN age < 60 THEN 55 WHEN age < 62 THEN 60 WHEN age < 65 THEN 62 WHEN age < 67 THEN 65 WHEN age < 70 THEN 67 WHEN age < 75 THEN 70 WHEN age < 80 THEN 75 WHEN age < 85 THEN 80 ELSE 85 END AS age_from, COUNT(*) AS people
FROM person
GROUP BY sex, age_from;

-- P12b: Sex by age
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
GROUP BY line;

-- P12A_a: Sex by age, by race and origin
SELECT sex, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, CASE WHEN age < 5 THEN 0 WHEN age < 10 THEN 5 WHEN age < 15 THEN 10 WHEN age < 18 THEN 15 WHEN age < 20 THEN 18 WHEN age < 22 THEN age WHEN age < 25 THEN 22 WHEN age < 30 THEN 25 WHEN age < 35 THEN 30 WHEN age < 40 THEN 35 WHEN age < 45 THEN 40 WHEN age < 50 THEN 45 WHEN age < 55 THEN 50 WHEN age < 60 THEN 55 WHEN age < 62 THEN 60 WHEN age < 65 THEN 62 WHEN age < 67 THEN 65 WHEN age < 70 THEN 67 WHEN age < 75 THEN 70 WHEN age < 80 THEN 75 WHEN age < 85 THEN 80 ELSE 85 END AS age_from, COUNT(*) AS people
FROM person
GROUP BY sex, race_alone, age_from;

-- P12A_b: Sex by age, by race and origin
SELECT line, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
GROUP BY line, race_alone;

-- P12A_c: Sex by age, by race and origin
SELECT sex, CASE WHEN age < 5 THEN 0 WHEN age < 10 THEN 5 WHEN age < 15 THEN 10 WHEN age < 18 THEN 15 WHEN age < 20 THEN 18 WHEN age < 22 THEN age WHEN age < 25 THEN 22 WHEN age < 30 THEN 25 WHEN age < 35 THEN 30 WHEN age < 40 THEN 35 WHEN age < 45 THEN 40 WHEN age < 50 THEN 45 WHEN age < 55 THEN 50 WHEN age < 60 THEN 55 WHEN age < 62 THEN 60 WHEN age < 65 THEN 62 WHEN age < 67 THEN 65 WHEN age < 70 THEN 67 WHEN age < 75 THEN 70 WHEN age < 80 THEN 75 WHEN age < 85 THEN 80 ELSE 85 END AS age_from, COUNT(*) AS people
FROM person
WHERE hispanic = 0
GROUP BY sex, age_from;

-- P12A_d: Sex by age, by race and origin
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
WHERE hispanic = 0
GROUP BY line;

-- P12A_e: Sex by age, by race and origin
SELECT sex, CASE WHEN age < 5 THEN 0 WHEN age < 10 THEN 5 WHEN age < 15 THEN 10 WHEN age < 18 THEN 15 WHEN age < 20 THEN 18 WHEN age < 22 THEN age WHEN age < 25 THEN 22 WHEN age < 30 THEN 25 WHEN age < 35 THEN 30 WHEN age < 40 THEN 35 WHEN age < 45 THEN 40 WHEN age < 50 THEN 45 WHEN age < 55 THEN 50 WHEN age < 60 THEN 55 WHEN age < 62 THEN 60 WHEN age < 65 THEN 62 WHEN age < 67 THEN 65 WHEN age < 70 THEN 67 WHEN age < 75 THEN 70 WHEN age < 80 THEN 75 WHEN age < 85 THEN 80 ELSE 85 END AS age_from, COUNT(*) AS people
FROM person
WHERE hispanic = 1 AND race = 1
GROUP BY sex, age_from;

-- P12A_f: Sex by age, by race and origin
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
WHERE hispanic = 1 AND race = 1
GROUP BY line;

-- PCT12a: Sex by single years of age
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS age_from, COUNT(*) AS people
FROM person
GROUP BY sex, age_from;

-- PCT12b: Sex by single years of age
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
GROUP BY line;

-- PCT12A_a: Sex by single years of age, by race and origin
SELECT sex, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS age_from, COUNT(*) AS people
FROM person
GROUP BY sex, race_alone, age_from;

-- PCT12A_b: Sex by single years of age, by race and origin
SELECT line, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
GROUP BY line, race_alone;

-- PCT12A_c: Sex by single years of age, by race and origin
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS age_from, COUNT(*) AS people
FROM person
WHERE hispanic = 0
GROUP BY sex, age_from;

-- PCT12A_d: Sex by single years of age, by race and origin
SELECT line, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
WHERE hispanic = 0
GROUP BY line;

-- PCT12A_e: Sex by single years of age, by race and origin
SELECT sex, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS age_from, COUNT(*) AS people
FROM person
WHERE hispanic = 1
GROUP BY sex, race_alone, age_from;

-- PCT12A_f: Sex by single years of age, by race and origin
SELECT line, CASE WHEN race IN (1, 2, 4, 8, 16, 32) THEN race END AS race_alone, COUNT(*) AS people
FROM person
JOIN (VALUES
  (1, 0, 0), (2, 1, 1), (3, 0, 1)
) AS lines(line, low, high) ON sex BETWEEN low AND high
WHERE hispanic = 1
GROUP BY line, race_alone;
