"""The Python module on the CPU: what run.db holds against what was handed over.

usage: python_t.py LIBPROBE PROBE_LAYOUT fake|numpy|torch   (`ok - NAME` lines on stdout)

Runs itself with the library preloaded, a case each, in the current folder. fake: tensors and models
that have nothing of PyTorch but the names that the module uses; torch: PyTorch's tensors in the
same cases, and models that are as fake. vLLM is a fake in both.
"""
import array
import ctypes
import json
import math
import os
import random
import sqlite3
import struct
import subprocess
import sys
import types
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../shim/python"))
import neartie_probe as shim  # noqa: E402

N_VOCAB, EOS, PAD = 97, 5, 0
PROMPTS = [[11, 12, 13, 14, 15], [21, 22], [31, 32, 33], [41]]
STEPS = 7


class FakeTensor:
    """Two dimensions in memory of our own, with what the module uses of PyTorch's tensors."""
    ndim, is_cuda, device = 2, False, "cpu"

    def __init__(self, rows, code="f", memory=None, at=0):
        self.rows, self.dtype = rows, {"f": "torch.float32", "q": "torch.int64"}[code]
        self.shape = (len(rows), len(rows[0]) if rows else 0)
        self.code, self.at = code, at
        self.memory = array.array(code, [x for row in rows for x in row]) if memory is None else memory

    def data_ptr(self):
        return self.memory.buffer_info()[0] + self.at * self.memory.itemsize

    def stride(self):
        return (self.shape[1], 1)

    def numel(self):
        return self.shape[0] * self.shape[1]

    def tolist(self):
        return [list(row) for row in self.rows]

    def clone(self):
        return FakeTensor(self.tolist(), self.code)

    def sum(self, _):
        return FakeVector([sum(row) for row in self.rows])

    def __getitem__(self, at):
        if isinstance(at, slice):
            rows = self.rows[at]
            return FakeTensor(rows, self.code, self.memory, self.at + at.start * self.shape[1])
        cut = [row[at[1]] for row in self.rows]
        return FakeTensor(cut, self.code) if isinstance(at[1], slice) else FakeVector(cut)


class FakeVector(list):
    def tolist(self):
        return list(self)

    def __rsub__(self, n):
        return FakeVector([n - x for x in self])


def fake_torch():
    torch = types.ModuleType("torch")
    torch.__version__ = "fake"
    torch.equal = lambda a, b: a.tolist() == b.tolist()
    torch.are_deterministic_algorithms_enabled = lambda: False
    torch.get_float32_matmul_precision = lambda: "highest"
    torch.tensor = lambda rows: FakeTensor(rows, "f" if isinstance(rows[0][0], float) else "q")
    return torch


class FakeModel:
    """Logits from the tokens that are no padding; calls its hook as PyTorch's modules do."""

    def __init__(self, torch):
        self.torch, self.hook = torch, None
        self.config = types.SimpleNamespace(vocab_size=N_VOCAB, _name_or_path="fake/model")
        self.generation_config = types.SimpleNamespace(eos_token_id=EOS)

    def register_forward_pre_hook(self, hook, with_kwargs):
        assert with_kwargs
        self.hook = hook
        return types.SimpleNamespace(remove=lambda: setattr(self, "hook", None))

    def forward(self, ids, n_past, mask=None, **more):
        if self.hook:
            self.hook(self, (), {
                "input_ids": self.torch.tensor([row[n_past:] for row in ids]),
                "attention_mask": mask and self.torch.tensor(mask), **more})

    def scores(self, ids, pads):
        return self.torch.tensor([logits_of(row[pad:]) for row, pad in zip(ids, pads)])


def logits_of(context):
    """97 floats that depend on the whole context; EOS is the best behind 41 and two more tokens."""
    rng = random.Random(str(context))
    out = [struct.unpack("f", struct.pack("f", rng.uniform(-4, 4)))[0] for _ in range(N_VOCAB)]
    out[EOS] = 9.0 if context[0] == 41 and len(context) == 3 else -9.0
    return out


