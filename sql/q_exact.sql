-- Logits of row :row_id that were read at record time at ids of another row's list: exact.
SELECT token, logit FROM deltas WHERE row_id = :row_id AND logit IS NOT NULL ORDER BY token;
