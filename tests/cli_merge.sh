#!/bin/sh
# neartie merge: every table of every file arrives, references hold, the verdict stays; what is refused
# leaves nothing behind; neither does a full disk, a signal or a kill.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
failure() { run "$@"; echo "$status $(cat err)"; }
sql() { sqlite3 -batch "$@"; }

{ cat "$abs_top_srcdir/sql/schema.sql" "$data/golden.sql" "$abs_top_srcdir/sql/views.sql"; } >make.sql
sql golden.db <make.sql
sql golden.db "INSERT INTO graph_execs SELECT 1 + max(graph_exec_id), 1, 1, 'g', 1, 5 FROM graph_execs;
    INSERT INTO gaps SELECT 1 + max(gap_id), 1, 3, 'graph_unknown', 1, NULL FROM gaps;
    INSERT OR IGNORE INTO delta_lists VALUES(11, 5, 1, '[[1,1,1]]')"
# The same record of two other runs; what is addressed by content is the same in both.
cp golden.db twin.db
sql twin.db "UPDATE runs SET uuid = translated FROM (SELECT run_id AS id, replace(replace(uuid, '1', '8'),
    '2', '9') AS translated FROM runs) WHERE id = run_id; UPDATE calibrations SET scale = 0.25;
    UPDATE forwards SET started_ns = started_ns + 7; UPDATE sequences SET label = 'twin';
    UPDATE kernel_lists SET hash = 'other' WHERE kernel_list_id = 2"
run "$neartie" merge -o all.db golden.db twin.db
is "it says what it wrote" "$status $(cat out err)" \
    "0 all.db: files 2, runs 4, arms 8, rows $(sql golden.db 'SELECT 2 * count(*) FROM logits')"
is "the file is sound, and readable by its owner alone" \
    "$(sql all.db 'PRAGMA integrity_check; PRAGMA foreign_key_check') $(stat -c %a all.db)" "ok 600"
is "nothing else is left" "$(echo all.db*)" all.db
is "every table of the schema has what both had" "$(for table in $(sql golden.db "SELECT name
    FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"); do
    echo "$table $(sql all.db "SELECT count(*) FROM $table") of $(sql golden.db "SELECT count(*) FROM $table")"
done | awk '$2 != 2 * $4 { print }')" "kernel_list_items 7 of 5
kernel_lists 3 of 2
kernels 2 of 2
launch_configs 2 of 2
meta 2 of 2
modules 1 of 1
vocab $(sql golden.db 'SELECT count(*) || " of " || count(*) FROM vocab')"
# Rows with all that they refer to, without the ids themselves.
cat >rows.sql <<'END'
SELECT r.uuid, a.label, a.phase, s.seq, p.seq, p.label, f.started_ns, l.pos, l.context_hash, l.top1, l.margin,
    l.topk, d.list, b.pos, bf.started_ns, k.hash, (SELECT group_concat(n.name || c.grid_x || i.label)
        FROM kernel_list_items AS i JOIN launch_configs AS c USING (config_id)
        JOIN kernels AS n USING (kernel_id) WHERE i.kernel_list_id = f.kernel_list_id)
FROM logits AS l JOIN forwards AS f USING (forward_id) JOIN runs AS r USING (run_id)
JOIN arms AS a ON a.arm_id = l.arm_id JOIN sequences AS s ON s.seq_id = l.seq_id
LEFT JOIN sequences AS p ON p.seq_id = s.parent_seq_id LEFT JOIN delta_lists AS d USING (row_id)
LEFT JOIN logits AS b ON b.row_id = d.base_row_id
LEFT JOIN forwards AS bf ON bf.forward_id = b.forward_id
LEFT JOIN kernel_lists AS k USING (kernel_list_id) ORDER BY r.uuid, l.row_id;
SELECT r.uuid, s.name, s.value, s.source FROM settings AS s JOIN runs AS r USING (run_id) ORDER BY 1, 2;
SELECT r.uuid, g.kind, g.count, g.detail, f.started_ns FROM gaps AS g JOIN runs AS r USING (run_id)
LEFT JOIN forwards AS f USING (forward_id) ORDER BY 1, 2, 3;
SELECT r.uuid, g.label, k.n FROM graph_execs AS g JOIN runs AS r USING (run_id)
LEFT JOIN kernel_lists AS k USING (kernel_list_id) ORDER BY 1, 2;
END
for name in golden twin; do
    sql $name.db <rows.sql
done | LC_ALL=C sort >want.txt
sql all.db <rows.sql | LC_ALL=C sort >got.txt
is "rows, settings, gaps and graphs refer to the same things" "$(diff want.txt got.txt)" ""
is "of two calibrations with one name, both are there" \
    "$(sql all.db 'SELECT label, scale FROM calibrations' | xargs)" "golden|0.05 golden-2|0.25"

# --- the verdict ---
"$neartie" simulate -o a.db --seed 1 --sequences 4 --rows 50 >/dev/null
"$neartie" simulate -o b.db --seed 1 --sequences 4 --rows 50 >/dev/null
is "merging two simulated records" "$(failure "$neartie" merge -o ab.db a.db b.db)" "0 "
arm_a=$(sql a.db 'SELECT min(arm_id) FROM arms') arm_b=$(sql b.db 'SELECT max(arm_id) FROM arms')
# How an arm is named depends on the files.
verdict() { run "$neartie" verdict "$@" --format json; sed 's/"arm_[ab]": "[^"]*", //g' out; echo "exit $status"; }
verdict a.db b.db --a "$arm_a" --b "$arm_b" >two.txt
is "the verdict is that of the two files" \
    "$(verdict ab.db --a "$arm_a" --b "$((arm_b + $(sql a.db 'SELECT max(arm_id) FROM arms')))" | diff - two.txt)" ""
