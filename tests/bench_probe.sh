#!/bin/sh
# What the probe costs our engine, in one process that calls its hooks and has its kernels recorded in
# every second stretch of work: 200 steps of decode, or a prefill. Once with its hooks always called
# and its kernels recorded in every second stretch.
#   bench_probe.sh BUILD-FOLDER [MODEL...]
# Without a model: one of the shape of Qwen3 8B where the device is a GPU, else the tiny ones.
set -eu
build=$(cd "$1" && pwd)
shift
folder=$(mktemp -d "${TMPDIR:-/tmp}/neartie-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
top=$(cd "$(dirname "$0")/.." && pwd)
tiny="$top/tests/data/tiny-qwen3-q8_0.gguf $top/tests/data/tiny-qwen35-q8_0.gguf"
prefill=2048 batches="1 64" pairs=${PAIRS:-10}
if [ $# = 0 ] && [ "${NEARTIE_DEVICE:-auto}" != cpu ] && nvidia-smi >/dev/null 2>&1; then
    "$build/tests/mkgguf" --preset 8b-qwen3 --arch qwen3 --type Q8_0 "$folder/8b.gguf"
    set -- "$folder/8b.gguf"
elif [ $# = 0 ]; then
    # shellcheck disable=SC2086
    set -- $tiny
    prefill=512 batches="1 8"
fi
bench() { # MODEL WORK...
    rm -f "$folder"/run*
    echo "== $*"
    PROBE_DB=$folder/run.db LD_PRELOAD=$build/shim/libprobe.so \
        "$build/engine/neartie-engine" bench "$@" 2>&1
}
for model; do
    for batch in $batches; do
        bench "$model" --prefill 0 --decode 200 --batch "$batch" --repeat "$pairs"
    done
    bench "$model" --prefill 0 --decode 200 --repeat "$pairs" --kernels
    bench "$model" --prefill $prefill --decode 0 --repeat "$pairs"
    bench "$model" --prefill $prefill --decode 0 --repeat "$pairs" --all-rows
done
