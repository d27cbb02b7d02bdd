#!/bin/sh
# neartie import seed-log: logs of argmax-margin-probe become a record, whole or not at all, from
# which the seed's rule prints the log's own figures.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99

# Made up, in the tool's form.
cat >small.log <<'EOT'
loaded a model in 3 s
argmax-margin-probe: T=40 window=6 sm_count=132 model=/models/small.gguf
env: SPLIT=<unset> FAST=1

pos      prefill_top1  margin_p     decode_top1  margin_d     delta@ids      agree
34       11            0.9359       11           0.8828       0.0415         yes
35       318           0.2464       318          0.3236       0.0919         yes
36       310           5.2348       310          5.1486       0.0894         yes
37       1730          0.0205       17           0.0517       0.0574         NO <-- FLIP
38       4417          0.3110       4417         0.2611       0.0865         yes
39       1510          0.0236       1510         0.0539       0.1125         yes

margin distribution (decode config, 6 positions): min 0.0517  p10 0.0539  p50 0.3236  p90 5.1486  max 5.1486
margin distribution (prefill config): min 0.0205  p50 0.3110  max 5.2348
DECISION POSITION (the gate's): prefill_top1=1510 decode_top1=1510 margin_p=0.0236 margin_d=0.0539 config_delta_at_ids=0.1125
  -> the decision margin is BELOW 1/6 sampled positions' margins (rank 2 of 6)
  -> flip is ARITHMETICALLY POSSIBLE iff config_delta > margin: 0.1125 > 0.0236 = true
agreement across sampled positions: 5/6 (1 flip(s))
VERDICT-INPUT: NEAR-TIE class
EOT

# Both say the same in other words: numbers and ids, in their order.
figures() {
    sed -n -e '/^margin distribution (decode/s/.*: \(min.*\)/\1/p' -e '/^margins of decode/s/.*: \(min.*\)/\1/p' \
        -e '/^margin distribution (prefill/s/.*: \(min.*\)/\1/p' -e '/^margins of prefill/s/.*: \(min.*\)/\1/p' \
        -e '/^DECISION POSITION/s/.*: prefill/prefill/p' -e '/^decision position/s/.*: prefill/prefill/p' \
        -e '/ possible if\| POSSIBLE iff/s/.*: //p' -e 's/.*\(rank [0-9]* of [0-9]*\).*/\1/p' \
        -e '/^agreement/s/.*: \([0-9]*\/[0-9]* ([0-9]*\).*/\1/p' "$1" | sed 's/config_delta_at_ids/delta@ids/'
}
check() { # LOG NAME
    ok "$2" "$neartie" import seed-log -o "$2.db" "$1"
    run "$neartie" verdict --rule seed "$2.db" --window all
    is "$2: the rule prints the log's figures" "$(figures out)" "$(figures "$1")"
    sqlite3 -separator ' ' "$2.db" "SELECT pos, top1_a, printf('%.4f', margin_a), top1_b, printf('%.4f', margin_b),
        printf('%.4f', delta), iif(flip, 'NO', 'yes') FROM pairs WHERE arm_id_a = 1 AND arm_id_b = 2 ORDER BY pos" >got.txt
    sed -n 's/ <-- FLIP//; s/  */ /g; s/ *$//; /^[0-9][0-9]* [0-9]/p' "$1" >want.txt
    ok "$2: every line of the table is in the record" cmp got.txt want.txt
}
check small.log small
is "there were figures to compare" "$(figures small.log | wc -l) $(wc -l <want.txt)" "6 6"
is "what the log states is a setting" \
    "$(sqlite3 small.db "SELECT name, value FROM settings WHERE name IN ('FAST', 'SPLIT', 'model_path', 'sm_count') ORDER BY 1")" \
    "FAST|1
model_path|/models/small.gguf
sm_count|132"
is "what it does not is said" "$(sqlite3 small.db "SELECT count FROM gaps WHERE kind = 'import'")" 12
is "runners-up have ids of no token, an own one in each arm" \
    "$(sqlite3 small.db 'SELECT group_concat(DISTINCT top2) FROM logits')" "2147483646,2147483647"
run "$neartie" verdict small.db --class=precision
is "the calibrated rule takes what is not printed for a bound" "$status" 0
ok "two logs are two sequences" "$neartie" import seed-log -o two.db small.log small.log --arm batch --arm step
is "of the same two arms" \
    "$(sqlite3 two.db "SELECT label, phase, count(*), count(DISTINCT seq_id) FROM logits JOIN arms USING(arm_id) GROUP BY 1")" \
    "batch|prefill|12|2
step|decode|12|2"
run "$neartie" verdict small.db two.db --a=prefill --b=batch
is "unrelated logs do not join" "$status" 4

bad() { # NAME SED-SCRIPT
    sed "$2" small.log >"$1.log"
    run "$neartie" import seed-log -o bad.db "$1.log"
    is "$1: one line that names the file, exit 1, no file" \
        "$status $(wc -l <err) $(grep -c "$1.log: " err) $(ls bad.db* 2>/dev/null)" "1 1 1 "
}
bad missing-row 5,7d
bad row-again '6p'
bad window 's/window=6/window=7/'
bad window-zero 's/window=6/window=0/'
bad tokens 's/T=40/T=39/'
bad tokens-huge 's/T=40/T=99999999999999999999/'
bad no-heading '/^pos/d'
bad word 's/0.0415 /abc /'
bad column 's/yes$//'
bad id-negative 's/ 4417 / -417 /'
bad id-huge 's/ 4417 / 99999999999 /g'
bad margin-negative 's/0.3110 /-0.3110 /'
bad margin-infinite 's/5.2348 /inf /'
bad margin-huge 's/5.2348 /1e300 /'
bad difference-nan 's/0.0865 /nan /'
bad difference-small 's/0.0574 /0.0174 /'
bad agree 's/0.0415         yes/0.0415         NO/'
bad flips 's/5.6 (1 flip/6\/6 (0 flip/'
bad no-end '/^agreement/d'
bad no-head 1,2d
bad long "3s/\$/$(head -c 5000 /dev/zero | tr '\0' x)/"
bad control "s/0.0415 /\\x1b[31m /"
is "no control character reaches the terminal" "$(LC_ALL=C grep -c '[[:cntrl:]]' err)" 0
run "$neartie" import seed-log -o bad.db missing.log
is "a file that is missing" "$status $(wc -l <err)" "1 1"
sed 's/FAST=1/FAST=2/' small.log >fast.log
run "$neartie" import seed-log -o bad.db small.log fast.log
is "logs of other settings are not one run" "$status $(grep -c 'FAST=1.*FAST=2' err) $(ls bad.db* 2>/dev/null)" "1 1 "
sed 's/^36 .*0.0894/36       310           NaN       310          5.1486       NaN/' small.log >nan.log
run "$neartie" import seed-log -o nan.db nan.log
run "$neartie" verdict nan.db --class=precision
is "a margin of NaN is a defect" "$status" 3

end=$(grep -b -m1 '^VERDICT-INPUT' small.log | cut -d: -f1) failed=0 n=0
for at in $(seq 0 5 $((end - 1))); do
    head -c "$at" small.log >cut.log
    run "$neartie" import seed-log -o bad.db cut.log
    n=$((n + 1))
    [ "$status $(wc -l <err) $(grep -c cut.log err) $(ls bad.db* 2>/dev/null)" = "1 1 1 " ] || failed=$((failed + 1))
done
is "no log that is cut passes" "$failed $((n > 200))" "0 1"

logs=$NEARTIE_SHARED/cases/probe-logs
if [ -n "$NEARTIE_SHARED" ] && [ -d "$logs" ]; then
    for log in "$logs"/*.log; do
        check "$log" "$(basename "$log" .log)"
    done
else
    skip "logs of the tool itself" "the shared recordings are not here"
fi
done_testing