def best(row):
    return max(range(len(row)), key=lambda i: (row[i], -i))


def generate(model, processor, prompts, steps, torch):
    """Greedy, with left padding and a cache, as transformers does it."""
    n = max(map(len, prompts))
    pads = [n - len(p) for p in prompts]
    ids = [[PAD] * pad + p for pad, p in zip(pads, prompts)]
    alive = [True] * len(ids)
    for step in range(steps):
        mask = [[int(i >= pad) for i in range(len(ids[0]))] for pad in pads]
        model.forward(ids, len(ids[0]) - 1 if step else 0, mask)
        scores = processor(torch.tensor(ids), model.scores(ids, pads)).tolist()
        tokens = [best(row) if ok else PAD for row, ok in zip(scores, alive)]
        ids = [row + [token] for row, token in zip(ids, tokens)]
        alive = [ok and token != EOS for ok, token in zip(alive, tokens)]
    return ids


# ---- cases that run under the probe ----

class Plain:
    """Memory that tells where it is, by the protocol of NumPy's arrays."""

    def __init__(self, code, typestr, rows, strides=None, n=None):
        n = n or len(rows[0])
        self.memory = bytearray(b"".join(struct.pack(f"{len(r)}{code}", *r) for r in rows))
        self.keep = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.__array_interface__ = {"shape": (len(rows), n), "typestr": typestr, "strides": strides,
                                    "data": (ctypes.addressof(self.keep), False)}


def rows_of(probe, seq, n):
    return [(probe.context([seq, i]), seq, i, 7, i) for i in range(n)]


def case_arrays(_):
    probe = shim.attach()
    probe.setting("engine", "python_t.py")
    probe.vocab(["zero", b"\xff", None, "three"])
    probe.sequence(1, "first")
    arm = probe.arm("arrays", shim.DECODE, "reassoc")
    x = [logits_of([1, i]) for i in range(3)]
    f = probe.begin(arm, 3, 1)
    probe.logits(f, Plain("f", "<f4", x), rows_of(probe, 1, 3))
    probe.logits(f, Plain("f", "<f4", x, (4 * N_VOCAB, 4), 50), rows_of(probe, 2, 3))
    probe.logits(f, Plain("e", "<f2", x), rows_of(probe, 3, 3))
    for bad in (Plain("d", "<f8", x), Plain("f", "<f4", x, (4 * N_VOCAB, 8), 40)):
        probe.logits(f, bad, rows_of(probe, 4, 3))
    try:
        probe.logits(f, Plain("f", "<f4", x), rows_of(probe, 5, 2))
    except ValueError as e:
        print(e)
    probe.end(f)
    probe.token(1, 2, best(x[2]))


def case_numpy(_):
    import numpy
    probe = shim.attach()
    f = probe.begin(probe.arm("numpy", shim.DECODE), 3, 1)
    x = numpy.array([logits_of([1, i]) for i in range(3)], numpy.float32)
    probe.logits(f, x, rows_of(probe, 1, 3))
    probe.logits(f, x[:, :50], rows_of(probe, 2, 3))
    probe.logits(f, x.astype(numpy.float16), rows_of(probe, 3, 3))
    for bad in (x.astype(numpy.float64), x[:, ::2]):
        probe.logits(f, bad, rows_of(probe, 4, 3))
    probe.end(f)


def case_tensors(torch):
    probe = shim.attach()
    f = probe.begin(probe.arm("tensors", shim.DECODE), 3, 1)
    x = torch.tensor([logits_of([1, i]) for i in range(3)])
    probe.logits(f, x, rows_of(probe, 1, 3))
    if hasattr(torch, "bfloat16"):
        probe.logits(f, x[:, :50], rows_of(probe, 2, 3))
        probe.logits(f, x.half(), rows_of(probe, 3, 3))
        for bad in (x.double(), x[:, ::2]):
            probe.logits(f, bad, rows_of(probe, 4, 3))
        probe.logits(f, x.bfloat16(), rows_of(probe, 5, 3))
        top = x.bfloat16().topk(5)
        print(json.dumps([top.indices.tolist(), top.values.float().tolist()]))
    probe.end(f)


