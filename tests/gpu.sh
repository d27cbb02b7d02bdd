#!/bin/sh
# Everything of the engine that needs a GPU, in one command; a short table comes last.
#   tests/gpu.sh [-b BUILD] [-o OUT] [STEP...]
# Steps: floor kernels models sanitize bench curves gate, or quick for a part of bench; without any,
# all of them. BUILD is a folder that is built already, otherwise it is built here; OUT keeps the
# logs. Model files of full size are made in $TMPDIR (28 GB). Not a part of `make check`, which
# tests the CUDA forms where it finds a GPU. $PRESETS, $TYPES and $BATCHES name other models and
# batches for quick, bench, curves and gate; $MODELS, a folder, keeps the files and their logs; a
# test may take $LIMIT seconds (600).
# shellcheck disable=SC2317 # the steps are called by name
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
build='' out=''
while getopts b:o: option; do
    case $option in
    b) build=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
presets=${PRESETS:-8b-qwen3 9b-qwen35} types=${TYPES:-Q8_0 Q4_K_M} batches=${BATCHES:-8 64 256}
limit=${LIMIT:-600}
steps=${*:-floor kernels models sanitize bench curves gate}

if [ -z "$build" ]; then
    build=$top/build
    log=${TMPDIR:-/tmp}/gpu-build.log
    if ! { "$top/bootstrap" build && make -C "$build" tests/kernels_t tests/gpu_floor; } >"$log" 2>&1
    then
        echo "gpu.sh: the build failed: $log" >&2
        exit 1
    fi
fi
build=$(cd "$build" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/neartie-gpu.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
out=${out:-$tmp}
mkdir -p "$out"
engine=$build/engine/neartie-engine
table=$tmp/table
: >"$table"
export NEARTIE_DEVICE=cuda
failed=0

# row NAME RESULT FLOOR: a line of the table; FLOOR 0 = none.
row() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$table"
}

# verdict NAME STATUS DETAIL
verdict() {
    [ "$2" = 0 ] || failed=1
    row "$1" "$([ "$2" = 0 ] && echo passed || echo FAILED) $3" 0
}

# The rates that the floors are made from: TB/s and TFLOP/s.
copy=4.3 bf16=790
step_floor() {
    "$build/tests/gpu_floor" >"$out/floor" || failed=1
    copy=$(sed -n 's/^copy //p' "$out/floor") bf16=$(sed -n 's/^bf16 //p' "$out/floor")
    row "copy, TB/s" "$copy" 0
    row "bf16 product, TFLOP/s" "$bf16" 0
}

step_kernels() {
    timeout "$limit" "$build/tests/kernels_t" >"$out/kernels" 2>&1
    verdict "kernels_t" $? "$(grep -c '^ok' "$out/kernels") of $(grep -c 'ok [0-9]' "$out/kernels")"
}

# The models of ../shared against llama.cpp's logits and the float64 reference, on the device.
step_models() {
    if [ ! -d "${NEARTIE_SHARED:=$top/../shared}/ref" ]; then
        row "ref_table" "skipped: no NEARTIE_SHARED" 0
        return
    fi
    timeout "$limit" "$build/tests/ref_table" "$NEARTIE_SHARED" >"$out/models" 2>&1
    verdict "ref_table" $? "$(awk '$2 == "decode"' "$out/models" | wc -l) models"
}

# Beside one another: each is slow on the host.
step_sanitize() {
    for tool in memcheck racecheck initcheck; do
        {
            timeout "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                --kernel-regex exclude:kernel_substring=nvjet "$build/tests/kernels_t" cuda \
                >"$out/$tool" 2>&1
            echo $? >"$tmp/$tool"
        } &
    done
    wait
    for tool in memcheck racecheck initcheck; do
        verdict "compute-sanitizer $tool" "$(cat "$tmp/$tool")" \
            "$(grep -o 'ERROR SUMMARY: .*' "$out/$tool" | head -1)"
    done
}

