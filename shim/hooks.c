/* The function table of probe.h, and the two symbols that the library exports. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/core.h"
#include "shim/probe.h"
#include "shim/rows.h"
#include "shim/tags.h"
#include "sql/context_hash.h"

/* A forward's handle: its number, its arm, the recording it belongs to, and whether it was lost. */
enum { ID_BITS = 43, ARM_BITS = 12, GENERATION_BITS = 8 };
#define HANDLE_LOST (UINT64_C(1) << 63)

static uint64_t make_handle(const struct probe *p, uint64_t id, int32_t arm)
{
    uint64_t generation = atomic_load(&p->generation) & ((1u << GENERATION_BITS) - 1);
    return generation << (ID_BITS + ARM_BITS) | (uint64_t)arm << ID_BITS | id;
}

static uint64_t handle_id(uint64_t handle)
{
    return handle & ((UINT64_C(1) << ID_BITS) - 1);
}

static int32_t handle_arm(uint64_t handle)
{
    return (int32_t)(handle >> ID_BITS & ((1u << ARM_BITS) - 1));
}

/* Whether it was given out by this recording, not by one before a fork. */
static bool handle_is_ours(const struct probe *p, uint64_t handle)
{
    return handle &&
           (handle & ~HANDLE_LOST) >> ID_BITS == make_handle(p, 0, handle_arm(handle)) >> ID_BITS;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static uint32_t thread_id(void)
{
    static __thread __attribute__((tls_model("initial-exec"))) struct {
        uint32_t generation, id;
    } known;
    uint32_t generation = atomic_load_explicit(&probe.generation, memory_order_relaxed);
    if (known.generation != generation) {
        known.generation = generation;
        known.id = (uint32_t)syscall(SYS_gettid);
    }
    return known.id;
}

static void push(enum record_kind kind, const void *body, size_t bytes)
{
    if (!probe_push(kind, body, bytes))
        spool_lose(&probe.spool, LOST_RECORDS, 1);
}

static void hook_run_setting(const char *name, const char *value, const char *source)
{
    struct gate g;
    if (!name || !probe_enter(&g))
        return;
    bool known = source && (!strcmp(source, "env") || !strcmp(source, "default"));
    facts_setting(&probe.facts, &probe.spool, name, value, known ? source : "api");
    probe_leave(&g);
}

static int32_t hook_arm(const char *label, enum probe_phase phase, const char *cls)
{
    struct gate g;
    if (!label || (unsigned)phase > PROBE_VERIFY || !probe_enter(&g))
        return -1;
    int32_t arm = facts_arm(&probe.facts, &probe.spool, label, phase, cls);
    probe_leave(&g);
    return arm;
}

static void hook_sequence(int64_t seq, const char *label, int64_t parent)
{
    struct gate g;
    if (!probe_enter(&g))
        return;
    struct record_sequence r = {.seq = seq, .parent = parent};
    if (label && !probe.tokens.hidden) /* may be the text of a prompt */
        memcpy(r.label, label, strnlen(label, sizeof r.label - 1));
    push(RECORD_SEQUENCE, &r, sizeof r);
    probe_leave(&g);
}

/* Whether this forward, the n-th from 0, is one to record. A share takes them evenly. */
static bool is_sampled(double sample, uint64_t n)
{
    if (sample >= 1)
        return n % (uint64_t)sample == 0;
    return (uint64_t)((double)(n + 1) * sample) != (uint64_t)((double)n * sample);
}

static uint64_t hook_forward_begin(const struct probe_forward *f)
{
    struct gate g;
    if (!f || f->struct_size < sizeof *f || !probe_enter(&g))
        return 0;
    struct probe *p = &probe;
    if (!is_sampled(p->options.sample,
                    atomic_fetch_add_explicit(&p->n_seen, 1, memory_order_relaxed))) {
        probe_leave(&g);
        return 0;
    }
    facts_catch_up(&p->facts, &p->spool);
    uint64_t id = atomic_fetch_add_explicit(&p->n_forwards, 1, memory_order_relaxed) + 1;
    int32_t arm = f->arm > 0 && f->arm <= FACTS_ARMS ? f->arm : 0;
    struct record_forward r = {
        .forward_id = id,
        .started_ns = now_ns(),
        .n_past = f->n_past,
        .arm = arm,
        .n_tokens = f->n_tokens,
        .n_seqs = f->n_seqs,
        .ubatch_index = f->ubatch_index,
        .n_ubatch = f->n_ubatch,
        .thread = thread_id(),
    };
    uint64_t handle = make_handle(p, id, arm);
    if (!probe_push(RECORD_FORWARD, &r, sizeof r)) {
        spool_lose(&p->spool, LOST_FORWARDS, 1);
        handle |= HANDLE_LOST;
    } else
        tags_begin(handle);
    probe_leave(&g);
    return handle;
}

static bool is_sound(const struct probe_logits *l)
{
    return l && l->struct_size >= sizeof *l && l->n_rows > 0 && l->n_vocab > 0 && l->data &&
           l->rows && l->row_stride >= l->n_vocab && (uint32_t)l->dtype <= PROBE_BF16 &&
           (uint32_t)l->location <= PROBE_CUDA;
}

static void hook_logits(uint64_t handle, const struct probe_logits *l)
{
    struct gate g;
    if (!probe_enter(&g)) {
        if (is_sound(l) &&
            (atomic_load(&probe.refused) || atomic_load(&probe.state) == STATE_STARTING))
            atomic_fetch_add(&probe.lost_rows, (uint64_t)l->n_rows);
        return;
    }
    if (!is_sound(l))
        spool_lose(&probe.spool, LOST_CALLS, 1);
    else if (!handle_is_ours(&probe, handle))
        rows_forget(&probe, l);
    else if (handle & HANDLE_LOST)
        spool_lose(&probe.spool, LOST_ROWS, (uint64_t)l->n_rows);
    else
        rows_record(&probe, handle_id(handle), handle_arm(handle), l);
    probe_leave(&g);
}

static void hook_forward_end(uint64_t handle)
{
    struct gate g;
    if (!handle || !probe_enter(&g))
        return;
    struct record_end r = {handle_id(handle), now_ns(), 0};
    if (handle_is_ours(&probe, handle) && !(handle & HANDLE_LOST)) {
        r.list = tags_end(handle);
        push(RECORD_END, &r, sizeof r);
    }
    probe_leave(&g);
}

static void hook_token(int64_t seq, int64_t pos, int32_t id)
{
    struct gate g;
    if (!probe_enter(&g))
        return;
    struct record_token r = {recent_find(probe.recent, seq, pos), tokens_hide(&probe.tokens, id)};
    if (r.row_id) /* else its row was not recorded either */
        push(RECORD_TOKEN, &r, sizeof r);
    probe_leave(&g);
}

static void hook_graph(void *graph, void *exec, const char *label)
{
    struct gate g;
    (void)graph;
    if (!exec || !probe_enter(&g))
        return;
    tags_exec_label(exec, label ? label : "");
    probe_leave(&g);
}

enum { TOKEN_TEXT_MAX = 1024 };

/* The texts in one block: the header, n + 1 offsets, the bytes. NULL without memory. */
static struct store_vocab *copy_vocab(int32_t n, probe_token_text_fn fn, void *user)
{
    size_t head = sizeof(struct store_vocab) + ((size_t)n + 1) * sizeof(uint32_t);
    size_t room = head + (size_t)n * 8 + TOKEN_TEXT_MAX, at = head;
    char *block = malloc(room);
    for (int32_t i = 0; block && i <= n; i++) {
        uint32_t offset = (uint32_t)(at - head);
        memcpy(block + sizeof(struct store_vocab) + (size_t)i * sizeof offset, &offset,
               sizeof offset);
        if (i == n)
            break;
        if (room - at < TOKEN_TEXT_MAX) {
            char *more = realloc(block, room *= 2);
            if (!more)
                free(block);
            block = more;
            if (!block)
                break;
        }
        int bytes = fn(user, i, block + at, TOKEN_TEXT_MAX);
        at += bytes < 0 ? 0 : bytes > TOKEN_TEXT_MAX ? TOKEN_TEXT_MAX : (size_t)bytes;
    }
    struct store_vocab *v = (struct store_vocab *)block;
    if (v)
        *v = (struct store_vocab){n, (const uint32_t *)(v + 1), block + head};
    return v;
}

static void hook_vocab(int32_t n_vocab, probe_token_text_fn fn, void *user)
{
    struct gate g;
    if (n_vocab <= 0 || n_vocab > 1 << 24 || !fn || !probe_enter(&g))
        return;
    bool wanted = !probe.tokens.hidden;
    struct store_vocab *v = wanted ? copy_vocab(n_vocab, fn, user) : NULL;
    if (v)
        free(atomic_exchange(&probe.vocab, v));
    else if (wanted)
        spool_lose(&probe.spool, LOST_RECORDS, 1);
    probe_leave(&g);
}

static void hook_kernels(int on)
{
    tags_pause(!on);
}

static const struct probe_ops table = {
    .abi_version = PROBE_ABI_VERSION,
    .struct_size = sizeof table,
    .run_setting = hook_run_setting,
    .arm = hook_arm,
    .sequence = hook_sequence,
    .context_hash = context_hash,
    .forward_begin = hook_forward_begin,
    .logits = hook_logits,
    .forward_end = hook_forward_end,
    .token = hook_token,
    .graph = hook_graph,
    .vocab = hook_vocab,
    .kernels = hook_kernels,
};

__attribute__((visibility("default"))) const struct probe_ops *probe_abi_v1(uint32_t abi_version);

const struct probe_ops *probe_abi_v1(uint32_t abi_version)
{
    return abi_version == PROBE_ABI_VERSION ? &table : NULL;
}
