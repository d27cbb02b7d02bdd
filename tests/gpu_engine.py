"""Our engine under the probe: what run.db holds against what the engine itself says of its logits.

usage: gpu_engine.py ENGINE LIBPROBE MODEL...   (TAP on stdout; NEARTIE_DEVICE chooses the device)

The engine scores eight sequences, in a prefill and in batches of one, of eight, and of eight without
a graph; its table says of each token the log-probability, the first choice and its distance.
"""
import csv
import io
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile

ARMS, N_SEQS, LENGTH = ("prefill", "decode"), 8, 24


def tokens(n_vocab):
    rng = random.Random(1)
    return [[rng.randrange(3, n_vocab - 3) for _ in range(LENGTH)] for _ in range(N_SEQS)]


def score(engine, probe, model, folder, batch, graph, n_vocab):
    with open(f"{folder}/ids", "w") as f:
        f.writelines(" ".join(map(str, row)) + "\n" for row in tokens(n_vocab))
    db_path = f"{folder}/{batch}-{graph}.db"
    env = dict(os.environ, LD_PRELOAD=probe, PROBE_DB=db_path, NEARTIE_GRAPH=str(graph))
    out = subprocess.run([engine, "score", model, "--tokens", f"{folder}/ids", "--arms", ",".join(ARMS), "--per-token",
                          "--batch", str(batch), "--format", "csv"], env=env, capture_output=True, text=True, check=True)
    print("#", out.stderr.strip().replace("\n", "\n# "))
    return list(csv.DictReader(io.StringIO(out.stdout))), sqlite3.connect(db_path)


def compare(said, db, faults):
    rows = {(label, seq, pos): rest for label, seq, pos, *rest in db.execute(
        "select label, s.seq, pos, top1, top1_logit, lse, topk, context_hash from logits join arms using (arm_id) "
        "join (select seq_id, seq from sequences) s using (seq_id)")}
    n = db.execute("select count(*) from logits").fetchone()[0]
    gaps = db.execute("select kind, count, detail from gaps").fetchall()
    if n != len(rows) or gaps:
        faults.append(f"{n} rows, {len(rows)} of them different, gaps {gaps}")
    seqs = {arm: sorted({k[1] for k in rows if k[0] == arm}) for arm in ARMS}
    for r in said:
        arm, pos, token = r["arm"], int(r["pos"]), int(r["token"])
        got = rows.get((arm, seqs[arm][int(r["sequence"])], pos))
        if got is None:
            faults.append(f"{r}: no row")
            continue
        top1, top1_logit, lse, topk, context = got
        logit = dict(json.loads(topk)).get(token)
        if top1 != int(r["top1"]) or context is None or \
                abs(top1_logit - float(r["margin"]) - lse - float(r["logprob"])) > 2e-4 or \
                (logit is not None and abs(logit - lse - float(r["logprob"])) > 1e-4):
            faults.append(f"{r}: recorded {got}")
    pairs = db.execute("select count(*), count(distinct d.row_id), sum(p.input_token = d.input_token) from logits p "
                       "join arms a on a.arm_id = p.arm_id join logits d using (context_hash, pos) "
                       "join arms b on b.arm_id = d.arm_id where a.phase = 'prefill' and b.phase = 'decode'").fetchone()
    if pairs != (N_SEQS * LENGTH,) * 3:
        faults.append(f"{pairs} rows of one context in both arms")
    wrong = db.execute("select count(*) from deltas d join logits l using (row_id) join json_each(l.topk) t "
                       "where t.value ->> 0 = d.token and abs(t.value ->> 1 - d.logit) > 1e-5").fetchone()[0]
    n_deltas = db.execute("select count(distinct row_id) from deltas").fetchone()[0]
    # On a GPU a row becomes a baseline when its results have arrived: these steps are faster.
    if wrong or (n_deltas != N_SEQS * LENGTH and os.environ.get("NEARTIE_DEVICE") == "cpu"):
        faults.append(f"deltas of {n_deltas} rows, {wrong} of another logit than the row's list")
    return n, n_deltas


def main():
    engine, probe = (os.path.abspath(p) for p in sys.argv[1:3])
    failed = n_tests = 0
    for model in sys.argv[3:]:
        info = subprocess.run([engine, "info", model], capture_output=True, text=True, check=True).stdout
        n_vocab = int(next(line.split()[1].replace(",", "") for line in info.splitlines() if line.startswith("vocab")))
        for batch, graph in ((1, 1), (8, 1), (8, 0)):
            faults = []
            with tempfile.TemporaryDirectory() as folder:
                n, n_deltas = compare(*score(engine, probe, model, folder, batch, graph, n_vocab), faults)
            n_tests += 1
            failed += bool(faults)
            print("not ok" if faults else "ok", n_tests, f"- {os.path.basename(model)}, batch {batch}, graph {graph}: "
                  f"{n} rows say what the engine says, {n_deltas} with deltas")
            for f in faults[:10]:
                print("#", f)
    print(f"1..{n_tests}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
