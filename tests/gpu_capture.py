"""The device capture kernel against a sort on the host, and beside torch.topk + torch.logsumexp.

usage: gpu_capture.py FATBIN [check|bench|sweep]...   (TAP on stdout; needs PyTorch and a GPU)
"""
import ctypes
import struct
import sys

import numpy as np
import torch

MAX_K, SPLITS = 64, 64
ROW = np.dtype([("logit", "<f4", MAX_K), ("token", "<i4", MAX_K), ("watch", "<f4", MAX_K), ("lse", "<f4"),
                ("n_nan", "<i4"), ("n_posinf", "<i4"), ("n_neginf", "<i4"), ("first_bad", "<i4"),
                ("row", "<i4"), ("launch", "<u4"), ("done", "<u4")])
PARTIALS_BYTES = (8 * MAX_K + 24) * SPLITS
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
cuda = ctypes.CDLL("libcuda.so.1")


def check(rc):
    if rc:
        raise RuntimeError(f"CUDA driver error {rc}")


class Capture:
    """The kernels of one fatbin, and the memory that launches share."""

    def __init__(self, path, max_rows):
        torch.zeros(1, device="cuda")
        self.module = ctypes.c_void_p()
        image = open(path, "rb").read()
        check(cuda.cuModuleLoadData(ctypes.byref(self.module), image))
        self.functions = {}
        for dtype, name in NAMES.items():
            f = ctypes.c_void_p()
            check(cuda.cuModuleGetFunction(ctypes.byref(f), self.module, f"probe_capture_{name}".encode()))
            self.functions[dtype] = f
        self.out = torch.zeros(max_rows * ROW.itemsize * 4, dtype=torch.uint8).pin_memory()
        self.partials = torch.zeros(max_rows * PARTIALS_BYTES, dtype=torch.uint8, device="cuda")
        self.arrived = torch.zeros(max_rows, dtype=torch.int32, device="cuda")
        self.replays = torch.zeros(max_rows, dtype=torch.int32, device="cuda")

    def launch(self, x, k, watch=None, splits=0, graph_slots=0, tag=7):
        """Launch over the rows of x (n_rows, n_vocab), any row stride, on the current stream."""
        rows, n = x.shape
        splits = splits or pick_splits(rows, n, x.element_size())
        args = struct.pack("<QqiiiIQQiiQQQ", x.data_ptr(), x.stride(0), n, k,
                           0 if watch is None else watch.shape[1], tag,
                           0 if watch is None else watch.data_ptr(), self.out.data_ptr(),
                           graph_slots or 1, 0, self.replays.data_ptr() if graph_slots else 0,
                           self.partials.data_ptr(), self.arrived.data_ptr())
        buf = ctypes.create_string_buffer(args, len(args))
        params = (ctypes.c_void_p * 1)(ctypes.cast(buf, ctypes.c_void_p))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(cuda.cuLaunchKernel(self.functions[x.dtype], splits, rows, 1, 256, 1, 1, 0, stream, params, None))

    def results(self, rows, slot=0):
        torch.cuda.synchronize()
        raw = self.out.numpy()[slot * rows * ROW.itemsize:(slot + 1) * rows * ROW.itemsize]
        return np.frombuffer(raw.tobytes(), ROW)


