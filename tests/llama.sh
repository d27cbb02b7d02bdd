#!/bin/sh
# Programs that decode with a real libllama: every row that they read is recorded as they read it,
# and they print the same without the probe. NEARTIE_LLAMA_DIR: a folder below which there is one.
. "${abs_top_srcdir:?}/tests/testlib.sh"
host=$abs_top_builddir/tests/llama_host
cd "$tmp" || exit 99
sql() { sqlite3 -batch "$1" "$2"; }

# A sanitized library needs its runtime: it goes into our own program alone.
case $SANITIZE in
*address* | *thread*) sanitized=yes ways=linked ;;
*) sanitized=no ways='linked dlsym' ;;
esac

# A library that is none that we know, and a fake: passed through, said once.
old=$abs_top_builddir/tests/libllama.old.so
mkdir old && cd old || exit 99
run "$host" "$old" old
is "an unknown libllama (a fake)" "$status $(xargs <"$tmp/out")" "0 3211 3211 3211"
run env LD_PRELOAD="$probe" "$host" "$old" old
is "an unknown libllama is passed all that it takes" "$status $(xargs <"$tmp/out")" "0 3211 3211 3211"
is "it is refused in one line" "$(cat "$tmp/err")" \
    "libprobe: libllama is not recorded: it has no llama_free"
is "and in the gaps" "$(sql run.db "SELECT count, detail FROM gaps WHERE kind = 'llama'")" \
    "1|libllama is not recorded: it has no llama_free"
# The same within a library of another name, which calls its own.
cp "$old" engine.so
run env LD_PRELOAD="$probe" PROBE_DB=engine.db "$host" ./engine.so old
is "an engine with a llama.cpp inside calls its own" "$status $(xargs <"$tmp/out")" "0 3211 3211 3211"

# A fake whose contexts are freed by another thread, while it decodes and while its logits are read;
# and one that has no logits.
freed() { # HOW ROWS GAPS
    run env LD_PRELOAD="$probe" PROBE_DB="$1.db" "$host" "$abs_top_builddir/tests/libllama.freed.so" run "$1"
    is "a fake's context, $1: the program runs" "$status $(cat "$tmp/out" "$tmp/err")" "0 $1: 0"
    is "a fake's context, $1: rows, and gaps" "$(sql "$1.db" "SELECT count(*) FROM logits;
        SELECT kind, count, detail FROM gaps")" "$(printf '%s\n%s' "$2" "$3" | sed '/^$/d')"
}
freed decoding 0 "no_logits|1|the context was freed meanwhile"
freed reading 1 ""
freed none 0 "no_logits|1|the context has none"
cd "$tmp" || exit 99

# The real one: prebuilt, as node programs use it. It is kept in the build folder.
store=$abs_top_builddir/tests/llama-npm version=3.22.1
library() { find "$1" -name 'libllama.*so*' -type f 2>/dev/null | sort | head -1; }
if [ -n "$NEARTIE_LLAMA_DIR" ]; then
    lib=$(library "$NEARTIE_LLAMA_DIR")
    why="there is no libllama below $NEARTIE_LLAMA_DIR"
elif [ "$(uname -m)" != x86_64 ]; then
    lib='' why="the prebuilt libllama is for x86_64"
elif ! command -v npm >/dev/null; then
    lib='' why="npm is not installed, and NEARTIE_LLAMA_DIR is not set"
else
    [ -f "$store/complete" ] || {
        mkdir -p "$store" &&
            timeout 180 npm install --ignore-scripts --omit=optional --no-audit --no-fund --no-save \
                --fetch-retries 0 --cache "$tmp/cache" --prefix "$store" \
                node-llama-cpp@$version @node-llama-cpp/linux-x64@$version >"$tmp/npm.log" 2>&1 &&
            touch "$store/complete"
    }
    lib=$([ -f "$store/complete" ] && library "$store")
    why="npm cannot install node-llama-cpp $version: $(tail -1 "$tmp/npm.log" 2>/dev/null)"
fi
if [ -z "$lib" ]; then
    skip "a real libllama is recorded" "$why"
    done_testing
fi

for way in $ways; do
    mkdir "$way" && cd "$way" || exit 99
    run "$host" "$lib" "$data/tiny-qwen3-q8_0.gguf" "$way"
    is "$way: the program runs" "$status" 0
    cp "$tmp/out" bare.out
    cp "$tmp/err" bare.err
    run env LD_PRELOAD="$probe" "$host" "$lib" "$data/tiny-qwen3-q8_0.gguf" "$way" "$old"
    is "$way: same exit status with the probe" "$status" 0
    is "$way: same output" "$(cat "$tmp/out")" "$(cat bare.out)"
    is "$way: same messages, and one" "$(cat "$tmp/err")" \
        "libprobe: libllama is not recorded: it has no llama_free
