#!/bin/sh
# The preload leaves its host alone: symbols, libraries, output and exit status, through fork, exec,
# _exit, threads and abort; and files that cannot be written.
. "${abs_top_srcdir:?}/tests/testlib.sh"
target=$abs_top_builddir/tests/target fold=$abs_top_builddir/tests/fold
preload=$probe
case $SANITIZE in
*address*) preload="$(gcc -print-file-name=libasan.so) $probe" ;;
*thread*)
    preload="$(gcc -print-file-name=libtsan.so) $probe"
    TSAN_OPTIONS=${TSAN_OPTIONS-}:atexit_sleep_ms=0
    export TSAN_OPTIONS ;;
esac
cd "$tmp" || exit 99

case $SANITIZE in *address* | *thread*) wrapped='' ;; *) wrapped='dlsym ' ;; esac
is "two symbols are exported, and the functions that are wrapped" \
    "$(nm -D --defined-only "$probe" | awk '$3 !~ /^(cu[A-Z]|llama_)/ { print $3 }' | sort | xargs)" \
    "InitializeInjection ${wrapped}probe_abi_v1"
if [ "$SANITIZE" = no ]; then
    is "libc and libm are all it needs" \
        "$(readelf -d "$probe" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | xargs)" \
        "libc.so.6 libm.so.6"
    is "it can neither end the host nor print to its stdout" \
        "$(nm -D -u "$probe" | grep -cE ' (_?exit|_Exit|quick_exit|abort|__assert_fail|v?printf|puts|putchar)(@|$)')" 0
else
    skip "libc and libm are all it needs" "a sanitizer adds its own library"
    skip "it can neither end the host nor print to its stdout" "a sanitizer adds its own library"
fi

