-- One-way marginals.
SELECT workclass, COUNT(*) AS people FROM adult GROUP BY workclass;
SELECT education, COUNT(*) AS people FROM adult GROUP BY education;
SELECT marital_status, COUNT(*) AS people FROM adult GROUP BY marital_status;
SELECT relationship, COUNT(*) AS people FROM adult GROUP BY relationship;
SELECT race, COUNT(*) AS people FROM adult GROUP BY race;
SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex;

-- Two-way marginals.
SELECT workclass, education, COUNT(*) AS people FROM adult GROUP BY workclass, education;
SELECT workclass, marital_status, COUNT(*) AS people FROM adult GROUP BY workclass, marital_status;
SELECT workclass, relationship, COUNT(*) AS people FROM adult GROUP BY workclass, relationship;
SELECT workclass, race, COUNT(*) AS people FROM adult GROUP BY workclass, race;
SELECT workclass, sex, COUNT(*) AS people FROM adult GROUP BY workclass, sex;
SELECT education, marital_status, COUNT(*) AS people FROM adult GROUP BY education, marital_status;
SELECT education, relationship, COUNT(*) AS people FROM adult GROUP BY education, relationship;
SELECT education, race, COUNT(*) AS people FROM adult GROUP BY education, race;
SELECT education, sex, COUNT(*) AS people FROM adult GROUP BY education, sex;
SELECT marital_status, relationship, COUNT(*) AS people FROM adult GROUP BY marital_status, relationship;
SELECT marital_status, race, COUNT(*) AS people FROM adult GROUP BY marital_status, race;
SELECT marital_status, sex, COUNT(*) AS people FROM adult GROUP BY marital_status, sex;
SELECT relationship, race, COUNT(*) AS people FROM adult GROUP BY relationship, race;
SELECT relationship, sex, COUNT(*) AS people FROM adult GROUP BY relationship, sex;
SELECT race, sex, COUNT(*) AS people FROM adult GROUP BY race, sex;
