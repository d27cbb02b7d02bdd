#!/bin/sh
# The calibrated rule at the command line: verdict, blame, calibrate and simulate, on the golden
# record and on synthetic ones whose truth is known.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" "$data/golden.sql" |
    sqlite3 golden.db || exit 99

# Exit status and first line of a verdict.
verdict() { # ARGUMENT...
    run "$neartie" verdict "$@"
    printf '%s %s' "$status" "$(head -1 out)"
}
failure() { # COMMAND...
    run "$@"
    printf '%s %s' "$status" "$(head -1 err)"
}

# --- the golden record ---
is "a row of NaN" "$(verdict golden.db --a 1 --b 2 | cut -d';' -f1)" \
    "3 NONFINITE: B: 1 rows, first at sequence 1 position 4, 1 NaN 0 +inf"
is "flips are listed with texts and what stands before them" \
    "$(awk '/^flips:/ { on = 1 } on && /cat/ { print $1, $2, $3, $4, $5, $6 }' out | head -1)" \
    "1 1 4 '<b>' 5 '"
is "a knob that did nothing" "$(verdict golden.db --a 2 --b 3)" \
    "4 NOT-ENGAGED: 2 rows bit-equal, kernel lists equal"
is "bit-equal as promised" "$(verdict golden.db --a 2 --b 3 --class bitwise | cut -d: -f1)" \
    "0 STABLE"
is "not bit-equal against a promise" "$(verdict golden.db --a 1 --b 3 --class bitwise | cut -d: -f1)" \
    "3 CONTRACT-VIOLATION"
verdict golden.db golden.db --a 1 --b 4 >verdict.txt
is "two files" "$(sed -n 's/.*(B): //p' out)" \
    "1 positions of 1 sequence, 0 bit-equal"
is "an emitted token is not the best logit" \
    "$(sqlite3 golden.db "UPDATE logits SET emitted_token = 7 WHERE row_id = 13"
       verdict golden.db --a 1 --b 3 --greedy | cut -d';' -f1)" \
    "3 SAMPLER-MISMATCH: 1 rows, first at sequence 2 position 0: emitted 7, best logit 1"
run "$neartie" verdict golden.db --a 1 --b 2 --format json
ok "json is valid, and has tests, tags and flips" python3 -c "
import json
v = json.load(open('out'))
assert v['verdict'][0]['verdict'] == 'NONFINITE' and v['verdict'][0]['defect'] == 1
assert len(v['tests']) == 9 and len(v['flips']) == 2 and v['tags'], v"
run "$neartie" verdict golden.db --a 1 --b 2 --format csv
is "csv is one row" "$(wc -l <out)" 2

# --- what the command line gets wrong ---
is "an unknown class" "$(failure "$neartie" verdict golden.db --class odd | cut -c1-46)" \
    "2 neartie verdict: --class odd: not one of bit"
is "an unknown control" "$(failure "$neartie" verdict golden.db --control odd)" \
    "1 neartie: --control odd: no calibration of that label, no file, and not ARM:ARM"
is "an unknown arm in a control" "$(failure "$neartie" verdict golden.db --control 1:odd)" \
    "1 neartie: golden.db: no arm is named odd"
is "three files" "$(failure "$neartie" verdict a.db b.db c.db | cut -d';' -f1)" \
    "2 neartie verdict: c.db: more than two files"
is "a window without the seed's rule" "$(failure "$neartie" verdict golden.db --window 3)" \
    "2 neartie verdict: --seq and --window belong to --rule seed"
sqlite3 golden.db ".backup broken.db"
sqlite3 broken.db "UPDATE logits SET topk = '[[6,4],[7,oops' WHERE row_id = 4"
is "a broken list" "$(failure "$neartie" verdict broken.db --a 1 --b 2)" \
    "1 neartie: row 4: its list is broken at byte 10"

# --- synthetic records ---
ok "simulate: a clean record" "$neartie" simulate -o clean.db --seed 7
is "simulate: its size" "$("$neartie" runs clean.db --format csv | tail -1 | sed 's/.*",//')" \
    "2,4000,4000,0,0"
timeout -s INT 0.3 "$neartie" simulate -o cut.db --rows 5000 --sequences 5000
is "simulate: what is cut short is no record" "$(test -e cut.db; echo $?)" 1
rm -f cut.db.part*
ok "simulate: another" "$neartie" simulate -o control.db --seed 8
is "clean, against the prior" "$(verdict clean.db | cut -d: -f1)" "0 NEAR-TIE"
is "clean, against a control of the same kind" \
    "$(verdict clean.db --control control.db | cut -d: -f1)" "0 NEAR-TIE"
is "the control is named" "$(sed -n 's/^control *//p' out)" \
    "prefill against decode of run 1 of control.db"
for defect in half temperature batch-row residue boundary late; do
    "$neartie" simulate -o "$defect.db" --seed 9 --sequences 40 --rows 128 --defect $defect
    is "a defect is convicted: $defect" \
        "$(verdict "$defect.db" --control control.db | sed 's/:.*//')" "3 SYSTEMATIC"
