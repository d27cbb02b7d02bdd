#!/bin/sh
# Every call of the probe into the system fails once, and again for good: the host must not notice,
# and what is left behind must be sound. Then a disk that is full, and one that becomes free again.
. "${abs_top_srcdir:?}/tests/testlib.sh"
target=$abs_top_builddir/tests/target fold=$abs_top_builddir/tests/fold
inject=$abs_top_builddir/tests/inject.so
cd "$tmp" || exit 99
if [ "$SANITIZE" != no ]; then
    skip "faults" "a sanitizer wraps the same calls itself"
    done_testing
fi
"$target" rows 40 >bare.out; echo "exit $?" >>bare.out

# One run with the fault; prints what is wrong.
fault() { # INJECT
    rm -f run.db run.db-* hit
    INJECT=$1 INJECT_HIT=hit LD_PRELOAD="$inject $probe" PROBE_DB=run.db "$target" rows 40 \
        >with.out 2>with.err
    echo "exit $?" >>with.out
    cmp -s bare.out with.out || echo "$1: other output"
    [ -f run.db ] || { [ ! -e run.db-spool ] || [ ! -s run.db-spool ] || echo "$1: a spool alone"; return; }
    [ ! -e run.db-spool ] || "$fold" run.db >folded 2>&1 || echo "$1: $(cat folded)"
    facts=$(sqlite3 run.db "SELECT (SELECT count(*) FROM logits) +
        (SELECT ifnull(sum(count), 0) FROM gaps WHERE kind = 'rows_dropped'); PRAGMA integrity_check" 2>&1 | xargs)
    case $facts in
    "40 ok") ;;
    *) grep -q "rows were not recorded\|not recording" with.err || echo "$1: $facts, and nothing is told" ;;
    esac
}
# Calls ever further apart, until the fault comes too late; FAULT_STEP=8 takes many more of them.
each_call() { # NAME COUNT
    n=1
    while fault "$1:$n:$2"; [ -e hit ]; do
        n=$((n + 1 + n / ${FAULT_STEP:-1}))
    done
    echo "# $1: $n calls, COUNT $2" >&2
}
for name in open open64 flock posix_fallocate ftruncate ftruncate64 mmap mmap64 pwrite64 pread64 \
    fdatasync unlink malloc calloc realloc pthread_create close_range; do
    is "$name fails once" "$(each_call $name 1)" ""
    is "$name fails from then on" "$(each_call $name 1000000)" ""
done

# A disk that fills up while rows come, and has room again.
mkdir disk
if ! unshare -m mount -t tmpfs none disk 2>/dev/null; then
    skip "a full disk" "needs the right to mount"
    done_testing
fi
export probe target fold
cat >totals.sql <<'END'
SELECT (SELECT count(*) FROM logits) +
    (SELECT ifnull(sum(count), 0) FROM gaps WHERE kind = 'rows_dropped');
PRAGMA integrity_check;
SELECT state FROM runs;
END
# In a mount namespace of its own: the disk fills up, the host ends, there is room again.
cat >full.sh <<'END'
mount -t tmpfs -o size=6m none disk || exit 9
PROBE_DB=disk/run.db PROBE_SPOOL_MB=2 PROBE_ON_FULL=block LD_PRELOAD=$probe "$target" rows 20000 \
    >with.out 2>with.err
echo "exit $?" >>with.out
sqlite3 disk/run.db "SELECT (SELECT count(*) FROM logits) || ' ' ||
    (SELECT ifnull(sum(count), 0) FROM gaps WHERE kind = 'rows_dropped') || ' ' ||
    (SELECT count(*) FROM gaps WHERE kind = 'write_failed' AND detail LIKE '%full%')" >full
mount -o remount,size=64m disk
"$fold" disk/run.db >folded 2>&1
sqlite3 disk/run.db <totals.sql >freed
ls disk >left
END
"$target" rows 20000 >bare.out; echo "exit $?" >>bare.out
unshare -m sh full.sh
is "a full disk: same output and exit status" "$(cat with.out)" "$(cat bare.out)"
ok "a full disk: the reason is told" grep -q "full" with.err
read -r written lost told <full
ok "a full disk: rows are recorded, rows are lost, and the database says so" \
    test "$written" -gt 1000 -a "$lost" -gt 0 -a $((written + lost)) -le 20000 -a "$told" = 1
is "room again: every row is there or counted as lost" "$(xargs <freed)" "20000 ok recovered"
is "room again: one file is left" "$(cat left)" run.db
cat full freed folded | sed 's/^/# /'

# The same while the host runs on: once there is room, it goes on recording.
cat >again.sh <<'END'
mount -t tmpfs -o size=4m none disk || exit 9
rm -f with.err # what it says is from before, until the program has begun
PROBE_DB=disk/run.db PROBE_SPOOL_MB=1 PROBE_ON_FULL=block LD_PRELOAD=$probe "$target" endless 100000000 \
    >with.out 2>with.err &
pid=$!
until grep -qs full with.err; do sleep 0.05; done
mount -o remount,size=640m disk
until [ "$(sqlite3 -cmd '.timeout 5000' disk/run.db \
    "SELECT count(*) FROM gaps WHERE kind = 'write_failed'" 2>/dev/null)" = 1 ]; do sleep 0.05; done
touch stop
wait $pid
echo "exit $?" >>with.out
# On a machine that is so busy that the writer outlasts the host's exit, a spool is left.
[ ! -s disk/run.db-spool ] || "$fold" disk/run.db >folded
sqlite3 disk/run.db <totals.sql | sed 's/recovered/closed/' >freed
END
unshare -m sh again.sh
is "room again while it runs: the host leaves with 0" "$(cat with.out)" "exit 0"
is "room again while it runs: every row is there or counted as lost" \
    "$(xargs <freed)" "$(od -An -tu8 -N8 progress | tr -d ' ') ok closed"
done_testing
