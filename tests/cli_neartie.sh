#!/bin/sh
# The command line of neartie on a golden record: what every command prints, exit statuses, and one
# clear line for whatever is wrong.
. "${abs_top_srcdir:?}/tests/testlib.sh"

golden=$tmp/golden.db
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" "$data/golden.sql" |
    sqlite3 "$golden" || exit 99

# The figures of a failed command: its exit status and its one line on stderr.
failure() { # COMMAND...
    run "$@"
    printf '%s %s' "$status" "$(sed "s|$tmp/||g" "$tmp/err")"
}

# --- help and usage ---
run "$neartie" --version
is "version" "$status $(cat "$tmp/out")" "0 neartie 0.1.0"
run "$neartie" --help
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$tmp/out")
is "help lists the commands" "$(echo "$commands" | tr '\n' ' ')" \
    "record gate report verdict blame calibrate compare percentiles flips kernels runs import merge prune inspect replay simulate queries sql "
for command in $commands; do
    run "$neartie" "$command" --help
    is "$command --help" "$status $(head -1 "$tmp/out" | cut -d' ' -f1-3)" \
        "0 Usage: neartie $command"
    run "$neartie" "$command"
    [ "$command" = queries ] || is "$command without arguments is wrong usage" "$status" 2
    run "$neartie" "$command" --no-such-option x y
    is "$command refuses an unknown option" "$status" 2
done
run "$neartie"
is "no command is wrong usage" "$status" 2
run "$neartie" nonsense
is "an unknown command is wrong usage" "$status $(head -1 "$tmp/err")" \
    "2 neartie: nonsense: no such command"

# --- verdict ---
run "$neartie" verdict "$golden" --a 1 --b 2 --rule seed
is "verdict: a defect class" "$status $(tail -1 "$tmp/out")" \
    "3 verdict (rule seed): SYSTEMATIC - two flips or more"
run "$neartie" verdict --rule seed "$golden" --a 2 --b 3 --seq 2
is "verdict: no defect" "$status $(tail -1 "$tmp/out")" \
    "0 verdict (rule seed): STABLE - no flip, and the difference is below the decision margin"
run "$neartie" verdict "$golden" --a 1 --b 2 --rule seed --format json
ok "verdict: json is valid" python3 -c "
import json, sys
v = json.load(open('$tmp/out'))[0]
assert v['class'] == 'SYSTEMATIC' and v['defect'] == 1 and v['rank'] == 5, v"
sqlite3 "$golden" ".backup '$tmp/alone.db'"
sqlite3 "$tmp/alone.db" "UPDATE logits SET context_hash = NULL"
is "verdict: nothing to compare" "$(failure "$neartie" verdict "$tmp/alone.db")" \
    "4 neartie: alone.db: no two arms have a position of the same context: record the same tokens in two settings"
is "verdict: these two arms have nothing in common" \
    "$(failure "$neartie" verdict "$tmp/alone.db" --a 1 --b 2)" \
    "4 neartie: alone.db: arms prefill and decode have no position of the same context"
is "verdict: an unknown rule" "$(failure "$neartie" verdict --rule x "$golden" | head -1)" \
    "2 neartie verdict: --rule x: not one of calibrated, seed"
is "an unknown arm" "$(failure "$neartie" report "$golden" --a nobody)" \
    "1 neartie: golden.db: no arm is named nobody"
is "the same arm twice" "$(failure "$neartie" report "$golden" --a 1 --b 1)" \
    "1 neartie: golden.db: --a and --b name the same arm, prefill"
for window in 0 -1 x 1x ''; do
    run "$neartie" report "$golden" --window="$window"
    is "window '$window' is wrong usage" "$status" 2
done

# --- the other reports ---
run "$neartie" flips "$golden" --a 2 --b 1 --format csv
is "flips" "$(cat "$tmp/out")" \
    "run_a,arm_a,run_b,arm_b,seq_id,pos,top1_a,text_a,margin_a,top1_b,text_b,margin_b,contrast,delta,bounded,row_a,row_b