def case_generate(torch):
    model = FakeModel(torch)
    with shim.Transformers(model, label="wide") as recorder:
        recorder.finish(torch.tensor(generate(model, recorder, PROMPTS, STEPS, torch)))
    assert model.hook is None
    with shim.Transformers(model, label="narrow", cls="reassoc") as recorder:
        for p in PROMPTS:
            print(generate(model, recorder, [p], STEPS, torch))
    print(generate(model, lambda ids, scores: scores, PROMPTS, STEPS, torch))


def case_reorder(torch):
    """Beams that change places, a draft that is rejected, an assistant's scores, other inputs."""
    model = FakeModel(torch)
    recorder = shim.Transformers(model)

    def step(ids, n_past, n_known=None, **more):
        model.forward(ids, n_past, [[1] * len(row) for row in ids], **more)
        for n in range(n_known or len(ids[0]), len(ids[0]) + 1):
            recorder(torch.tensor([row[:n] for row in ids]),
                     model.scores([row[:n] for row in ids], [0] * len(ids)))

    step([[11, 12], [11, 12]], 0)
    step([[11, 12, 60], [11, 12, 61]], 2)
    step([[11, 12, 61, 70], [11, 12, 60, 70]], 3)  # the beams have changed places
    step([[31, 32]], 0)
    step([[31, 32, 50, 51, 52]], 2, 3)  # two rows of a draft and one more
    recorder(torch.tensor([[31, 32, 50, 51, 52, 53]]), model.scores([[1]], [0]))  # the assistant
    step([[31, 32, 50, 55, 56]], 3, 4)  # 51 was rejected, 55 came in its place
    step([[31, 32, 50]], 0, pixel_values=torch.tensor([[1.0]]))
    step([[31, 32, 50, 51]], 3)
    recorder.close()


def case_guard(torch):
    """What a processor cannot record does not stop the engine."""
    model = FakeModel(torch)
    recorder = shim.Transformers(model)
    scores = generate(model, recorder, [[11]], 2, torch)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.forward([[11, 12]], 1, [[1, 1]])
        assert recorder(object(), scores) is scores and recorder(object(), scores) is scores
    print(len(told), told[0].message)


def case_vllm(torch):
    """The persistent batch of vLLM, by its documented updates."""
    fake = types.ModuleType("vllm.v1.sample.logits_processor")
    fake.LogitsProcessor = type("LogitsProcessor", (), {})
    sys.modules.update({"vllm": types.ModuleType("vllm"), fake.__name__: fake})
    assert issubclass(shim.VLLM, fake.LogitsProcessor) and shim.VLLM is shim.VLLM
    one_way, swap = (types.SimpleNamespace(name=n) for n in ("UNIDIRECTIONAL", "SWAP"))

    def update(removed=(), added=(), moved=()):
        return types.SimpleNamespace(removed=removed, added=added, moved=moved)

    for chunked in (False, True):
        config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(model="fake/model", dtype="float32"),
            scheduler_config=types.SimpleNamespace(enable_chunked_prefill=chunked))
        processor = shim.VLLM(config, "cpu", False)
        processor._label = "cut" if chunked else "whole"
        out = [[] for _ in PROMPTS]

        def step(change, *who):
            processor.update_state(change)
            logits = torch.tensor([logits_of(PROMPTS[i] + out[i]) for i in who])
            assert processor.apply(logits) is logits
            for i, row in zip(who, logits.tolist()):
                out[i].append(best(row))

        added = [(i, None, PROMPTS[i], out[i]) for i in range(4)]
        step(update(added=added[:3]), 0, 1, 2)
        step(None, 0, 1, 2)
        step(update(removed=[1], moved=[(2, 1, one_way)]), 0, 2)
        step(update(added=[(2, None, PROMPTS[3], out[3])], moved=[(0, 1, swap)]), 2, 0, 3)
        step(None, 2, 0, 3)
        step(update(removed=[0, 1, 2], added=[(0, None, None, [])]), 0)
    config.model_config.is_multimodal_model = True
    config.scheduler_config.enable_chunked_prefill = False
    processor = shim.VLLM(config, "cpu", False)
    processor._label = "images"
    processor.update_state(update(added=[(0, None, PROMPTS[0], [])]))
    processor.apply(torch.tensor([logits_of(PROMPTS[0])]))
    print(processor.is_argmax_invariant())


