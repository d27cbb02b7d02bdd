#!/bin/sh
# A recording process is killed at a random moment under full load, and the first recovery as well:
# every row whose hook had returned is in the database, none twice. The same where the disk fills up
# before, or has filled up and is free again: then each is there or counted. KILL_RUNS: how often.
. "${abs_top_srcdir:?}/tests/testlib.sh"
target=$abs_top_builddir/tests/target fold=$abs_top_builddir/tests/fold
preload=$probe
case $SANITIZE in
*address*) preload="$(gcc -print-file-name=libasan.so) $probe" ;;
*thread*) preload="$(gcc -print-file-name=libtsan.so) $probe" ;;
esac
runs=${KILL_RUNS:-20}
cd "$tmp" || exit 99
seed=$(date +%s)
echo "# seed $seed"

# A pause of up to $1 ms, the same for the same seed.
pause() { # LIMIT-MS SALT
    sleep "$(awk -v s="$seed$2" -v l="$1" 'BEGIN { srand(s); printf "%.3f", rand() * l / 1000 }')"
}
returned() { od -An -tu8 -N8 progress 2>/dev/null | tr -d ' '; }
one() { # NUMBER
    rm -f run*.db run.db-* progress
    mode=endless
    [ $(($1 % 2)) = 0 ] || mode=endless_arms
    # A small ring is always full: the hooks wait for the writer.
    # shellcheck disable=SC2015
    PROBE_MAX_MB=$((($1 % 4 == 0) * 6)) PROBE_DB=run.db PROBE_ON_FULL=block PROBE_SPOOL_MB=$(($1 % 3 * 4 + 1)) LD_PRELOAD=$preload \
        "$target" $mode 100000000 >/dev/null 2>err &
    pid=$!
    # One in five at any moment, also while it starts; the others at work.
    until [ $(($1 % 5)) = 0 ] || [ "0$(returned)" -gt 0 ]; do sleep 0.01; done
    pause 300 "$1"
    kill -9 $pid; wait $pid 2>/dev/null
    [ -s progress ] && [ -f run.db ] || return 2 # killed before it had begun
    done=$(returned)
    [ "$done" -gt 0 ] || return 2
    "$fold" run.db >/dev/null 2>&1 &
    pid=$!
    pause 30 "9$1"
    kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
    "$fold" run.db >folded 2>&1 || { echo "# run $1: $(cat folded)"; return 1; }
    # With PROBE_MAX_MB the rows before those of run-old.db are gone.
    [ -f run-old.db ] || sqlite3 run-old.db "ATTACH 'run.db' AS new;
        CREATE TABLE logits AS SELECT * FROM new.logits LIMIT 0;
        CREATE TABLE sequences AS SELECT * FROM new.sequences LIMIT 0"
    sqlite3 run.db "ATTACH 'run-old.db' AS old;
        WITH rows(pos) AS (SELECT pos FROM main.logits JOIN main.sequences USING (seq_id) WHERE seq = 0
            UNION ALL SELECT pos FROM old.logits JOIN old.sequences USING (seq_id) WHERE seq = 0)
        SELECT max(pos) + 1 BETWEEN $done AND $done + 1 AND count(*) = max(pos) - min(pos) + 1
            AND count(*) = count(DISTINCT pos) FROM rows;
        SELECT count(*) = 0 FROM main.logits LEFT JOIN main.forwards AS f USING (forward_id)
        WHERE f.arm_id IS NULL;
        SELECT count(*) = 0 FROM main.logits AS l JOIN main.sequences USING (seq_id)
        LEFT JOIN main.delta_lists AS d USING (row_id)
        WHERE '$mode' = 'endless_arms' AND (seq = 0) <> (d.row_id IS NOT NULL);
        PRAGMA main.integrity_check;
        SELECT state FROM main.runs;
        SELECT count(*) FROM main.gaps" >facts
    [ "$(xargs <facts)" = "1 1 1 ok recovered 0" ] && return 0
    echo "# run $1: $done rows returned, the database says: $(xargs <facts); $(cat folded err)"
    return 1
}

# In a mount namespace of its own: SEED; the disk is full sooner or later.
cat >full.sh <<'END'
mb=$(awk -v s="$1" 'BEGIN { srand(s); print 3 + int(rand() * 6) }')
mount -t tmpfs -o size=${mb}m none disk && cd disk || exit 9
PROBE_DB=run.db PROBE_ON_FULL=block PROBE_SPOOL_MB=1 LD_PRELOAD=$preload \
    "$target" endless 100000000 >/dev/null 2>../err &
pid=$!
pause() { sleep "$(awk -v s="$1$2" 'BEGIN { srand(s); printf "%.3f", rand() * 0.4 }')"; }
pause "$1" 1
[ $(($1 % 2)) = 0 ] || { mount -o remount,size=640m . && pause "$1" 2; }
kill -9 $pid; wait $pid
mount -o remount,size=640m . || exit 9
cp progress ..
"$fold" run.db >../folded 2>&1 || exit 9
sqlite3 run.db "WITH lost(n) AS (SELECT ifnull(sum(count), 0) FROM gaps WHERE kind = 'rows_dropped')
    SELECT count(*) + n, count(*) = count(DISTINCT pos), n > 0 FROM logits, lost" >../rows
sqlite3 run.db "PRAGMA integrity_check; SELECT state FROM runs" >../facts
END
one_full() { # NUMBER
    rm -f progress facts rows
    unshare -m sh full.sh "$seed$1" >/dev/null 2>&1
    done=$(returned)
    [ "0$done" -gt 0 ] || return 2
    IFS='|' read -r n single lost <rows
    [ "$lost" = 0 ] || n_full=$((n_full + 1))
    [ "$((n - done)) $single $(xargs <facts)" = "0 1 ok recovered" ] ||
        [ "$((n - done)) $single $(xargs <facts)" = "1 1 ok recovered" ] && return 0
    echo "# run $1, full disk: $done rows returned, the database says: $n $single $(xargs <facts)"
    return 1
}
mkdir disk
export preload target fold
disk=1 n_full=0
unshare -m mount -t tmpfs none disk 2>/dev/null || disk=0
good=0 early=0 bad=0 i=0
while [ "$i" -lt "$runs" ]; do
    i=$((i + 1))
    # bash tells of killed jobs on stderr
    if [ $((i % 5)) = 3 ] && [ $disk = 1 ]; then one_full "$i"; else one "$i" 2>/dev/null; fi
    case $? in 0) good=$((good + 1)) ;; 2) early=$((early + 1)) ;; *) bad=$((bad + 1)) ;; esac
done
echo "# $runs kills: $good whole, $early before the first row; $n_full met a full disk"
[ $disk = 1 ] || skip "a disk that is full" "needs the right to mount"
is "after each kill every row is there once" "$bad" 0
ok "most kills met a process at work" test "$good" -gt $((runs / 2))
done_testing