1,prefill,1,decode,1,1,4,<b>,0.25,5, cat,0.25,0.5,0.5,0,2,8
1,prefill,1,decode,1,3,6, sat,0.5,2, a,0.25,1.25,1.5,1,4,10"
run "$neartie" flips "$golden"
is "flips of all arms" "$(wc -l <"$tmp/out")" 7
sqlite3 "$golden" ".backup '$tmp/models.db'"
sqlite3 "$tmp/models.db" "UPDATE runs SET model_hash = 'bb' WHERE run_id = 2"
is "flips: between two models, which is told" "$(failure "$neartie" flips "$tmp/models.db")" \
    "0 models.db: has runs of 2 models; flips between them are listed too (--a and --b choose the arms)"
is "flips: of arms that were chosen" "$(failure "$neartie" flips "$tmp/models.db" --a 1 --b 2)" "0 "
sqlite3 "$golden" ".backup '$tmp/same.db'"
for format in csv json; do
    "$neartie" flips "$golden" --a 1 --b 2 --format $format | python3 -c 'import csv, json, sys
rows = json.load(sys.stdin) if sys.argv[1] == "json" else list(csv.DictReader(sys.stdin))
for row in rows: row["delta"] = None if sys.argv[1] == "json" else ""
print(rows)' $format >"$tmp/one.txt"
    "$neartie" flips "$golden" "$tmp/same.db" --a 1 --b 2 --format $format | python3 -c 'import csv, json, sys
print(json.load(sys.stdin) if sys.argv[1] == "json" else list(csv.DictReader(sys.stdin)))' $format >"$tmp/two.txt"
    is "flips of two files, as $format" "$(cat "$tmp/two.txt")" "$(cat "$tmp/one.txt")"
done
is "flips of two files that agree" "$("$neartie" flips "$golden" "$tmp/same.db" --a 2:decode --b 1:decode)" \
    "no flips in 2 positions of the same context"
is "flips of three files" "$(failure "$neartie" flips "$golden" "$golden" "$golden" | head -1)" \
    "2 neartie flips: golden.db: more than two files"

# --- tables without a row ---
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" | sqlite3 "$tmp/empty.db"
sqlite3 "$tmp/empty.db" "INSERT INTO meta VALUES('schema_version', '1'); INSERT INTO runs(run_id, uuid, probe_version,
    started_ns, state) VALUES(1, 'e', '0.1.0', 1000000000000000000, 'closed')"
for command in flips kernels percentiles "queries agreement" "sql SELECT+*+FROM+flips" report; do
    # shellcheck disable=SC2086
    set -- $command
    name=$1
    shift
    run "$neartie" "$name" "$tmp/empty.db" "$(echo "$*" | tr + ' ')"
    case $name in flips | kernels | percentiles | report) run "$neartie" "$name" "$tmp/empty.db" ;; esac
    # The names of columns with nothing under them would be a line with two spaces.
    is "$name: an empty run is told in words" "$(grep -c '^no ' "$tmp/out") $(grep -v -e started_utc -e 2001 "$tmp/out" |
        grep -c '[a-z]  [a-z]')" "$([ "$name" = report ] && echo 2 || echo 1) 0"
done
is "flips: why there are none" "$("$neartie" flips "$tmp/empty.db" | cut -d: -f1,2)" "no flips: nothing was compared"
sqlite3 "$golden" ".backup '$tmp/agree.db'"
sqlite3 "$tmp/agree.db" "DELETE FROM logits WHERE row_id NOT IN (1, 7)"
is "flips: all agree" "$("$neartie" flips "$tmp/agree.db")" \
    "no flips: wherever two arms saw the same tokens, they chose the same"
is "CSV keeps its columns, and JSON is an empty list" "$("$neartie" kernels "$tmp/empty.db" --format csv | wc -l) $(
    "$neartie" kernels "$tmp/empty.db" --format json | tr -d '\n')" "1 []"
mkdir "$tmp/nothing"
is "runs: of a folder without a database" "$("$neartie" runs "$tmp/nothing" 2>&1 | sed "s|$tmp/||" | sort | xargs)" \
    "no runs nothing: no *.db in this folder"
