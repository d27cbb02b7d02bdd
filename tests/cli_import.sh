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
    text = "{'descr': '<f%d', 'fortran_order': False, 'shape': (%s,), }\n" % (
        struct.calcsize(kind), ", ".join(map(str, dims)))
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
with open("want.txt", "w") as f:
    for row in a:
        row = list(struct.unpack("<300f", struct.pack("<300f", *row)))
        ids = sorted(range(300), key=lambda i: (-row[i], i))[:32]
        f.write(",".join("%d=%r" % (i, row[i]) for i in ids) + "\n")
whole = open("a.npy", "rb").read()
os.mkdir("cut")
for n in list(range(0, 130)) + [len(whole) - 1, len(whole) + 1]:
    open("cut/%d.npy" % n, "wb").write((whole + b"\0")[:n])
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
done_testing
