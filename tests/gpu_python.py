"""Models of transformers under the probe, on a GPU: what run.db holds against what PyTorch says.

usage: gpu_python.py BUILD-FOLDER [check|cost|compile]...   (TAP on stdout; needs PyTorch and transformers)

Small models with random weights generate with the recorder, alone and in padded batches, with beams,
samples, a static cache and an end-of-sequence token. A processor behind the recorder keeps torch.topk
and torch.logsumexp of what it is given. The same runs without the library must give the same. cost
times the steps of a model of the size of Llama 3.2 1B, with and without, in one process; PAIRS:
repetitions of that. compile, which takes its time, is not done without being named: the static cache,
for which generate() compiles the model.
"""
import ctypes
import json
import os
import pickle
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(TOP, "shim/python"))
import neartie_probe  # noqa: E402

K, N_NEW, N_VOCAB = 20, 12, 32000
LENGTHS = (5, 17, 2, 9, 24, 11, 3, 16)
SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": N_VOCAB}
MODELS = (("llama", "float32", SMALL), ("llama", "bfloat16", SMALL), ("qwen2", "bfloat16", SMALL),
          ("gpt2", "float16", {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": N_VOCAB}))
BIG = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
       "num_key_value_heads": 8, "vocab_size": 128256}


# ---- in the process that computes ----

def make_model(name, dtype, parts):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(1)
    config = AutoConfig.for_model(name, bos_token_id=1, eos_token_id=None, pad_token_id=0, **parts)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype)).eval()
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model


def make_prompts():
    import torch
    g = torch.Generator().manual_seed(2)
    return [torch.randint(3, N_VOCAB, (n,), generator=g).tolist() for n in LENGTHS]


def pad(prompts, device):
    import torch
    n = max(map(len, prompts))
    ids = [[0] * (n - len(p)) + p for p in prompts]
    mask = [[0] * (n - len(p)) + [1] * len(p) for p in prompts]
    return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}


class Seen:
    """Behind the recorder: what it was given."""

    def __init__(self):
        self.calls = []

    def __call__(self, input_ids, scores):
        import torch
        values, ids = torch.topk(scores, K)
        self.calls.append((input_ids.clone(), values, ids, torch.logsumexp(scores, -1)))
        return scores


def generate(model, label, batches, eos=None, **how):
    """Generate for some batches under one label; what was seen, on the host."""
    from transformers import LogitsProcessorList
    out = []
    model.generation_config.eos_token_id = eos
    for prompts in batches:
        seen = Seen()
        with neartie_probe.Transformers(model, label=label) as recorder:
            done = model.generate(**pad(prompts, model.device), max_new_tokens=N_NEW, use_cache=True,
                                  **{"do_sample": False, **how},
                                  logits_processor=LogitsProcessorList([recorder, seen]))
            recorder.finish(done)
        out.append({"prompts": prompts, "eos": eos, "how": how, "output": done.tolist(),
                    "calls": [[x.float().tolist() if x.is_floating_point() else x.tolist() for x in call]
                              for call in seen.calls]})
    return out


def child_check(path):
    import torch
    prompts, saved = make_prompts(), {}
    for name, dtype, parts in MODELS:
        model = make_model(name, dtype, parts)
        label = f"{name}-{dtype}"
        saved[f"{label} b1"] = generate(model, f"{label} b1", [[p] for p in prompts])
        saved[f"{label} b4"] = generate(model, f"{label} b4", [prompts[:4]])
        saved[f"{label} b8"] = generate(model, f"{label} b8", [prompts])
        if (name, dtype) != ("llama", "float32"):
            continue
        saved["beams"] = generate(model, "beams", [prompts[:2]], num_beams=3)
        torch.manual_seed(3)
        saved["sampled"] = generate(model, "sampled", [prompts[:3]], do_sample=True, temperature=.7, top_k=50)
        saved["static"] = generate(model, "static", [prompts[:4]], cache_implementation="static",
                                   disable_compile=True)
        eos = saved[f"{label} b1"][0]["calls"][4][0][0][-1]  # what the first prompt's fourth step gave
        saved["ended"] = generate(model, "ended", [prompts], eos=eos)
    with open(path, "wb") as f:
        pickle.dump(saved, f)


def child_compile(path):
    model = make_model("llama", "bfloat16", SMALL)
    saved = {"compiled": generate(model, "compiled", [make_prompts()[:4]], cache_implementation="static")}
    with open(path, "wb") as f:
        pickle.dump(saved, f)