# ---- what the databases hold ----

def ok(passed, name, *notes):
    print("ok -" if passed else "not ok -", name)
    for note in [] if passed else notes[:8]:
        print("#", str(note)[:400])


def entries(topk):
    """A list of the record, its digits read back as the floats that they stand for."""
    return [[i, struct.unpack("f", struct.pack("f", v))[0]] for i, v in json.loads(topk)]


def run(case, what, probe):
    """A case with the probe and without; its output and its database."""
    db = f"{case}.db"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PROBE_")}
    command = [sys.executable, "-X", "faulthandler", os.path.abspath(__file__), "--case", case, what]
    done = subprocess.run(command, env={**env, "LD_PRELOAD": probe, "PROBE_DB": db, "PROBE_LOG": "stderr"},
                          capture_output=True, text=True, check=False)
    ok(not done.returncode and not done.stderr, f"{case}: it ends well", done.returncode, done.stderr)
    return done.stdout.splitlines(), sqlite3.connect(db)


def top_of(row, k=20):
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    return [[i, row[i]] for i in order]


def lse_of(row):
    return math.log(sum(math.exp(x) for x in row))


def check_arrays(case, db, n=3, n_refused=2):
    rows = db.execute("select seq, pos, dtype, topk, lse from logits join sequences using (seq_id) "
                      "where seq <= 3 order by 1, 2").fetchall()
    bad = []
    for seq, pos, dtype, topk, lse in rows:
        x = logits_of([1, pos])[:50 if seq == 2 else N_VOCAB]
        if seq == 3:
            x = [struct.unpack("e", struct.pack("e", v))[0] for v in x]
        if entries(topk) != top_of(x) or abs(lse - lse_of(x)) > 1e-5:
            bad.append((seq, pos, topk, top_of(x)))
    want = [(s, p, "f16" if s == 3 else "f32") for s in range(1, n + 1) for p in range(3)]
    ok([r[:3] for r in rows] == want and not bad, f"{case}: the rows are those of the arrays", rows, bad[:3])
    refused = db.execute("select count from gaps where kind = 'calls_refused'").fetchall()
    ok(refused == ([(n_refused,)] if n_refused else []),
       f"{case}: types and strides that the probe does not read are refused and counted", refused)


def check_generate(out, db):
    n_rows = 4 * STEPS - (STEPS - 3)  # 41 ends with its third token
    rows = db.execute("""select a.label, seq, pos, context_hash, input_token, emitted_token, topk, lse, batch_row
        from logits join arms a using (arm_id) join sequences using (seq_id)""").fetchall()
    wide = {r[3]: r for r in rows if r[0].startswith("wide")}
    narrow = {r[3]: r for r in rows if r[0].startswith("narrow")}
    ok(len(rows) == 2 * n_rows and len(wide) == n_rows, "generate: a row for each token, none after the end", len(rows))
    ok(wide.keys() == narrow.keys() and
       all(wide[c][2] == narrow[c][2] and wide[c][6] == narrow[c][6] for c in wide),
       "generate: contexts of a padded batch and of a batch of one join")
    texts = [json.loads(line)[0] for line in out[:4]]
    bad = []
    for p, text in zip(PROMPTS, texts):
        for pos in range(len(p) - 1, len(text) - 1):
            if EOS in text[:pos + 1]:
                continue
            x = logits_of(text[:pos + 1])
            found = [r for r in wide.values() if r[2] == pos and r[4] == text[pos] and entries(r[6]) == top_of(x)]
            if len(found) != 1 or found[0][5] != text[pos + 1] or found[0][8] != PROMPTS.index(p):
                bad.append((p, pos, found))
    ok(not bad, "generate: positions, input and emitted tokens, places in the batch, top-k", bad[:3])
    ok([row[len(row) - len(text):] for row, text in zip(json.loads(out[4]), texts)] == texts,
       "generate: the text is what it is without a recorder", out)
    forwards = db.execute("""select label, phase, class, count(*), min(n_tokens), max(n_seqs), max(n_past) from forwards
        join arms using (arm_id) group by arm_id order by arm_id""").fetchall()
    ok(forwards == [("wide prefill", "prefill", None, 1, 20, 4, 0),
                    ("wide decode", "decode", None, STEPS - 1, 4, 4, 5 + STEPS - 2),
                    ("narrow prefill", "prefill", "reassoc", 4, 1, 1, 0),
                    ("narrow decode", "decode", "reassoc", 4 * (STEPS - 1), 1, 1, 5 + STEPS - 2)],
       "generate: forwards and arms", *forwards)
    facts = db.execute("select engine, model_path, n_vocab from runs").fetchall()
    ok(facts == [("transformers", "fake/model", N_VOCAB)], "generate: the run has its model", facts)
    gaps = db.execute("select kind from gaps").fetchall()
    ok(not gaps, "generate: nothing is missing", gaps)


