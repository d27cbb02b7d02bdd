#!/bin/sh
# neartie replay: recorded contexts run again under other settings, into the same file.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
model="$data/tiny-qwen3-q8_0.gguf"
failure() { # COMMAND...
    run "$@"
    printf '%s %s' "$status" "$(head -1 err)"
}

head -c 150 "$data/prompt.txt" >prompt.txt
run "$neartie" gate -o run.db "$model" prompt.txt
rows=$(sqlite3 run.db 'SELECT count(*) FROM logits WHERE arm_id = 1')

run "$neartie" replay run.db --arm prefill:FAST=0:REF=1 --arm decode --format csv
is "each arm runs every context; all of the old arm's rows are comparable" \
    "$status $(sed 1d out | sed 's/"//g' | cut -d, -f1-3,5,6 | tr '\n' ' ')" \
    "0 2,3,prefill:FAST=0:REF=1,$rows,1 2,4,decode,$rows,1 "
is "an arm under its old settings gives its old rows, bit for bit" \
    "$(sqlite3 run.db 'SELECT count(*) > 9, count(*) - sum(a.topk = b.topk AND a.lse = b.lse)
        FROM logits a JOIN logits b USING (context_hash, pos) WHERE a.arm_id = 2 AND b.arm_id = 4')" \
    "1|0"
is "the same arm again did not engage" \
    "$("$neartie" verdict run.db --a 2 --b 4 | sed 's/:.*//;q')" "NOT-ENGAGED"
is "nothing of it was lost" "$("$neartie" runs run.db --format csv | sed 's/.*,//' | tail -1)" 0
run "$neartie" verdict run.db --a 1 --b 2 --reference prefill:FAST=0:REF=1
is "the float64 reference tells no side of two sound arms" \
    "$(sed -n 's/^reference.*: //p' out)" "neither is worse"
run "$neartie" replay run.db --of 2 --arm prefill:FAST=0 --arm decode:KV=q8_0
is "another arm's contexts" "$status $(wc -l <out)" "0 3"
run "$neartie" verdict run.db --a prefill:FAST=0 --b prefill --reference prefill:FAST=0:REF=1
is "8-bit activations are further from the reference than none" \
    "$(sed -n 's/^reference.*: //p' out)" "B is worse"
run "$neartie" verdict run.db --a prefill --b prefill:FAST=0 --reference prefill:FAST=0:REF=1
is "and whichever side they are on" "$(sed -n 's/^reference.*: //p' out)" "A is worse"

# --- what it refuses ---
is "no settings" "$(failure "$neartie" replay run.db | cut -d\; -f1)" \
    "2 neartie replay: under which settings? --arm decode:FAST=0, for instance"
is "an unknown knob is the engine's to refuse" \
    "$(failure "$neartie" replay run.db --arm decode:ODD=1 | cut -c1-16)" "1 neartie-engine"
is "an unknown arm" "$(failure "$neartie" replay run.db --arm decode --of odd)" \
    "1 neartie: run.db: no arm is named odd"
sqlite3 run.db "UPDATE runs SET model_path = 'gone.gguf'"
is "the model is gone" "$(failure "$neartie" replay run.db --arm decode)" \
    "1 neartie: gone.gguf: No such file or directory; give --model"
ok "the model is given" "$neartie" replay run.db --arm decode --model "$model"
sqlite3 run.db "UPDATE logits SET input_token = NULL WHERE pos = 3"
run "$neartie" replay run.db --arm decode --of 2 --model "$model"
is "a sequence with a token that is not recorded" "$status $(sed 's/, decode//' err | tr '\n' ' ')" \
    "1 neartie: run.db: 1 of 1 sequences left out: not all of their tokens are recorded \
neartie: run.db: arm 2: no sequence of which every token is recorded "
done_testing
