-- Indexes for readers: made when a run closes, or by the first reader; not while recording.

-- Answers the view matches without touching the rows themselves, whose lists are long.
CREATE INDEX IF NOT EXISTS logits_context
    ON logits(context_hash, pos, arm_id, top1, top2, margin, seq_id);