def check_reorder(db, probe):
    rows = db.execute("""select seq, pos, context_hash, topk, phase from logits join arms using (arm_id)
        join sequences using (seq_id) order by row_id""").fetchall()
    want = [(0, [11, 12]), (1, [11, 12]), (0, [11, 12, 60]), (1, [11, 12, 61]), (0, [11, 12, 61, 70]),
            (1, [11, 12, 60, 70]), (2, [31, 32]), (2, [31, 32, 50]), (2, [31, 32, 50, 51]),
            (2, [31, 32, 50, 51, 52]), (2, [31, 32, 50, 55]), (2, [31, 32, 50, 55, 56])]
    told = [(seq, pos, context, entries(topk)) for seq, pos, context, topk, _ in rows]
    ok(told[:12] == [(seq, len(c) - 1, f"{probe.context(c):016x}", top_of(logits_of(c))) for seq, c in want],
       "reorder: beams and drafts have the contexts that they have", *told[:12])
    ok([r[:3] for r in rows[12:]] == [(3, 2, None), (3, 3, None)],
       "reorder: rows of a model that sees more than text join nothing; an assistant's are left out", rows[12:])
    ok([r[4] for r in rows[6:12]] == ["prefill"] + ["verify"] * 5, "reorder: a draft is verified", rows)


def check_vllm(out, db, probe):
    rows = db.execute("""select a.label, seq, pos, context_hash, input_token, emitted_token, batch_row, topk
        from logits join arms a using (arm_id) join sequences using (seq_id) order by row_id""").fetchall()
    text = [list(p) for p in PROMPTS]
    want = []
    for who in ((0, 1, 2), (0, 1, 2), (0, 2), (2, 0, 3), (2, 0, 3)):
        for place, i in enumerate(who):
            x = logits_of(text[i])
            want.append((i, len(text[i]) - 1, f"{probe.context(text[i]):016x}", text[i][-1], place, top_of(x)))
        for i in who:
            text[i].append(best(logits_of(text[i])))
    told = {label: [(r[1], r[2], r[3], r[4], r[6], entries(r[7])) for r in rows if r[0] == f"{label} decode"]
            for label in ("whole", "cut")}
    ok(told["whole"] == want, "vllm: every request's rows, through additions, moves and removals",
       *(f"{a} want {b}" for a, b in zip(told["whole"], want) if a != b))
    ok([r[1:5] for r in rows if r[0] == "images decode"] == [(0, len(PROMPTS[0]) - 1, None, PROMPTS[0][-1])],
       "vllm: rows of a multimodal model join nothing", rows[-1])
    late = [w for w in want if w[1] >= len(PROMPTS[w[0]])]
    ok(told["cut"] == late, "vllm: where prompts may be cut, the rows that could be of a part are left out",
       len(told["cut"]), len(late))
    emitted = [(r[1], r[2]) for r in rows if r[0] == "whole decode" and r[5] is not None and
               r[5] != text[r[1]][r[2] + 1]]
    n = sum(r[5] is not None for r in rows)
    ok(not emitted and n == 10 + 6 and out == ["False"], "vllm: emitted tokens", emitted, n, out)


