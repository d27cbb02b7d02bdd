-- Every row of arm :arm_id that can be compared, with what a comparison needs of it, in the order in
-- which they were recorded. One scan of the table: meant for all of an arm, not for a part of it.
SELECT l.row_id, l.context_hash, l.pos, l.seq_id, l.top1, l.top1_logit, l.top2, l.top2_logit,
       l.n_nan + l.n_posinf, l.emitted_token, l.lse, l.topk, l.batch_row, f.n_tokens, f.n_seqs,
       f.ubatch_index, f.n_ubatch, f.n_past, f.kernel_list_id
FROM logits AS l NOT INDEXED
JOIN forwards AS f ON f.forward_id = l.forward_id
WHERE l.arm_id = :arm_id AND l.context_hash IS NOT NULL
ORDER BY l.row_id;
