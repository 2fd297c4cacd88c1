-- The six tables of IMDb that JOB-light joins, in small, with the values that its statements name.
CREATE MACRO draw(i, salt, n) AS CAST(hash(i, salt) % n AS BIGINT);
CREATE MACRO pick(i, salt, values_) AS values_[draw(i, salt, len(values_)) + 1];

CREATE TABLE title AS
SELECT i AS id, pick(i, 't1', [1, 1, 1, 2, 3, 4, 6, 7, 7]) AS kind_id,
    CASE WHEN draw(i, 't2', 20) > 0 THEN 2018 - CAST(sqrt(draw(i, 't3', 16900)) AS BIGINT) END AS production_year
FROM range(1, 601) r(i);

CREATE TABLE movie_companies AS
SELECT id AS movie_id, 1 + draw(id, j, 2) AS company_type_id, pick(id, j + 9, [6, 27, 34, 22956]) AS company_id
FROM title, range(5) r(j) WHERE j < draw(id, 'mc', 6);

CREATE TABLE movie_info AS
SELECT id AS movie_id, pick(id, j + 20, [1, 3, 8, 16, 98, 105]) AS info_type_id
FROM title, range(6) r(j) WHERE j < draw(id, 'mi', 7);

CREATE TABLE movie_info_idx AS
SELECT id AS movie_id, pick(id, j + 40, [99, 100, 101, 112, 113]) AS info_type_id
FROM title, range(3) r(j) WHERE j < draw(id, 'ix', 4);

CREATE TABLE movie_keyword AS
SELECT id AS movie_id, pick(id, j + 60, [117, 117, 335, 398, 8200]) AS keyword_id
FROM title, range(5) r(j) WHERE j < draw(id, 'mk', 6);

CREATE TABLE cast_info AS
SELECT id AS movie_id, 1 + draw(id, j + 80, 11) AS role_id
FROM title, range(8) r(j) WHERE j < draw(id, 'ci', 9);
