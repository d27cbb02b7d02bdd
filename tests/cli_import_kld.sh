#!/bin/sh
# neartie import kld: files of llama-perplexity --kl-divergence-base become a record, whole or not
# at all. The files are written here, to the form that the tool's source describes.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
command -v python3 >/dev/null || {
    skip "import kld" "python3 is not installed: it writes the files"
    done_testing
}

cat >kldfile.py <<'EOT'
import array, math, struct

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]

def row(logits):
    """One row as the tool writes it: step, least value, then 16 bits a value."""
    top = max(logits)
    least = f32(max(min(logits), f32(top - 16)))
    lse = f32(math.log(sum(math.exp(x - top) for x in logits)))
    step = f32(f32(top - least) / f32(65535))
    values = [round((x - least) / step) if x > least else 0 for x in logits]
    if len(values) % 2:
        values.append(12345)  # padding, of any value
    return struct.pack("<ff", step, f32(f32(least - top) - lse)) + array.array("H", values).tobytes()

def write(path, n_ctx, n_vocab, tokens, rows, head=None):
    with open(path, "wb") as f:
        f.write(b"_logits_" + struct.pack("<iii", *(head or (n_ctx, n_vocab, len(tokens) // n_ctx))))
        f.write(struct.pack("<%di" % len(tokens), *tokens))
        for r in rows:
            f.write(r if isinstance(r, bytes) else row(r))
EOT
cat >write.py <<'EOT'
import math, os, random, struct
from kldfile import f32, row, write

C, V, N = 16, 301, 5  # an odd vocabulary: rows are padded
FIRST = C // 2
rng = random.Random(3)
tokens = [rng.randrange(V) for _ in range(C * N)]
a = [[f32(rng.gauss(0, 3)) for _ in range(V)] for _ in range(N * (C - 1 - FIRST))]
b = [[f32(x + rng.gauss(0, 0.02)) for x in r] for r in a]
a[4][7] = b[4][7] = 30.0  # so far above the rest that these are clipped
write("a.kld", C, V, tokens, a)
write("b.kld", C, V, tokens, b)
write("other.kld", C, V, [tokens[0] ^ 1] + tokens[1:], b)
write("short.kld", C, V, tokens[:C * 2], a[:2 * (C - 1 - FIRST)])
broken = [row(r) for r in b]
broken[9] = struct.pack("<f", float("nan")) + broken[9][4:]
write("nan.kld", C, V, tokens, broken)
for name, value in ("step", -1.0), ("least", 5.0):
    broken = [row(r) for r in b]
    broken[9] = broken[9][:4 * (name == "least")] + struct.pack("<f", value) + broken[9][4 + 4 * (name == "least"):]
    write(name + ".kld", C, V, tokens, broken)
write("token.kld", C, V, tokens[:3] + [V] + tokens[4:], b)
for name, head in ("ctx", (2**31 - 1, V, N)), ("vocab", (C, 2**31 - 1, N)), ("chunks", (C, V, 2**24)), \
        ("minus", (C, V, -1)), ("zero", (0, V, N)), ("swapped", (V, C, N)):
    write(name + ".kld", C, V, tokens, b, head)
with open("want.txt", "w") as f:
    for n, r in enumerate(a):
        order = sorted(range(V), key=lambda i: (-r[i], i))
        f.write("%d %d %d %.6f\n" % (n // (C - 1 - FIRST), FIRST + n % (C - 1 - FIRST), order[0],
                                     min(r[order[0]] - r[order[1]], 16)))
whole = open("a.kld", "rb").read()
os.mkdir("cut")
for n in list(range(0, 400, 3)) + list(range(400, len(whole), 211)) + [len(whole) - 1, len(whole) + 1]:
    open("cut/%d.kld" % n, "wb").write((whole + b"\0")[:n])
EOT
python3 write.py || exit 99

ok "two files become a record" "$neartie" import kld -o run.db a.kld b.kld --arm f16 --arm q8 --class precision
is "every row of both arms is in it" \
    "$(sqlite3 run.db 'SELECT a.label, a.phase, count(*) FROM logits JOIN arms a USING(arm_id) GROUP BY 1')" \
    "f16|prefill|35
q8|prefill|35"
sqlite3 -separator ' ' run.db "SELECT seq, pos, top1, margin FROM logits
    JOIN sequences USING(seq_id) WHERE arm_id = 1 ORDER BY seq, pos" >got.txt
is "places and best ids are what they are, margins within a step, the clipped one 16" \
    "$(paste -d' ' got.txt want.txt | awk '{ d = $4 - $8; n += $1 == $5 && $2 == $6 && $3 == $7 && d < 0.000245 && d > -0.000245 }
                                           $4 == 16 { clipped++ } END { print n, clipped }')" "35 1"
is "log-probabilities add up" \
    "$(sqlite3 run.db 'SELECT count(*) FROM logits WHERE abs(lse) < 0.001')" 70
is "differences are exact at the first arm's top ids" \
    "$(sqlite3 run.db 'SELECT count(*) FROM deltas WHERE bound = 0')" $((35 * 32))
is "step and clipping are declared" \
    "$(sqlite3 run.db "SELECT round(value * 1e4, 2) FROM settings WHERE name = 'kld_step';
                       SELECT kind, count FROM gaps ORDER BY 1")" "2.44
import|70
import_clipped|$(python3 - <<'EOT'
import struct
n = 0
for path in "a.kld", "b.kld":
    data = open(path, "rb").read()[20 + 4 * 16 * 5:]
    for at in range(0, len(data), 2 * (302 + 4)):
        n += struct.unpack_from("<f", data, at)[0] * 65535 > 15.999
print(n)
EOT
)"
run "$neartie" verdict run.db
is "noise is no defect" "$status" 0
ok "an arm alone" "$neartie" import kld -o one.db a.kld
ok "another" "$neartie" import kld -o two.db b.kld
run "$neartie" verdict one.db two.db --a=a --b=a --class=precision
is "they join by their tokens" "$status $(grep -c '35 positions of 5 sequences' out)" "0 1"
ok "the same rows again" "$neartie" import kld -o same.db a.kld a.kld --class bitwise
run "$neartie" verdict same.db
is "equal rows are no defect" "$(grep -c CONTRACT out)" 0
ok "a row of NaN" "$neartie" import kld -o nan.db a.kld nan.kld
is "is counted" "$(sqlite3 nan.db 'SELECT n_nan, first_bad FROM logits WHERE n_nan')" "301|0"
run "$neartie" verdict nan.db
is "and is a defect" "$status" 3

head -c 3000 /dev/zero >text.kld
for bad in other short step least token ctx vocab chunks minus zero swapped text missing; do
    run "$neartie" import kld -o bad.db a.kld $bad.kld
    is "$bad.kld: one line that names it, exit 1, no file" \
        "$status $(wc -l <err) $(grep -c $bad.kld err) $(ls bad.db* 2>/dev/null)" "1 1 1 "
done
run "$neartie" import kld -o bad.db a.kld other.kld
is "the first token that differs is named with both" "$(grep -c 'token 0 is [0-9]* and [0-9]*:' err)" 1
failed=0
for cut in cut/*.kld; do
    run "$neartie" import kld -o bad.db "$cut" b.kld
    [ "$status $(wc -l <err) $(grep -c "$cut" err) $(ls bad.db* 2>/dev/null)" = "1 1 1 " ] || failed=$((failed + 1))
done
is "no cut file is taken for a whole one" "$failed" 0
cp run.db before.db
run "$neartie" import kld -o run.db a.kld token.kld
ok "a file that exists stays as it is after an error" cmp run.db before.db

# Logits that llama.cpp computed, in the tool's form, against the same as floats.
ref=$NEARTIE_SHARED/ref
if [ -n "$NEARTIE_SHARED" ] && [ -d "$ref" ]; then
    python3 - "$ref/stories260K-f32.default" <<'EOT'
import array, json, struct, sys
from kldfile import write
about = json.load(open(sys.argv[1] + ".json"))
ids, n, v = about["tokens"], about["n_tokens"], about["n_vocab"]
def npy(path, kind, dims, data):
    text = "{'descr': '<%s4', 'fortran_order': False, 'shape': %r, }\n" % (kind, dims)
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)
npy("ids.npy", "i", (n - 1,), struct.pack("<%di" % (n - 1), *ids[:n - 1]))
for arm in "prefill", "decode":
    x = array.array("f", open("%s.%s.f32" % (sys.argv[1], arm), "rb").read())
    rows = [list(x[p * v:(p + 1) * v]) for p in range(n // 2, n - 1)]
    write(arm + ".kld", n, v, ids, rows)
    npy(arm + ".npy", "f", (len(rows), v), array.array("f", sum(rows, [])).tobytes())
EOT
    ok "logits of llama.cpp, 16 bits" "$neartie" import kld -o ref.db prefill.kld decode.kld --class reassoc-f16
    ok "the same as floats" "$neartie" import npy -o whole.db --tokens ids.npy prefill.npy decode.npy --class reassoc-f16
    is "contexts are equal" "$(sqlite3 ref.db "ATTACH 'whole.db' AS w; SELECT count(*) FROM logits AS l
        JOIN w.logits AS m USING(context_hash, pos, arm_id, input_token)")" 62
    is "contrasts agree within two steps" "$(sqlite3 ref.db "SELECT row_a, row_b, contrast FROM pairs" >k.txt
        sqlite3 whole.db "SELECT row_a, row_b, contrast FROM pairs" >w.txt
        paste -d'|' k.txt w.txt | awk -F'|' '{ d = $3 - $6; if (d < 0) d = -d; n += $1 == $4 && d < 0.00049 } END { print n }')" 31
    run "$neartie" verdict ref.db
    is "prefill against decode is no defect" "$status" 0
else
    skip "logits of llama.cpp, 16 bits" "the shared recordings are not here"
fi
done_testing