def child_cost(_):
    import torch
    from transformers import LogitsProcessorList
    model = make_model("llama", "bfloat16", BIG)
    model.generation_config.eos_token_id = None
    probe, cost, n_new = neartie_probe.attach(), {}, 64

    def run(inputs, kernels, recorder):
        probe.kernels(kernels)
        processors = LogitsProcessorList([recorder] if recorder else [])
        torch.cuda.synchronize()
        start = time.perf_counter()
        model.generate(**inputs, max_new_tokens=n_new, do_sample=False, logits_processor=processors)
        torch.cuda.synchronize()
        took = (time.perf_counter() - start) / n_new * 1e6
        if recorder:
            recorder.close()
        return took

    g = torch.Generator().manual_seed(4)
    for batch in (1, 8):
        inputs = pad([torch.randint(3, 30000, (32,), generator=g).tolist() for _ in range(batch)], model.device)
        for what in ("rows and kernels", "kernels"):
            off, more = [], []
            for turn in range(int(os.environ.get("PAIRS", "8")) + 1):
                for on in (0, 1) if turn % 2 else (1, 0):
                    recorder = neartie_probe.Transformers(model) if on and what != "kernels" else None
                    (more if on else off).append(run(inputs, on, recorder))
            cost[f"batch {batch}, {what}"] = (off[1:], more[1:])  # the first time warms up
    print(json.dumps(cost))


# ---- in the process that compares ----

N_CASES = 0
FAILED = 0


def ok(passed, name, *notes):
    global N_CASES, FAILED
    N_CASES += 1
    FAILED += not passed
    print(f"{'ok' if passed else 'not ok'} {N_CASES} - {name}", flush=True)
    for note in notes[:6]:
        print("#", str(note)[:300])


def run(build, step, folder, preload=True):
    """A step with the library or without; its output and its paths."""
    db, out = f"{folder}/{step}.db", f"{folder}/{step}.{'with' if preload else 'bare'}"
    env = dict(os.environ, TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    if preload:
        env.update(LD_PRELOAD=f"{build}/shim/libprobe.so", PROBE_DB=db)
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", step, out], env=env,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        ok(False, f"{step}: the program ends well{'' if preload else ' without the library'}",
           *done.stderr.splitlines()[-6:])
        return None, None, None
    for line in done.stderr.splitlines():
        if "neartie" in line or "libprobe" in line:
            print("#", line)
    return done.stdout, db, out


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def same_top(topk, values, ids):
    """Bit-equal values, and ids that are equal but for the order of ties, and which of the last tie."""
    got = [(i, f32(v)) for i, v in json.loads(topk)]
    if [v for _, v in got] != values:
        return False
    for v in set(values):
        ours, theirs = {i for i, x in got if x == v}, {i for i, x in zip(ids, values) if x == v}
        if ours != theirs and v != values[-1]:
            return False
    return True


def check_label(label, batches, rows, probe, faults):
    """Every row that the processor saw is recorded, and no other; returns how many."""
    n = 0
    for b in batches:
        beams = b["how"].get("num_beams", 1)
        prompts = [p for p in b["prompts"] for _ in range(beams)]
        width = max(map(len, prompts))
        for c, (ids, values, top, lse) in enumerate(b["calls"]):
            for r, p in enumerate(prompts):
                tokens = ids[r][width - len(p):]
                if b["eos"] in tokens[len(p):]:
                    continue
                n += 1
                after = b["calls"][c + 1][0][r][-1] if c + 1 < len(b["calls"]) else \
                    b["output"][r][-1] if beams == 1 else None
                found = rows.get((label, f"{probe.context(tokens):016x}"), [])
                if not any(pos == len(tokens) - 1 and token == tokens[-1] and place == r and
                           same_top(topk, values[r], top[r]) and
                           abs(l - lse[r]) <= 1e-4 * max(1, abs(lse[r])) and
                           (beams > 1 or emitted == after)
                           for pos, token, place, emitted, topk, l in found):
                    faults.append(f"{label} step {c} row {r}: {found[:1]} want {values[r][:3]} {top[r][:3]}, then {after}")
    return n


