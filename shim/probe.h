/* The hook ABI between an inference engine and libprobe.so, and the only file of neartie that an
 * engine includes. Plain C and C++, no dependency, no link-time reference: an engine built with
 * hooks runs unchanged where no probe is loaded.
 *
 * An engine calls probe_attach() once, after cuInit where it uses CUDA, keeps the table, and
 * calls through it; NULL means that no probe is loaded. Every pointer given to the probe is
 * borrowed for the duration of the call. No call blocks, throws, prints, changes errno or ends
 * the process; calls may come from any thread, and a forward is used by one thread at a time. */
#ifndef NEARTIE_SHIM_PROBE_H
#define NEARTIE_SHIM_PROBE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBE_ABI_VERSION 1

enum probe_location { PROBE_HOST = 0, PROBE_CUDA = 1 };
enum probe_dtype { PROBE_F32 = 0, PROBE_F16 = 1, PROBE_BF16 = 2 };
enum probe_phase { PROBE_PREFILL = 0, PROBE_DECODE = 1, PROBE_VERIFY = 2 };

#define PROBE_NO_TOKEN (-1) /* input_token unknown */

/* One forward pass that is about to run. */
struct probe_forward {
    uint32_t struct_size; /* sizeof(struct probe_forward) */
    int32_t arm;          /* as returned by probe_ops.arm */
    int32_t n_tokens;     /* input tokens of this pass, over all sequences */
    int32_t n_seqs;       /* sequences in the batch */
    int64_t n_past;       /* positions already in the cache, of the first sequence */
    int32_t ubatch_index; /* which micro-batch of the batch this is, from 0 */
    int32_t n_ubatch;     /* micro-batches of the batch, at least 1 */
};

/* One row of logits: the prediction that follows `pos`. */
struct probe_row {
    uint64_t context_hash; /* probe_ops.context_hash over all tokens of the sequence up to and
                              including the one at pos; 0 = unknown, the row joins nothing */
    int64_t seq;           /* the engine's number of the sequence, stable over its life */
    int64_t pos;           /* position of the input token, from 0 */
    int32_t input_token;   /* id at pos, or PROBE_NO_TOKEN */
    int32_t batch_row;     /* row of the batch in which this token was computed, from 0 */
};

/* The logits that one forward produced: after bias and mask, before temperature. */
struct probe_logits {
    uint32_t struct_size;         /* sizeof(struct probe_logits) */
    int32_t location;             /* enum probe_location */
    int32_t dtype;                /* enum probe_dtype */
    int32_t n_rows;               /* rows, at least 1 */
    int32_t n_vocab;              /* columns, at least 1 */
    int64_t row_stride;           /* elements from one row to the next, at least n_vocab */
    const void *data;             /* (n_rows, row_stride), host or device memory */
    void *stream;                 /* CUstream that orders the writes; NULL on the host. One that is
                                     being captured: every replay brings the rows again, one position
                                     on and of an unknown context. Who knows the context calls
                                     behind the graph's launch instead */
    const struct probe_row *rows; /* (n_rows) */
};

/* Text of a token id: write at most size bytes into buf (UTF-8 not required, no terminator) and
 * return the length, or -1 where the id has no text. */
typedef int (*probe_token_text_fn)(void *user, int32_t token, char *buf, size_t size);

/* The function table. New members are only ever appended; compare struct_size before using one
 * that came after ABI version 1's first release. */
struct probe_ops {
    uint32_t abi_version; /* PROBE_ABI_VERSION of the library */
    uint32_t struct_size; /* sizeof(struct probe_ops) of the library */

    /* Record a numeric knob or an identity of the run. The names "engine", "model_path",
     * "model_hash" and "n_vocab" also fill the columns of the same name in `runs`; source is
     * "env", "default" or "api". */
    void (*run_setting)(const char *name, const char *value, const char *source);

    /* Declare a numeric configuration and return its number, the same for the same label and
     * phase, or -1. cls is one of bitwise, reassoc, precision, weights, engine, or NULL. */
    int32_t (*arm)(const char *label, enum probe_phase phase, const char *cls);

