-- Store a noise floor under a label; one of the same label is replaced.
INSERT INTO calibrations(label, class, control, n, scale, quantiles)
VALUES (:label, :class, :control, :n, :scale, :quantiles)
ON CONFLICT (label) DO UPDATE SET class = excluded.class, control = excluded.control, n = excluded.n,
    scale = excluded.scale, quantiles = excluded.quantiles;