run "$neartie" runs "$golden" --format csv
is "runs" "$(sed "s|$tmp/||" "$tmp/out")" \
    "file,run,state,started_utc,seconds,engine,model,n_arms,n_forwards,n_rows,n_lost,n_pruned
golden.db,1,closed,2001-09-09 01:46:40,2.5,engine 1,golden.gguf,2,7,12,3,0
golden.db,2,recovered,2001-09-09 01:46:50,,engine 1,golden.gguf,2,4,5,0,0"
mkdir "$tmp/many" && cp "$golden" "$tmp/many/b.db" && cp "$golden" "$tmp/many/a.db"
echo none >"$tmp/many/c.db"
echo none >"$tmp/many/notes.txt"
run "$neartie" runs "$tmp/many" --format csv
is "runs: of a folder, whatever one file is" \
    "$status $(sed "s|$tmp/many/||" "$tmp/out" | cut -d, -f1,2 | xargs) $(sed "s|$tmp/||" "$tmp/err")" \
    "1 file,run a.db,1 a.db,2 b.db,1 b.db,2 neartie: many/c.db: not an SQLite database"
run "$neartie" kernels "$golden" --arm 1 --format csv
is "kernels" "$(cut -d, -f2-5,10 "$tmp/out")" "arm,kernel,grid,block,n_launches
prefill,_Z4gemmPf,8x1x1,256x1x1,2
prefill,_Z4gemvPf,64x2x1,128x1x1,1"
run "$neartie" percentiles "$golden" --arm 1 --percentiles 0,10,50,99.99,100
is "percentiles: nearest rank, a recorded position" "$(cat "$tmp/out")" \
    "run  arm      percentile  margin  seq_id  pos  row_id  n
  1  prefill           0  0.0000       1    2       3  6
  1  prefill          10  0.0000       1    2       3  6
  1  prefill          50  0.5000       1    3       4  6
  1  prefill     99.9900  1.0000       1    0       1  6
  1  prefill         100  1.0000       1    0       1  6"
run "$neartie" percentiles "$golden" --arm 1 -p 10,90 --method interpolated --format csv
is "percentiles: interpolated" "$(tail -2 "$tmp/out")" "1,prefill,10,0.125,,,,6
1,prefill,90,0.75,,,,6"
run "$neartie" percentiles "$golden" --arm 1 -p 10,50 --method seed --format csv
is "percentiles: the seed's index" "$(tail -2 "$tmp/out")" "1,prefill,10,0.25,1,1,2,6
1,prefill,50,0.5,1,3,4,6"
run "$neartie" percentiles "$golden" -p 101
is "percentiles: out of range" "$status" 2

# --- compare and queries ---
run "$neartie" compare "$golden" --a 1 --b 2
is "compare: kernels that differ" "$status $(grep ^kernel "$tmp/out" | tr -s ' ')" \
    "3 kernel _Z4gemmPf grid 8x1x1 block 256x1x1 smem 1024+2048 regs 128 code c1 constants d1 2 
kernel _Z4gemvPf grid 64x2x1 block 128x1x1 smem 0+0 regs 40 code c2 constants d1 1 2"
run "$neartie" compare "$golden" --a 2 --b 3
is "compare: a setting that did not act" "$status $(tail -1 "$tmp/out")" \
    "4 NOT-ENGAGED: 2 rows bit-equal, kernel lists equal"
run "$neartie" compare "$golden" --a 2 --b 3 --format csv
is "compare: what differs" "$(cat "$tmp/out")" "kind,name,a,b
setting,NEARTIE_CHUNK,,64
setting,NEARTIE_FAST,0,1"
run "$neartie" queries
is "queries: all are listed with what they are" \
    "$(grep -cE '^[a-z_]+  +[A-Z].*[.:0-9]$' "$tmp/out")" \
    "$(find "$abs_top_srcdir/sql" -name 'q_*.sql' | wc -l)"
run "$neartie" queries "$golden" gaps run_id=2
is "queries: one by name" "$(cat "$tmp/out")" "run  kind   count  detail                     forward_id
  2  cupti      1  libcupti.so.13: not found  "
