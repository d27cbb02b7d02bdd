#!/bin/sh
# PROBE_MAX_MB: the database gives way to a fresh one when it is half as large as that, and rows are
# neither lost nor doubled on the way.
. "${abs_top_srcdir:?}/tests/testlib.sh"
target=$abs_top_builddir/tests/target
preload=$probe
case $SANITIZE in
*address*) preload="$(gcc -print-file-name=libasan.so) $probe" ;;
*thread*) preload="$(gcc -print-file-name=libtsan.so) $probe" ;;
esac
cd "$tmp" || exit 99
PROBE_ON_FULL=block PROBE_SPOOL_MB=1
export PROBE_ON_FULL PROBE_SPOOL_MB
sql() { sqlite3 -batch "$@" | xargs; }

PROBE_MAX_MB=8 LD_PRELOAD=$preload "$target" rows 12000 >with.out 2>with.err
is "the host's output is as without" "$(cat with.out)" "$("$target" rows 12000)"
is "nothing on stderr" "$(cat with.err)" ""
is "two databases are left" "$(echo *.db*)" "run-old.db run.db"
is "both are sound" "$(sql run.db 'PRAGMA integrity_check'; sql run-old.db 'PRAGMA integrity_check')" "ok
ok"
is "neither is much larger than half" \
    "$(stat -c %s run.db run-old.db | awk '{ print $1 < 5500000 }' | xargs)" "1 1"
is "the run goes on without a gap" "$(sql run.db "ATTACH 'run-old.db' AS old;
    SELECT max(old.logits.pos) + 1 = (SELECT min(pos) FROM main.logits) FROM old.logits;
    SELECT max(row_id), max(pos), max(row_id) - min(row_id) + 1 = count(*) FROM main.logits;
    SELECT max(row_id) - min(row_id) + 1 = count(*) FROM old.logits" | tr '|' ' ')" \
    "1 12000 11999 1 1"
is "it is the same run, and closed in both" "$(sql run.db "ATTACH 'run-old.db' AS old;
    SELECT count(*) FROM main.runs AS a JOIN old.runs AS b USING (uuid, run_id, pid, argv)
    WHERE a.state = 'closed' AND b.state = 'closed' AND a.n_vocab = 500")" 1
is "arms and settings go along" "$(sql run.db "SELECT count(*) FROM logits AS l
    JOIN arms AS a USING (arm_id) WHERE a.label = 'decode';
    SELECT count(*) FROM settings WHERE name = 'PROBE_MAX_MB' AND value = '8'" | tr '|' ' ')" \
    "$(sql run.db 'SELECT count(*) FROM logits') 1"
is "every row has its forward" "$(sql run.db "SELECT count(*) FROM logits AS l
    LEFT JOIN forwards AS f USING (forward_id) WHERE f.forward_id IS NULL OR f.arm_id IS NULL")" 0

# A reader that has the file open is not cut off: there is no rotation until it is gone.
rm -f run*.db
PROBE_MAX_MB=4 LD_PRELOAD=$preload "$target" endless 100000000 >/dev/null 2>with.err &
host=$!
progress() { od -An -tu8 -N8 progress 2>/dev/null | tr -d ' '; }
until [ "0$(progress)" -gt 2000 ]; do sleep 0.05; done
# One that came while just that file was given up holds up nothing: then once more, a few times.
mkfifo commands
begin_reading() {
    rm -f seen
    sqlite3 -batch -cmd '.timeout 5000' run.db <commands >seen 2>&1 &
    reader=$!
    exec 3>commands
    echo "BEGIN; SELECT count(*) FROM logits;" >&3
    until [ -s seen ]; do sleep 0.05; done
    from=$(progress)
    until [ "$(progress)" -gt $((from + 20000)) ]; do sleep 0.05; done
    inode=$(stat -c %i run.db) from=$(progress)
    stat -L -c %i /proc/$reader/fd/* 2>/dev/null | grep -qx "$inode"
}
for try in 1 2 3 4 5; do
    if begin_reading; then break; fi
    [ $try = 5 ] || { exec 3>&-; wait $reader; }
done
until [ "$(progress)" -gt $((from + 20000)) ]; do sleep 0.05; done
is "a file that is read is not exchanged" "$(stat -c %i run.db)" "$inode"
echo "SELECT count(*) FROM logits;" >&3
exec 3>&-
wait "$reader"
is "its reader sees what it saw" "$(sed -n 2p seen)" "$(sed -n 1p seen)"
until [ "$(stat -c %i run.db 2>/dev/null)" != "$inode" ]; do sleep 0.05; done
touch stop
wait $host
is "nothing on stderr" "$(cat with.err)" ""
is "no row is lost or doubled" "$(sql run.db "ATTACH 'run-old.db' AS old;
    WITH rows(pos) AS (SELECT pos FROM main.logits UNION ALL SELECT pos FROM old.logits)
    SELECT max(pos) + 1, count(*) = max(pos) - min(pos) + 1 AND count(*) = count(DISTINCT pos)
    FROM rows" | tr '|' ' ')" "$(progress) 1"
done_testing
