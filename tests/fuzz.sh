#!/bin/sh
# Build the fuzz targets with clang, libFuzzer, ASan and UBSan, and run each in turn. The kernels
# are the build's own (gcc's vector builtins), without instrumentation:
#   fuzz.sh SECONDS [TARGET...]       (make fuzz FUZZ_SECONDS=600)
# Ends with 1 after a finding; the input that shows it stays in the folder that is named.
set -eu
: "${abs_top_srcdir:?run by make fuzz}" "${abs_top_builddir:?run by make fuzz}"
seconds=$1
shift
[ $# -gt 0 ] || set -- gguf tokenizer prompt import
cc=${FUZZ_CC-clang}
command -v "$cc" >/dev/null || { echo "fuzz: $cc: not found; set FUZZ_CC" >&2; exit 1; }
out=$abs_top_builddir/fuzz
flags="-g -O1 -std=gnu11 -w -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -I$abs_top_srcdir -I$abs_top_builddir ${FUZZ_CFLAGS-}"
rm -rf "$out/objects"
mkdir -p "$out/objects"
cd "$out/objects"
has_cuda=$(grep -c '^#define HAVE_CUDA' "$abs_top_builddir/config.h" || :)
for source in "$abs_top_srcdir"/engine/*.c "$abs_top_srcdir"/collector/seed.c \
    "$abs_top_srcdir"/collector/import*.c "$abs_top_srcdir"/collector/kld.c \
    "$abs_top_srcdir"/collector/logprobs.c "$abs_top_srcdir"/collector/npy.c \
    "$abs_top_srcdir"/collector/run_writer.c "$abs_top_srcdir"/collector/texts.c \
    "$abs_top_srcdir"/tests/fuzz_[gipt]*.c; do
    case $source in
    */engine/main.c | */fuzz_t.c) ;;
    *)
        case $has_cuda$source in 0*cuda*) continue ;; esac
        # shellcheck disable=SC2086
        "$cc" $flags -c "$source"
        ;;
    esac
done
for target in "$@"; do
    # shellcheck disable=SC2086
    "$cc" $flags -fsanitize=fuzzer -DFUZZ_TARGET="fuzz_$target" "$abs_top_srcdir/tests/fuzz_main.c" ./*.o \
        "$abs_top_builddir/kernels/libkernels.a" -lgomp -lpcre2-8 ${FUZZ_LIBS-} -lm -o "$out/fuzz_$target"
    mkdir -p "$out/$target/corpus"
    cd "$out/$target"
    echo "fuzz: $target for $seconds seconds, in $out/$target"
    ../fuzz_"$target" -max_total_time="$seconds" -max_len=32768 -rss_limit_mb=4096 -timeout=600 \
        -print_final_stats=1 corpus >log 2>&1 || {
        tail -40 log >&2
        echo "fuzz: $target: a finding, in $out/$target" >&2
        exit 1
    }
    grep -E '^stat::(number_of_executed_units|peak_rss_mb)' log
    cd "$out/objects"
done
