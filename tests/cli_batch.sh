#!/bin/sh
# Eight sequences that decode together are recorded as each would be alone: the same contexts, the
# same tokens after them, the same rows.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
model=$data/tiny-qwen3-q8_0.gguf
set -- "And he said" "In the beginning" "x" "The king" "What is" "Come hither, my" "And it came to pass" "O"
n=0
for prompt; do
    n=$((n + 1))
    run "$neartie" record -o "alone-$n.db" -- "$engine" generate "$model" -p "$prompt" -n $((4 + n)) --ignore-end
done
run "$neartie" record -o together.db -- "$engine" generate "$model" -p "$1" -p "$2" -p "$3" -p "$4" -p "$5" \
    -p "$6" -p "$7" -p "$8" -n 12 --batch 8 --ignore-end
is "all are recorded" "$(echo *.db)" "$(i=0; while [ $i -lt 8 ]; do i=$((i + 1)); printf 'alone-%d.db ' $i; done)together.db"
is "a batch of eight, eight sequences" "$(sqlite3 together.db "SELECT max(n_seqs) FROM forwards;
    SELECT count(DISTINCT seq_id), count(*) - count(context_hash) FROM logits" | xargs)" "8 8|0"

# Every row of the sequence alone is in the batch once, with the same result; the batch goes on for
# longer. The last token of a sequence alone is chosen and not computed.
i=0
while [ $i -lt 8 ]; do
    i=$((i + 1))
    is "sequence $i is in the batch as it is alone" "$(sqlite3 together.db "ATTACH 'alone-$i.db' AS alone;
        SELECT count(*) = 4 + $i, count(DISTINCT t.row_id) = count(*), count(DISTINCT t.seq_id),
            sum(t.input_token = a.input_token AND t.emitted_token = a.emitted_token
                AND t.topk = a.topk AND t.lse = a.lse) = count(*)
        FROM alone.logits AS a LEFT JOIN main.logits AS t USING (context_hash, pos)")" "1|1|1|1"
done
is "no context stands twice, none is missing" "$(sqlite3 together.db "
    SELECT count(*), count(DISTINCT context_hash) FROM logits")" "96|96"

NEARTIE_DEVICE=cpu run python3 "$abs_top_srcdir/tests/gpu_engine.py" "$engine" "$probe" \
    "$data/tiny-qwen3-q8_0.gguf" "$data/tiny-qwen35-q8_0.gguf"
is "each row is what the engine says of its logits" "$status $(grep '^not ok' "$tmp/out")" "0 "
done_testing
