#!/bin/sh
# neartie-engine as a user meets it: output, help, exit status, and what bad input gets.
. "${abs_top_srcdir:?}/tests/testlib.sh"
dense=$data/tiny-qwen3-q8_0.gguf hybrid=$data/tiny-qwen35-q8_0.gguf
NEARTIE_FAST=0 && export NEARTIE_FAST

# One line on stderr that holds the text, nothing on stdout, exit 1.
refuses() { # NAME TEXT COMMAND...
    refuses_name=$1 refuses_text=$2
    shift 2
    run "$@"
    case $(cat "$tmp/err") in
    "neartie-engine: "*"$refuses_text"*) refuses_says=yes ;;
    *) refuses_says="$(cat "$tmp/err")" ;;
    esac
    is "$refuses_name: \"$refuses_text\"" \
        "$status $refuses_says $(wc -l <"$tmp/err") $(wc -c <"$tmp/out")" "1 yes 1 0"
}
# Usage errors end with 2 and print to stderr only.
misuses() { # NAME COMMAND...
    misuses_name=$1
    shift
    run "$@"
    is "$misuses_name" "$status $(wc -c <"$tmp/out") $(test -s "$tmp/err" && echo said)" "2 0 said"
}

# ---- files that are no model ----
: >"$tmp/empty.gguf"
head -c 20000 "$dense" >"$tmp/head.gguf"
head -c 1500000 "$dense" >"$tmp/short.gguf"
echo "this is no model" >"$tmp/text.gguf"
{ printf 'GGUF\003\000\000\000'; head -c 4096 "$dense" | tail -c 2000 | tr '[:lower:]' '[:upper:]'; } >"$tmp/random.gguf"
LC_ALL=C sed 's/qwen3/qwenX/g' "$dense" >"$tmp/arch.gguf"
mkdir "$tmp/dir.gguf"
for command in info "tokenize -p x" "generate -p x" "gate --prompt x"; do
    # shellcheck disable=SC2086
    set -- $command
    name=$1
    shift
    refuses "$name: missing file" "$tmp/none.gguf: No such file" "$engine" "$name" "$tmp/none.gguf" "$@"
    refuses "$name: directory" "$tmp/dir.gguf: is a directory" "$engine" "$name" "$tmp/dir.gguf" "$@"
    refuses "$name: empty file" "empty.gguf: is empty" "$engine" "$name" "$tmp/empty.gguf" "$@"
    refuses "$name: text file" "text.gguf: not a GGUF file" "$engine" "$name" "$tmp/text.gguf" "$@"
    refuses "$name: truncated header" "head.gguf: key tokenizer.ggml.tokens: " \
        "$engine" "$name" "$tmp/head.gguf" "$@"
    refuses "$name: truncated data" "short.gguf: tensor " "$engine" "$name" "$tmp/short.gguf" "$@"
    refuses "$name: random bytes" "random.gguf: header: claims" "$engine" "$name" "$tmp/random.gguf" "$@"
done
refuses "unknown architecture" "qwenX" "$engine" info "$tmp/arch.gguf"

# ---- input that cannot be used ----
refuses "token id beyond the vocabulary" "token id 2048, the vocabulary of $dense has 2048" \
    "$engine" generate "$dense" --token-ids 1,2048
refuses "token id that is none" "\"x\" at byte 2 is not a token id" \
    "$engine" generate "$dense" --token-ids 1,x
refuses "token id of 2^40" "is not a token id" "$engine" generate "$dense" --token-ids 1099511627776
refuses "no token ids" "token ids: is empty" "$engine" generate "$dense" --token-ids ""
refuses "empty prompt" "prompt: is empty" "$engine" generate "$dense" --prompt ""
refuses "empty prompt file" "empty.gguf: is empty" "$engine" generate "$dense" -f "$tmp/empty.gguf"
refuses "prompt file that is a directory" "Is a directory" "$engine" generate "$dense" -f "$tmp"
refuses "missing prompt file" "No such file" "$engine" gate "$dense" "$tmp/none.txt"
refuses "mistyped prompt file" "promt.txt: No such file" "$engine" gate "$dense" promt.txt
refuses "prompt shorter than the window" "window 24: the prompt has only " \
    "$engine" gate "$dense" "a short prompt"
refuses "window 0" "window 0: must be at least 1" "$engine" gate "$dense" "$data/prompt.txt" --window 0
refuses "window below 0" "window -1: must be" "$engine" gate "$dense" "$data/prompt.txt" --window=-1
refuses "no new tokens" "-n 0: must be 1 to" "$engine" generate "$dense" -p x -n 0
refuses "temperature below 0" "temperature -1: must be 0 to" \
    "$engine" generate "$dense" -p x --temperature=-1
