#!/bin/sh
# Every model of the reference folder against llama.cpp's logits: see ref_table.c for the bounds.
. "${abs_top_srcdir:?}/tests/testlib.sh"
if [ -z "${NEARTIE_SHARED:-}" ]; then
    skip "logits against llama.cpp, every model" "NEARTIE_SHARED is not set"
    done_testing
fi
run "$abs_top_builddir/tests/ref_table" "$NEARTIE_SHARED"
sed 's/^/# /' "$tmp/out" "$tmp/err"
is "every figure is within its bound" "$status" 0
is "every model is there" "$(awk '$2 == "decode"' "$tmp/out" | wc -l)" \
    "$(find "$NEARTIE_SHARED/ref" -name '*.plain.json' | wc -l)"
done_testing
