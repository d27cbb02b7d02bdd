#!/bin/sh
# Programs that know nothing of the probe, on a machine with a GPU: PyTorch in many ways, transformers,
# a Triton kernel, CuPy, JAX, and our engine under Nsight Compute. Each runs bare and with the library
# preloaded, those that begin with eager also with it injected alone; what it prints and its exit status must be
# the same. TAP on stdout.
#   gpu_programs.sh BUILD-FOLDER [OUT [STEP...]]
# OUT keeps outputs and databases. Steps: programs of gpu_programs.py, those of one process with commas
# between, and ncu; all of them without any. LIMIT: seconds for each run (120).
set -u
build=$(cd "${1:?which build folder?}" && pwd) top=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/neartie-gpu.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
out=${2:-$tmp/out}
mkdir -p "$out"
if [ $# -gt 2 ]; then shift 2; else
    set -- eager,graphs,cublas,cudnn,triton profiler fork,spawn generate cupy jax compile ncu
fi
probe=$build/shim/libprobe.so limit=${LIMIT:-120} n=0 failed=0
XLA_PYTHON_CLIENT_PREALLOCATE=false HF_HUB_OFFLINE=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
TRITON_CACHE_DIR=$tmp/triton TORCHINDUCTOR_CACHE_DIR=$tmp/inductor PYTHONDONTWRITEBYTECODE=1
export XLA_PYTHON_CLIENT_PREALLOCATE HF_HUB_OFFLINE CUBLAS_WORKSPACE_CONFIG TRITON_CACHE_DIR \
    TORCHINDUCTOR_CACHE_DIR PYTHONDONTWRITEBYTECODE

result() { # PASS(0|other) NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else failed=1 && echo "not ok $n - $2"; fi
}
# Run a command; its output and exit status go to OUT/NAME.
keep() { # NAME COMMAND...
    name=$1
    shift
    timeout "$limit" "$@" >"$out/$name" 2>"$out/$name.err"
    echo "exit status $?" >>"$out/$name"
}
same() { # NAME STEP WITH: what WITH printed is what the bare run did
    if cmp -s "$out/$2.bare" "$out/$3"; then result 0 "$1"; else
        result 1 "$1"
        diff "$out/$2.bare" "$out/$3" | head -8 | sed 's/^/#   /'
        tail -3 "$out/$3.err" | sed 's/^/#   /'
    fi
}
# What the databases of a run have; the interpreter has SQLite.
told() { # PATTERN
    python3 - "$@" <<'END'
import glob, sqlite3, sys
for path in sorted(glob.glob(sys.argv[1])):
    db = sqlite3.connect(path)
    kernels, launches = db.execute("select count(distinct kernel), coalesce(sum(n_launches), 0) from kernel_usage").fetchone()
    gaps = ", ".join(f"{k} {n}" + (f" ({d})" if k == "cupti_refused" else "") for k, n, d in db.execute("select kind, count, detail from gaps"))
    print(f"#   {path.rsplit('/', 1)[-1]}: {db.execute('pragma quick_check').fetchone()[0]}, {kernels} kernels, "
          f"{launches} launches; gaps: {gaps or 'none'}")
END
}

program() { # STEP
    keep "$1.bare" python3 "$top/tests/gpu_programs.py" "$1"
    if grep -q '^exit status 77$' "$out/$1.bare"; then
        n=$((n + 1))
        echo "ok $n - $1 # SKIP $(sed -n 2p "$out/$1.bare")"
        return
    fi
    grep -qE '^exit status (0|3)$' "$out/$1.bare"
    result $? "$1: it runs at all"
    keep "$1.preloaded" env LD_PRELOAD="$probe" PROBE_DB="$out/$1.db" python3 "$top/tests/gpu_programs.py" "$1"
    same "$1: the same with the library preloaded" "$1" "$1.preloaded"
    told "$out/$1*.db"
    case $1 in eager*)
        keep "$1.injected" env CUDA_INJECTION64_PATH="$probe" PROBE_DB="$out/$1.injected.db" \
            python3 "$top/tests/gpu_programs.py" "$1"
        same "$1: the same with the library injected alone" "$1" "$1.injected"
        told "$out/$1.injected*.db" ;;
    esac
}

# Our engine under a tool that has taken CUPTI. The tool replays each kernel that it measures.
step_ncu() {
    if ! command -v ncu >/dev/null; then
        n=$((n + 1))
        echo "ok $n - ncu # SKIP there is none"
        return
    fi
    set -- "$build/engine/neartie-engine" generate -n 8 -p "The cat sat on the" \
        "$top/tests/data/tiny-qwen3-q8_0.gguf"
    NEARTIE_DEVICE=cuda
    export NEARTIE_DEVICE
    keep ncu.bare "$@"
    for way in auto cupti; do
        keep "ncu.$way" ncu --clock-control none --launch-count 4 --section LaunchStats --log-file "$out/ncu.$way.log" \
            --target-processes all env LD_PRELOAD="$probe" PROBE_CUPTI=$way PROBE_DB="$out/ncu.$way.db" "$@"
        same "ncu: the engine's output under it, PROBE_CUPTI=$way" ncu "ncu.$way"
        grep -q 'LaunchStats\|Launch Statistics' "$out/ncu.$way.log"
        result $? "ncu: it measures kernels, PROBE_CUPTI=$way"
        told "$out/ncu.$way*.db"
    done
}

for step; do
    echo "# == $step $(date +%T)"
    case $step in ncu) step_ncu ;; *) program "$step" ;; esac
done
echo "1..$n"
exit $failed
