-- Percentiles of arm :arm_id's margins by nearest rank, so that each is a recorded position that can
-- be opened. :percentiles is a JSON array of numbers from 0 to 100 with at most two decimals.
WITH ordered AS (
    SELECT row_id, seq_id, pos, margin, row_number() OVER (ORDER BY margin, row_id) AS k,
           count(*) OVER () AS n
    FROM logits
    WHERE arm_id = :arm_id AND margin IS NOT NULL
), wanted AS (
    SELECT CAST(round(value * 100) AS INTEGER) AS p FROM json_each(:percentiles)
)
SELECT w.p / 100.0 AS percentile, o.margin AS margin, o.seq_id AS seq_id, o.pos AS pos,
       o.row_id AS row_id, o.k AS rank, o.n AS n
FROM wanted AS w
JOIN ordered AS o ON o.k = max(1, (w.p * o.n + 9999) / 10000)
ORDER BY w.p;
