-- Indexes for readers: made when a run closes, or by the first reader; not while recording.
CREATE INDEX IF NOT EXISTS logits_context ON logits(context_hash, pos);
