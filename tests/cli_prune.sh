#!/bin/sh
# neartie prune: old rows go and `gaps` counts them, what only they refer to goes with them, rows about
# flips stay but are no sample; a kill leaves a whole record; a run in progress is refused.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
failure() { run "$@"; echo "$status $(cat err)"; }
sql() { sqlite3 -batch "$@"; }
sound() { sql "$1" 'PRAGMA integrity_check; PRAGMA foreign_key_check'; }

{ cat "$abs_top_srcdir/sql/schema.sql" "$data/golden.sql" "$abs_top_srcdir/sql/views.sql"; } >make.sql
sql golden.db <make.sql
sql golden.db "INSERT INTO gaps SELECT 1 + max(gap_id), 1, 3, 'graph_unknown', 1, NULL FROM gaps"
day=$(($(date +%s) / 86400))
# Run 1 was recorded 10 days ago, run 2 within the last hour.
sql golden.db "UPDATE forwards SET started_ns = started_ns - 1000000000000000000 + CASE run_id
    WHEN 1 THEN ($day - 10) * 86400000000000 ELSE strftime('%s', 'now') * 1000000000 - 60000000000 END"

# --- by age ---
cp golden.db age.db
"$neartie" runs age.db >out # the first reader makes the index
before=$(md5sum age.db)
run "$neartie" prune age.db --older-than 2d --dry-run --format csv
is "a dry run says what would go" "$status $(cut -d, -f1,4-6 out)$(cat err)" \
    "0 run,n_rows,n_pruned,n_kept
1,12,12,0
2,5,0,0"
is "and changes nothing" "$(md5sum age.db) $(echo age.db*)" "$before age.db"
run "$neartie" prune age.db --older-than 2d
is "rows of the old run go" "$status $(cut -d\; -f1 out)$(cat err)" "0 age.db: pruned 12 of 17 rows"
is "the file is sound, and alone" "$(sound age.db) $(echo age.db*)" "ok age.db"
is "gaps has their number" "$(sql age.db "SELECT run_id, count, detail LIKE 'until 20__-__-__ %' FROM gaps
    WHERE kind = 'rows_pruned'")" "1|12|1"
is "runs has it" "$("$neartie" runs age.db --format csv | cut -d, -f2,10-12 | xargs)" \
    "run,n_rows,n_lost,n_pruned 1,0,3,12 2,5,0,0"
# The forward that a gap names stays; kernels, texts and settings do.
is "what only they refer to goes" "$(sql age.db "SELECT (SELECT group_concat(forward_id) FROM forwards
    WHERE run_id = 1), (SELECT count(*) FROM sequences WHERE run_id = 1), (SELECT count(*) FROM delta_lists),
    (SELECT group_concat(kernel_list_id) FROM kernel_lists), (SELECT count(*) FROM kernels),
    (SELECT count(*) FROM settings WHERE run_id = 1)")" \
    "3|0|$(sql golden.db "SELECT count(*) FROM delta_lists JOIN logits AS l USING (row_id) JOIN arms USING (arm_id)
        LEFT JOIN logits AS b ON b.row_id = base_row_id LEFT JOIN arms AS c ON c.arm_id = b.arm_id
        WHERE arms.run_id = 2 AND c.run_id = 2")|$(sql golden.db "SELECT group_concat(DISTINCT kernel_list_id)
        FROM forwards WHERE run_id = 2 OR forward_id = 3")|2|2"
run "$neartie" prune age.db --older-than 2d
is "once more: nothing goes" "$status $(cut -d\; -f1 out) $(sql age.db "SELECT count(*) FROM gaps
    WHERE kind = 'rows_pruned'")" "0 age.db: pruned 0 of 5 rows 1"
run "$neartie" prune age.db --older-than 0s
is "all rows can go" "$(cut -d\; -f1 out) $("$neartie" runs age.db --format csv | cut -d, -f10-12 | xargs)" \
    "age.db: pruned 5 of 5 rows n_rows,n_lost,n_pruned 0,3,12 0,0,5"
is "and the file says so instead of a verdict" "$(failure "$neartie" verdict age.db)" \
    "4 neartie: age.db: no two arms have a position of the same context: record the same tokens in two settings"

# A list of a row that stays, whose base row goes.
cp golden.db lists.db
sql lists.db "DELETE FROM delta_lists; INSERT INTO delta_lists VALUES(13, 1, 1, '[[1,1,1]]'),
    (15, 14, 1, '[[1,1,1]]'), (16, 2, 1, '[[1,1,1]]');
    UPDATE forwards SET base_run_uuid = 'elsewhere' WHERE forward_id = (SELECT forward_id FROM logits WHERE row_id = 16)"
"$neartie" prune lists.db --older-than 2d >out
is "it goes, and is counted; one of another file stays" "$(sql lists.db "SELECT group_concat(row_id),
    (SELECT group_concat(run_id || ' ' || count) FROM gaps WHERE kind = 'deltas_pruned') FROM delta_lists")" \
    "15,16|2 1"

