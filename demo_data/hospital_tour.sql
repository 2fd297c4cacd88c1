-- A tour of several tables that belong to the same persons: one file, one budget, one measurement.

-- How many patients, visits and prescriptions are there?
SELECT COUNT(*) AS patients FROM patients;
SELECT COUNT(*) AS visits, COUNT(DISTINCT patient_id) AS persons FROM visits;
SELECT COUNT(*) AS prescriptions FROM prescriptions;

-- A NULL is a group like any other.
SELECT age // 20 * 20 AS score, sex, COUNT(*) AS patients FROM patients GROUP BY score, sex;

-- Visits by ward, with the persons behind them.
SELECT ward, COUNT(*) AS visits, COUNT(DISTINCT patient_id) AS persons FROM visits GROUP BY ward;

-- Visits and their patients: a join along a declared reference.
SELECT v.ward, p.sex, COUNT(*) AS visits
FROM visits v JOIN patients p ON v.patient_id = p.patient_id
WHERE p.age >= 65
GROUP BY v.ward, p.sex;

SELECT region, AVG(days) AS days, COUNT(*) AS visits FROM visits JOIN patients USING (patient_id) GROUP BY region;

-- Visits of patients that nobody wrote down are data, too.
SELECT COUNT(*) AS strays FROM visits v LEFT JOIN patients p ON v.patient_id = p.patient_id WHERE p.patient_id IS NULL;

-- Three tables in a chain.
SELECT drug, COUNT(*) AS prescriptions
FROM prescriptions JOIN visits USING (visit_id) JOIN patients USING (patient_id)
WHERE sex = 'f' AND ward = 'medicine'
GROUP BY drug;

SELECT drug, SUM(packs) AS packs, SUM(packs * price) AS spent FROM prescriptions GROUP BY drug;

-- Time stamps: hours of the day, weekdays and months, each at the price of a column of its own.
SELECT EXTRACT(hour FROM arrived) AS hour, COUNT(*) AS arrivals FROM visits WHERE ward = 'emergency' GROUP BY hour ORDER BY hour;
SELECT dayname(arrived) AS weekday, COUNT(*) AS arrivals FROM visits GROUP BY weekday;
SELECT date_trunc('month', arrived) AS month, COUNT(*) AS arrivals FROM visits GROUP BY month ORDER BY month;
SELECT date_trunc('month', arrived) AS month, SUM(COUNT(*)) OVER (ORDER BY date_trunc('month', arrived)) AS so_far
FROM visits GROUP BY month ORDER BY month;

-- Money: exact sums, and conditions at the edges of its bins.
SELECT ward, SUM(cost) AS spent, AVG(cost) AS each FROM visits GROUP BY ward;
SELECT ward, COUNT(*) AS dear FROM visits WHERE cost >= 1000 GROUP BY ward;
SELECT QUANTILE_CONT(cost, 0.9) AS nine_in_ten FROM visits;
SELECT CORR(days, cost) AS together FROM visits;

-- One row for each person: how many visits do people have?
SELECT n, COUNT(*) AS patients FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) AS p GROUP BY n ORDER BY n;
SELECT AVG(spent) AS spent_by_a_patient FROM (SELECT patient_id, SUM(cost) AS spent FROM visits GROUP BY patient_id) AS p;
SELECT wards, COUNT(*) AS patients
FROM (SELECT patient_id, COUNT(DISTINCT ward) AS wards FROM visits GROUP BY patient_id) AS p GROUP BY wards;

-- Persons by how often they came, with what their own table says of them.
SELECT sex, often, COUNT(*) AS patients
FROM (SELECT patient_id, COUNT(*) >= 4 AS often FROM visits GROUP BY patient_id) AS p JOIN patients USING (patient_id)
GROUP BY sex, often;

-- Patients who were, or never were, in a ward.
SELECT sex, COUNT(*) AS patients FROM patients
WHERE patient_id IN (SELECT patient_id FROM visits WHERE ward = 'oncology') GROUP BY sex;
SELECT region, COUNT(*) AS patients FROM patients p
WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id) GROUP BY region;

-- What each patient adds to a ward, clipped: the noise is that of the clipped sums.
SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 1000)) AS spent FROM visits GROUP BY ward;

-- Arithmetic over noisy numbers, with standard errors.
SELECT ward, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS percent FROM visits GROUP BY ward ORDER BY percent DESC;
