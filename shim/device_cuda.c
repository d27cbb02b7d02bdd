#include "config.h"

#include "shim/device.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "shim/device_cuda_int.h"
#include "shim/ring.h"
#include "shim/rows.h"

/* The kernels for every configured architecture, as nvcc -fatbin made them. */
extern const char capture_fatbin[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n\t"
        ".balign 16\n\t"
        ".globl capture_fatbin\n\t"
        ".hidden capture_fatbin\n"
        "capture_fatbin:\n\t"
        ".incbin \"shim/capture_cuda.fatbin\"\n\t"
        ".popsection");

enum {
    LAUNCH_ROWS = 1024,  /* most rows of one launch */
    MAX_CONTEXTS = 16,   /* of a process */
    LOCK_TRIES = 200000, /* about a millisecond */
    GIVE_UP_S = 60       /* after which a launch is taken for dead */
};

struct device_driver driver;

static struct context *contexts[MAX_CONTEXTS]; /* never freed: the writer may still read them */
static int n_contexts;
static uint32_t n_launches;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Resolve the driver's functions. Returns whether all are there. */
static bool driver_load(void)
{
    static int state; /* 0 not tried, 1 there, -1 not */
    if (state)
        return state > 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    bool found = lib != NULL;
#define RESOLVE(name, symbol, params)                                                              \
    if (found)                                                                                     \
        found = (*(void **)&driver.name = dlsym(lib, symbol)) != NULL;
    DRIVER_FUNCTIONS(RESOLVE)
    state = found ? 1 : -1;
    return found;
}

static void *map_pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void *device_map(size_t bytes, CUdeviceptr *out_dev)
{
    void *at = map_pages(bytes);
    if (!at)
        return NULL;
    if (!driver.cuRegister(at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) &&
        !driver.cuHostToDevice(out_dev, at, 0))
        return at;
    munmap(at, bytes);
    return NULL;
}

