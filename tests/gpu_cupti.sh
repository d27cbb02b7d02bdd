#!/bin/sh
# On a machine with a GPU: what the probe says was launched against CUPTI's activity records, for a
# program of every kind of launch and for the engine; and what it costs. TAP on stdout.
# usage: gpu_cupti.sh BUILD-FOLDER, after `make gpu-tools` there; CUDA_LIB is where libcupti is.
set -u
build=${1:?which build folder?} top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$build" && pwd)
lib=${CUDA_LIB:-/usr/local/cuda/lib64} probe=$build/shim/libprobe.so
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

# Run under the probe, with the activities recorded beside it, and compare.
audit() { # NAME COMMAND...
    name=$1
    shift
    echo "# $name"
    PROBE_DB=$tmp/$name.db AUDIT_OUT=$tmp/$name.tsv LD_LIBRARY_PATH=$lib:${LD_LIBRARY_PATH-} \
        CUDA_INJECTION64_PATH=$build/tests/gpu_audit.so LD_PRELOAD=$probe \
        "$@" >"$name.out" 2>"$name.err" || { echo "not ok - $name runs"; tail -3 "$name.err"; }
    python3 "$top/tests/gpu_kernels.py" "$name.db" "$name.tsv"
}
audit cases "$build/tests/gpu_cases" "$top/tests/data/plain.cubin"
NEARTIE_DEVICE=cuda
export NEARTIE_DEVICE NEARTIE_GRAPH
for model in tiny-qwen3-q8_0 tiny-qwen35-q8_0; do
    for NEARTIE_GRAPH in 0 1; do
        audit "$model.$NEARTIE_GRAPH" "$build/engine/neartie-engine" generate -n 24 \
            -p "The cat sat on the" "$top/tests/data/$model.gguf"
    done
done
echo "# cost: wrapped, then CUPTI's own"
PROBE_DB=$tmp/cost.db LD_PRELOAD=$probe "$build/tests/gpu_cost" | sed 's/^/# /'
LD_LIBRARY_PATH=$lib "$build/tests/gpu_cost" "$lib/libcupti.so.13" | sed 's/^/# /'
