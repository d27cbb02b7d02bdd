#!/bin/sh
# neartie import: what another program left becomes a record, whole or not at all.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
command -v python3 >/dev/null || {
    skip "import" "python3 is not installed: it writes the files"
    done_testing
}

# Write files in the .npy format as documented, by the standard library alone.
cat >write.py <<'EOT'
import os, random, struct, sys

def npy(path, rows, kind="f", version=1, dims=None):
    dims = dims or (len(rows), len(rows[0]))
    text = "{'descr': '<%s%d', 'fortran_order': False, 'shape': (%s,), }\n" % (
        {"f": "f", "e": "f", "H": "u"}.get(kind, "i"), struct.calcsize("<" + kind),
        ", ".join(map(str, dims)))
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY" + bytes([version, 0]) + size + text.encode())
        for row in rows:
            f.write(struct.pack("<%d%s" % (len(row), kind), *row))

rng = random.Random(5)
a = [[rng.gauss(0, 3) for _ in range(300)] for _ in range(40)]
b = [[x + rng.gauss(0, 0.01) for x in row] for row in a]
npy("a.npy", a)
npy("b.npy", b, version=2)
npy("half.npy", a, "e")
npy("short.npy", a[:39])
broken = [list(row) for row in a]
broken[7][5] = float("nan")
broken[9][6] = float("inf")
npy("nan.npy", broken)
npy("huge.npy", a, dims=(2**62, 300))
npy("wide.npy", a, dims=(1, 2**40))
npy("cube.npy", a, dims=(10, 4, 300))
ids = [rng.randrange(300) for _ in range(50)]
npy("ids.npy", [ids], "q", dims=(50,))
npy("ids32.npy", [ids], "i")
npy("pairs.npy", [ids[:25], ids[25:]], "H")
npy("three.npy", [[1, 2, 3]], "i")
npy("row.npy", a[:1])
npy("few.npy", [ids[:39]], "i", dims=(39,))
npy("beyond.npy", [ids[:39] + [300]], "i")
npy("negative.npy", [[-1] + ids[:39]], "q")
npy("odd.npy", [ids[:40]] * 3, "i")
with open("want.txt", "w") as f:
    for row in a:
        row = list(struct.unpack("<300f", struct.pack("<300f", *row)))
        ids = sorted(range(300), key=lambda i: (-row[i], i))[:32]
        f.write(",".join("%d=%r" % (i, row[i]) for i in ids) + "\n")
whole = open("a.npy", "rb").read()
os.mkdir("cut")
for n in list(range(0, 130)) + [len(whole) - 1, len(whole) + 1]:
    open("cut/%d.npy" % n, "wb").write((whole + b"\0")[:n])
whole = open("ids.npy", "rb").read()
os.mkdir("cut_ids")
for n in range(0, len(whole), 7):
    open("cut_ids/%d.npy" % n, "wb").write(whole[:n])
EOT
python3 write.py || exit 99

ok "two files become a record" "$neartie" import npy -o run.db a.npy b.npy --arm old --arm new --class precision
is "every row of both arms is in it" \
    "$(sqlite3 run.db 'SELECT a.label, count(*) FROM logits JOIN arms a USING(arm_id) GROUP BY 1')" "new|40
old|40"
python3 - >got.txt <<'EOT'
import json, sqlite3, struct
for (topk,) in sqlite3.connect("run.db").execute(
        "SELECT topk FROM logits WHERE arm_id = 1 ORDER BY pos"):
    print(",".join("%d=%r" % (i, struct.unpack("<f", struct.pack("<f", x))[0])
                   for i, x in json.loads(topk)))
EOT
ok "the recorded lists are the sorted logits, bit for bit" cmp got.txt want.txt
is "differences are exact at the first arm's top ids" \
    "$(sqlite3 run.db 'SELECT count(*) FROM deltas WHERE bound = 0')" $((40 * 32))
is "what is unknown is said" "$(sqlite3 run.db "SELECT count(*) FROM gaps WHERE kind = 'import'")" 1
run "$neartie" verdict run.db
is "a small difference is no defect" "$status" 0
ok "the same rows again" "$neartie" import npy -o same.db a.npy a.npy --class bitwise
run "$neartie" verdict same.db
is "bit-equal rows are no defect" "$(grep -c CONTRACT out)" 0
ok "f16 against f32" "$neartie" import npy -o half.db a.npy half.npy
is "the type is recorded" "$(sqlite3 half.db 'SELECT DISTINCT dtype FROM logits ORDER BY 1')" "f16
f32"
ok "NaN and infinity are rows as any" "$neartie" import npy -o nan.db a.npy nan.npy
is "they are counted, with the first column" \
    "$(sqlite3 nan.db 'SELECT pos, n_nan, n_posinf, first_bad FROM logits WHERE first_bad IS NOT NULL ORDER BY pos')" \
    "7|1|0|5
9|0|1|6"
run "$neartie" verdict nan.db
is "and are a defect" "$status" 3

run "$neartie" verdict run.db same.db --a=old --b=b
is "rows of unknown tokens do not join another import" "$status" 4
ok "one file with a key" "$neartie" import npy -o one.db --key=prompts-1 a.npy
ok "another with the same key" "$neartie" import npy -o two.db --key=prompts-1 b.npy
run "$neartie" verdict one.db two.db --a=a --b=a --class=precision
is "they join" "$status $(grep -c '40 positions of 1 sequence' out)" "0 1"
run "$neartie" import npy -o bad.db a.npy
is "one file without a key or tokens is wrong usage" "$status $(ls bad.db* 2>/dev/null)" "2 "