# A model file of full size, made once: its name and parameters go into $file and $params.
# shellcheck disable=SC2086 # $options are several words
model() { # PRESET TYPE
    file=${MODELS:-$tmp}/$1.$2.gguf
    options="--type $2"
    [ "$2" = Q4_K_M ] &&
        options="--type Q4_K --type-of ffn_down=Q6_K --type-of attn_v=Q6_K --type-of output=Q6_K"
    [ -f "$file" ] ||
        "$build/tests/mkgguf" --preset "$1" $options "$file" >"$file.log" 2>&1 || failed=1
    params=$(sed -n 's/.* \([0-9.]*\) G parameters.*/\1/p' "$file.log")
}

# bench NAME ARGS...: a row for each phase, with what bytes and operations allow at most.
bench() {
    name=$1
    shift
    "$engine" bench "$file" --format csv "$@" >"$tmp/bench" 2>"$out/bench.err" || failed=1
    cat "$tmp/bench" >>"$out/bench.csv"
    awk -F, -v name="$name" -v copy="$copy" -v bf16="$bf16" -v params="$params" 'BEGIN { OFS = "\t" }
        $1 == "prefill" { print name " pp" $2, $6, bf16 * 1e12 / (2 * params * 1e9) }
        $1 == "decode" {
            at = ($3 > 0 ? " at " $3 : "") ($4 > 1 ? " batch " $4 : "")
            print name " tg" $2 at, $6, copy * 1e3 / $9 * $6 }' "$tmp/bench" >>"$table"
}

each_model() { # FUNCTION
    for type in $types; do
        for preset in $presets; do
            model "$preset" "$type"
            "$1" "$preset $type"
        done
    done
}

quick_one() {
    bench "$1" --prefill 2048 --decode 128 --repeat 3
}
step_quick() {
    each_model quick_one
}

bench_one() {
    bench "$1" --prefill 512 --decode 128 --repeat 3
    bench "$1" --prefill 2048 --decode 0 --repeat 3
    for n in $batches; do
        bench "$1" --prefill 0 --decode 16 --batch "$n" --repeat 2
    done
}
step_bench() {
    each_model bench_one
}

curves_one() {
    for n in 128 512 2048 8192 32640; do
        bench "$1" --prefill 0 --context "$n" --decode 32 --repeat 1
    done
    for n in 128 256 512 1024 2048 4096 8192; do
        bench "$1" --prefill "$n" --decode 0 --repeat 2
    done
    for n in 1 2 4 8 16 32 64 128 256; do
        bench "$1" --prefill 0 --decode 16 --batch "$n" --repeat 1
    done
}
step_curves() {
    for preset in $presets; do
        model "$preset" Q8_0
        curves_one "$preset Q8_0"
    done
}

# gate NAME MODEL PROMPT...: status 0 and 3 are both answers.
gate() {
    name=$1
    shift
    begin=$(date +%s)
    "$engine" gate --window 24 "$@" >"$out/gate.$name" 2>"$out/gate.$name.err"
    rc=$?
    [ "$rc" = 3 ] && rc=0
    verdict "gate $name" "$rc" \
        "$(sed -n 's/^verdict (rule seed): \([^ ]*\).*/\1/p' "$out/gate.$name"), $(($(date +%s) - begin)) s"
}
step_gate() {
    ids=$(awk 'BEGIN { for (i = 0; i < 2048; i++) printf "%s%d", i ? "," : "", (i * 7919 + 13) % 50000 }')
    for trained in "${NEARTIE_SHARED:=$top/../shared}"/models/trained/*.gguf; do
        [ -f "$trained" ] && gate "$(basename "$trained" .gguf)" "$trained" "${trained%-*}.prompt.txt"
    done
    for preset in $presets; do
        model "$preset" Q8_0
        gate "$preset" "$file" --token-ids "$ids"
    done
}

for step in $steps; do
    case $step in
    floor | kernels | models | sanitize | quick | bench | curves | gate) "step_$step" ;;
    *)
        echo "gpu.sh: $step: no such step" >&2
        exit 2
        ;;
    esac
done
cp "$table" "$out/table"
awk -F'\t' '{ printf "%-44s %s", $1, $2 }
    $3 > 0 { printf "   floor %.0f, %.0f %% of it", $3, 100 * $2 / $3 }
    { print "" }' "$table"
exit $failed
