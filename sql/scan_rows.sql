-- The rows of arms :arm_a and :arm_b that can be compared, from row_id :first to :last in that order,
-- with what a comparison needs of them: handed one by one to each_row, an aggregate of the reader's
-- own. A call a row instead of a step, a row and a call a column is half the time.
SELECT each_row(l.arm_id, l.row_id, l.context_hash, l.pos, l.seq_id, l.top1, l.top1_logit, l.top2,
                l.top2_logit, l.n_nan + l.n_posinf, l.emitted_token, l.lse, l.topk, l.batch_row,
                f.n_tokens, f.n_seqs, f.ubatch_index, f.n_ubatch, f.n_past, f.kernel_list_id)
FROM logits AS l NOT INDEXED
CROSS JOIN forwards AS f ON f.forward_id = l.forward_id
WHERE l.row_id BETWEEN :first AND :last AND (l.arm_id = :arm_a OR l.arm_id = :arm_b)
  AND l.context_hash IS NOT NULL;