refuses "top-p of 0" "top-p 0: must be above 0" "$engine" generate "$dense" -p x --top-p 0
refuses "knob with a value that it does not have" "NEARTIE_KV=q9: not allowed" \
    env NEARTIE_KV=q9 "$engine" generate "$dense" -p x
refuses "arms that are three" "more than 2" \
    "$engine" gate "$dense" "$data/prompt.txt" --arms prefill,decode,decode:REF=1
refuses "arms that are no two" "must be two" "$engine" gate "$dense" "$data/prompt.txt" --arms prefill
refuses "arm with an unknown knob" "XYZ: no such knob" \
    "$engine" gate "$dense" "$data/prompt.txt" --arms decode,decode:XYZ=1
refuses "arms that are the same" "decode stands twice" \
    "$engine" gate "$dense" "$data/prompt.txt" --arms decode,decode
if [ -w /dev/full ]; then
    if "$engine" info "$dense" >/dev/full 2>"$tmp/err"; then status=0; else status=$?; fi
    is "full disk" "$status $(cat "$tmp/err")" \
        "1 neartie-engine: standard output: No space left on device"
    if "$engine" --help >/dev/full 2>"$tmp/err"; then status=0; else status=$?; fi
    is "full disk, help" "$status $(cat "$tmp/err")" \
        "1 neartie-engine: standard output: No space left on device"
else
    skip "full disk" "no /dev/full here"
    skip "full disk, help" "no /dev/full here"
fi

# ---- hostile and broken models ----
python3 - "$dense" "$tmp" <<'PYTHON'
import struct, sys
data = open(sys.argv[1], "rb").read()
key = b"general.architecture"
at = data.index(key) + len(key) + 4
n = struct.unpack_from("<Q", data, at)[0]
hostile = b"\x1b[31m\n"[:n].ljust(n, b"X")
open(sys.argv[2] + "/hostile.gguf", "wb").write(data[:at + 8] + hostile + data[at + 8 + n:])
open(sys.argv[2] + "/nan.gguf", "wb").write(data[:-200000] + b"\xff" * 200000)
PYTHON
run "$engine" info "$tmp/hostile.gguf"
is "hostile text of a model: one line, and no escape" \
    "$status $(wc -l <"$tmp/err") $(grep -c "$(printf '\033')" "$tmp/err")" "1 1 0"
run "$engine" score "$tmp/nan.gguf" --token-ids 1,2,3,4 --format json
ok "NaN is null in JSON" python3 -c "
import json
assert json.load(open('$tmp/out'))[0]['nll'] is None"

# ---- wrong usage ----
misuses "no command" "$engine"
misuses "unknown command" "$engine" frobnicate
misuses "unknown option" "$engine" info "$dense" --frobnicate
misuses "no model" "$engine" info
misuses "two models" "$engine" info "$dense" "$dense"
misuses "no prompt" "$engine" generate "$dense"
misuses "window that is no number" "$engine" gate "$dense" "$data/prompt.txt" --window many
misuses "unknown format" "$engine" tokenize "$dense" -p x --format xml

# ---- help ----
for command in "" info tokenize generate gate score bench; do
    # shellcheck disable=SC2086
    run "$engine" $command --help
    is "help ${command:-of the program}" "$status $(wc -c <"$tmp/err") $(test -s "$tmp/out" && echo said)" \
        "0 0 said"
    is "help ${command:-of the program}: no line above 79 columns" "$(awk 'length > 79' "$tmp/out")" ""
done
run "$engine" generate --help
ok "help names the knobs" grep -q "NEARTIE_KV: f16, f32 or q8_0" "$tmp/out"
run "$engine" --version
is "version" "$status $(cut -d' ' -f1 "$tmp/out")" "0 neartie-engine"

# ---- what it does ----
run "$engine" info "$hybrid"
is "info" "$status $(sed -n 's/^architecture *//p' "$tmp/out")" "0 qwen35"
hooks=$(sed -n 's/^hooks *//p' "$tmp/out")
run "$engine" info --format json "$hybrid"
ok "info as json" python3 -c 'import json, sys; assert json.load(sys.stdin)["vocabulary"] == "2048"' \
    <"$tmp/out"
