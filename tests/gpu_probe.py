"""Rows in device memory through the preloaded probe: what run.db holds against a sort on the host.

usage: gpu_probe.py LIBPROBE [graph]   (TAP on stdout; needs PyTorch and a GPU)

Runs itself with the library preloaded; the child declares two arms, hands over rows of several
types and widths from two streams, replays graphs that were captured with the hook in them, and times the
hook beside a step of matrix products. graph: the graphs alone.
"""
import ctypes
import json
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

DTYPES = ("float32", "float16", "bfloat16")
REPLAYS, GRAPH_SHAPE = {"steps": 100, "rush": 1000}, (3, 8000)
SLOTS = 2048 // GRAPH_SHAPE[0]  # replays of which a node keeps the results
CASES = [(d, rows, n) for d in range(3) for rows in (1, 3, 64, 300) for n in (1000, 151936)] + [(0, 1500, 2000)]


class Row(ctypes.Structure):
    _fields_ = [("context_hash", ctypes.c_uint64), ("seq", ctypes.c_int64), ("pos", ctypes.c_int64),
                ("input_token", ctypes.c_int32), ("batch_row", ctypes.c_int32)]


class Logits(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("location", ctypes.c_int32), ("dtype", ctypes.c_int32),
                ("n_rows", ctypes.c_int32), ("n_vocab", ctypes.c_int32), ("row_stride", ctypes.c_int64),
                ("data", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("rows", ctypes.POINTER(Row))]


class Forward(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("arm", ctypes.c_int32), ("n_tokens", ctypes.c_int32),
                ("n_seqs", ctypes.c_int32), ("n_past", ctypes.c_int64), ("ubatch_index", ctypes.c_int32),
                ("n_ubatch", ctypes.c_int32)]


F = ctypes.CFUNCTYPE


class Ops(ctypes.Structure):
    _fields_ = [("abi_version", ctypes.c_uint32), ("struct_size", ctypes.c_uint32),
                ("run_setting", F(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)),
                ("arm", F(ctypes.c_int32, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)),
                ("sequence", ctypes.c_void_p), ("context_hash", ctypes.c_void_p),
                ("forward_begin", F(ctypes.c_uint64, ctypes.POINTER(Forward))),
                ("logits", F(None, ctypes.c_uint64, ctypes.POINTER(Logits))),
                ("forward_end", F(None, ctypes.c_uint64))]


def make_rows(case, arm, torch):
    dtype, rows, n = case
    g = torch.Generator(device="cuda").manual_seed(hash(case) % 10007)
    x = torch.randn(rows, n, device="cuda", generator=g) * 3
    if arm:
        x += torch.randn(rows, n, device="cuda", generator=g) * .05
    x[0, n // 2] = float("nan") if rows > 1 else 1.0
    x[-1, :n // 3] = float("-inf")
    return x.to(getattr(torch, DTYPES[dtype]))


def replay(ops, record, torch):
    """Capture a gather and the hook into graphs; replay one in steps and one in a rush."""
    src = torch.randn(max(REPLAYS.values()), *GRAPH_SHAPE, device="cuda")
    at = torch.zeros(1, dtype=torch.int64, device="cuda")
    for label, phase in ((b"steps", 1), (b"rush", 1)):
        arm = ops.arm(label, phase, b"reassoc")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = src.index_select(0, at)[0]
            record(x, arm, 50, 0)
            at += 1
        for i in range(REPLAYS[label.decode()]):
            at.fill_(i)
            graph.replay()
            if label == b"steps" and i % 10 == 9:
                torch.cuda.synchronize()
                time.sleep(.03)
        torch.cuda.synchronize()
        time.sleep(.3)
    return src.cpu().numpy()


def child(out, everything):
    import torch
    lib = ctypes.CDLL(None)
    lib.probe_abi_v1.restype = ctypes.POINTER(Ops)
    ops = lib.probe_abi_v1(1).contents
    ops.run_setting(b"engine", b"gpu_probe.py", b"api")
    arms = [ops.arm(b"one", 0, b"reassoc"), ops.arm(b"two", 1, b"reassoc")]
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    saved = {}

    def record(x, arm, base_pos, case_id):
        rows, n = x.shape
        meta = (Row * rows)(*[Row(1000 + case_id, 7, base_pos + i, 1, i) for i in range(rows)])
        f = ops.forward_begin(ctypes.byref(Forward(40, arms[arm] if arm < 2 else arm, rows, 1, 0, 0, 1)))
        ops.logits(f, ctypes.byref(Logits(ctypes.sizeof(Logits), 1, DTYPES.index(str(x.dtype)[6:]), rows, n,
                                          x.stride(0), x.data_ptr(), torch.cuda.current_stream().cuda_stream, meta)))
        ops.forward_end(f)

    for arm in (0, 1):
        for i, case in enumerate(CASES if everything else []):
            with torch.cuda.stream(streams[i % 2]):
                x = make_rows(case, arm, torch)
                record(x, arm, 0, i)
            torch.cuda.synchronize()
            time.sleep(.15)
            saved[f"{arm}.{i}"] = x.float().cpu().numpy()
    saved["graph"] = replay(ops, record, torch)
    np.savez(out, **saved)
    if not everything:
        return

    # Cost: steps of about 3 ms of weights to read, a row at the end; on and off in turns.
    a = torch.randn(1, 16384, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
    head = torch.randn(4096, 151936, device="cuda", dtype=torch.bfloat16)

    def step(recording, pos, batch):
        for _ in range(20):
            a @ w
        x = torch.randn(batch, 4096, device="cuda", dtype=torch.bfloat16) @ head
        if recording:
            record(x, 0, pos, 5000 + batch)
        return x[:, 0].sum()

    cost = {}
    for batch in (1, 64):
        times = {0: [], 1: []}
        pos = 0
        for turn in range(24):
            on = turn % 2
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                step(on, pos, batch)
                pos += batch
            torch.cuda.synchronize()
            times[on].append((time.perf_counter() - start) / 50 * 1e3)
        cost[batch] = {k: float(np.median(v[1:])) for k, v in times.items()}
    print(json.dumps(cost))


def check_replays(db, src, faults):
    rows = {label: db.execute("select pos, batch_row, context_hash, topk, lse from logits join arms using (arm_id) "
                              "where label = ?", (label,)).fetchall() for label in ("steps", "rush")}
    lost = dict(db.execute("select kind, count from gaps where kind <> 'launches_outside'").fetchall())
    if len(rows["steps"]) != REPLAYS["steps"] * GRAPH_SHAPE[0]:
        faults.append(f"{len(rows['steps'])} rows of replays in steps")
    if len(rows["rush"]) + lost.pop("device_rows_dropped", 0) != REPLAYS["rush"] * GRAPH_SHAPE[0] or lost or \
            len(rows["rush"]) < SLOTS * GRAPH_SHAPE[0]:
        faults.append(f"{len(rows['rush'])} rows of replays in a rush, gaps {lost}")
    for pos, row, context, topk, lse in rows["steps"] + rows["rush"]:
        v = src[pos - 50 - row, row]
        if [e[0] for e in json.loads(topk)] != np.argsort(-v, kind="stable")[:20].tolist() or context or \
                abs(lse - np.log(np.exp(v.astype(np.float64)).sum())) > 1e-4:
            faults.append(f"replay {pos - 50 - row}, row {row}")
    return len(rows["rush"])


def check_case(db, arm, i, x, base, faults):
    case = CASES[i]
    rows = db.execute("select pos, topk, lse, n_nan, n_neginf, row_id from logits l join forwards f using (forward_id) "
                      "join arms a using (arm_id) where a.label = ? and l.context_hash = ? order by pos",
                      (("one", "two")[arm], f"{1000 + i:016x}")).fetchall()
    if len(rows) != case[1]:
        faults.append(f"{case} arm {arm}: {len(rows)} rows recorded")
        return
    for pos, topk, lse, n_nan, n_neginf, row_id in rows:
        v = x[pos]
        order = np.argsort(-v, kind="stable")
        ids = order[~np.isnan(v[order])][:20]
        got = json.loads(topk)
        if [e[0] for e in got] != ids.tolist() or \
                [np.float32(e[1]) for e in got if e[1] is not None] != [y for y in v[ids] if np.isfinite(y)]:
            faults.append(f"{case} arm {arm} row {pos}: top-k")
        if n_nan != np.isnan(v).sum() or n_neginf != np.isneginf(v).sum():
            faults.append(f"{case} arm {arm} row {pos}: counts")
        if arm:
            deltas = db.execute("select token, logit, base_logit from deltas where row_id = ? and bound = 0", (row_id,)).fetchall()
            w = base[pos]
            top = np.argsort(-w, kind="stable")
            top = top[~np.isnan(w[top])][:20]
            finite = {int(t) for t in top if np.isfinite(v[t]) and np.isfinite(w[t])}
            if not finite <= {d[0] for d in deltas} or \
                    any(np.float32(d[1]) != v[d[0]] or np.float32(d[2]) != w[d[0]] for d in deltas if d[0] in finite):
                faults.append(f"{case} row {pos}: deltas {len(deltas)}")


def main():
    lib, everything = os.path.abspath(sys.argv[1]), len(sys.argv) < 3
    with tempfile.TemporaryDirectory() as tmp:
        db_path, npz = f"{tmp}/run.db", f"{tmp}/x.npz"
        env = dict(os.environ, LD_PRELOAD=lib, PROBE_DB=db_path)
        done = subprocess.run([sys.executable, __file__, "--child", npz, *sys.argv[2:]], env=env, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, "not ok 1 - the child runs", "1..1", sep="\n")
            return 1
        db = sqlite3.connect(db_path)
        x = np.load(npz)
        faults = []
        for arm in (0, 1):
            for i in range(len(CASES) if everything else 0):
                check_case(db, arm, i, x[f"{arm}.{i}"], x[f"0.{i}"], faults)
        print("not ok" if faults else "ok", "1 - rows and deltas in the record equal the tensors")
        for f in faults[:20]:
            print("#", f)
        broken, faults = bool(faults), []
        n_rush = check_replays(db, x["graph"], faults)
        print("not ok" if faults else "ok", "2 - every replay of a graph brings its rows")
        for f in faults[:20]:
            print("#", f)
        print(f"# {n_rush} of {REPLAYS["rush"] * GRAPH_SHAPE[0]} rows of replays in a rush")
        broken |= bool(faults)
        state = db.execute("select state from runs").fetchall()
        gaps = db.execute("select kind, count, detail from gaps where kind <> 'launches_outside'").fetchall()
        good = state == [("closed",)] and all(g[0] == "device_rows_dropped" for g in gaps)
        print("ok" if good else "not ok", f"3 - the run is closed and nothing is missing")
        if not good:
            print("#", state, gaps)
        print("#", done.stderr.strip().replace("\n", "\n# "))
        for batch, t in json.loads(done.stdout.splitlines()[-1]).items() if everything else ():
            off, on = t["0"], t["1"]
            print(f"# batch {batch}: step {off:.3f} ms without, {on:.3f} ms with the probe: {100 * (on / off - 1):+.2f} %")
        print("1..3")
        return broken or not good


if __name__ == "__main__":
    sys.exit(child(sys.argv[2], len(sys.argv) < 4) if sys.argv[1] == "--child" else main())
