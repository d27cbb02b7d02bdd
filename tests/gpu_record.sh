#!/bin/sh
# The record path and the kernels' tags on a machine with a GPU, in one command; a short table comes
# last. usage: gpu_record.sh BUILD-FOLDER [OUT [STEP...]], after `make` and `make gpu-tools` there;
# OUT keeps the logs. Steps: rows engine audit knobs starts long cost overhead capture, all of them
# without any. PAIRS: of overhead's repetitions.
set -u
build=$(cd "${1:?which build folder?}" && pwd) top=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/neartie-gpu.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
out=${2:-$tmp/out}
mkdir -p "$out"
if [ $# -gt 2 ]; then shift 2; else set -- rows engine audit knobs starts long cost overhead capture; fi
probe=$build/shim/libprobe.so tiny=$top/tests/data/tiny-qwen3-q8_0.gguf
NEARTIE_DEVICE=cuda
export NEARTIE_DEVICE

step_rows() { python3 "$top/tests/gpu_probe.py" "$probe"; }
step_engine() {
    python3 "$top/tests/gpu_engine.py" "$build/engine/neartie-engine" "$probe" \
        "$tiny" "$top/tests/data/tiny-qwen35-q8_0.gguf"
}
step_audit() { sh "$top/tests/gpu_cupti.sh" "$build"; }
step_capture() { python3 "$top/tests/gpu_capture.py" "$build/shim/capture_cuda.fatbin" check bench; }
step_cost() {
    PROBE_DB=$tmp/cost.db LD_PRELOAD=$probe "$build/tests/gpu_cost" | sed 's/^/# /'
}
step_long() {
    PROBE_DB=$tmp/long.db LD_PRELOAD=$probe "$build/tests/gpu_cost" long | sed 's/^/# /'
}
step_overhead() { sh "$top/tests/bench_probe.sh" "$build" 2>&1 | sed 's/^/# /'; }

step_starts() {
    seq 200 | PROBE_DB='' xargs -P 12 -I N env PROBE_DB="$tmp/start.N.db" LD_PRELOAD="$probe" \
        "$build/tests/gpu_cases" "$top/tests/data/plain.cubin" >"$tmp/starts" 2>&1
    n=$(grep -c '^done$' "$tmp/starts")
    [ "$n" = 200 ] || printf 'not '
    echo "ok - $n of 200 starts end well"
}

# A run of each knob against the run without any: what compare names.
record() { # NAME VARIABLE=VALUE
    env PROBE_DB="$tmp/$1.db" LD_PRELOAD="$probe" "$2" "$build/engine/neartie-engine" score "$tiny" \
        --tokens "$tmp/ids" --arms prefill,decode >/dev/null 2>"$tmp/$1.err" || cat "$tmp/$1.err"
}
step_knobs() {
    seq 3 50 | xargs >"$tmp/ids"
    record base X=
    for set in FA_SPLIT=4:decode Q80_G2=1:decode FAST=0:decode PRIME_CHUNK=8:prefill GRAPH=0:decode \
        FA_SPLIT=0:decode Q80_G2=0:decode FAST=1:decode PRIME_CHUNK=0:prefill GRAPH=1:decode; do
        arm=${set#*:} set=${set%:*}
        record "$set" "NEARTIE_$set"
        "$build/collector/neartie" compare "$tmp/base.db" "$tmp/$set.db" --a "$arm" --b "$arm" \
            >"$tmp/compare" 2>&1
        n=$(grep -c '^kernel' "$tmp/compare") verdict=$(tail -1 "$tmp/compare")
        echo "# $set: $n kernel lines differ; $verdict"
        grep -E '^(kernel|setting)' "$tmp/compare" | head -6 | sed 's/^/#   /'
    done
}

for step; do
    echo "== $step $(date +%T)"
    "step_$step" >"$out/$step" 2>&1
    cat "$out/$step"
done
echo "== table"
for step; do
    printf '%-10s %s ok, %s not ok\n' "$step" "$(grep -c '^ok' "$out/$step")" \
        "$(grep -c '^not ok' "$out/$step")"
done
! cat "$out"/* | grep -q '^not ok'