run "$engine" info --arithmetic "$hybrid"
ok "info --arithmetic says what a knob does not act on" grep -q "NEARTIE_Q80_G2.*not engaged" "$tmp/out"
run "$engine" tokenize "$dense" -p "e race that" --format ids
is "tokenize" "$(cat "$tmp/out")" "69 845 335 305"
run "$engine" tokenize "$dense" --token-ids "69,845" --format json
is "tokenize ids" "$(cat "$tmp/out")" '{"n":2,"ids":[69,845],"texts":["e"," ra"]}'
printf 'e race that' | "$engine" tokenize "$dense" -f - --format ids >"$tmp/out"
is "tokenize standard input" "$(cat "$tmp/out")" "69 845 335 305"
run "$engine" tokenize "$dense" -p "<|endoftext|>" --format ids
is "a special token" "$(cat "$tmp/out")" "0"
run "$engine" tokenize "$dense" -p "<|endoftext|>" --format ids --no-special
ok "the same as text" grep -q " " "$tmp/out"

run "$engine" generate "$dense" -p "And he said" -n 8 --format json
ids=$(sed 's/.*"ids":\[\([0-9,]*\)\],"text.*/\1/' "$tmp/out")
is "generate: eight ids" "$status $(echo "$ids" | tr ',' '\n' | grep -c .)" "0 8"
run "$engine" generate "$dense" -p "And he said" -n 8
text=$(cat "$tmp/out")
run "$engine" generate "$dense" -p "And he said$text" -n 1 --format json
is "generate: ids and text say the same" \
    "$("$engine" tokenize "$dense" --format ids -p "$text" | tr ' ' ',')" "$ids"

# Samples of one seed are the same whether they run alone or together, and differ from each other.
run "$engine" generate "$dense" -p "And he said" -n 12 --temperature 1 --top-p 0.9 --batch 3 --format json
cp "$tmp/out" "$tmp/together"
for seed in 0 1 2; do
    "$engine" generate "$dense" -p "And he said" -n 12 --temperature 1 --top-p 0.9 --seed $seed \
        --format json
done >"$tmp/alone"
is "three samples together are the three alone" "$(cat "$tmp/together")" "$(cat "$tmp/alone")"
is "and all different" "$(sort -u "$tmp/alone" | wc -l)" "3"
run "$engine" generate "$dense" -p "And he said" -p "In the beginning" -p "x" -n 4 --batch 2
is "three prompts through two sequences" "$(grep -c '^== . of 3 ==$' "$tmp/out")" "3"

head -c 200 "$data/prompt.txt" >"$tmp/prompt.txt"
for model in "$dense" "$hybrid"; do
    run "$engine" gate "$model" "$tmp/prompt.txt" --window 5
    cp "$tmp/out" "$tmp/truncated"
    is "gate ${model##*/}: rows" "$status $(grep -c '^[0-9]' "$tmp/out")" "0 5"
    is "gate ${model##*/}: verdict is the last line" "$(tail -1 "$tmp/out" | cut -c1-29)" \
        "verdict (rule seed): STABLE -"
    run "$engine" gate "$model" --prompt "$(cat "$tmp/prompt.txt")" --window 5
    is "gate ${model##*/}: the same prompt as text" "$(cat "$tmp/out")" "$(cat "$tmp/truncated")"
    run "$engine" gate "$model" "$tmp/prompt.txt" --window 5 --prefill single
    is "gate ${model##*/} --prefill single: agreement" "$(grep -c '^agreement: 5/5' "$tmp/out")" "1"
done
run "$engine" gate "$dense" "$tmp/prompt.txt" --window 5 --arms decode,decode:REF=1
ok "gate --arms: the labels head the columns" grep -q "decode:REF=1_top1" "$tmp/out"

# ---- files with more, and with less ----
"$abs_top_builddir/tests/mkgguf" --arch qwen35moe --predict 1 "$tmp/mtp.gguf" 2>/dev/null
run "$engine" info "$tmp/mtp.gguf"
is "info: what is left out is noted" "$status $(sed -n 's/^note *//p' "$tmp/out")" \
    "0 without MTP: 20 tensors of multi-token prediction are not used"
LC_ALL=C sed 's/tokenizer.ggml.model/tokenizer.ggml.modeX/' "$dense" >"$tmp/mute.gguf"
run "$engine" generate "$tmp/mute.gguf" --token-ids 69,845 -n 3
is "without a tokenizer: ids for ids" "$status $(grep -cE '^[0-9]+ [0-9]+ [0-9]+ ?$' "$tmp/out")" "0 1"
refuses "without a tokenizer: no text" "mute.gguf: has no tokenizer" "$engine" generate "$tmp/mute.gguf" -p x
refuses "without a tokenizer: nothing to tokenize" "mute.gguf: has no tokenizer" \
    "$engine" tokenize "$tmp/mute.gguf" -p x