is "queries: no such parameter" "$(failure "$neartie" queries "$golden" gaps x=1)" \
    "1 neartie: gaps: has no parameter x"
is "queries: no such query" "$(failure "$neartie" queries "$golden" nothing)" \
    "1 neartie: nothing: there is no query of that name"
run "$neartie" queries "$golden" gaps --text
is "queries: the text" "$(cat "$tmp/out")" "$(cat "$abs_top_srcdir/sql/q_gaps.sql")"

# --- sql ---
run "$neartie" sql "$golden" "SELECT count(*) AS n FROM flips; SELECT 2.5 AS x, NULL AS y"
is "sql: two statements" "$(cat "$tmp/out")" "n
6
  x  y
2.5  "
echo "SELECT text FROM vocab WHERE token IN (3, 7);" | "$neartie" sql "$golden" >"$tmp/out"
is "sql: nothing reaches the terminal as it is" "$(cat "$tmp/out")" 'text
\x1b[2J
\xff'
for statement in "DELETE FROM runs" "CREATE TABLE t(x)" "VACUUM INTO '$tmp/copy.db'" \
    "ATTACH '$tmp/new.db' AS n; CREATE TABLE n.t(x)" "PRAGMA user_version = 7" \
    "SELECT load_extension('x')"; do
    run "$neartie" sql "$golden" "$statement"
    is "sql refuses: $(echo "$statement" | sed "s|$tmp/||g")" "$status" 1
done
ok "sql wrote nothing" test ! -e "$tmp/copy.db" -a ! -e "$tmp/new.db"
is "sql: an error names the file" "$(failure "$neartie" sql "$golden" "SELECT nosuch FROM runs")" \
    "1 neartie: golden.db: no such column: nosuch"
run "$neartie" sql "$golden" "SELECT text FROM vocab WHERE token = 7" --format json
is "sql: json of bytes that are no text" "$(tr -d '\n' <"$tmp/out")" '[ {"text": "\ufffd"}]'

# --- files that are no record ---
: >"$tmp/empty.db"
head -c 5000 /dev/urandom >"$tmp/random.db"
sqlite3 "$tmp/other.db" "CREATE TABLE t(x)"
sqlite3 "$golden" ".backup '$tmp/newer.db'"
sqlite3 "$tmp/newer.db" "UPDATE meta SET value = '99' WHERE key = 'schema_version'"
head -c 8192 "$golden" >"$tmp/cut.db"
for command in report verdict flips percentiles kernels; do
    is "$command: missing" "$(failure "$neartie" $command "$tmp/missing.db")" \
        "1 neartie: missing.db: No such file or directory"
    is "$command: empty" "$(failure "$neartie" $command "$tmp/empty.db")" \
        "1 neartie: empty.db: an empty file, not a neartie database"
    is "$command: random bytes" "$(failure "$neartie" $command "$tmp/random.db")" \
        "1 neartie: random.db: not an SQLite database"
    is "$command: a folder" "$(failure "$neartie" $command "$tmp")" \
        "1 neartie: $tmp: is a directory"
    is "$command: another database" "$(failure "$neartie" $command "$tmp/other.db")" \
        "1 neartie: other.db: an SQLite database, but not one of neartie: no schema_version"
    is "$command: a newer schema" "$(failure "$neartie" $command "$tmp/newer.db")" \
        "1 neartie: newer.db: schema version 99, this neartie reads versions up to 1"
    run "$neartie" $command "$tmp/cut.db"
    is "$command: cut short" "$status $(wc -l <"$tmp/err")" "1 1"
done
ok "nothing was left behind" test ! -e "$tmp/missing.db" -a ! -s "$tmp/empty.db"

# --- a file that only can be read, and one with views that lie ---
sqlite3 "$golden" ".backup '$tmp/lies.db'"
sqlite3 "$tmp/lies.db" "DROP VIEW flips; CREATE VIEW flips AS SELECT 'a lie' AS pos;
    DROP VIEW pairs; DROP VIEW matches"
run "$neartie" flips "$tmp/lies.db"
is "the file's own views are not trusted" "$(wc -l <"$tmp/out")" 7
sqlite3 "$golden" "PRAGMA journal_mode = WAL" >"$tmp/out"
mkdir "$tmp/locked"
cp "$golden" "$tmp/locked/wal.db"
chmod -R a-w "$tmp/locked"
run "$neartie" runs "$tmp/locked/wal.db" --format csv
is "a write-ahead database in a folder that cannot be written" "$status $(wc -l <"$tmp/out")" "0 3"
chmod -R u+w "$tmp/locked"

# --- a recorder that was killed while it made its file ---
(cd "$tmp" && : >born.db && : >born.db-spool)
is "an empty file beside a spool" "$(failure "$neartie" runs "$tmp/born.db")" \
    "1 neartie: born.db: nothing was recorded: the recorder ended while it made the file"
python3 - "$tmp/hot.db" <<'PYTHON'
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE first (x)")
db.execute("PRAGMA cache_size = 1")
db.execute("PRAGMA cache_spill = 1")
db.execute("BEGIN IMMEDIATE")
db.execute("CREATE TABLE meta (key, value)")
for i in range(500):
    db.execute("INSERT INTO first VALUES (randomblob(3000))")
open(sys.argv[1] + "-spool", "w").close()
os._exit(0)
PYTHON
is "a file whose first transaction was cut" "$(test -s "$tmp/hot.db-journal"; echo $?) $(
    failure "$neartie" runs "$tmp/hot.db")" \
    "0 1 neartie: hot.db: nothing was recorded: the recorder ended while it made the file"