# The context hash of the ids 1, 2, 3 is pinned by its own test too.
ok "ids as they are known" "$neartie" import npy -o three.db --tokens three.npy row.npy
is "the context is the hash of all tokens, the row that of the last one" \
    "$(sqlite3 three.db 'SELECT context_hash, pos, input_token FROM logits')" "2a539e45f600a866|2|3"
ok "the rows of the last tokens" "$neartie" import npy -o ids.db --tokens ids.npy a.npy b.npy
is "they stand at the end" \
    "$(sqlite3 ids.db 'SELECT min(pos), max(pos), count(DISTINCT context_hash) FROM logits')" "10|49|40"
ok "ids of another width" "$neartie" import npy -o ids32.db --tokens ids32.npy a.npy
run "$neartie" verdict ids32.db ids.db --a=a --b=b --class=precision
is "records of the same tokens join" "$status $(grep -c '40 positions of 1 sequence' out)" "0 1"
ok "sequences of tokens" "$neartie" import npy -o pairs.db --tokens pairs.npy a.npy
is "each begins anew" \
    "$(sqlite3 pairs.db 'SELECT seq, min(pos), count(DISTINCT context_hash) FROM logits
                         JOIN sequences USING(seq_id) GROUP BY 1')" "0|5|20
1|5|20"
for bad in few beyond negative odd a missing; do
    run "$neartie" import npy -o bad.db --tokens $bad.npy a.npy
    is "$bad.npy as tokens: one line on stderr, exit 1, no file" \
        "$status $(wc -l <err) $(ls bad.db* 2>/dev/null) $(grep -c "$bad.npy" err)" "1 1  1"
done
failed=0
for cut in cut_ids/*.npy; do
    run "$neartie" import npy -o bad.db --tokens "$cut" a.npy
    [ "$status $(wc -l <err) $(ls bad.db* 2>/dev/null)" = "1 1 " ] || failed=$((failed + 1))
done
is "no cut file of tokens is taken for a whole one" "$failed" 0

echo "no matrix" >text.npy
for bad in short huge wide cube text missing; do
    run "$neartie" import npy -o bad.db a.npy $bad.npy
    is "$bad.npy: one line on stderr, exit 1, no file" \
        "$status $(wc -l <err) $(ls bad.db* 2>/dev/null)" "1 1 "
    is "$bad.npy is named" "$(grep -c "$bad.npy" err)" 1
done
failed=0
for cut in cut/*.npy; do
    run "$neartie" import npy -o bad.db "$cut" b.npy
    [ "$status $(wc -l <err) $(ls bad.db* 2>/dev/null)" = "1 1 " ] || failed=$((failed + 1))
done
is "no cut file is taken for a whole one" "$failed of $(find cut -name '*.npy' | wc -l)" "0 of 132"
cp run.db before.db
run "$neartie" import npy -o run.db a.npy short.npy
ok "a file that exists stays as it is after an error" cmp run.db before.db
echo "not a database" >other.db
run "$neartie" import npy -o other.db a.npy b.npy
is "another file is refused and kept" "$status $(cat other.db)" "1 not a database"
run "$neartie" import csv -o bad.db a.npy b.npy
is "an unknown kind is wrong usage" "$status" 2

cases=$NEARTIE_SHARED/cases/logits
if [ -n "$NEARTIE_SHARED" ] && [ -d "$cases" ]; then
    python3 - "$cases" <<'EOT'
import sys
for name, path in ("floor", "logits-floor.bin"), ("mmq", "logits-mmq.bin"):
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (151936,), }\n"
    open(name + ".npy", "wb").write(
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text +
        open(sys.argv[1] + "/" + path, "rb").read())
EOT
    ok "a recorded case" "$neartie" import npy -o case.db floor.npy mmq.npy --class precision
    run "$neartie" verdict case.db
    is "it is no defect" "$status" 0
else
    skip "a recorded case" "the shared recordings are not here"
fi
trained=$NEARTIE_SHARED/models/trained
if [ -z "$NEARTIE_SHARED" ] || [ ! -d "$trained" ]; then
    skip "logits of PyTorch against the engine's" "the shared recordings are not here"
elif [ "$SANITIZE" != no ]; then
    skip "logits of PyTorch against the engine's" "a sanitizer's library must come first in LD_PRELOAD"
elif "$engine" info "$trained/tiny-qwen3-f32.gguf" | grep -q 'hooks.*not compiled in'; then
    skip "logits of PyTorch against the engine's" "the engine is built with --disable-hooks"
else
    python3 - "$trained/tiny-qwen3.pytorch.json" <<'EOT'
import json, struct, sys
ids = json.load(open(sys.argv[1]))["ids"]
text = b"{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }\n" % len(ids)
open("torch.npy", "wb").write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text +
                              struct.pack("<%di" % len(ids), *ids))
EOT
    ok "logits of PyTorch" "$neartie" import npy -o torch.db --arm pytorch --tokens torch.npy \
        "$trained/tiny-qwen3.pytorch-last64.npy"
    run "$neartie" gate -o engine.db "$trained/tiny-qwen3-f32.gguf" "$trained/tiny-qwen3.prompt.txt"
    run "$neartie" verdict torch.db engine.db --a=pytorch --b=decode --class=engine
    is "they join the engine's by their tokens, and are no defect" \
        "$status $(grep -c ': 64 positions of 1 sequence' out)" "0 1"
fi
done_testing