# ---- score and bench ----
echo "69 845 335 305
316 408 334" >"$tmp/two.ids"
echo "[69, 845, 335,
305], [316, 408, 334]" >"$tmp/brackets.ids"
run "$engine" score "$dense" --tokens "$tmp/two.ids" --arms prefill,decode --batch 2 --format csv
cp "$tmp/out" "$tmp/score"
is "score: two sequences and their sum, by two arms" "$status $(cut -d, -f1-3 "$tmp/score" | tr '\n' ' ')" \
    "0 arm,sequence,tokens prefill,0,3 prefill,1,2 prefill,all,5 decode,0,3 decode,1,2 decode,all,5 "
run "$engine" score "$dense" --tokens "$tmp/brackets.ids" --arms prefill,decode --format csv
is "score: brackets and lines, alone and together" "$(cat "$tmp/out")" "$(cat "$tmp/score")"
run "$engine" score "$dense" --tokens "$tmp/two.ids" --per-token --format csv
is "score --per-token: the mean is the table's" \
    "$(awk -F, 'NR > 1 && $2 == 0 { sum -= $5 } END { printf "%.5f", sum / 3 }' "$tmp/out")" \
    "$(awk -F, '$1 == "prefill" && $2 == "0" { printf "%.5f", $5 }' "$tmp/score")"
run "$engine" score "$dense" --tokens "$tmp/two.ids" --format json
ok "score as json" python3 -c 'import json, sys; assert json.load(sys.stdin)[2]["tokens"] == 5' <"$tmp/out"
echo "69" >"$tmp/one.ids"
refuses "score: one token" "one.ids: sequence of 1 token, must be 2" "$engine" score "$dense" --tokens "$tmp/one.ids"
refuses "score: no tokens" "empty.gguf: no token ids" "$engine" score "$dense" --tokens "$tmp/empty.gguf"
refuses "score: token beyond" "two-9.ids: token id 9999, the vocabulary" \
    "$engine" score "$dense" --tokens "$(echo "1 9999" >"$tmp/two-9.ids" && echo "$tmp/two-9.ids")"
run "$engine" bench "$dense" --prefill 8 --decode 4 --context 3 --batch 2 --repeat 1 --format csv
is "bench" "$status $(cut -d, -f1-5 "$tmp/out" | tr '\n' ' ')" \
    "0 phase,tokens,context,batch,probe prefill,8,0,1,none decode,4,3,2,none "
refuses "bench of nothing" "nothing to measure" "$engine" bench "$dense" --prefill 0 --decode 0

# ---- a model file that is cut while it is mapped ----
if [ "$SANITIZE" = no ]; then
    cp "$dense" "$tmp/cut.gguf"
    "$engine" generate "$tmp/cut.gguf" -p Once -n 100000 --ignore-end >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    until [ -s "$tmp/out" ] || ! kill -0 $pid 2>"$tmp/gone"; do sleep 0.02; done
    truncate -s 4096 "$tmp/cut.gguf"
    wait $pid
    is "a model file that is truncated under the engine" "$? $(cat "$tmp/err")" \
        "1 neartie-engine: $tmp/cut.gguf: cannot be read any more: it was truncated or replaced in place, or its disk fails"
else
    skip "a model file that is truncated under the engine" "a sanitizer takes the signal"
fi

# ---- against other implementations ----
if [ -n "${NEARTIE_SHARED-}" ]; then
    for name in tiny-qwen3 tiny-qwen35; do
        json=$NEARTIE_SHARED/models/trained/$name.pytorch.json
        greedy=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["greedy64"], sep=",")' "$json")
        run "$engine" generate "$NEARTIE_SHARED/models/trained/$name-f32.gguf" -n 64 --format json \
            --token-ids "$(echo "$greedy" | cut -d, -f1-64)"
        is "$name-f32: 64 greedy tokens as PyTorch's" \
            "$(sed 's/.*"ids":\[\([0-9,]*\)\],"text.*/\1/' "$tmp/out")" "$(echo "$greedy" | cut -d, -f65-)"
    done
    run "$engine" generate "$NEARTIE_SHARED/models/public/stories260K-f32.gguf" -n 64 -p "Once upon a time"
    is "stories260K-f32: 64 greedy tokens as llama.cpp's" " Once upon a time$(cat "$tmp/out")" \
        "$(cat "$NEARTIE_SHARED/ref/stories260K-f32.greedy64.txt")"
else
    skip "64 greedy tokens as other implementations'" "NEARTIE_SHARED is not set"
fi

# ---- without hooks ----
if [ "$hooks" = "not compiled in" ]; then
    is "no object of the engine refers to a probe" \
        "$(nm "$abs_top_builddir"/engine/*.o "$engine" 2>/dev/null | grep -i probe)" ""
    is "nor leaves a note" "$(readelf -n "$engine" | grep -i neartie)" ""
else
    skip "no object of the engine refers to a probe" "built with hooks"
fi
done_testing
