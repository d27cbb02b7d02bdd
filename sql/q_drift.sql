-- Contrasts and flips between arms :arm_a and :arm_b along the positions, in ranges of :step (64).
SELECT pos / coalesce(:step, 64) * coalesce(:step, 64) AS from_pos, count(*) AS n, sum(flip) AS n_flips,
       avg(abs(contrast)) AS mean_contrast, max(abs(contrast)) AS max_contrast,
       min(margin_a) AS min_margin_a
FROM pairs
WHERE arm_id_a = :arm_a AND arm_id_b = :arm_b
GROUP BY from_pos
ORDER BY from_pos;
