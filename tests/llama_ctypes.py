"""A Python program that decodes with libllama through ctypes, as llama-cpp-python does. It prints
position, input token, best id and its logit of every step.
   llama_ctypes.py LIBRARY MODEL STEPS [LIBRARY]   the second one: in between, and not printed"""
import ctypes
import os
import sys


class Params(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint32 * 64)]  # more than any version has


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in
                ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
silent = LOG(lambda level, text, user: None)
PROTOTYPES = {
    "llama_log_set": (None, [LOG, ctypes.c_void_p]),
    "llama_model_default_params": (Params, []),
    "llama_context_default_params": (Params, []),
    "llama_model_load_from_file": (ctypes.c_void_p, [ctypes.c_char_p, Params]),
    "llama_init_from_model": (ctypes.c_void_p, [ctypes.c_void_p, Params]),
    "llama_set_n_threads": (None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
    "llama_model_get_vocab": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_vocab_n_tokens": (ctypes.c_int32, [ctypes.c_void_p]),
    "llama_decode": (ctypes.c_int32, [ctypes.c_void_p, Batch]),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
    "llama_free": (None, [ctypes.c_void_p]),
    "llama_model_free": (None, [ctypes.c_void_p]),
    "ggml_backend_load_all_from_path": (None, [ctypes.c_char_p]),
}


class Llama:
    def __init__(self, path, model):
        self.lib = ctypes.CDLL(path)
        for name, (result, arguments) in PROTOTYPES.items():
            getattr(self.lib, name).restype = result
            getattr(self.lib, name).argtypes = arguments
        self.lib.llama_log_set(silent, None)
        self.lib.ggml_backend_load_all_from_path(os.path.dirname(path).encode())
        self.model = self.lib.llama_model_load_from_file(
            model.encode(), self.lib.llama_model_default_params())
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))

    def generate(self, tokens, steps):
        context = self.lib.llama_init_from_model(
            self.model, self.lib.llama_context_default_params())
        self.lib.llama_set_n_threads(context, 1, 1)
        pos, lines = -1, []
        for _ in range(steps):
            array = (ctypes.c_int32 * len(tokens))(*tokens)
            batch = Batch(len(tokens), ctypes.addressof(array))
            if self.lib.llama_decode(context, batch) != 0:
                sys.exit("llama_decode failed")
            row = self.lib.llama_get_logits_ith(context, -1)[:self.n_vocab]
            best = max(range(self.n_vocab), key=row.__getitem__)
            pos += len(tokens)
            lines.append(f"{pos} {tokens[-1]} {best} {row[best]:.4f}")
            tokens = [best]
        self.lib.llama_free(context)
        return lines


library, model, steps, *others = sys.argv[1:]
prompt = [40, 7, 93, 12, 55]
llama = Llama(library, model)
print(*llama.generate(prompt, int(steps)), sep="\n")
for other in others:
    if Llama(other, model).generate(prompt, 2) != llama.generate(prompt, 2):
        sys.exit("the other library gives other logits")