# --- rows about flips ---
cp golden.db flips.db
sql flips.db "INSERT INTO logits SELECT row_id + 100, forward_id, arm_id, seq_id, pos + 50, batch_row,
    context_hash || 'x', input_token, emitted_token, dtype, top1, top1_logit, top2, top2_logit, margin, lse, n_nan,
    n_posinf, n_neginf, first_bad, topk FROM logits WHERE row_id = 1"
run "$neartie" prune flips.db --older-than 2d --keep-flips
is "the flips stay, with the positions before them; what has none goes" \
    "$status $(cut -d\; -f1 out) $(sql flips.db 'SELECT group_concat(pos) FROM (SELECT DISTINCT pos FROM logits
        JOIN arms USING (arm_id) WHERE run_id = 1 ORDER BY pos)')" \
    "0 flips.db: pruned 5 of 18 rows, kept 8 about flips 0,1,2,3"
is "every flip is there" "$(sql flips.db 'SELECT seq_id, pos, top1_a, top1_b FROM flips WHERE run_a = 1 AND run_b = 1')" \
    "$(sql golden.db 'SELECT seq_id, pos, top1_a, top1_b FROM flips WHERE run_a = 1 AND run_b = 1')"
is "in arms of their own" "$(sql flips.db "SELECT label, phase, class, count(row_id) FROM arms LEFT JOIN logits
    USING (arm_id) WHERE run_id = 1 GROUP BY arm_id")" "prefill|prefill|reassoc|0
decode|decode|reassoc|0
prefill (flips)|prefill|flips|4
decode (flips)|decode|flips|4"
is "the file is sound" "$(sound flips.db)" ok
run "$neartie" verdict flips.db --a 'prefill (flips)' --b '1:decode (flips)'
is "no verdict is made of them" "$status $(head -1 out)" \
    "4 NOT-COMPARABLE: rows that were kept for their flips are no sample"
ok "but a report shows them" grep -q "^ *1  *3  *6 ' sat'  *2 ' a'" out
"$neartie" report flips.db --a 'prefill (flips)' --b '1:decode (flips)' >report.txt
is "and says what was removed" "$(grep -c '^removed from run 1: rows_pruned, 5, until 20.*, rows about flips are kept' \
    report.txt)" 1
run "$neartie" prune flips.db --older-than 2d --keep-flips
is "once more: they stay, in the same arms" "$(cut -d\; -f1 out) $(sql flips.db 'SELECT count(*) FROM arms')" \
    "flips.db: pruned 0 of 13 rows, kept 8 about flips $(($(sql golden.db 'SELECT count(*) FROM arms') + 2))"
run "$neartie" prune flips.db --older-than 2d
is "without --keep-flips they go" "$(cut -d\; -f1 out) $(sql flips.db "SELECT sum(count) FROM gaps
    WHERE kind = 'rows_pruned'")" "flips.db: pruned 8 of 13 rows 13"

# --- a verdict names what is missing ---
cp golden.db some.db
sqlite3 some.db "UPDATE forwards SET started_ns = 1 WHERE forward_id < 3"
"$neartie" prune some.db --older-than 3000d >out
is "a verdict says how many rows were removed" "$("$neartie" verdict some.db --a 1:decode --b 2:decode |
    grep ^missing | tr -s ' ')" "missing of A's run: 3 rows were not recorded, $(sql some.db "SELECT count FROM gaps
        WHERE kind = 'rows_pruned'") were removed since"

# --- by size ---
"$neartie" simulate -o big.db --seed 3 --sequences 60 --rows 500 >out
sql big.db "UPDATE forwards SET started_ns = started_ns + forward_id * 1000000"
cp big.db size.db
would=$("$neartie" prune size.db --max-size 4M --dry-run --format csv | sed 1d | cut -d, -f5)
run "$neartie" prune size.db --max-size 4M
size=$(stat -c %s size.db)
is "the file is as small as asked, and little smaller" "$((size <= 4194304)) $((size > 3900000)) $(cat err)" "1 1 "
is "what went is what a dry run says" "$(cut -d\; -f1 out)" "size.db: pruned $would of 60000 rows"
is "it is the oldest" "$(sql size.db 'SELECT min(row_id) > max(row_id) - count(*) FROM logits')" 1
"$neartie" verdict size.db >verdict.txt
ok "the verdict is that of the rest" grep -q "^NEAR-TIE: " verdict.txt
is "a file that is small enough stays as it is" "$(md5sum size.db; "$neartie" prune size.db --max-size 4M >out
    md5sum size.db; cut -d\; -f1 out)" "$(md5sum size.db; md5sum size.db)
size.db: pruned 0 of $((60000 - would)) rows"
cp big.db both.db
run "$neartie" prune both.db --max-size 3M --keep-flips
size=$(stat -c %s both.db)
is "flips count towards the size, and all are kept" "$((size <= 3145728)) $(sql both.db 'SELECT count(*) FROM flips')" \
    "1 $(sql big.db 'SELECT count(*) FROM flips')"
is "the sample is chosen before what was kept" "$("$neartie" verdict both.db | sed -n 's/^\(compared.*(B)\).*/\1/p')" \
    "compared  prefill (A) against decode (B)"
