-- Every recorded id of one pair of rows, :row_a and :row_b, with both logits, largest first.
SELECT token, logit_a, logit_b, logit_b - logit_a AS delta, bound
FROM pair_ids
WHERE row_a = :row_a AND row_b = :row_b
ORDER BY max(logit_a, logit_b) DESC, token;
