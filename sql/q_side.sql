-- One row of logits, :row_id, as one side of a comparison: its list, and how it was computed. The
-- kernel list is NULL for a forward that the probe recorded none of.
SELECT l.topk, l.lse, l.top1, l.top1_logit, l.top2, l.top2_logit, l.n_nan, l.n_posinf, l.first_bad,
       l.emitted_token, l.batch_row, f.n_tokens, f.n_seqs, f.ubatch_index, f.n_ubatch, f.n_past,
       f.kernel_list_id
FROM logits AS l
JOIN forwards AS f ON f.forward_id = l.forward_id
WHERE l.row_id = :row_id;
