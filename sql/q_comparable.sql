-- Whether arms :arm_a and :arm_b have a position in common: 1 or 0.
SELECT EXISTS (SELECT 1 FROM matches WHERE arm_id_a = :arm_a AND arm_id_b = :arm_b) AS comparable;
