#!/bin/sh
# The model generator: every architecture in several types loads in the engine and runs, bytes
# depend on the options alone, and what cannot be is refused.
. "${abs_top_srcdir:?}/tests/testlib.sh"
mkgguf=$abs_top_builddir/tests/mkgguf

for arch in llama qwen2 qwen3 qwen3moe qwen35 qwen35moe; do
    for type in F32 Q8_0 Q4_K; do
        run "$mkgguf" --preset small --arch "$arch" --type "$type" --vocab 512 "$tmp/m.gguf"
        is "$arch $type is written" "$status" 0
        run "$engine" info "$tmp/m.gguf"
        is "$arch $type: the engine reads it" \
            "$(sed -n 's/^architecture *//p; s/^tensors.*'"$type"'.*/has the type/p' "$tmp/out")" \
            "$arch
has the type"
    done
done
for type in F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 TQ1_0 TQ2_0; do
    "$mkgguf" --preset small --arch qwen3 --layers 1 --type "$type" "$tmp/m.gguf" 2>/dev/null
    run "$engine" generate "$tmp/m.gguf" -p "the sea" -n 2
    is "$type: the engine generates with it" "$status" 0
done

"$mkgguf" --arch qwen35moe --type Q8_0 "$tmp/a.gguf" 2>/dev/null
OMP_NUM_THREADS=1 "$mkgguf" --arch qwen35moe --type Q8_0 "$tmp/b.gguf" 2>/dev/null
ok "the same options give the same bytes, with any number of threads" \
    cmp "$tmp/a.gguf" "$tmp/b.gguf"
"$mkgguf" --arch qwen35moe --type Q8_0 --seed 2 "$tmp/b.gguf" 2>/dev/null
run cmp -s "$tmp/a.gguf" "$tmp/b.gguf"
is "another seed gives other bytes" "$status" 1

"$mkgguf" --arch qwen35 --predict 1 "$tmp/m.gguf" 2>/dev/null
run "$engine" info "$tmp/m.gguf"
ok "multi-token prediction is written and noted" grep -q "without MTP" "$tmp/out"
generated() { "$engine" generate "$1" --token-ids 5,9,33 -n 8 --format json | sed 's/.*"ids"/ids/'; }
"$mkgguf" --arch qwen35 "$tmp/a.gguf" 2>/dev/null
is "and changes nothing of what the model says" "$(generated "$tmp/m.gguf")" \
    "$(generated "$tmp/a.gguf")"
run "$mkgguf" --preset small --type Q4_K --type-of ffn_down=Q6_K --list
is "one kind of matrix can have a type of its own" \
    "$(awk '/ffn_down|ffn_up/ && /blk.0/ { print $1, $2 }' "$tmp/out")" \
    "blk.0.ffn_up.weight Q4_K
blk.0.ffn_down.weight Q6_K"
run "$mkgguf" --type Q4_K --list
is "rows that are not whole blocks get a type that fits" \
    "$(awk '/blk.0.attn_q.weight/ { print $2 }' "$tmp/out")" Q5_0

"$mkgguf" --vocab 4096 "$tmp/m.gguf" 2>/dev/null
run "$engine" tokenize "$tmp/m.gguf" --no-ends --format ids -p "the"
is "the vocabulary joins letters to a word" "$status $(wc -w <"$tmp/out")" "0 1"

refuse() { # NAME STATUS WANT ARGS...
    name=$1 want=$2 message=$3; shift 3
    run "$mkgguf" "$@" "$tmp/refused.gguf"
    is "refused: $name" "$status $(grep -o "$message" "$tmp/err" | head -1)" "$want $message"
}
refuse "an unknown architecture" 1 "gpt9: unknown" --arch gpt9
refuse "an unknown type" 2 "Q9_X: unknown weight type" --type Q9_X
refuse "a type that cannot be packed" 1 "IQ2_XS: cannot be packed" --type IQ2_XS
refuse "heads that do not divide" 1 "heads=3: must be a positive multiple of 2" --heads 3
refuse "a vocabulary without its bytes" 1 "vocab=100: must be from" --vocab 100
run "$mkgguf" "$tmp/none/m.gguf"
is "refused: a folder that is not there" "$status" 1
done_testing