# --- every query by its name, with no parameter given ---
"$neartie" queries --format csv | sed 1d | cut -d, -f1 >"$tmp/names"
failed=
while read -r name; do
    "$neartie" queries "$golden" "$name" >"$tmp/out" 2>"$tmp/err" </dev/null || failed="$failed $name"
done <"$tmp/names"
is "every query runs without parameters" "$failed" ""

# --- hostile text in every column that holds any ---
sqlite3 "$golden" ".backup '$tmp/hostile.db'"
sqlite3 "$tmp/hostile.db" "PRAGMA journal_mode = DELETE" >"$tmp/out"
hostile="char(27) || ']0;title' || char(7) || char(10) || '\"</script>'"
for column in runs.host runs.exe runs.argv runs.engine runs.model_path runs.gpu_name \
    settings.value arms.label sequences.label kernels.name kernels.code_hash \
    kernel_list_items.label gaps.kind gaps.detail vocab.text calibrations.label \
    calibrations.control; do
    sqlite3 "$tmp/hostile.db" "UPDATE ${column%.*} SET ${column#*.} = $hostile || rowid" 2>/dev/null ||
        sqlite3 "$tmp/hostile.db" "UPDATE ${column%.*} SET ${column#*.} = $hostile"
done
sqlite3 "$tmp/hostile.db" "UPDATE calibrations SET class = 'reassoc-bf16', quantiles = '[]'"
escape=$(printf '\033')
for command in report verdict blame compare flips runs kernels percentiles; do
    arms="--a 1 --b 2"
    case $command in runs | kernels | percentiles) arms= ;; esac
    for format in table csv json; do
        # shellcheck disable=SC2086
        run "$neartie" $command "$tmp/hostile.db" $arms --format $format
        is "$command --format $format: no escape reaches the terminal" \
            "$(cat "$tmp/out" "$tmp/err" | grep -c "$escape") $(test -s "$tmp/out"; echo $?)" "0 0"
        [ $format != json ] || ok "$command: valid json" python3 -m json.tool "$tmp/out"
    done
done

# --- inspect ---
is "inspect: no program" "$(failure "$neartie" inspect "$data/prompt.txt")" \
    "1 neartie: $data/prompt.txt: not an ELF file"
run "$neartie" inspect "$neartie"
is "inspect: a program without hooks" "$status $(sed 's/.*, no hook/no hook/' "$tmp/out")" \
    "0 no hook of neartie: it was built without, and a probe sees no logits of it"
done_testing
