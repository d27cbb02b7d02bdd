"""Hand the logits of a Python engine to a loaded libprobe.so: shim/probe.h by ctypes.

    LD_PRELOAD=libprobe.so python3 program.py

attach() gives the loaded probe, or None. Probe is the hook table, for an engine of one's own.
Transformers is a logits processor for generate(); VLLM is one for vLLM's model runner of version 1.
Both hand over the address of the logits, on the host or on the GPU, and copy none of them. Without
a loaded probe they do nothing, and whatever goes wrong in them, the program runs on.
"""
import ctypes
import hashlib
import os
import sys
import warnings

ABI_VERSION = 1
HOST, CUDA = 0, 1
PREFILL, DECODE, VERIFY = 0, 1, 2
NO_TOKEN = -1
DTYPES = {"float32": 0, "<f4": 0, "float16": 1, "<f2": 1, "bfloat16": 2}
REFUSED = -1  # where the probe expects a type or a stride: it counts the call in `gaps`

_C = ctypes


class Forward(_C.Structure):
    _fields_ = [("struct_size", _C.c_uint32), ("arm", _C.c_int32), ("n_tokens", _C.c_int32),
                ("n_seqs", _C.c_int32), ("n_past", _C.c_int64), ("ubatch_index", _C.c_int32),
                ("n_ubatch", _C.c_int32)]


class Row(_C.Structure):
    _fields_ = [("context_hash", _C.c_uint64), ("seq", _C.c_int64), ("pos", _C.c_int64),
                ("input_token", _C.c_int32), ("batch_row", _C.c_int32)]


class Logits(_C.Structure):
    _fields_ = [("struct_size", _C.c_uint32), ("location", _C.c_int32), ("dtype", _C.c_int32),
                ("n_rows", _C.c_int32), ("n_vocab", _C.c_int32), ("row_stride", _C.c_int64),
                ("data", _C.c_void_p), ("stream", _C.c_void_p), ("rows", _C.POINTER(Row))]


_TEXT = _C.CFUNCTYPE(_C.c_int, _C.c_void_p, _C.c_int32, _C.POINTER(_C.c_char), _C.c_size_t)


class Ops(_C.Structure):
    _F = _C.CFUNCTYPE
    _fields_ = [("abi_version", _C.c_uint32), ("struct_size", _C.c_uint32),
                ("run_setting", _F(None, _C.c_char_p, _C.c_char_p, _C.c_char_p)),
                ("arm", _F(_C.c_int32, _C.c_char_p, _C.c_int, _C.c_char_p)),
                ("sequence", _F(None, _C.c_int64, _C.c_char_p, _C.c_int64)),
                ("context_hash", _F(_C.c_uint64, _C.c_uint64, _C.POINTER(_C.c_int32), _C.c_size_t)),
                ("forward_begin", _F(_C.c_uint64, _C.POINTER(Forward))),
                ("logits", _F(None, _C.c_uint64, _C.POINTER(Logits))),
                ("forward_end", _F(None, _C.c_uint64)),
                ("token", _F(None, _C.c_int64, _C.c_int64, _C.c_int32)),
                ("graph", _F(None, _C.c_void_p, _C.c_void_p, _C.c_char_p)),
                ("vocab", _F(None, _C.c_int32, _TEXT, _C.c_void_p)),
                ("kernels", _F(None, _C.c_int))]


def _bytes(text):
    return text if text is None or isinstance(text, bytes) else str(text).encode()


