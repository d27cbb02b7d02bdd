#!/bin/sh
# neartie record: the program under it keeps its output, exit status and signals.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
# shellcheck disable=SC2016
show_both='echo "$PROBE_DB"; echo "$LD_PRELOAD" | sed "s|.*/||"' show_cuda='echo "$CUDA_INJECTION64_PATH"'

run "$neartie" record -- sh -c 'echo out; echo err >&2; exit 7'
is "output and exit status are the program's" "$status $(cat "$tmp/out")" "7 out"
is "a program without hooks is told of" "$(cat "$tmp/err")" \
    "err
neartie: run.db: nothing was recorded: sh has no hook of neartie"
printf 'int main(void) { return 3; }\n' >program.c
if "${CC:-gcc}" -static -o static program.c 2>/dev/null; then
    run "$neartie" record -o static.db -- ./static
    is "a static program runs on, and the reason is told" "$status $(cat "$tmp/out" "$tmp/err")" \
        "3 neartie: static.db: nothing was recorded of ./static: it is statically linked: no library can be preloaded"
    is "and the record has it" "$(sqlite3 static.db 'SELECT kind, detail FROM gaps')" \
        "probe_not_loaded|it is statically linked: no library can be preloaded"
else
    skip "a static program runs on, and the reason is told" "no static C library"
    skip "and the record has it" "no static C library"
fi
rights="it runs with the rights of another user, and the loader then preloads no library"
if [ "$(id -u)" = 0 ] && "${CC:-gcc}" -o rights program.c && chown 65534 rights && chmod 4755 rights; then
    PATH=$tmp:$PATH run "$neartie" record -o rights.db -- rights
    is "a set-user-ID program runs on, and the reason is told" "$status $(cat "$tmp/out")$(grep ^neartie "$tmp/err")" \
        "3 neartie: rights.db: nothing was recorded of rights: $rights"
    is "and the record has it" "$(sqlite3 rights.db 'SELECT kind, detail FROM gaps')" "probe_not_loaded|$rights"
    is "neartie report shows it" "$("$neartie" report rights.db | grep -c "$rights")" 1
else
    skip "a set-user-ID program runs on, and the reason is told" "needs root"
    skip "and the record has it" "needs root"
    skip "neartie report shows it" "needs root"
fi
run "$neartie" record -o none/run.db -- true
is "a file that cannot be written is told of" "$(tail -1 "$tmp/err")" \
    "neartie: none/run.db: nothing was recorded: No such file or directory"
run "$neartie" record -o other.db sh -c "$show_both"
is "the probe's environment; options end at the command" "$(cat "$tmp/out")" "$tmp/other.db
libprobe.so"
LD_PRELOAD='' run "$neartie" record -o a.db -- sh -c "$show_cuda"
ok "CUDA finds the probe too" test -f "$(cat "$tmp/out")"
run "$neartie" record -- "$tmp/no-such-program"
is "a program that is not there" "$status $(cat "$tmp/err")" \
    "127 neartie: $tmp/no-such-program: No such file or directory"
run "$neartie" record -- "$tmp"
is "a program that cannot be run" "$status" 126

# A shell reports 128 + N for a child that signal N ended.
sh -c '"$@"; exit $?' - "$neartie" record -- sh -c 'kill -TERM $$' 2>"$tmp/err"
is "a signal that ends the program ends the command" "$?" 143
"$neartie" record -- sh -c 'trap "echo told; exit 5" TERM; echo ready; while :; do sleep 0.1; done' \
    >"$tmp/out" 2>"$tmp/err" &
pid=$!
tries=0
while ! grep -q ready "$tmp/out" && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -TERM $pid
wait $pid
is "a signal is passed on to the program" "$? $(tail -1 "$tmp/out")" "5 told"
done_testing
