-- Stretches of forwards of arms :arm_a and :arm_b that launched the same kernel list, in order.
WITH steps AS (
    SELECT arm_id, forward_id, kernel_list_id,
           lag(kernel_list_id) OVER arm IS NOT kernel_list_id AS fresh
    FROM forwards
    WHERE arm_id IN (:arm_a, :arm_b) AND kernel_list_id IS NOT NULL
    WINDOW arm AS (PARTITION BY arm_id ORDER BY forward_id)
), stretches AS (
    SELECT *, sum(fresh) OVER (PARTITION BY arm_id ORDER BY forward_id) AS stretch FROM steps
)
SELECT arm_id AS arm_id, min(forward_id) AS first_forward, max(forward_id) AS last_forward,
       count(*) AS n_forwards, kernel_list_id AS kernel_list_id
FROM stretches
GROUP BY arm_id, stretch
ORDER BY first_forward
LIMIT 2000;