def pick_splits(rows, n, size):
    """Blocks a row: two for each multiprocessor in all, at least a tile for each."""
    tiles = (n * size + 16383) // 16384
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return max(1, min(SPLITS, tiles, sms * 2 // rows))


def expected(x, k):
    """Top-k by a stable sort of the widened row: ids, values; log-sum-exp; counts."""
    order = np.argsort(-x, kind="stable")  # NaN sorts last
    ids = order[~np.isnan(x[order])][:k]
    ok = x[np.isfinite(x)].astype(np.float64)
    if np.isposinf(x).any():
        lse = np.inf
    elif len(ok):
        lse = ok.max() + np.log(np.exp(ok - ok.max()).sum())
    else:
        lse = -np.inf
    bad = np.flatnonzero(np.isnan(x) | np.isposinf(x))
    return ids, lse, int(np.isnan(x).sum()), int(np.isposinf(x).sum()), int(np.isneginf(x).sum()), \
        int(bad[0]) if len(bad) else -1


def row_fault(r, x, k, watch):
    """What is wrong with one row's result, or None."""
    ids, lse, n_nan, n_pos, n_neg, first = expected(x, k)
    got = r["token"][:k]
    if list(got[:len(ids)]) != list(ids) or (got[len(ids):] != -1).any():
        return f"ids {got[:8]} want {ids[:8]}"
    if not np.array_equal(r["logit"][:len(ids)].view("<u4"), x[ids].view("<u4")):
        return "logits not bit-equal"
    if (r["n_nan"], r["n_posinf"], r["n_neginf"], r["first_bad"]) != (n_nan, n_pos, n_neg, first):
        return f"counts {r['n_nan'], r['n_posinf'], r['n_neginf'], r['first_bad']} want {n_nan, n_pos, n_neg, first}"
    if r["lse"] != lse and not abs(r["lse"] - lse) <= 2e-5 * max(1, abs(lse)):
        return f"lse {r['lse']} want {lse}"
    for j, w in enumerate(watch):
        want = x[w] if 0 <= w < len(x) else np.float32(np.nan)
        if not (np.isnan(want) and np.isnan(r["watch"][j])) and r["watch"][j].view("<u4") != want.view("<u4"):
            return f"watch {w}: {r['watch'][j]} want {want}"
    return None


def patterns(rng, rows, n):
    """Adversarial rows, named."""
    normal = (rng.standard_normal((rows, n)) * 3).astype(np.float32)
    yield "normal", normal
    yield "large", normal * 1e30
    yield "equal", np.full((rows, n), 1.5, np.float32)
    yield "ascending", np.tile(np.linspace(-9, 9, n, dtype=np.float32), (rows, 1))
    yield "descending", np.tile(np.linspace(9, -9, n, dtype=np.float32), (rows, 1))
    yield "nan", np.full((rows, n), np.nan, np.float32)
    yield "-inf", np.full((rows, n), -np.inf, np.float32)
    yield "+inf", np.full((rows, n), np.inf, np.float32)
    yield "denormal", (rng.integers(-5, 5, (rows, n)) * 1e-42).astype(np.float32)
    yield "zeros", np.where(rng.random((rows, n)) < .5, np.float32(0), np.float32(-0.0)).astype(np.float32)
    yield "few values", rng.integers(0, 3, (rows, n)).astype(np.float32)
    masked = normal.copy()
    masked[rng.random((rows, n)) < .999] = -np.inf
    yield "masked", masked
    mixed = normal.copy()
    mixed[rng.random((rows, n)) < .01] = np.nan
    mixed[rng.random((rows, n)) < .01] = np.inf
    mixed[rng.random((rows, n)) < .01] = -np.inf
    yield "mixed", mixed
    yield "negative", -np.abs(normal) - 100
    huge = np.full((rows, n), 3.4e38, np.float32)
    yield "max", huge


def run_checks(cap):
    rng = np.random.default_rng(1)
    case = failed = total = 0
    for dtype in NAMES:
        for n in (1, 2, 31, 255, 2048, 4095, 4097, 32000, 151936, 248320, 1 << 20):
            faults = []
            for k in (1, 2, 20, 32, 63, 64):
                if n > 200000 and k not in (2, 32, 64):
                    continue
                rows = 3
                pad = int(rng.integers(0, 9))
                for name, x in patterns(rng, rows, n):
                    wide = torch.zeros(rows, n + pad, dtype=dtype, device="cuda")
                    wide[:, :n] = torch.from_numpy(x).cuda().to(dtype)
                    flat = torch.empty(wide.numel() + 8, dtype=dtype, device="cuda")
                    off = int(rng.integers(0, 8))
                    flat[off:off + wide.numel()] = wide.flatten()
                    t = flat[off:off + wide.numel()].view(rows, n + pad)[:, :n]
                    ids = torch.randint(-2, n + 2, (rows, 8), dtype=torch.int32)
                    ids_dev = ids.cuda()
                    splits = [0, 1, 5, 64][int(rng.integers(0, 4))]
                    cap.out.fill_(0xAB)
                    cap.launch(t, k, ids_dev, splits)
                    got = cap.results(rows)
                    host = t.float().cpu().numpy()
                    for r in range(rows):
                        total += 1
                        fault = row_fault(got[r], host[r], k, ids[r].tolist())
                        if fault or got[r]["done"] != 1 or got[r]["row"] != r or got[r]["launch"] != 7:
                            faults.append(f"{name} k={k} splits={splits} row {r}: {fault or 'frame'}")
            case += 1
            failed += bool(faults)
            print(f"{'not ' if faults else ''}ok {case} - capture {NAMES[dtype]} n_vocab {n}")
            for f in faults[:5]:
                print("#", f)
    x = (torch.randn(2, 248320, device="cuda") * 3)
    slots = 4
    cap.replays.zero_()
    cap.out.fill_(0)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        x.mul_(-1.25)
        cap.launch(x, 32, graph_slots=slots)
    good = True
    for i in range(1, 11):
        graph.replay()
        got = cap.results(2, (i - 1) % slots)
        for r in range(2):
            good &= got[r]["done"] == i and row_fault(got[r], x[r].cpu().numpy(), 32, []) is None
    case += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {case} - every replay of a graph fills its own slot")
    print(f"# {total} rows compared\n1..{case}", flush=True)
    return failed


def time_us(fn, repeat=200):
    for _ in range(10):
        fn()
    torch.cuda.synchronize()
    best = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(repeat):
            fn()
        b.record()
        torch.cuda.synchronize()
        best.append(a.elapsed_time(b) * 1000 / repeat)
    return sorted(best)[2]


def graph_us(fn, repeat=50):
    """Device time of one call: a graph of many, so that launching costs nothing."""
    fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            fn()
    return time_us(graph.replay, 5) / repeat


def run_bench(cap):
    big = torch.empty(1 << 29, device="cuda")
    other = torch.empty_like(big)
    us = time_us(lambda: other.copy_(big), 5)
    print(f"# copy bandwidth {2 * big.numel() * 4 / us / 1e6:.2f} TB/s")
    del big, other
    print("# capture beside torch.topk + torch.logsumexp, f32, us a call (events; graph in brackets)")
    for rows in (1, 32, 256, 2048):
        x = torch.randn(rows, 248320, device="cuda") * 3
        for k in (20, 32, 64) if rows in (1, 2048) else (32,):
            n = 20 if rows > 256 else 200
            ours, graph = time_us(lambda: cap.launch(x, k), n), graph_us(lambda: cap.launch(x, k), 20)
            torch_us = time_us(lambda: (torch.topk(x, k), torch.logsumexp(x, 1)), 5 if rows > 256 else 50)
            print(f"# [{rows}, 248320] k={k}: {ours:.1f} ({graph:.1f}); torch {torch_us:.1f}; "
                  f"ratio {torch_us / ours:.1f}", flush=True)
    for dtype in (torch.float16, torch.bfloat16):
        x = (torch.randn(2048, 248320, device="cuda") * 3).to(dtype)
        print(f"# [2048, 248320] {NAMES[dtype]} k=32: {time_us(lambda: cap.launch(x, 32), 20):.1f}")


def run_sweep(cap):
    for rows in (1, 32, 256):
        x = torch.randn(rows, 248320, device="cuda") * 3
        line = " ".join(f"{s}:{graph_us(lambda: cap.launch(x, 32, splits=s)):.1f}"
                        for s in (1, 2, 4, 8, 12, 16, 24, 31, 41, 61, 64))
        print(f"# [{rows}, 248320] splits:us {line}", flush=True)
    for rows in (2048,):
        x = torch.randn(rows, 248320, device="cuda") * 3
        line = " ".join(f"{s}:{time_us(lambda: cap.launch(x, 32, splits=s), 10):.1f}" for s in (1, 2, 4))
        print(f"# [{rows}, 248320] splits:us {line}", flush=True)


def main():
    cap = Capture(sys.argv[1], 2048)
    failed = 0
    for what in sys.argv[2:] or ["check", "bench"]:
        if what == "check":
            failed += run_checks(cap)
        elif what == "bench":
            run_bench(cap)
        else:
            run_sweep(cap)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
