-- What a comparison needs of row :row_id beyond its two best logits: its list, and what was not finite.
SELECT topk, n_nan, n_posinf, first_bad FROM logits WHERE row_id = :row_id;