/* Load the kernels and make the pool, in the context that is current. NULL, or what failed. */
static const char *context_fill(struct context *c)
{
    static const char *const names[] = {"probe_capture_f32", "probe_capture_f16",
                                        "probe_capture_bf16"};
    CUmodule module;
    CUdevice device;
    if (driver.cuLoad(&module, capture_fatbin))
        return "the capture kernels do not load on this device";
    for (int i = 0; i < 3; i++)
        if (driver.cuFunction(&c->kernels[i], module, names[i]))
            return "a capture kernel is missing";
    if (driver.cuCtxGetDevice_(&device) ||
        driver.cuDeviceAttribute(&c->sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
        return "the device does not tell its size";
    c->rows = device_map(POOL_ROWS * sizeof *c->rows, &c->rows_dev);
    c->watch = device_map(POOL_ROWS * sizeof *c->watch, &c->watch_dev);
    return c->rows && c->watch ? NULL : "no memory that host and device share";
}

/* The entry of a context, made at its first row. NULL, with *why, where it cannot be used. */
static struct context *context_of(CUcontext handle, const char **why)
{
    unsigned long long id;
    if (driver.cuCtxGetId(handle, &id)) {
        *why = "the stream's context is not usable";
        return NULL;
    }
    for (int i = 0; i < n_contexts; i++)
        if (contexts[i]->id == id) {
            *why = NULL;
            return contexts[i];
        }
    struct context *c = n_contexts < MAX_CONTEXTS ? calloc(1, sizeof *c) : NULL;
    *why = "too many CUDA contexts";
    if (!c)
        return NULL;
    c->handle = handle;
    c->id = id;
    *why = context_fill(c);
    if (*why) {
        free(c);
        return NULL;
    }
    contexts[n_contexts++] = c;
    return c;
}

/* Find n rows in a row of the pool that nobody waits for; the first, or -1. */
static int32_t pool_take(struct context *c, int32_t n, int32_t arm)
{
    int32_t first = c->next + n <= POOL_ROWS ? c->next : 0;
    for (int32_t i = first; i < first + n; i++)
        if (atomic_load(&c->waiting[i].busy))
            return -1;
    n_launches++;
    for (int32_t i = first; i < first + n; i++) {
        c->waiting[i].launch = n_launches;
        c->waiting[i].arm = arm;
        c->waiting[i].since_ns = now_ns();
        c->rows[i].done = 0;
        atomic_store(&c->waiting[i].busy, true);
    }
    c->next = first + n;
    return first;
}

CUresult device_workspace(struct workspace *w)
{
    CUresult rc = driver.cuAlloc(&w->partials, SPLIT_ROWS * sizeof(struct capture_cuda_partials));
    return rc ? rc : driver.cuAlloc(&w->arrived, SPLIT_ROWS * sizeof(uint32_t));
}

/* The stream's workspace, or NULL where it has to do without. */
static struct workspace *workspace_of(struct context *c, CUstream stream)
{
    for (int i = 0; i < c->n_workspaces; i++)
        if (c->workspaces[i].stream == stream)
            return &c->workspaces[i];
    if (c->n_workspaces == MAX_STREAMS)
        return NULL;
    struct workspace *w = &c->workspaces[c->n_workspaces];
    w->stream = stream;
    if (device_workspace(w) ||
        driver.cuMemset(w->arrived, 0, SPLIT_ROWS * sizeof(uint32_t), stream))
        return NULL;
    c->n_workspaces++;
    return w;
}

/* About two blocks for each multiprocessor in all, and at least a tile for each. */
int32_t device_splits(const struct context *c, const struct probe_logits *l, int32_t n)
{
    int32_t bytes = l->dtype == PROBE_F32 ? 4 : 2;
    int32_t n_tiles = (int32_t)(((int64_t)l->n_vocab * bytes + 16383) / 16384);
    int32_t splits = 2 * c->sm_count / n;
    splits = splits < n_tiles ? splits : n_tiles;
    splits = splits < CAPTURE_CUDA_SPLITS ? splits : CAPTURE_CUDA_SPLITS;
    return splits > 1 && n <= SPLIT_ROWS ? splits : 1;
}

CUresult device_launch(const struct context *c, const struct probe_logits *l, int32_t from,
                       int32_t n, const struct workspace *w, struct capture_cuda_args *args)
{
    int64_t bytes = l->dtype == PROBE_F32 ? 4 : 2;
    int32_t splits = w ? device_splits(c, l, n) : 1;
    args->data = (const char *)l->data + from * l->row_stride * bytes;
    args->row_stride = l->row_stride;
    args->n_vocab = l->n_vocab;
    args->partials = w ? (struct capture_cuda_partials *)(uintptr_t)w->partials : NULL;
    args->arrived = w ? (uint32_t *)(uintptr_t)w->arrived : NULL;
    return driver.cuLaunch(c->kernels[l->dtype], (unsigned)splits, (unsigned)n, 1,
                           CAPTURE_CUDA_THREADS, 1, 1, 0, l->stream, (void *[]){args}, NULL);
}

/* Launch over rows from ... from + n - 1 of the call; results go to the pool from `first` on. */
static CUresult launch(struct context *c, const struct probe_logits *l, int32_t from, int32_t n,
                       int32_t first, int32_t k, int32_t n_watch)
{
    struct workspace *w = device_splits(c, l, n) > 1 ? workspace_of(c, l->stream) : NULL;
    struct capture_cuda_args args = {
        .k = k,
        .n_watch = n_watch,
        .launch = n_launches,
        .watch = (const int32_t *)(uintptr_t)(c->watch_dev + (size_t)first * sizeof *c->watch),
        .rows = (struct capture_cuda_row *)(uintptr_t)c->rows_dev + first,
        .n_slots = 1,
    };
    return device_launch(c, l, from, n, w, &args);
}

/* A pending record says in its first_bad where its results will stand. */
static int32_t place_of(int context, int32_t row)
{
    return context * POOL_ROWS + row;
}

/* Put a row's baseline into its record, without the logits yet, and onto the watch list. */
static bool watch_base(struct probe *p, struct context *c, int32_t at, int32_t arm,
                       struct record_row *row)
{
    struct base base;
    row->n_top = (uint8_t)p->options.topk; /* room for its list, which comes before the base's */
    if (!rows_find_base(p, arm, row, &base))
        return false;
    struct record_base *out = record_row_base(row);
    for (int i = 0; i < base.row.n_top; i++)
        if (base.top[i].token < row->n_vocab) {
            c->watch[at][row->n_base] = base.top[i].token;
            out[row->n_base++] = (struct record_base){tokens_hide(&p->tokens, base.top[i].token), 0,
                                                      base.top[i].logit};
        }
    return true;
}

/* Reserve records for up to n rows and launch; returns how many rows are on their way. */
static int32_t record_rows(struct probe *p, struct context *c, uint64_t forward_id, int32_t arm,
                           const struct probe_logits *l, int32_t from, int32_t n)
{
    struct record *records[LAUNCH_ROWS];
    uint64_t numbers[LAUNCH_ROWS];
    int32_t k = p->options.topk, n_watch = 0, m = 0;
    int index = 0;
    int32_t first = pool_take(c, n, arm);
    if (first < 0) {
        rows_lose_device(p, n, "results of earlier rows still wait for the writer");
        return 0;
    }
    while (contexts[index] != c)
        index++;
    for (; m < n && (records[m] = rows_reserve(p, forward_id, l, from + m, true, &numbers[m]));
         m++) {
        struct record_row *row = (struct record_row *)records[m]->body;
        for (int32_t i = 0; i < k; i++)
            c->watch[first + m][i] = -1;
        if (watch_base(p, c, first + m, arm, row))
            n_watch = CAPTURE_CUDA_MAX_K;
        row->first_bad = place_of(index, first + m);
    }
    if (m < n)
        spool_lose(&p->spool, LOST_ROWS, (uint64_t)(n - m - 1)); /* one is counted already */
    for (int32_t i = m; i < n; i++)
        atomic_store(&c->waiting[first + i].busy, false);
    bool failed = m && launch(c, l, from, m, first, k, n_watch);
    for (int32_t i = 0; i < m; i++) {
        const struct record_row *row = (struct record_row *)records[i]->body;
        atomic_store(&c->waiting[first + i].busy, !failed);
        atomic_fetch_add(&p->n_pending, !failed);
        ring_publish(records[i], numbers[i], failed ? RECORD_NONE : RECORD_PENDING,
                     failed ? 0 : record_row_bytes(row->n_top, row->n_base));
    }
    if (failed)
        rows_lose_device(p, m, "the capture kernel could not be launched");
    return failed ? 0 : m;
}

/* Record with the stream's context current. */
static void record_in(struct probe *p, CUcontext handle, bool capturing, uint64_t forward_id,
                      int32_t arm, const struct probe_logits *l)
{
    const char *why = "the stream's context cannot be made current";
    if (!driver.cuCtxPush(handle)) {
        CUcontext popped;
        struct context *c = context_of(handle, &why);
        if (c && capturing)
            why = device_capture_graph(p, c, forward_id, arm, l);
        for (int32_t i = 0; c && !capturing && i < l->n_rows; i += LAUNCH_ROWS) {
            int32_t n = l->n_rows - i < LAUNCH_ROWS ? l->n_rows - i : LAUNCH_ROWS;
            record_rows(p, c, forward_id, arm, l, i, n);
        }
        driver.cuCtxPop(&popped);
    }
    if (why)
        rows_lose_device(p, l->n_rows, why);
}

/* Take the lock if it comes free soon: a hook does not block. */
static bool lock_soon(void)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (!atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
            return true;
        __builtin_ia32_pause();
    }
    return false;
}

void device_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus capturing;
    CUcontext handle;
    if (!lock_soon()) {
        rows_lose_device(p, l->n_rows, "another thread holds the device capture");
        return;
    }
    if (!driver_load())
        rows_lose_device(p, l->n_rows, "no CUDA driver in this process, or one before 12.0");
    else if (driver.cuStreamGetCtx(l->stream, &handle))
        rows_lose_device(p, l->n_rows, "the stream's context is not known");
    else if (driver.cuStreamIsCapturing(l->stream, &capturing) ||
             capturing == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        rows_lose_device(p, l->n_rows, "the stream's capture into a graph has failed");
    else {
        /* What is allocated here must not end a capture, of this stream or another. */
        driver.cuCaptureMode(&mode);
        record_in(p, handle, capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE, forward_id, arm, l);
        driver.cuCaptureMode(&mode);
    }
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

void device_fill(struct record_row *row, const struct capture_cuda_row *got)
{
    struct record_base base[RECORD_TOP_MAX];
    int32_t k = row->n_top;
    memcpy(base, record_row_base(row), row->n_base * sizeof *base);
    row->lse = (double)got->lse;
    row->n_nan = (uint32_t)got->n_nan;
    row->n_posinf = (uint32_t)got->n_posinf;
    row->n_neginf = (uint32_t)got->n_neginf;
    row->first_bad = got->first_bad;
    for (row->n_top = 0; row->n_top < k && got->token[row->n_top] >= 0; row->n_top++)
        row->top[row->n_top] = (struct record_top){got->token[row->n_top], got->logit[row->n_top]};
    for (int i = 0; i < row->n_base; i++)
        base[i].logit = got->watch[i];
    memcpy(record_row_base(row), base, row->n_base * sizeof *base);
}

bool device_complete(struct probe *p, struct record *r, uint64_t n)
{
    struct record_row *row = (struct record_row *)r->body;
    struct context *c = contexts[row->first_bad / POOL_ROWS];
    int32_t at = row->first_bad % POOL_ROWS;
    struct waiting *w = &c->waiting[at];
    const struct capture_cuda_row *got = &c->rows[at];
    if (!__atomic_load_n(&got->done, __ATOMIC_ACQUIRE) || got->launch != w->launch) {
        if (now_ns() - w->since_ns < GIVE_UP_S * INT64_C(1000000000))
            return false;
        spool_lose(&p->spool, LOST_DEVICE_ROWS, 1); /* its place stays taken: it may still write */
        atomic_fetch_sub(&p->n_pending, 1);
        ring_publish(r, n, RECORD_NONE, 0);
        return true;
    }
    atomic_fetch_sub(&p->n_pending, 1);
    device_fill(row, got);
    int32_t arm = w->arm;
    atomic_store(&w->busy, false);
    rows_publish(p, arm, r, n);
    return true;
}