done
is "what a verdict means stands below it, and what each test that rejects found" \
    "$(verdict residue.db --control control.db >/dev/null; sed -n '2,/^$/s/[ :].*//p' out | tr '\n' ' ')" \
    "The tag max exceed "
is "and what the tag is" "$(sed -n '3s/: .*//p' out)" \
    "tag       the difference goes with pos mod 64 = 63 (position in the sequence)"
is "blame: the first tag is the planted one" \
    "$("$neartie" blame batch-row.db --control control.db --format csv | sed -n '2s/,.*//p')" \
    "batch_row > 0"
# Its rows are also half of those that stand last in a chunk, which fit less well.
is "blame: the residue that was planted comes first" \
    "$("$neartie" blame residue.db --control control.db --format csv | sed -n '2s/,.*//p')" \
    "pos mod 64 = 63"
run "$neartie" blame clean.db
is "blame: tags, boundaries, kernels and drift" \
    "$status $(grep -cE '^(tag  |none: all are shared|from_pos )' out)" "0 4"
is "blame: a boundary, and no other kind of tag under its title" \
    "$("$neartie" blame boundary.db --control control.db |
        awk '/^at the boundaries/ { on = 1; next } on && !NF { exit } on' | sed 1d >tags.txt
       sed -n '1s/ *yes.*//p' tags.txt) $(grep -cvE '^(a\.)?(first|last|rows) ' tags.txt)" \
    "a.first 3 rows after a boundary 0"
# Mean contrasts from the middle of a sequence on, over those before it.
is "blame: the drift shows where it begins" \
    "$("$neartie" blame late.db --control control.db |
        awk '/^from_pos/ { on = 1; next } on { sum[$1 >= 64] += $4; n[$1 >= 64]++ }
             END { r = sum[1] / n[1] / (sum[0] / n[0]); print n[0], n[1], (r > 3 && r < 5) }')" "8 8 1"
is "the same seed gives the same rows" \
    "$("$neartie" simulate -o again.db --seed 7
       for db in clean again; do sqlite3 $db.db 'SELECT topk FROM logits' | cksum; done | uniq | wc -l)" 1
"$neartie" simulate -o nan.db --defect ubatch-nan
is "a row of NaN, and what goes with it" "$(verdict nan.db | sed 's/:.*;/;/')" \
    "3 NONFINITE; beside it SYSTEMATIC(a.ubatch_index > 0)"
"$neartie" simulate -o clean.db --seed 7 --defect all
is "two runs of one file: which arms" "$(verdict clean.db --a 1:prefill --b 1:decode | cut -d: -f1)" \
    "0 NEAR-TIE"
is "the third arm tells which side is worse" \
    "$(verdict clean.db --a 1:decode --b 2:decode --reference 1:prefill >out
       "$neartie" verdict clean.db --a 1:decode --b 2:decode --reference 1:prefill |
           sed -n 's/^reference.*: //p')" "B is worse"

# --- the same prompt again and again: no new contexts ---
# All rows of both arms, that many times over.
repeat() { # DB TIMES
    n=$(sqlite3 "$1" "SELECT count(*) FROM sequences")
    for k in $(seq $(($2 - 1))); do
        echo "INSERT INTO sequences(run_id, seq) SELECT run_id, seq + 100 * $k FROM sequences
                WHERE seq_id <= $n;
              CREATE TEMP TABLE t AS SELECT * FROM logits WHERE seq_id <= $n;
              UPDATE t SET row_id = NULL, seq_id = seq_id + $n * $k;
              INSERT INTO logits SELECT * FROM t; DROP TABLE t;"
    done | sqlite3 "$1"
}
for seed in 11 12 13; do
    "$neartie" simulate -o "again$seed.db" --seed $seed --sequences 3
    once=$(verdict "again$seed.db" --control control.db)
    repeat "again$seed.db" 20
    is "what came out the same counts once: $seed" "$(verdict "again$seed.db" --control control.db)" "$once"
done
is "and is counted" "$(sed -n 's/^left out.*: //p' out)" 5700
cp again13.db again14.db
sqlite3 again14.db "UPDATE logits SET emitted_token = top2 WHERE row_id = (SELECT max(row_id) FROM logits WHERE arm_id = 2)"
is "but for another choice of the sampler" "$(verdict again14.db --greedy | cut -d: -f1)" \
    "3 SAMPLER-MISMATCH"
# One prompt in every row of the batch; all rows but the first are off, each in its own way.
"$neartie" simulate -o batch.db --seed 15 --sequences 1
repeat batch.db 8
sqlite3 batch.db "UPDATE logits SET batch_row = (seq_id - 1) % 8 WHERE arm_id = 2;
    UPDATE logits SET top2_logit = top2_logit - row_id * 7919 % 1000 * 0.015, lse = NULL
    WHERE arm_id = 2 AND batch_row > 0;
    UPDATE logits SET margin = top1_logit - top2_logit,
        topk = json_array(json_array(top1, top1_logit), json_array(top2, top2_logit))
    WHERE arm_id = 2 AND batch_row > 0"
