#!/bin/sh
# The Python module: python_t.py without anything installed, and again for NumPy and PyTorch where
# one of the interpreters has them. PYTHON names one more.
. "${abs_top_srcdir:?}/tests/testlib.sh"
case $SANITIZE in
no | '') ;;
*)
    skip "the Python module" "the sanitizers' own libraries must stand before the interpreter's"
    done_testing ;;
esac
cd "$tmp" || exit 99
has() { # MODULE: the first interpreter that has it
    for p in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        "$p" -c "import $1" >/dev/null 2>&1 && echo "$p" && return
    done
}
run_with() { # NAME INTERPRETER WHAT
    mkdir "$1"
    (cd "$1" && "$2" "$abs_top_srcdir/tests/python_t.py" "$probe" \
        "$abs_top_builddir/tests/probe_layout" "$3") >"$1.out" 2>"$1.err"
    status=$?
    while read -r line; do
        case $line in
        ok*) tap_result 0 "$1: ${line#ok - }" ;;
        not*) tap_result 1 "$1: ${line#not ok - }" ;;
        '#'*) echo "$line" ;;
        esac
    done <"$1.out"
    is "$1: it comes to its end" "$status $(tail -1 "$1.out")$(cat "$1.err")" "0 done"
}
run_with plain "$(has sqlite3)" fake
for module in numpy torch; do
    found=$(has "$module")
    if [ "$found" ]; then run_with "$module" "$found" "$module"; else
        skip "$module: its arrays are recorded" "no python3 here has $module"
    fi
done
# The examples of the documentation are Python.
awk 'substr($0, 1, 3) == "\140\140\140" { on = /python$/; next } on' \
    "$abs_top_srcdir/docs/PYTHON.md" >examples.py
ok "docs/PYTHON.md has examples" test -s examples.py
ok "the examples of docs/PYTHON.md compile" python3 -m py_compile examples.py
done_testing
