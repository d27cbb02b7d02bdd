-- Stored noise floors, the latest first: those labelled :label, or all where it is NULL.
SELECT calibration_id AS calibration_id, label AS label, class AS class, control AS control, n AS n,
       scale AS scale, quantiles AS quantiles
FROM calibrations
WHERE :label IS NULL OR label = :label
ORDER BY calibration_id DESC;
