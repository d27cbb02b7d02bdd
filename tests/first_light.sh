#!/bin/sh
# The whole chain on the demo model: the engine's gate under the preload writes a record that the
# stock tools read and whose report has every figure of the engine's own table.
. "${abs_top_srcdir:?}/tests/testlib.sh"
model=$data/tiny-qwen35-q8_0.gguf prompt=$data/prompt.txt
case $SANITIZE in
*address*) sanitizer=$(gcc -print-file-name=libasan.so) ;;
*thread*) sanitizer=$(gcc -print-file-name=libtsan.so) ;;
*) sanitizer= ;;
esac
cd "$tmp" || exit 99

run "$neartie" inspect "$engine"
if grep -q 'no hook of neartie' out; then
    skip "the whole chain" "the engine is built with --disable-hooks"
    done_testing
fi
is "the engine's hooks are listed" \
    "$(awk 'NR > 2 { print $1 }' out | sort -u | grep -cE '^(logits|forward_begin|forward_end|arm)$')" 4

# The part of a gate or report that both print: table, gate and summary. What is compared over the
# whole vocabulary in the engine is compared over the recorded ids in the report.
figures() { # FILE
    sed -n '/^pos   /,/^verdict/p' "$1" | sed 's/, largest |difference| .* ids:/:/'
}
gate() { # NAME ENGINE-OPTION...
    name=$1
    shift
    rm -f run.db
    LD_PRELOAD="$sanitizer $probe" "$engine" gate "$model" "$prompt" "$@" >engine.txt
    run "$neartie" report run.db
    cp out report.txt
    is "$name: the report has every figure of the engine's table" "$(figures report.txt)" \
        "$(figures engine.txt)"
    flips=$(grep -c FLIP engine.txt)
    is "$name: select from flips" "$(sqlite3 run.db 'select count(*) from flips where pos >= 744')" \
        "$flips"
}

gate "window of 24" --window 24
is "one verdict, over 24 positions" "$(grep -c '^7[0-9]* ' report.txt) $(grep -c ^verdict report.txt)" \
    "24 1"
is "nothing was lost" "$(grep -c 'not recorded' report.txt)" 0
is "Python reads it without an extension" "$(python3 - <<'PYTHON'
import sqlite3
db = sqlite3.connect("run.db")
views = [v for v, in db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
for view in views:
    db.execute(f'SELECT * FROM "{view}"').fetchall()
print(db.execute("SELECT n, n_flips FROM agreement").fetchone(), len(views) > 8)
PYTHON
)" "(24, $flips) True"
is "the stock shell reads it" \
    "$(sqlite3 run.db 'SELECT count(*) FROM pairs WHERE delta IS NOT NULL AND bounded = 0')" 24
class_of() { # FILE
    sed -n 's/^verdict (rule seed): \([A-Z-]*\) .*/\1/p' "$1"
}
status_of() { # CLASS
    case $1 in UNEXPLAINED | SYSTEMATIC) echo 3 ;; *) echo 0 ;; esac
}
class=$(class_of engine.txt)
run "$neartie" verdict --rule seed run.db
is "the verdict's exit status is that of its class" "$status $(class_of out)" "$(status_of "$class") $class"

gate "one prefill pass" --window 24 --prefill single
"$engine" gate "$model" "$prompt" --window 24 --prefill single >bare.txt
is "the engine prints the same without the probe" "$(cat bare.txt)" "$(cat engine.txt)"
is "one prefill pass: every position is recorded" \
    "$(sqlite3 run.db 'SELECT n FROM agreement')" "$(sqlite3 run.db "SELECT max(pos) + 1 FROM logits")"

rm -f run.db
[ -z "$sanitizer" ] || export LD_PRELOAD="$sanitizer"
run "$neartie" gate "$model" "$prompt" -o other.db --window 24 --prefill single
unset LD_PRELOAD
is "neartie gate does all of it, and ends as the verdict says" "$status $(figures out)" \
    "$("$neartie" verdict other.db >verdict.txt; echo $?) $(figures report.txt)"
is "its first line is the verdict's" "$(head -1 out | grep -cF "$(head -1 verdict.txt)")" 1
run "$neartie" gate "$model" "$prompt" -o none.db --window 0
is "neartie gate: a window of 0 is an error" "$status $(sed 's/.*neartie: //' err | tail -1)" \
    "1 neartie-engine gate: exit status 1"
done_testing