ok "and there is one" grep -q '"verdict": "NEAR-TIE' two.txt

# --- rows that name a base in another file ---
cp golden.db base.db
cp twin.db later.db
sql later.db "UPDATE forwards SET base_run_uuid = '11111111111111111111111111111111' WHERE arm_id = 2;
    DELETE FROM delta_lists; INSERT INTO delta_lists VALUES(8, 2, 1, '[[5,9,8]]'), (9, 3, 1, '[[1,3,3]]'),
    (10, 5, 1, '[[2,4,4]]')"
is "with its base" "$(failure "$neartie" merge -o based.db later.db base.db)" "0 "
n=$(sql later.db 'SELECT max(row_id) FROM logits')
is "a base row that is in the file now is named by its number here; a wrong one is left alone" \
    "$(sql based.db "SELECT d.row_id, d.base_row_id - $n, base_run_uuid IS NULL FROM delta_lists AS d
        JOIN logits AS l USING (row_id) JOIN forwards USING (forward_id) WHERE d.row_id < 11" | xargs)" \
    "8|2|1 9|3|1 10|$((5 - n))|0"

# --- two texts for one token id ---
cp twin.db renamed.db
sql renamed.db "UPDATE vocab SET text = text || 'x' WHERE token IN (1, 5)"
is "texts that differ are told" "$(failure "$neartie" merge -o texts.db golden.db renamed.db)" \
    "0 renamed.db: texts of 2 token ids differ from those of a file before it, which stay"
is "and counted for each run of the model; the first text stays" \
    "$(sql texts.db "SELECT group_concat(run_id || ' ' || count) FROM gaps WHERE kind = 'texts_differ';
        SELECT text FROM vocab WHERE token = 1")" "3 2,4 2
 the"

# --- what is refused ---
before=$(md5sum all.db)
is "a file that exists" "$(failure "$neartie" merge -o all.db golden.db)" \
    "1 neartie: all.db: exists already; merge writes a new file"
is "and it stays as it is" "$(md5sum all.db)" "$before"
is "a run that two files have" "$(failure "$neartie" merge -o new.db golden.db all.db)" \
    "1 neartie: all.db: run 1 (11111111111111111111111111111111) is in a file before it already"
is "no database" "$(failure "$neartie" merge -o new.db golden.db make.sql)" \
    "1 neartie: make.sql: not an SQLite database"
is "no file" "$(failure "$neartie" merge -o new.db golden.db none.db)" \
    "1 neartie: none.db: No such file or directory"
cp twin.db torn.db
page=$(sql torn.db "SELECT rootpage FROM sqlite_schema WHERE name = 'logits'")
dd if=/dev/zero of=torn.db bs="$(sql torn.db 'PRAGMA page_size')" seek=$((page - 1)) count=1 conv=notrunc 2>dd.txt
is "a damaged file" "$(failure "$neartie" merge -o new.db golden.db torn.db)" \
    "1 neartie: torn.db: database disk image is malformed"
is "no folder" "$(failure "$neartie" merge -o none/new.db golden.db)" \
    "1 neartie: none/new.db-merge: No such file or directory"
is "no -o" "$(failure "$neartie" merge golden.db | head -1)" "2 neartie merge: into which file? -o FILE"
is "no file at all" "$(failure "$neartie" merge -o new.db | head -1)" "2 neartie merge: which files?"
is "nothing is left of any" "$(echo new.db* none*)" "new.db* none*"
mkdir 'a ?#%'
cp twin.db 'a ?#%/t.db'
is "names with ?, # and %" "$(failure "$neartie" merge -o 'a ?#%/n#.db' golden.db 'a ?#%/t.db')" "0 "

# --- a merge that is interrupted ---
"$neartie" simulate -o big1.db --seed 3 --sequences 100 --rows 500 >/dev/null
"$neartie" simulate -o big2.db --seed 4 --sequences 100 --rows 500 >/dev/null
interrupt() { # SIGNAL
    "$neartie" merge -o cut.db big1.db big2.db >/dev/null 2>&1 &
    merge=$!
    until [ -s cut.db-merge ] || ! kill -0 $merge 2>kill.txt; do sleep 0.01; done
    kill -"$1" $merge 2>kill.txt
    wait $merge
    echo "$? $(echo cut.db*)"
}
is "a signal removes what was begun" "$(interrupt TERM)" "143 cut.db*"
is "a kill leaves no file under the name" "$(interrupt KILL)" "137 cut.db-merge"
is "and the next merge goes through" "$(failure "$neartie" merge -o cut.db big1.db big2.db) $(echo cut.db*)" \
    "0  cut.db"
mkdir disk
export neartie
cat >full.sh <<'END'
mount -t tmpfs -o size=2m none disk || exit 9
"$neartie" merge -o disk/full.db big1.db big2.db
echo "$? $(ls disk)"
END
if unshare -m mount -t tmpfs none disk 2>/dev/null; then
    is "a full disk: one line, and nothing is left" "$(unshare -m sh full.sh 2>&1)" \
        "neartie: big1.db: database or disk is full
1 "
else
    skip "a full disk" "needs the right to mount"
fi
done_testing
