-- emitted by ibis 12.0.0, captured by grammar/emitted/capture.py

SELECT
  COUNT(*) AS "CountStar(adult)"
FROM "adult" AS "t0";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    "t0"."age" > 30
) AS "t1";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    "t0"."age" > 30 AND "t0"."sex" = 'Female'
) AS "t1";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    (
      "t0"."age" > 60
    ) OR (
      "t0"."education" = 'Doctorate'
    )
) AS "t1";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    NOT (
      "t0"."race" IN ('White', 'Black')
    )
) AS "t1";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    "t0"."age" BETWEEN 25 AND 34
) AS "t1";

SELECT
  COUNT(*) AS "CountStar()"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    "t0"."education" LIKE '%th'
) AS "t1";

SELECT
  "t1"."sex",
  COUNT(*) AS "sex_count"
FROM (
  SELECT
    "t0"."sex"
  FROM "adult" AS "t0"
) AS "t1"
GROUP BY
  1;

SELECT
  "t0"."sex",
  COUNT(*) AS "n"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  "t0"."sex",
  "t0"."race",
  COUNT(*) AS "n",
  SUM("t0"."hours_per_week") AS "total"
FROM "adult" AS "t0"
GROUP BY
  1,
  2;

SELECT
  "t0"."income",
  AVG("t0"."age") AS "mean",
  QUANTILE_CONT("t0"."age", 0.5) AS "low"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  "t0"."sex",
  STDDEV_SAMP("t0"."age") AS "sd",
  VAR_POP("t0"."age") AS "var"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  "t0"."sex",
  COUNT(*) FILTER(WHERE
    "t0"."age" >= 65) AS "n",
  SUM("t0"."capital_gain") AS "gain"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  CAST(FLOOR((
    "t0"."age"
  ) / (
    10
  )) AS BIGINT) AS "decade",
  COUNT(*) AS "n"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  CASE WHEN "t0"."age" >= 65 THEN 'old' ELSE 'young' END AS "band",
  COUNT(*) AS "n"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  *
FROM (
  SELECT
    "t0"."sex",
    COUNT(*) AS "n"
  FROM "adult" AS "t0"
  GROUP BY
    1
) AS "t1"
WHERE
  "t1"."n" > 100;

SELECT
  *
FROM (
  SELECT
    "t0"."race",
    COUNT(*) AS "n"
  FROM "adult" AS "t0"
  GROUP BY
    1
) AS "t1"
ORDER BY
  "t1"."n" DESC
LIMIT 3;

SELECT
  "t1"."age",
  "t1"."n",
  SUM("t1"."n") OVER (ORDER BY "t1"."age" ASC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS "c"
FROM (
  SELECT
    "t0"."age",
    COUNT(*) AS "n"
  FROM "adult" AS "t0"
  GROUP BY
    1
) AS "t1";

SELECT
  "t0"."sex",
  AVG(CAST("t0"."income" = '>50K' AS INT)) AS "share"
FROM "adult" AS "t0"
GROUP BY
  1;

SELECT
  QUANTILE_CONT("t0"."age", 0.9) AS "q",
  COUNT(*) AS "n",
  AVG("t0"."capital_gain") AS "s"
FROM "adult" AS "t0";

SELECT
  "t4"."name",
  COUNT(*) AS "n"
FROM (
  SELECT
    "t2"."age",
    "t2"."sex",
    "t2"."race",
    "t2"."education",
    "t2"."income",
    "t2"."hours_per_week",
    "t2"."capital_gain",
    "t3"."lo",
    "t3"."hi",
    "t3"."name"
  FROM "adult" AS "t2"
  INNER JOIN "bands" AS "t3"
    ON "t2"."age" = "t3"."lo"
) AS "t4"
GROUP BY
  1;

SELECT
  "t1"."education",
  COUNT(*) AS "n"
FROM (
  SELECT
    *
  FROM "adult" AS "t0"
  WHERE
    "t0"."sex" = 'Male'
) AS "t1"
GROUP BY
  1;

SELECT
  "t1"."sex",
  COUNT(*) AS "n"
FROM (
  SELECT
    "t0"."sex",
    "t0"."age"
  FROM "adult" AS "t0"
  WHERE
    "t0"."age" < 30
) AS "t1"
GROUP BY
  1;
