-- One row of logits, :row_id: where it stands and what it says.
SELECT l.row_id AS row_id, a.run_id AS run, a.label AS arm, l.seq_id AS seq_id, l.pos AS pos,
       l.context_hash AS context_hash, l.input_token AS input_token,
       l.emitted_token AS emitted_token, l.top1 AS top1, l.top1_logit AS top1_logit,
       l.top2 AS top2, l.top2_logit AS top2_logit, l.margin AS margin, l.lse AS lse,
       l.n_nan AS n_nan, l.n_posinf AS n_posinf, l.n_neginf AS n_neginf
FROM logits AS l
LEFT JOIN arms AS a ON a.arm_id = l.arm_id
WHERE l.row_id = :row_id;