def _place(x):
    """Where a (rows, vocabulary) tensor is: location, type, shape, row stride, address, stream."""
    if hasattr(x, "data_ptr"):  # PyTorch
        stride, step = x.stride()
        stream = None
        if x.is_cuda:
            stream = sys.modules["torch"].cuda.current_stream(x.device).cuda_stream
        return (CUDA if x.is_cuda else HOST, str(x.dtype).rsplit(".", 1)[-1], tuple(x.shape),
                stride if step == 1 else REFUSED, x.data_ptr(), stream)
    on_device = hasattr(x, "__cuda_array_interface__")
    a = x.__cuda_array_interface__ if on_device else x.__array_interface__
    rows, n = a["shape"]
    size = int(a["typestr"][2:])
    by_row, step = a.get("strides") or (n * size, size)
    whole = step == size and by_row % size == 0
    return (CUDA if on_device else HOST, a["typestr"], (rows, n),
            by_row // size if whole else REFUSED, a["data"][0], a.get("stream"))


class Probe:
    """The hook table of a loaded probe: what each call means is said in probe.h."""

    def __init__(self, ops):
        self._ops = ops

    def setting(self, name, value, source="api"):
        """Record a numeric knob or an identity of the run."""
        self._ops.run_setting(_bytes(name), _bytes(value), _bytes(source))

    def arm(self, label, phase, cls=None):
        """Declare a numeric configuration; phase is PREFILL, DECODE or VERIFY."""
        return self._ops.arm(_bytes(label), phase, _bytes(cls))

    def sequence(self, seq, label=None, parent=-1):
        """Name a sequence."""
        self._ops.sequence(seq, _bytes(label), parent)

    def context(self, tokens, prev=0):
        """The hash of a context: prev, that of the tokens before these, continued."""
        n = len(tokens)
        return self._ops.context_hash(prev, (_C.c_int32 * n)(*tokens), n)

    def begin(self, arm, n_tokens, n_seqs, n_past=0, ubatch=0, n_ubatch=1):
        """Open a forward; the handle goes to logits() and end()."""
        return self._ops.forward_begin(
            _C.byref(Forward(_C.sizeof(Forward), arm, n_tokens, n_seqs, n_past, ubatch, n_ubatch)))

    def logits(self, forward, tensor, rows):
        """Hand over a (rows, vocabulary) tensor of PyTorch, or an array that tells its address.

        rows has for each its context hash, sequence, position, input token and row in the batch.
        On a GPU the current stream must be the one that computed it.
        """
        location, dtype, (n_rows, n_vocab), stride, data, stream = _place(tensor)
        if len(rows) != n_rows:
            raise ValueError(f"{n_rows} rows of logits, {len(rows)} rows described")
        self._ops.logits(forward, _C.byref(Logits(
            _C.sizeof(Logits), location, DTYPES.get(dtype, REFUSED), n_rows, n_vocab, stride, data,
            stream, (Row * n_rows)(*rows))))

    def end(self, forward):
        """Close a forward."""
        self._ops.forward_end(forward)

    def token(self, seq, pos, token):
        """The sampler chose token after the row at (seq, pos)."""
        self._ops.token(seq, pos, token)

    def vocab(self, texts):
        """Give the text of each token id, as bytes or str; None for one without."""
        def write(_, token, buf, size):
            text = _bytes(texts[token])
            if text is None:
                return -1
            n = min(len(text), size)
            _C.memmove(buf, text, n)
            return n
        self._ops.vocab(len(texts), _TEXT(write), None)

    def kernels(self, on):
        """Pause the recording of which kernels are launched, or resume it."""
        self._ops.kernels(bool(on))


def attach():
    """The probe that is preloaded into this process, or injected by CUDA_INJECTION64_PATH; None."""
    libraries = [(None, _C.DEFAULT_MODE)]
    if os.environ.get("CUDA_INJECTION64_PATH"):
        libraries.append((os.environ["CUDA_INJECTION64_PATH"], os.RTLD_NOLOAD | os.RTLD_NOW))
    for path, mode in libraries:
        try:
            entry = _C.CDLL(path, mode=mode).probe_abi_v1
        except (AttributeError, OSError):
            continue
        entry.restype, entry.argtypes = _C.POINTER(Ops), [_C.c_uint32]
        ops = entry(ABI_VERSION)
        if ops and ops.contents.struct_size >= _C.sizeof(Ops):
            return Probe(ops.contents)
    return None


class _Recorder:
    """What the hooks of engines share: a probe, arms, and the guard that keeps the engine safe."""

    def __init__(self, probe, engine, label, cls):
        self.probe = probe or attach()
        self._label, self._cls, self._arms, self._forward = label, cls, {}, 0
        if self.probe:
            self.probe.setting("engine", engine)

    def _guarded(self, call, *args):
        """Do what is to be recorded; at the first error, tell it and record no more."""
        if not self.probe:
            return
        try:
            call(*args)
        except Exception as e:  # pylint: disable=broad-except
            probe, self.probe = self.probe, None
            probe.setting("neartie_probe.py", f"stopped: {type(e).__name__}: {e}")
            warnings.warn(f"neartie_probe: no more is recorded: {type(e).__name__}: {e}")

    def _begin(self, phase, n_tokens, n_seqs, n_past):
        self._end()
        if phase not in self._arms:
            name = ("prefill", "decode", "verify")[phase]
            self._arms[phase] = self.probe.arm(f"{self._label} {name}".strip(), phase, self._cls)
        self._forward = self.probe.begin(self._arms[phase], n_tokens, n_seqs, n_past)

    def _end(self):
        if self._forward:
            self.probe.end(self._forward)
        self._forward = 0

    def _rows(self, logits, rows):
        """Hand over the rows that are not None; neighbours in one call."""
        at = 0
        while at < len(rows):
            n = at
            while n < len(rows) and (rows[n] is None) == (rows[at] is None):
                n += 1
            if rows[at] is not None:
                self.probe.logits(self._forward, logits[at:n], rows[at:n])
            at = n


class Transformers(_Recorder):
    """Record what a model of transformers computes in generate().

        with Transformers(model, tokenizer) as recorder:
            model.generate(**inputs, logits_processor=LogitsProcessorList([recorder]))

    The scores that it is given are recorded: those before temperature, top-k and top-p, and after
    the penalties that generate() was asked for. A hook on the model marks each forward, so that
    its kernels are recorded with it. label is put before the names of the arms, to tell several
    generate() calls of one process apart. Needs PyTorch 2.0.
    """

    SMALL = 1 << 16  # so many ids are compared on the host, more of them on the GPU
    INPUTS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
    # Tensors beside which a model's input is text: where there are others, or the text is not
    # told, ids do not name the context.
    TEXT = ("input_ids", "attention_mask", "position_ids", "cache_position", "logits_to_keep",
            "num_logits_to_keep")

    def __init__(self, model, tokenizer=None, label="", cls=None, probe=None):
        super().__init__(probe, "transformers", label, cls)
        self._model, self._hook, self._event, self._aside = model, None, None, None
        self._ids = None  # the tokens so far; None before the first scores of a generate()
        self._first_seq = self._n_seqs = 0
        self._is_text = True
        self._guarded(self._start, tokenizer)

    def _start(self, tokenizer):
        eos = getattr(getattr(self._model, "generation_config", None), "eos_token_id", None)
        self._eos = set(eos if isinstance(eos, (list, tuple)) else [] if eos is None else [eos])
        for name, value in _facts(self._model):
            self.probe.setting(name, value)
        if tokenizer is not None:
            self.probe.vocab(tokenizer.batch_decode([[i] for i in range(len(tokenizer))]))
        before = self._before
        if "torch" in sys.modules and hasattr(sys.modules["torch"], "compiler"):
            before = sys.modules["torch"].compiler.disable(before)
        self._hook = self._model.register_forward_pre_hook(before, with_kwargs=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Take the hook off the model; the recorder records no more."""
        self._guarded(self._end)
        if self._hook:
            self._hook.remove()
        self._hook = self.probe = None

    def finish(self, sequences):
        """Tell what generate() returned: the last token of each sequence, which no call follows."""
        self._guarded(self._finish, sequences)

    def _finish(self, sequences):
        if self._ids is not None and sequences.shape[1] == self._ids.shape[1] + 1:
            self._emit(sequences[:, -1].tolist())
        self._ids = None

    def _before(self, _module, args, kwargs):
        self._guarded(self._open, args, kwargs)

    def _open(self, args, kwargs):
        """A forward of the model begins."""
        inputs = [args[0]] if args else [kwargs.get(name) for name in self.INPUTS]
        ids = next(x for x in inputs if x is not None)
        self._mask, self._positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
        n_seqs, n_new = ids.shape[:2]
        past = kwargs.get("past_key_values")
        if getattr(self._mask, "ndim", 0) == 2 and kwargs.get("encoder_outputs") is None:
            n_past = self._mask.shape[1] - n_new
        else:
            n_past = int(past.get_seq_length()) if hasattr(past, "get_seq_length") else 0
        if n_past == 0:
            self._ids = None
            self._first_seq += self._n_seqs
            self._n_seqs = n_seqs
            self._is_text = ids.ndim == 2 and not any(
                hasattr(x, "data_ptr") for name, x in kwargs.items() if name not in self.TEXT)
        phase = PREFILL if n_past == 0 or self._is_text and self._ids is None else \
            DECODE if n_new == 1 else VERIFY
        self._begin(phase, n_seqs * n_new, n_seqs, n_past)
        self._n_after, self._is_first = n_past + n_new, True
        self._event = None
        if ids.is_cuda:
            torch = sys.modules["torch"]
            self._event = torch.cuda.current_stream(ids.device).record_event()

    def __call__(self, input_ids, scores):
        self._guarded(self._record, input_ids, scores)
        return scores

    def _record(self, input_ids, scores):
        """Scores that no open forward computed are not of this model, but of one that assists."""
        if not self._forward or self._is_text and input_ids.shape[1] > self._n_after:
            return
        if not self._is_text:  # what else the model has seen has no name: the rows join nothing
            self._rows(scores, [(0, self._first_seq + i, self._n_after - 1, NO_TOKEN, i)
                                for i in range(scores.shape[0])])
            self._end()
            return
        last = self._note(input_ids)
        pos = input_ids.shape[1] - 1
        self._rows(scores, [
            None if not alive else
            (context, self._first_seq + i, pos - (pad or 0), token, i)
            for i, (context, pad, alive, token)
            in enumerate(zip(self._contexts, self._pads, self._alive, last))])
        self._is_first = False
        if input_ids.shape[1] == self._n_after:
            self._end()

    def _note(self, ids):
        """Continue the context of each sequence; returns the last token of each.

        The ids were there before the forward began, so that another stream may read them while the
        forward runs: nobody waits for it here."""
        if not ids.is_cuda or not self._event:
            return self._continue(ids)
        torch = sys.modules["torch"]
        if not self._aside or self._aside.device != ids.device:
            self._aside = torch.cuda.Stream(ids.device)
        with torch.cuda.stream(self._aside):
            self._aside.wait_event(self._event)
            return self._continue(ids)

    def _continue(self, ids):
        torch = sys.modules["torch"]
        if ids.numel() <= self.SMALL:
            ids = ids.cpu() if ids.is_cuda else ids.clone()
        grown = self._ids is not None and ids.device == self._ids.device and \
            torch.equal(ids[:, :-1], self._ids)
        last = ids[:, -1].tolist()
        if grown:
            if self._is_first:
                self._emit(last)
            self._contexts = [0 if pad is None else self.probe.context([token], context)
                              for pad, context, token in zip(self._pads, self._contexts, last)]
            self._alive = [alive and token not in self._eos
                           for alive, token in zip(self._alive, last)]
        else:
            self._begin_contexts(ids.tolist())
        self._ids = ids
        return last

    def _begin_contexts(self, rows):
        """The prompts; or tokens that do not continue those before: beams, rejected drafts."""
        if self._ids is None:
            self._pads, self._n_prompt = self._count_pads(len(rows), len(rows[0])), len(rows[0])
        self._contexts = [0 if pad is None else self.probe.context(row[pad:])
                          for pad, row in zip(self._pads, rows)]
        self._alive = [self._eos.isdisjoint(row[self._n_prompt:]) for row in rows]

    def _count_pads(self, n_seqs, n):
        """Tokens on the left that are none, by sequence; None where that is not told."""
        mask, positions = self._mask, self._positions
        if getattr(mask, "ndim", 0) == 2 and mask.shape[1] == n:
            return (n - mask.sum(1)).tolist()
        if getattr(positions, "ndim", 0) == 2:
            pads = (n - 1 - positions[:, -1]).tolist()
            return pads * (n_seqs // len(pads))
        return [0 if mask is None and positions is None else None] * n_seqs

    def _emit(self, tokens):
        """The tokens that were chosen after the rows before."""
        pos = self._ids.shape[1] - 1
        for i, token in enumerate(tokens):
            if self._alive[i]:
                self.probe.token(self._first_seq + i, pos - (self._pads[i] or 0), token)


def _facts(model):
    """What identifies a model and its arithmetic: (name, value)."""
    torch, config = sys.modules["torch"], getattr(model, "config", None)
    yield "model_path", getattr(config, "_name_or_path", "") or type(model).__name__
    if hasattr(model, "named_parameters"):
        yield "model_hash", _weights_hash(model)
        yield "dtype", str(next(model.parameters()).dtype)
    for name in ("vocab_size", "_attn_implementation"):
        if getattr(config, name, None) is not None:
            yield {"vocab_size": "n_vocab"}.get(name, name.strip("_")), getattr(config, name)
    yield "torch", torch.__version__
    yield "transformers", getattr(sys.modules.get("transformers"), "__version__", "")
    yield "deterministic_algorithms", torch.are_deterministic_algorithms_enabled()
    yield "float32_matmul_precision", torch.get_float32_matmul_precision()


def _weights_hash(model):
    """Names, types and shapes of all weights, and some values of each."""
    h = hashlib.sha256()
    for name, p in model.named_parameters():
        flat, some = p.detach().reshape(-1), []
        if p.device.type != "meta":  # which has no values here
            some = flat[::max(1, flat.numel() // 64)][:64].float().cpu().tolist()
        h.update(f"{name} {p.dtype} {tuple(p.shape)} {some}\n".encode())
    return h.hexdigest()[:16]


class _Request:
    """One request of vLLM's batch."""

    def __init__(self, seq, prompt, output):
        self.seq, self.prompt, self.output = seq, prompt, output
        self.n_at_start = self.n_seen = len(output)
        self.context = self.n_hashed = 0  # of the prompt and so many tokens of output; 0: not yet


class _Batch(_Recorder):
    """VLLM without its base class: the requests of the persistent batch, by their row."""

    def __init__(self, vllm_config, device, is_pin_memory, probe=None):
        super().__init__(probe, "vllm", "", None)
        del device, is_pin_memory
        self._requests, self._n_requests = {}, 0
        # A prompt that may be cut has rows of parts of it, which look like that of the whole.
        scheduler = getattr(vllm_config, "scheduler_config", None)
        self._whole = not getattr(scheduler, "enable_chunked_prefill",
                                  getattr(scheduler, "chunked_prefill_enabled", True))
        model = getattr(vllm_config, "model_config", None)
        # The ids of a request with an image are those of one with another image.
        self._is_text = not getattr(model, "is_multimodal_model", False)
        self._guarded(self._start, model)

    def _start(self, model):
        vllm = sys.modules.get("vllm")
        for name, value in (("model_path", getattr(model, "model", "")),
                            ("dtype", getattr(model, "dtype", "")),
                            ("vllm", getattr(vllm, "__version__", ""))):
            self.probe.setting(name, value)

    def is_argmax_invariant(self):
        """Invariant it is, but vLLM leaves such ones out where it takes the best token."""
        return False

    def update_state(self, batch_update):
        """Before each forward: who is in the batch."""
        self._guarded(self._update, batch_update)

    def _update(self, update):
        requests = self._requests
        if update:
            for i in update.removed:
                requests.pop(i, None)
            for i, _params, prompt, output in update.added:
                requests[i] = _Request(self._n_requests, prompt, output)
                self._n_requests += 1
            for a, b, way in update.moved:
                moved = requests.pop(a, None)
                back = requests.pop(b, None)
                if moved is not None:
                    requests[b] = moved
                if way.name == "SWAP" and back is not None:
                    requests[a] = back
        self._begin(DECODE, max(1, len(requests)), max(1, len(requests)), 0)

    def apply(self, logits):
        """Behind each forward: a row for each request, in the order of the batch."""
        self._guarded(self._record, logits)
        return logits

    def _record(self, logits):
        n = logits.shape[0]
        if not self._forward:
            self._begin(DECODE, n, n, 0)
        self._rows(logits, [self._row(i, self._requests.get(i)) for i in range(n)])
        self._end()

    def _row(self, i, r):
        """None where the row may be that of a part of the request's tokens."""
        if r is None or r.prompt is None or min(r.output[r.n_hashed:], default=0) < 0:
            return None
        n, n_prompt = len(r.output), len(r.prompt)
        if n > r.n_seen:
            self.probe.token(r.seq, n_prompt + n - 2, r.output[-1])
        r.n_seen = n
        if not self._whole and n == r.n_at_start:
            return None
        new = r.output[r.n_hashed:] if r.context else [*r.prompt, *r.output]
        r.context, r.n_hashed = self.probe.context(new, r.context), n
        return self._is_text and r.context, r.seq, n_prompt + n - 1, r.output[-1] if n else r.prompt[-1], i


def __getattr__(name):
    """VLLM has a base class in vLLM, which is not imported before somebody asks for it."""
    if name != "VLLM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm.v1.sample.logits_processor import LogitsProcessor
    made = type("VLLM", (_Batch, LogitsProcessor), {"__module__": __name__, "__doc__": _Batch.__doc__})
    globals()[name] = made
    return made