is "one prompt in all rows of a batch: what differs stays, and names the rows" \
    "$(verdict batch.db | cut -d';' -f1)" "3 SYSTEMATIC: batch_row > 0"

# --- however the rows lie, and however many read them, the figures are the same ---
figures() { "$neartie" verdict "$@" --format json; }
"$neartie" simulate -o order.db --seed 11 --rows 40
figures order.db >want
sqlite3 order.db 'UPDATE logits SET row_id = -row_id'
is "rows in the opposite order" "$(figures order.db | cmp - want && echo same)" same
sqlite3 order.db 'UPDATE logits SET row_id = pos * 1000 + seq_id * 10 + arm_id'
is "sequences step by step, as a batch records them" \
    "$(figures order.db | cmp - want && echo same)" same
"$neartie" simulate -o large.db --seed 12 --sequences 30 --rows 2000
cp large.db other.db
if [ "$(nproc)" -gt 1 ]; then
    is "120,000 rows: one thread and several" \
        "$(taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" \
            "$neartie" verdict large.db --format json >want
           figures large.db | cmp - want && echo same)" same
    is "of two files" "$(figures large.db other.db --a prefill --b decode | tail -n +3 >got
        tail -n +3 want | cmp - got && echo same)" same
else
    skip "120,000 rows: one thread and several" "there is one processor"
    skip "of two files" "there is one processor"
fi

# --- calibrate ---
run "$neartie" compare clean.db control.db
is "two files: the arms are named with their files" "$(head -1 out)" \
    "clean.db 2:decode (A) against control.db 1:decode (B)"
is "a pair is no control of itself" "$(failure "$neartie" verdict clean.db --a 1:prefill --b 1:decode \
    --control 1:decode,1:prefill)" \
    "1 neartie: --control 1:decode,1:prefill: is the pair itself, which cannot vouch for itself"
run "$neartie" calibrate control.db --label honest
is "calibrate" "$status $(sed 's/: s = .*over/ over/' out)" \
    "0 calibration honest over 2000 rows of 20 sequences, class precision (an arm says precision)"
for order in "--a prefill --b decode" "--a decode --b prefill"; do # shellcheck disable=SC2086
    is "a calibration of the pair itself is refused: $order" \
        "$(failure "$neartie" verdict control.db $order --control honest)" \
        "1 neartie: --control honest: was measured on the pair itself, which cannot vouch for itself"
done
is "and is passed over where none is named" \
    "$(verdict control.db | sed 's/.*floor/floor/') $(sed -n 's/^control *//p' out)" \
    "floor=prior none: calibration honest is of the pair itself"
"$neartie" simulate -o control.db --seed 10
is "a verdict on another pair uses and names it" "$(verdict control.db | sed 's/.*floor/floor/') $(sed -n 's/^control *//p' out | cut -d: -f1)" \
    "floor=control of the same kind calibration honest"
is "none: without it" "$(verdict control.db --control none | sed 's/.*floor/floor/')" "floor=prior"
ok "calibrate replaces one of the same label" "$neartie" calibrate control.db --label honest
is "one calibration is stored" "$(sqlite3 control.db 'SELECT count(*) FROM calibrations')" 1
"$neartie" simulate -o few.db --seed 16 --sequences 3
run "$neartie" calibrate few.db
is "a calibration of few sequences says that it stands for no kind" \
    "$(sed -n '2s/,.*//p' out)" "too little for a floor of its own kind"
"$neartie" simulate -o other.db --seed 17
is "and is used so" "$(verdict other.db --control few.db >/dev/null
    sed -n 's/^floor.*\(control of [a-z]* kind\).*\(too few.*\)/\1, \2/p' out)" \
    "control of another kind, too few for a kind of its own"
"$neartie" simulate -o zero.db --seed 16
sqlite3 zero.db "UPDATE logits SET top1 = 5, top2 = 6, top1_logit = 1, top2_logit = 1, margin = 0,
    topk = '[[5,1.0],[6,1.0]]'; DELETE FROM delta_lists"
is "nor do contrasts of 0 measure anything" "$(failure "$neartie" calibrate zero.db)" \
    "1 neartie: prefill against decode: every other contrast is 0: no floor to measure"
is "as a control they are a change of path" "$(verdict other.db --control zero.db)" \
    "0 NEAR-TIE: 7 flips, 8.41 expected; floor=prior, control=bitwise, path change"
is "a defect is no floor" "$(failure "$neartie" calibrate half.db | cut -d, -f1)" \
    "1 neartie: prefill against decode: is a defect itself"
is "nor are bit-equal rows" "$(failure "$neartie" calibrate golden.db --a 2 --b 3)" \
    "1 neartie: 1:decode against 2:decode: every row is bit-equal: no floor to measure"
done_testing