$(cat bare.err)"
    is "$way: rows as the program read them" "$(sql run.db "SELECT printf('%d %d %d %.4f %s %s', pos,
        input_token, top1, top1_logit, coalesce(emitted_token, '-'), coalesce(context_hash, '-'))
        FROM logits ORDER BY row_id")" \
        "$(cat bare.out)"
    is "$way: rows of each phase, and the forwards" "$(sql run.db "SELECT phase, label, class, count(*),
        count(DISTINCT forward_id) FROM logits JOIN arms USING (arm_id) GROUP BY arm_id
        ORDER BY 1, 2" | sed 's/|/ /g')" "decode decode precision 15 12
prefill prefill precision 6 5
prefill prefill, model 2 weights 2 1
verify verify precision 3 1"
    is "$way: contexts that are known, and not" "$(sql run.db "SELECT count(context_hash),
        count(*) - count(context_hash) FROM logits")" "23|3"
    inside=$(grep -c 'sampled inside' bare.err)
    is "$way: what was not recorded is said" \
        "$(sql run.db "SELECT count, detail FROM gaps WHERE kind != 'llama'")" \
        "$([ "$inside" = 0 ] || echo "1|sampled by the back end")"
    is "$way: nor was the other library" "$(sql run.db "SELECT detail FROM gaps WHERE kind = 'llama'")" \
        "libllama is not recorded: it has no llama_free"
    is "$way: settings" "$(sql run.db "SELECT name, value FROM settings WHERE name IN ('n_ctx', 'n_batch',
        'n_ubatch', 'n_seq_max', 'n_threads', 'flash_attention', 'cache_type_k', 'cache_type_v',
        'architecture', 'model_path', 'n_ctx, context 2') ORDER BY 1" | sed 's/|/ /g')" \
        "architecture qwen3
cache_type_k f16
cache_type_v f16
flash_attention auto
model_path $data/tiny-qwen3-q8_0.gguf
n_batch 256
n_ctx 512
n_ctx, context 2 512
n_seq_max 2
n_threads 1
n_ubatch 256"
    is "$way: the engine" "$(sql run.db "SELECT engine, n_vocab, model_path FROM runs")" \
        "llama.cpp 0.5.0-dev|2048|$data/tiny-qwen3-q8_0.gguf"
    is "$way: the weights, as our engine names them" "$(sql run.db "SELECT model_hash FROM runs")" \
        "$("$engine" info "$data/tiny-qwen3-q8_0.gguf" | sed -n 's/^hash *//p')"
    "$engine" tokenize "$data/tiny-qwen3-q8_0.gguf" -p " the and" --format ids >ids.out
    is "$way: texts of tokens" "$(sql run.db "SELECT group_concat(token, ' '), group_concat(CAST(text AS TEXT), '')
        FROM (SELECT * FROM vocab WHERE CAST(text AS TEXT) IN (' the', ' and') ORDER BY text DESC)")" \
        "$(cat ids.out)| the and"
    cd "$tmp" || exit 99
done
mkdir threads && cd threads || exit 99
run env LD_PRELOAD="$probe" "$host" "$lib" "$data/tiny-qwen3-q8_0.gguf" threads
is "threads: the program runs" "$status $(cat "$tmp/err")" "0 "
is "threads: every row of each, and the same" "$(sql run.db "SELECT n, count(*) FROM (
        SELECT count(*) AS n, count(DISTINCT top1_logit) AS different FROM logits
        GROUP BY context_hash, pos HAVING different = 1 AND count(emitted_token) = n) GROUP BY n" |
    xargs)" "24|10 48|1"
is "threads: nothing is missing" "$(sql run.db "SELECT * FROM gaps")" ""
cd "$tmp" || exit 99

# A node program: two texts in one batch, another turn, a prompt from the cache and cold, a draft.
if [ "$sanitized" = yes ]; then
    skip "dlsym's way, and a node program" "a sanitizer's library must come first in LD_PRELOAD"
    done_testing
fi
# Through ctypes, with another copy of the library beside it; and our own engine on the same tokens.
mkdir python && cd python || exit 99
if command -v python3 >/dev/null; then
    mkdir copy && cp "$(dirname "$lib")"/lib* copy/
    set -- python3 "$abs_top_srcdir/tests/llama_ctypes.py" "$lib" "$data/tiny-qwen3-q8_0.gguf" 40
    run "$@"
    is "python: the program runs" "$status $(cat "$tmp/err")" "0 "
    cp "$tmp/out" bare.out
    run env LD_PRELOAD="$probe" "$@" "copy/$(basename "$lib")"
    is "python: the same with the probe" "$status $(cat "$tmp/out" "$tmp/err")" "0 $(cat bare.out)"
    is "python: rows as the program read them" "$(sql run.db "SELECT printf('%d %d %d %.4f', pos,
        input_token, top1, top1_logit) FROM logits WHERE seq_id = 1 ORDER BY row_id")" "$(cat bare.out)"
    is "python: the other copy is left alone, and that is said" \
        "$(sql run.db "SELECT (SELECT count(*) FROM logits), detail FROM gaps")" \
        "42|a second libllama that was found by dlsym is not recorded"
    run env LD_PRELOAD="$probe" PROBE_DB=engine.db "$engine" generate \
        "$data/tiny-qwen3-q8_0.gguf" --token-ids 40,7,93,12,55 -n 40
    run "$neartie" verdict engine.db run.db
    is "python: a verdict on two engines" "$status $(grep '^class' "$tmp/out")" \
        "0 class     engine (another engine, same weights): the runs have other engines"