def check_forwards(db, on_gpu):
    arms = db.execute("""select label, count(*), count(kernel_list_id), count(distinct kernel_list_id), max(n)
        from forwards join arms using (arm_id) left join kernel_lists using (kernel_list_id)
        group by arm_id""").fetchall()
    for label, n, n_lists, n_different, most in arms:
        print(f"# {label}: {n} forwards, {n_lists} with kernels, {n_different} different lists, at most {most} launches")
    if on_gpu:
        ok(all(n == n_lists and most > 0 for _, n, n_lists, _, most in arms),
           "every forward has the kernels that it launched")


def check_batches(build, path, db):
    """The same prompts alone and in a batch of eight: joined by context, judged, and blamed."""
    neartie = f"{build}/collector/neartie"
    for name, dtype, _ in MODELS:
        a, b = f"{name}-{dtype} b1 decode", f"{name}-{dtype} b8 decode"
        joined = db.execute("""select count(*), sum(x.topk = y.topk) from logits x join arms p using (arm_id)
            join logits y using (context_hash, pos) join arms q on q.arm_id = y.arm_id
            where p.label = ? and q.label = ?""", (a, b)).fetchone()
        done = subprocess.run([neartie, "verdict", path, "--a", a, "--b", b], capture_output=True, text=True, check=False)
        ok(joined[0] >= len(LENGTHS) and done.returncode in (0, 4), f"{name} {dtype}: batch 1 against batch 8 is judged",
           f"{joined[0]} rows of one context, {joined[1]} with equal lists", *done.stdout.splitlines()[:2], done.stderr)
        done = subprocess.run([neartie, "blame", path, "--a", a, "--b", b], capture_output=True, text=True, check=False)
        print("#", *done.stdout.splitlines()[:14], sep="\n#   ")


def check_rows(build, step, folder):
    """A step under the library: what was seen is recorded. Its database, and what was seen."""
    entry = ctypes.CDLL(f"{build}/shim/libprobe.so").probe_abi_v1  # for its hash function alone
    entry.restype = ctypes.POINTER(neartie_probe.Ops)
    probe = neartie_probe.Probe(entry(neartie_probe.ABI_VERSION).contents)
    _, path, out = run(build, step, folder)
    if not path:
        return None, None, None
    with open(out, "rb") as f:
        saved = pickle.load(f)
    db, rows = sqlite3.connect(path), {}
    for label, context, *rest in db.execute("""select a.label, context_hash, pos, input_token, batch_row, emitted_token,
            topk, lse from logits join arms a using (arm_id)"""):
        rows.setdefault((label.rsplit(" ", 1)[0], context), []).append(rest)
    for label, batches in saved.items():
        faults = []
        n = check_label(label, batches, rows, probe, faults)
        n_rows = sum(len(v) for k, v in rows.items() if k[0] == label)
        ok(not faults and n == n_rows, f"{label}: {n_rows} rows are what torch.topk and logsumexp say of the scores",
           *([f"{n} seen"] if n != n_rows else []), *faults)
    gaps = db.execute("select kind, count, detail from gaps where kind <> 'launches_outside'").fetchall()
    state = db.execute("select state from runs").fetchall()
    ok(not gaps and state == [("closed",)], "nothing is missing, and the run is closed", *gaps, *(state if gaps else []))
    check_forwards(db, db.execute("select gpu_name from runs").fetchone()[0])
    return path, db, saved


def step_compile(build, folder):
    check_rows(build, "compile", folder)


def step_check(build, folder):
    path, db, saved = check_rows(build, "check", folder)
    if not path:
        return
    check_batches(build, path, db)
    _, _, bare = run(build, "check", folder, preload=False)
    if bare:
        with open(bare, "rb") as f:
            ok(pickle.load(f) == saved, "tokens and scores are what they are without the library")


def step_cost(build, folder):
    out, _, _ = run(build, "cost", folder)
    for what, (off, on) in json.loads(out.splitlines()[-1]).items() if out else ():
        more = statistics.median(b - a for a, b in zip(off, on))
        share = 100 * more / statistics.median(off)
        ok(more <= 30 or share <= 1, f"{what}: {more:+.0f} us a step of {statistics.median(off):.0f} us, {share:+.2f} %",
           f"medians {statistics.median(off):.0f} and {statistics.median(on):.0f} us of {len(off)} pairs")


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for step in sys.argv[2:] or ("check", "cost"):
            {"check": step_check, "cost": step_cost, "compile": step_compile}[step](build, folder)
    print(f"1..{N_CASES}")
    return bool(FAILED)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        {"check": child_check, "cost": child_cost, "compile": child_compile}[sys.argv[2]](sys.argv[3])
    else:
        sys.exit(main())
