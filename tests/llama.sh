#!/bin/sh
# Programs that decode with a real libllama: every row that they read is recorded as they read it,
# and they print the same without the probe. NEARTIE_LLAMA_DIR: a folder below which there is one.
. "${abs_top_srcdir:?}/tests/testlib.sh"
host=$abs_top_builddir/tests/llama_host
cd "$tmp" || exit 99
sql() { sqlite3 -batch "$1" "$2"; }

case $SANITIZE in
*address* | *thread*) skip "a real libllama is recorded" "the preload of a sanitized build needs its runtime first"
    done_testing ;;
esac

# A library that is none that we know, and a fake: passed through, said once.
old=$abs_top_builddir/tests/libllama.old.so
mkdir old && cd old || exit 99
run "$host" "$old" old
is "an unknown libllama (a fake)" "$status $(xargs <"$tmp/out")" "0 3211 3211"
run env LD_PRELOAD="$probe" "$host" "$old" old
is "an unknown libllama is passed all that it takes" "$status $(xargs <"$tmp/out")" "0 3211 3211"
is "it is refused in one line" "$(cat "$tmp/err")" \
    "libprobe: libllama is not recorded: it has no llama_free"
is "and in the gaps" "$(sql run.db "SELECT count, detail FROM gaps WHERE kind = 'llama'")" \
    "1|libllama is not recorded: it has no llama_free"
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

for way in linked dlsym; do
    mkdir "$way" && cd "$way" || exit 99
    run "$host" "$lib" "$data/tiny-qwen3-q8_0.gguf" "$way"
    is "$way: the program runs" "$status" 0
    cp "$tmp/out" bare.out
    cp "$tmp/err" bare.err
    run env LD_PRELOAD="$probe" "$host" "$lib" "$data/tiny-qwen3-q8_0.gguf" "$way"
    is "$way: same exit status with the probe" "$status" 0
    is "$way: same output" "$(cat "$tmp/out")" "$(cat bare.out)"
    is "$way: same messages" "$(cat "$tmp/err")" "$(cat bare.err)"
    is "$way: rows as the program read them" "$(sql run.db "SELECT printf('%d %d %d %.4f %s', pos,
        input_token, top1, top1_logit, coalesce(context_hash, '-')) FROM logits ORDER BY row_id")" \
        "$(cat bare.out)"
    is "$way: rows of each phase, and the forwards" "$(sql run.db "SELECT phase, count(*),
        count(DISTINCT forward_id) FROM logits JOIN arms USING (arm_id) GROUP BY 1 ORDER BY 1" |
        xargs)" "decode|12|9 prefill|4|3 verify|3|1"
    is "$way: contexts that are known, and not" "$(sql run.db "SELECT count(context_hash),
        count(*) - count(context_hash) FROM logits")" "16|3"
    inside=$(grep -c 'sampled inside' bare.err)
    is "$way: what was not recorded is said" \
        "$(sql run.db "SELECT count, detail FROM gaps WHERE kind = 'no_logits'")" \
        "$([ "$inside" = 0 ] || echo "1|sampled by the back end")"
    cd "$tmp" || exit 99
done
done_testing