run "$neartie" prune both.db --max-size 10K
is "what is no row stays, and a line says so" "$status $(cut -d, -f2- err)" \
    "0  more than 10240: what is left is kept or is no row"

# --- what is refused ---
is "nothing to choose by" "$(failure "$neartie" prune golden.db | head -1)" \
    "2 neartie prune: which rows? --older-than AGE, --max-size SIZE or both"
is "no file" "$(failure "$neartie" prune none.db --older-than 1d)" "1 neartie: none.db: No such file or directory"
for age in 1 d 1x -1d 1dd ''; do
    is "age '$age'" "$(failure "$neartie" prune golden.db --older-than="$age" | head -1)" \
        "2 neartie prune: --older-than $age: not an amount like 90s, 12h, 30d, 8w"
done
is "size 1" "$(failure "$neartie" prune golden.db --max-size 1 | head -1)" \
    "2 neartie prune: --max-size 1: not an amount like 500K, 100M, 2G"
is "no database" "$(failure "$neartie" prune make.sql --older-than 1d)" "1 neartie: make.sql: not an SQLite database"
cp golden.db hostile.db
sql hostile.db "CREATE TABLE harm(x); CREATE TRIGGER t AFTER DELETE ON logits BEGIN INSERT INTO harm VALUES(1); END;
    DROP VIEW IF EXISTS matches; CREATE VIEW matches AS SELECT 1 AS row_a, 1 AS row_b, 1 AS flip"
run "$neartie" prune hostile.db --older-than 2d --keep-flips
is "a file's own triggers and views are left alone" \
    "$(cut -d\; -f1 out) $(sql hostile.db 'SELECT count(*) FROM harm')" "hostile.db: pruned 4 of 17 rows, kept 8 about flips 0"
if [ "$SANITIZE" = no ]; then
    PROBE_DB=live.db LD_PRELOAD=$probe "$abs_top_builddir/tests/target" endless 100000000 >/dev/null 2>&1 &
    pid=$!
    until [ -f live.db ] && [ "$(sql live.db 'SELECT count(*) FROM logits' 2>live.txt)" -gt 0 ] 2>live.txt; do sleep 0.05; done
    is "a run in progress" "$(failure "$neartie" prune live.db --older-than 0s)" \
        "1 neartie: live.db: run 1 is still recording"
    kill -9 $pid
    wait $pid 2>/dev/null
    run "$neartie" prune live.db --older-than 0s
    is "and one that died is folded in first" \
        "$status $(sql live.db "SELECT state, (SELECT count(*) FROM logits) FROM runs")" "0 recovered|0"
else
    skip "a run in progress" "a sanitizer's library must come first"
fi

# --- a kill at any moment ---
cp big.db cut.db
start=$(date +%s%N)
"$neartie" prune cut.db --max-size 2M --keep-flips >out
took=$(($(date +%s%N) - start))
i=0 bad=0 whole=0 gone=0
while [ $i -lt 12 ]; do
    i=$((i + 1))
    rm -f cut.db*
    cp big.db cut.db
    "$neartie" prune cut.db --max-size 2M --keep-flips >/dev/null 2>&1 &
    pid=$!
    sleep "$(awk -v i=$i -v t=$took 'BEGIN { printf "%.3f", t / 1e9 * i / 12 }')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    rows=$("$neartie" sql cut.db 'SELECT (SELECT count(*) FROM logits) + (SELECT coalesce(sum(count), 0) FROM gaps),
        (SELECT count(*) FROM gaps)' --format csv 2>err | tail -1)
    case "$rows $(sound cut.db)" in
    "60000,0 ok") whole=$((whole + 1)) ;;
    "60000,1 ok") gone=$((gone + 1)) ;;
    *) bad=$((bad + 1)); echo "# kill $i: $rows $(sound cut.db) $(echo cut.db*) $(cat err)" ;;
    esac
done 2>/dev/null
echo "# killed before the rows went: $whole; after: $gone"
is "a prune that is killed leaves a whole record" "$bad" 0
ok "some were killed before the rows went" test $whole -gt 0
run "$neartie" prune cut.db --max-size 2M --keep-flips
is "and it can be repeated" "$status $(($(stat -c %s cut.db) <= 2097152)) $(sound cut.db) $(echo cut.db*)" "0 1 ok cut.db"
mkdir disk
export neartie
cat >full.sh <<'END'
mount -t tmpfs -o size=24m none disk && cp big.db disk/ || exit 9
TMPDIR=disk SQLITE_TMPDIR=disk "$neartie" prune disk/big.db --max-size 6M
"$neartie" sql disk/big.db "SELECT (SELECT count(*) FROM logits) + (SELECT coalesce(sum(count), 0) FROM gaps) AS n"
END
if unshare -m mount -t tmpfs none disk 2>/dev/null; then
    is "a full disk: one line, and no row is lost unsaid" "$(unshare -m sh full.sh 2>&1 | sed 's/full;.*/full/' | xargs)" \
        "neartie: disk/big.db: database or disk is full n 60000"
else
    skip "a full disk" "needs the right to mount"
fi
done_testing
