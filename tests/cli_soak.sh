#!/bin/sh
# A flood of rows through a small ring, far more than a disk takes: memory stays bounded, and what was
# dropped is counted exactly. SOAK_ROWS says how many, SOAK_SECONDS how long they take (0: no pause).
. "${abs_top_srcdir:?}/tests/testlib.sh"
target=$abs_top_builddir/tests/target
rows=${SOAK_ROWS:-2000000} seconds=${SOAK_SECONDS:-0}
if [ "$SANITIZE" != no ]; then
    skip "a flood of rows" "a sanitizer's own memory grows"
    done_testing
fi
cd "$tmp" || exit 99
flood() { # ROWS
    rm -f run*.db
    PROBE_SPOOL_MB=1 PROBE_MAX_MB=16 LD_PRELOAD=$probe "$target" flood "$1" >out 2>err
    is "$name: the host leaves with 0" $? 0
    is "$name: the database is sound" "$(sqlite3 run.db 'PRAGMA integrity_check')" ok
    # A row's id is its number among the recorded ones; those that were rotated away had one too.
    is "$name: recorded and dropped rows add up" "$(sqlite3 run.db "SELECT max(row_id) +
        ifnull((SELECT count FROM gaps WHERE kind = 'rows_dropped'), 0) FROM logits")" "$1"
    read -r early late <memory
    echo "# $name: $(sqlite3 run.db 'SELECT max(row_id) FROM logits') of $1 rows recorded;" \
        "memory $early KiB after a tenth, $late KiB at the end"
    ok "$name: memory is bounded" test "$late" -lt 32768
    # Every cache is full after some hundred thousand rows.
    [ "$1" -lt 5000000 ] || ok "$name: memory is flat" test $((late - early)) -lt 1024
}
name="a flood that is dropped"
[ "$seconds" = 0 ] || export FLOOD_RATE=$((rows / seconds))
flood "$rows"
unset FLOOD_RATE
ok "$name: it is told" grep -q "rows were not recorded" err
name="a flood that is held"
PROBE_ON_FULL=block PROBE_RETAIN_ROWS=5000
export PROBE_ON_FULL PROBE_RETAIN_ROWS
flood $((rows < 10000000 ? rows / 10 : 5000000))
is "$name: nothing is told" "$(cat err)" ""
done_testing
