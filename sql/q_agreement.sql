-- How often two arms chose the same token, for every two arms that can be compared.
SELECT * FROM agreement ORDER BY run_a, arm_id_a, run_b, arm_id_b;