else
    skip "a Python program is recorded" "python3 is not installed"
fi
cd "$tmp" || exit 99

index=$store/node_modules/node-llama-cpp/dist/index.js
if [ ! -f "$index" ]; then
    skip "node-llama-cpp is recorded" "NEARTIE_LLAMA_DIR names a libllama alone"
    done_testing
fi
mkdir node && cd node || exit 99
program=$abs_top_srcdir/tests/llama_node.mjs model=$data/tiny-qwen3-q8_0.gguf
run node "$program" "$index" "$model"
is "node: the program runs" "$status $(cat "$tmp/err")" "0 "
cp "$tmp/out" bare.out
run env LD_PRELOAD="$probe" node "$program" "$index" "$model"
is "node: same exit status, nothing on stderr" "$status $(cat "$tmp/err")" "0 "
is "node: same output with the probe" "$(cat "$tmp/out")" "$(cat bare.out)"
is "node: a draft changes nothing" "$(tail -1 bare.out)" "draft agrees"
# Two lists of numbers, the last of each line to a tenth of a thousandth.
same() { # NAME GOT WANT
    printf '%s\n' "$2" >got
    printf '%s\n' "$3" >want
    is "$1" "$(paste -d ' ' got want | awk 'NF != 6 || $1 != $4 || $2 != $5 || $3 - $6 > 2e-4 ||
        $6 - $3 > 2e-4' | head -3)" ""
}
# What the program saw of a step, and the rows of a sequence; a step's rows are in order.
seen() { sed -n "s/^$1 //p" bare.out; }
rows() { # WHERE
    sql run.db "SELECT printf('%d %d %.4f', pos, emitted_token, exp(top1_logit - lse))
        FROM logits JOIN sequences USING (seq_id) WHERE $1 ORDER BY row_id"
}
same "node: the first text, its other turn and its prompt from the cache" "$(rows 'seq = 1')" \
    "$(seen parallel-1; seen turn; seen hit)"
same "node: the text beside it" "$(rows 'seq = 2')" "$(seen parallel-2)"
same "node: cold prompts" "$(rows "seq > 2 AND label LIKE 'llama context 1,%'")" "$(seen cold)"
is "node: two texts in one batch" "$(sql run.db "SELECT count(*) > 0 FROM (SELECT 1 FROM logits
    GROUP BY forward_id HAVING count(DISTINCT seq_id) = 2)")" 1
is "node: every context is known, and every token" "$(sql run.db "SELECT count(*) > 100,
    sum(context_hash IS NULL), sum(emitted_token IS NULL) FROM logits")" "1|0|0"
is "node: checked drafts are rows of their own phase" \
    "$(sql run.db "SELECT count(*) > 10, min(n_past) > 0 FROM logits JOIN forwards USING (forward_id)
        JOIN arms ON arms.arm_id = logits.arm_id WHERE phase = 'verify'")" "1|1"
is "node: nothing is missing" "$(sql run.db "SELECT * FROM gaps")" ""
is "node: a prompt from the cache and a cold one have the same context" "$(sql run.db "
    SELECT count(DISTINCT a.context_hash) FROM logits AS a JOIN arms USING (arm_id)
    JOIN logits AS b USING (context_hash, pos) JOIN arms AS c ON c.arm_id = b.arm_id
    WHERE arms.phase = 'prefill' AND c.phase = 'decode'")" 22
run "$neartie" verdict run.db
compared() { sed -n 's/^compared.*: \([0-9]* positions\) of.*/\1/p' "$tmp/out"; }
# Where all are bit-equal, as with these weights on most processors, nothing was engaged: 4.
case "$status $(head -1 "$tmp/out")" in
"0 NEAR-TIE"* | "4 NOT-ENGAGED"*) verdict=benign ;;
*) verdict="$status $(head -1 "$tmp/out")" ;;
esac
is "node: they get a verdict" "$verdict, $(compared)" "benign, 22 positions"
run env LD_PRELOAD="$probe" PROBE_DB=flash.db node "$program" "$index" "$model" flash
is "node: with flash attention" "$status $(cat "$tmp/err")" "0 "
run "$neartie" verdict run.db flash.db
is "node: a verdict on two runs" "$status $(cut -c1-8 "$tmp/out" | head -1)" "0 NEAR-TIE"
run "$neartie" compare run.db flash.db
is "node: it is known what they differ in" "$(grep -cE "flash_attention +off +on" "$tmp/out")" 1
done_testing