def check_layout(program):
    names = {"probe_forward": shim.Forward, "probe_row": shim.Row, "probe_logits": shim.Logits, "probe_ops": shim.Ops}
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    ours = []
    for name, struct_ in names.items():
        for member, _ in struct_._fields_:
            at = getattr(struct_, member)
            ours.append(f"{name} {member} {at.offset} {at.size}")
        ours.append(f"{name} end {ctypes.sizeof(struct_)} 0")
    ok(ours == lines, "every struct is laid out as in probe.h", set(ours) ^ set(lines))


def main():
    probe_path, layout, what = sys.argv[1:4]
    entry = ctypes.CDLL(probe_path).probe_abi_v1  # for its hash function alone
    entry.restype = ctypes.POINTER(shim.Ops)
    probe = shim.Probe(entry(shim.ABI_VERSION).contents)
    ok(probe.context([5, 6, 7]) == probe.context([7], probe.context([5, 6])) != probe.context([5, 6]),
       "a context is continued")
    ok(shim.attach() is None, "without a loaded probe there is none")
    if what == "numpy":
        _, db = run("numpy", what, probe_path)
        check_arrays("numpy", db)
        print("done")
        return
    check_layout(layout)
    out, db = run("arrays", what, probe_path)
    check_arrays("arrays", db)
    ok(out == ["3 rows of logits, 2 rows described"], "arrays: rows that are not described are an error", out)
    ok(db.execute("select engine, label from runs, sequences where seq = 1").fetchall() == [("python_t.py", "first")],
       "arrays: the run's and the sequence's names")
    top = best(logits_of([1, 2]))
    ok(db.execute("select emitted_token from logits where pos = 2 order by row_id").fetchall()[0] == (top,),
       "arrays: the emitted token")
    texts = dict(db.execute("select token, text from vocab"))
    ok(texts == {k: v for k, v in {0: b"zero", 1: b"\xff", 3: b"three"}.items() if k in texts} and texts,
       "arrays: texts of tokens", texts)
    out, db = run("tensors", what, probe_path)
    if what == "torch":
        ids, values = json.loads(out[0])
        got = [entries(t)[:5] for t, in db.execute("""select topk from logits join sequences using (seq_id)
            where seq = 5 and dtype = 'bf16' order by pos""")]
        ok(got == [[[i, v] for i, v in zip(*row)] for row in zip(ids, values)],
           "tensors: bfloat16 as torch.topk has it, bit for bit", got, ids, values)
    check_arrays("tensors", db, *((3, 2) if what == "torch" else (1, 0)))
    check_generate(*run("generate", what, probe_path))
    check_reorder(run("reorder", what, probe_path)[1], probe)
    out, db = run("guard", what, probe_path)
    ok(out == ["1 neartie_probe: no more is recorded: AttributeError: 'object' object has no attribute 'shape'"],
       "guard: an error is told once, and the engine goes on", out)
    ok(db.execute("select value from settings where name = 'neartie_probe.py'").fetchall() ==
       [("stopped: AttributeError: 'object' object has no attribute 'shape'",)] and
       db.execute("select count(*) from logits").fetchone() == (2,), "guard: the record says why it stops")
    check_vllm(*run("vllm", what, probe_path), probe)
    bare = subprocess.run([sys.executable, os.path.abspath(__file__), "--case", "generate", what], check=True,
                          capture_output=True, text=True)
    ok(bare.stdout.splitlines() == run("generate", what, probe_path)[0] and not bare.stderr,
       "without a probe the same is printed", bare.stderr)
    print("done")


if __name__ == "__main__":
    if sys.argv[1] != "--case":
        main()
    else:
        if sys.argv[3] == "torch":
            import torch as module
        else:
            module = sys.modules["torch"] = fake_torch()
        globals()[f"case_{sys.argv[2]}"](module)