    /* Name a sequence; parent is the sequence that it was forked from, or -1. Optional. */
    void (*sequence)(int64_t seq, const char *label, int64_t parent);

    /* Continue a context hash over n more token ids; prev is 0 for the first token. */
    uint64_t (*context_hash)(uint64_t prev, const int32_t *tokens, size_t n);

    /* Open a forward; the handle goes to the next two calls. 0 = not recorded, still legal. */
    uint64_t (*forward_begin)(const struct probe_forward *forward);
    void (*logits)(uint64_t forward, const struct probe_logits *logits);
    void (*forward_end)(uint64_t forward);

    /* The sampler emitted id after the row at (seq, pos). */
    void (*token)(int64_t seq, int64_t pos, int32_t id);

    /* A CUgraph was instantiated as exec (both as void pointers: no CUDA header here). */
    void (*graph)(void *graph, void *exec, const char *label);

    /* Give the vocabulary, so that reports can show text: fn is called for the ids 0 ... n_vocab-1
     * before this returns. The probe copies the texts and stores those of ids that occur. */
    void (*vocab)(int32_t n_vocab, probe_token_text_fn fn, void *user);

    /* Pause (0) and resume (1) the recording of which kernels are launched, in all threads. What is
     * loaded and captured meanwhile is still seen; a forward that was open at a time without is
     * recorded with no kernels, and counted. */
    void (*kernels)(int on);
};

/* The one exported entry: returns the table, or NULL when this library does not speak
 * abi_version. */
typedef const struct probe_ops *(*probe_abi_fn)(uint32_t abi_version);

/* Find a loaded probe: preloaded (global scope), or injected by the CUDA driver (its own scope).
 * Returns NULL when there is none. */
static inline const struct probe_ops *probe_attach(void)
{
    void *sym = dlsym(RTLD_DEFAULT, "probe_abi_v1");
    if (!sym) {
        const char *path = getenv("CUDA_INJECTION64_PATH");
        void *lib = path && *path ? dlopen(path, RTLD_NOLOAD | RTLD_NOW) : NULL;
        if (lib)
            sym = dlsym(lib, "probe_abi_v1");
    }
    if (!sym)
        return NULL;
    probe_abi_fn fn;
    *(void **)(&fn) = sym;
    return fn(PROBE_ABI_VERSION);
}

/* Leave an ELF note at a hook site, so that `neartie inspect BINARY` can list the sites without
 * running the program. Section .note.neartie, owner "neartie", type PROBE_ABI_VERSION,
 * descriptor: address of the site (8 bytes), then two NUL-terminated strings, the site's name and
 * "file:line". Not loaded at run time, kept by strip. */
#define PROBE_STR_(x) #x
#define PROBE_STR(x)  PROBE_STR_(x)
#define PROBE_NOTE(name)                                                                           \
    __asm__ __volatile__(                                                                          \
        "990: .pushsection .note.neartie,\"\",%note\n\t"                                           \
        ".balign 4\n\t.4byte 992f-991f, 994f-993f, " PROBE_STR(                                    \
            PROBE_ABI_VERSION) "\n"                                                                \
                               "991: .asciz \"neartie\"\n"                                         \
                               "992: .balign 4\n"                                                  \
                               "993: .8byte 990b\n\t"                                              \
                               ".asciz \"" name "\"\n\t.asciz \"" __FILE__                         \
                               ":" PROBE_STR(__LINE__) "\"\n"                                      \
                                                       "994: .balign 4\n\t.popsection")

/* Call one member of the table at a hook site: PROBE_HOOK(ops, token, (seq, pos, id)).
 * Without -DPROBE_HOOKS=1 nothing is compiled and the arguments are not evaluated. */
#if defined(PROBE_HOOKS) && PROBE_HOOKS
#define PROBE_HOOK(ops, member, args)                                                              \
    do {                                                                                           \
        PROBE_NOTE(#member);                                                                       \
        if (__builtin_expect((ops) != NULL, 0))                                                    \
            (ops)->member args;                                                                    \
    } while (0)
#else
#define PROBE_HOOK(ops, member, args)                                                              \
    do {                                                                                           \
    } while (0)
#endif

#ifdef __cplusplus
}
#endif

#endif
