/* Rows of a stream that is being captured into a CUDA graph. The capture kernel becomes a node of
 * the graph and counts its replays on the device; replay n leaves its results in slot n modulo the
 * slots of this node, and the writer takes them from there. It never waits: results that were
 * overwritten before it came are counted. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "shim/device.h"
#include "shim/device_cuda_int.h"
#include "shim/ring.h"
#include "shim/rows.h"

enum {
    MAX_NODES = 1024,      /* of a process */
    MAX_BYTES = 256 << 20, /* of pinned memory in all */
    NODE_RESULTS = 2048,   /* about how many results of a node can wait: the writer comes every
                              100 ms, so that a row a replay may take 50 us */
    SLOTS_MIN = 4
};

/* One capture in one graph. Written before it is listed; later only by the writer. */
struct node {
    uint64_t forward_id; /* the forward in which it was captured */
    int32_t arm, n_slots;
    struct probe_logits call;      /* as it was made, without its pointers */
    struct probe_row *rows;        /* (n_rows) of the call; pos is the next replay's */
    uint32_t *n_seen;              /* (n_rows) replays that were read */
    struct capture_cuda_row *slot; /* (n_slots, n_rows), written by the device */
};

static struct node *nodes[MAX_NODES];
static _Atomic int n_nodes;
static size_t n_bytes;

static int32_t slots_for(int32_t n_rows)
{
    int32_t n = NODE_RESULTS / n_rows;
    return n < SLOTS_MIN ? SLOTS_MIN : n;
}

/* Zero device memory without the default stream, which a capture may forbid. */
static CUresult zero(CUdeviceptr at, size_t bytes)
{
    CUstream stream;
    CUresult rc = driver.cuStreamNew(&stream, CU_STREAM_NON_BLOCKING);
    if (rc)
        return rc;
    rc = driver.cuMemset(at, 0, bytes, stream);
    CUresult waited = driver.cuStreamWait(stream);
    driver.cuStreamFree(stream);
    return rc ? rc : waited;
}

static void node_free(struct node *d)
{
    if (d) {
        free(d->rows);
        free(d->n_seen);
    }
    free(d);
}

static struct node *node_new(const struct probe_logits *l, uint64_t forward_id, int32_t arm)
{
    size_t n = (size_t)l->n_rows;
    struct node *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->forward_id = forward_id;
    d->arm = arm;
    d->n_slots = slots_for(l->n_rows);
    d->call = *l;
    d->call.rows = d->rows = calloc(n, sizeof *d->rows);
    d->n_seen = calloc(n, sizeof *d->n_seen);
    if (!d->rows || !d->n_seen) {
        node_free(d);
        return NULL;
    }
    memcpy(d->rows, l->rows, n * sizeof *d->rows);
    for (size_t i = 0; i < n; i++) { /* who replays it does not say with which tokens */
        d->rows[i].context_hash = 0;
        d->rows[i].input_token = PROBE_NO_TOKEN;
    }
    return d;
}

/* The node's memory and its launch. What it has taken when it fails stays taken: a part of it may
 * be in the graph. */
static const char *node_launch(struct context *c, struct node *d, const struct probe_logits *l,
                               int32_t k)
{
    size_t n_rows = (size_t)l->n_rows;
    size_t bytes = (size_t)d->n_slots * n_rows * sizeof *d->slot;
    CUdeviceptr slot, replays;
    struct workspace w;
    bool split = device_splits(c, l, l->n_rows) > 1;
    if (n_bytes + bytes > MAX_BYTES)
        return "the results of captured graphs take too much memory";
    d->slot = device_map(bytes, &slot);
    if (!d->slot)
        return "no memory that host and device share";
    n_bytes += bytes;
    if (driver.cuAlloc(&replays, n_rows * sizeof(uint32_t)) ||
        zero(replays, n_rows * sizeof(uint32_t)) ||
        (split && (device_workspace(&w) || zero(w.arrived, SPLIT_ROWS * sizeof(uint32_t)))))
        return "no device memory for a captured graph";
    struct capture_cuda_args args = {
        .k = k,
        .rows = (struct capture_cuda_row *)(uintptr_t)slot,
        .n_slots = d->n_slots,
        .replays = (uint32_t *)(uintptr_t)replays,
    };
    if (device_launch(c, l, 0, l->n_rows, split ? &w : NULL, &args))
        return "the capture kernel cannot be captured into the graph";
    return NULL;
}

const char *device_capture_graph(struct probe *p, struct context *c, uint64_t forward_id,
                                 int32_t arm, const struct probe_logits *l)
{
    int n = atomic_load_explicit(&n_nodes, memory_order_relaxed);
    struct node *d = n < MAX_NODES ? node_new(l, forward_id, arm) : NULL;
    if (!d)
        return "too many captures into graphs";
    const char *why = node_launch(c, d, l, p->options.topk);
    if (why) {
        node_free(d);
        return why;
    }
    nodes[n] = d;
    atomic_store_explicit(&n_nodes, n + 1, memory_order_release);
    return NULL;
}

/* Copy what the next replay left in a row, if it is there. Replays that were overwritten in the
 * meantime are counted and passed over. */
static bool take(struct probe *p, struct node *d, int32_t row, struct capture_cuda_row *out)
{
    for (;;) {
        uint32_t next = d->n_seen[row] + 1;
        const struct capture_cuda_row *at =
            &d->slot[(int64_t)((next - 1) % (uint32_t)d->n_slots) * d->call.n_rows + row];
        uint32_t done = __atomic_load_n(&at->done, __ATOMIC_ACQUIRE);
        if (done < next)
            return false;
        if (done == next) {
            memcpy(out, at, sizeof *out);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (__atomic_load_n(&at->done, __ATOMIC_RELAXED) == next) {
                d->n_seen[row] = next;
                return true;
            }
            continue;
        }
        uint32_t n_gone =
            done - (uint32_t)d->n_slots - d->n_seen[row]; /* their slots were used again */
        spool_lose(&p->spool, LOST_DEVICE_ROWS, n_gone);
        d->rows[row].pos += n_gone;
        d->n_seen[row] += n_gone;
    }
}

static void emit(struct probe *p, struct node *d, int32_t i, const struct capture_cuda_row *got)
{
    uint64_t n;
    struct record *r = rows_reserve(p, d->forward_id, &d->call, i, false, &n);
    d->rows[i].pos++;
    if (!r)
        return;
    struct record_row *row = (struct record_row *)r->body;
    row->n_top = (uint8_t)p->options.topk;
    device_fill(row, got);
    rows_publish(p, d->arm, r, n);
}

void device_poll(struct probe *p)
{
    struct capture_cuda_row got;
    int n = atomic_load_explicit(&n_nodes, memory_order_acquire);
    for (int i = 0; i < n; i++) {
        struct node *d = nodes[i];
        bool any;
        do {
            any = false;
            for (int32_t row = 0; row < d->call.n_rows; row++)
                if (take(p, d, row, &got)) {
                    emit(p, d, row, &got);
                    any = true;
                }
        } while (any && !ring_pressing(&p->spool));
    }
}