# Run the target bare and with the probe, each in an empty folder; compare all that shows.
sql() { sqlite3 -batch "$@"; }
both() { # NAME EXPECTED-ROWS|any|busy MODE [N]
    name=$1 rows=$2
    shift 2
    rm -rf bare with && mkdir bare with
    # shellcheck disable=SC3045
    (cd bare && ulimit -c 0 && "$target" "$@" >../bare.out 2>../bare.err; echo "exit $?" >>../bare.out)
    # shellcheck disable=SC3045
    (cd with && ulimit -c 0 && LD_PRELOAD=$preload "$target" "$@" >../with.out 2>../with.err
        echo "exit $?" >>../with.out)
    is "$name: same output and exit status" "$(cat with.out)" "$(cat bare.out)"
    cp with.err with.all
    [ "$rows" != busy ] || sed -i '/rows were not recorded/d' with.err # more than a disk takes
    is "$name: nothing on stderr" "$(cat with.err)" "$(cat bare.err)"
    case $rows in any | busy) return ;; esac
    # On a machine that is so busy that the writer outlasts the host's exit, a spool is left.
    for db in with/*.db; do
        [ ! -s "$db-spool" ] || "$fold" "$db" >/dev/null
    done
    is "$name: rows of each database" "$(for db in with/*.db; do
        [ -f "$db" ] && sql "$db" "SELECT count(*) FROM logits WHERE emitted_token = top1"
    done | sort -n | xargs)" "$rows"
}
both "a plain run" 100 rows
is "a plain run leaves one file" "$(ls with)" run.db
is "its owner alone may read it" "$(stat -c %a with/run.db)" 600
is "its run is closed" "$(sql with/run.db 'SELECT state FROM runs')" closed
is "every forward has its duration" \
    "$(sql with/run.db 'SELECT count(duration_ns) FROM forwards')" 100
both "no hook called" "" idle
is "no hook called: no file" "$(ls with)" ""
both "_exit" any _exit
both "quick_exit" any quick_exit
both "abort" any abort
both "exec" 150 exec
is "exec: the first image's run is recovered" \
    "$(sql with/run.db 'SELECT state FROM runs ORDER BY run_id' | xargs)" "recovered closed"
both "threads" 800 threads
PROBE_ON_FULL=block PROBE_SPOOL_MB=1 PROBE_RETAIN_ROWS=100
export PROBE_ON_FULL PROBE_SPOOL_MB PROBE_RETAIN_ROWS
both "8 threads through a small ring" 32000 threads 4000
is "8 threads: every row of each, once" "$(sql with/run.db "SELECT count(*), count(DISTINCT
    seq_id || ':' || pos), count(DISTINCT row_id) FROM logits JOIN forwards USING (forward_id)
    WHERE duration_ns >= 0; SELECT count(*) FROM gaps" | xargs)" "32000|32000|32000 0"
is "8 threads: a row is compared with one of its context in the other arm" \
    "$(sql with/run.db "SELECT count(*) > 0, sum(b.context_hash = l.context_hash AND b.pos = l.pos AND
    b.arm_id <> l.arm_id) = count(*) FROM delta_lists AS d JOIN logits AS l USING (row_id)
    JOIN logits AS b ON b.row_id = d.base_row_id" | xargs)" "1|1"
unset PROBE_ON_FULL PROBE_SPOOL_MB PROBE_RETAIN_ROWS
both "exit while threads record" busy exit_busy
case $SANITIZE in
*thread*) skip "all descriptors closed by the host" "the sanitizer wants one file table" ;;
*) both "all descriptors closed by the host" 200 close_all ;;
esac
both "the folder changed by the host" 200 chdir
both "a child that calls no hook" 200 fork_idle
case $SANITIZE in
*thread*) skip "fork" "the sanitizer allows no threads in the child" ;;
*)
    both "fork" "50 200" fork
    both "a daemon" any daemon
    both "fork while threads record" busy fork_busy 20
    # One that is forked while the writer is inside the kernel for long cannot record, and says so.
    is "every child has a database of its own, or says that it has none" \
        "$(($(find with -name 'run-*.db' | wc -l) + $(grep -c ': 20 rows' with.all)))" 10 ;;
esac

# Two processes at once, one name.
mkdir two && cd two || exit 99
(LD_PRELOAD=$preload "$target" daemon 3000 >/dev/null & LD_PRELOAD=$preload "$target" rows 3000 >/dev/null; wait)
is "two processes at once: whole databases" \
    "$(for db in *.db; do sql "$db" 'PRAGMA integrity_check'; done | sort -u)" ok
cd .. || exit 99

# Trouble: the host must not notice, the reason is told, what is lost is counted.
trouble() { # NAME PATTERN LOST DB
    rm -rf bare.out
    "$target" rows >bare.out; echo "exit $?" >>bare.out
    PROBE_DB=$4 LD_PRELOAD=$preload "$target" rows >with.out 2>with.err; echo "exit $?" >>with.out
    is "$1: same output and exit status" "$(cat with.out)" "$(cat bare.out)"
    ok "$1: the reason is told" grep -q "$2" with.err
    ok "$1: what is lost is counted" grep -q "$3 rows were not recorded" with.err
}
echo "not a database, but longer than a header of one would be: $(seq 300)" >other.txt
cp other.txt other.bak
trouble "not a database" "file is not a database" 100 other.txt
ok "not a database: the file is as it was" cmp other.txt other.bak
sqlite3 foreign.db 'CREATE TABLE meta2(x)'
cp foreign.db foreign.bak
trouble "somebody else's database" "not a neartie database" 100 foreign.db
ok "somebody else's database: the file is as it was" cmp foreign.db foreign.bak
PROBE_DB=newer.db LD_PRELOAD=$preload "$target" rows >/dev/null
sqlite3 newer.db "UPDATE meta SET value = '99' WHERE key = 'schema_version'"
cp newer.db newer.bak
trouble "a newer schema" "schema version 99, this program writes version 1" 100 newer.db
ok "a newer schema: the file is as it was" cmp newer.db newer.bak
trouble "no such folder" "No such file or directory" 100 missing/run.db
trouble "a folder" "not a regular file" 100 bare
is "nothing is left beside them" "$(find . -maxdepth 1 -name '*-spool')" ""
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    user="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chmod 755 "$tmp" && mkdir -m 555 locked
    cp "$target" "$probe" . # the build may stand where that user cannot read
    $user ./target rows >bare.out
    LD_PRELOAD="${preload%"$probe"}$tmp/libprobe.so" PROBE_DB=locked/run.db $user ./target rows \
        >with.out 2>with.err
    ok "a read-only folder: that user can run it" test -s bare.out
    is "a read-only folder: same output" "$(cat with.out)" "$(cat bare.out)"
    ok "a read-only folder: the reason is told" grep -q "Permission denied" with.err
else
    skip "a read-only folder" "needs root and setpriv"
fi

PROBE_LOG=log.txt PROBE_DB=other.txt LD_PRELOAD=$preload "$target" rows >with.out 2>with.err
is "PROBE_LOG: nothing on stderr" "$(cat with.err)" ""
ok "PROBE_LOG: the reason is in the file" grep -q "not recording" log.txt
PROBE_LOG=none/log.txt PROBE_DB=other.txt LD_PRELOAD=$preload "$target" rows >with.out 2>with.err
is "a PROBE_LOG that cannot be opened: the output is unchanged" "$(cat with.out)" "$("$target" rows)"
is "a PROBE_LOG that cannot be opened: said once" \
    "$(grep -c 'PROBE_LOG: none/log.txt: No such file or directory; messages go to stderr' with.err)" 1
ok "a PROBE_LOG that cannot be opened: the reason is on stderr" grep -q "not recording" with.err
PROBE_LOG=off PROBE_DB=other.txt LD_PRELOAD=$preload "$target" rows >with.out 2>with.err
is "PROBE_LOG=off: nothing is told" "$(cat with.err)" ""
PROBE_DB=other.txt LD_PRELOAD=$preload "$target" rows 2>&1 >with.out | true
is "stderr is a closed pipe: same output" "$(cat with.out)" "$("$target" rows)"

PROBE_TOPK=many PROBE_DB=k.db LD_PRELOAD=$preload "$target" rows >/dev/null 2>with.err
ok "a bad setting is told" grep -q "PROBE_TOPK=many: not a number from 1 to 64; 20 is used" with.err
PROBE_HELP=1 LD_PRELOAD=$preload "$target" idle >with.out 2>with.err
ok "PROBE_HELP lists the settings" grep -q "PROBE_RETAIN_ROWS" with.err
is "PROBE_HELP: the host's output is its own" "$(cat with.out)" idle
is "every setting is in the manual page" "$(grep -o 'PROBE_[A-Z_]*' with.err | sort -u |
    while read -r name; do grep -q "^.B $name\$" "$abs_top_srcdir/shim/libprobe.7" || echo "$name"; done)" ""

# A limit on file sizes: no SIGXFSZ, no row, the host goes on.
(ulimit -f 64; PROBE_DB=limit.db LD_PRELOAD=$preload "$target" rows >with.out 2>with.err; echo "exit $?" >>with.out)
is "a limit on file sizes: same output and exit status" "$(cat with.out)" "$("$target" rows; echo "exit $?")"

# A limit on the address space is left to the host, whose own threads need it.
if [ "$SANITIZE" = no ] && ! "$engine" info "$data/tiny-qwen3-q8_0.gguf" | grep -q 'hooks.*not compiled in'; then
    for limit in 60000 120000 200000; do
        # shellcheck disable=SC3045
        (ulimit -v $limit; PROBE_DB=space.db LD_PRELOAD=$preload "$engine" generate \
            "$data/tiny-qwen3-q8_0.gguf" --token-ids 1,2,3 -n 2 >with.out 2>with.err; echo "exit $?" >>with.out)
        is "an address space of $limit KB: the host has it, and is told" \
            "$(grep -c ^exit.0 with.out) $(sed -n '1s/: [0-9]* MB/: N MB/p' with.err)" \
            "1 libprobe: not recording: N MB of address space are left to the program, 256 are needed"
    done
else
    skip "an address space of few KB: the host has it, and is told" \
        "a sanitizer needs it all itself, or the engine has no hooks"
fi
done_testing
