#include "config.h"
#include "engine/backend_int.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "kernels/cuda.h"
#include "kernels/cuda_blas.h"

/* A weight that has been brought to the device. */
struct bound {
    const void *host;
    void *device;
};

/* A sequence of calls: run once, then captured, from then on replayed. */
struct graph {
    struct graph_key key;
    cudaGraphExec_t exec; /* NULL: not captured yet */
};

struct backend_on_cuda {
    struct backend base;
    struct cuda_call call;
    struct cuda_rounded rounded; /* call.rounded */
    struct graph *graphs;        /* (n_graphs) */
    size_t n_graphs;
    size_t capturing; /* which one is, while is_capturing */
    bool is_capturing;
    struct bound *bound; /* (n_bound) */
    size_t n_bound;
    int failed;            /* first error since the last finish; 0 = none */
    const char *failed_op; /* during which */
    cudaEvent_t mark;      /* NULL: could not be made, the whole stream is waited for */
    bool is_marked;
};

static struct backend_on_cuda *self(struct backend *b)
{
    return (struct backend_on_cuda *)b;
}

static void note(struct backend_on_cuda *c, int rc, const char *op)
{
    if (rc && !c->failed) {
        c->failed = rc;
        c->failed_op = op;
    }
}

static int alloc_bytes(void **out, size_t size_bytes, struct err *err)
{
    size_t n_free = 0, n_total = 0;
    if (cudaMalloc(out, size_bytes ? size_bytes : 1) == cudaSuccess)
        return 0;
    cudaMemGetInfo(&n_free, &n_total);
    return err_set(err, "cuda: out of memory: %zu bytes asked for, %zu free of %zu", size_bytes,
                   n_free, n_total);
}

static void cuda_close(struct backend *b)
{
    struct backend_on_cuda *c = self(b);
    if (c->call.stream)
        cudaStreamSynchronize(c->call.stream);
    for (size_t i = 0; i < c->n_graphs; i++)
        if (c->graphs[i].exec)
            cudaGraphExecDestroy(c->graphs[i].exec);
    free(c->graphs);
    for (size_t i = 0; i < c->n_bound; i++)
        cudaFree(c->bound[i].device);
    free(c->bound);
    cudaFree(c->call.workspace);
    cuda_blas_close(c->call.blas);
    if (c->mark)
        cudaEventDestroy(c->mark);
    if (c->call.stream)
        cudaStreamDestroy(c->call.stream);
    free(c);
}

static int device_init(struct backend_on_cuda *c, struct err *err)
{
    struct cudaDeviceProp p;
    cudaStream_t stream;
    int rc = cudaGetDeviceProperties(&p, 0);
    if (rc)
        return err_set(err, "cuda: %s", cudaGetErrorString(rc));
    snprintf(c->base.text, sizeof c->base.text, "cuda, %.64s, %d multiprocessors", p.name,
             p.multiProcessorCount);
    c->call.sm_count = p.multiProcessorCount;
    rc = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (rc)
        return err_set(err, "cuda: %s", cudaGetErrorString(rc));
    c->call.stream = stream;
    c->base.stream = stream;
    if (cudaEventCreateWithFlags(&c->mark, cudaEventDisableTiming))
        c->mark = NULL;
    c->call.blas = cuda_blas_open();
    if (!c->call.blas)
        return err_set(err, "cuda: cuBLASLt is not installed or does not start");
    c->call.overlap = p.major >= 9;
    c->call.rounded = &c->rounded;
    return alloc_bytes(&c->call.workspace, CUDA_WORKSPACE_BYTES, err);
}

static int cuda_open(struct backend **out, struct err *err)
{
    int n = 0, rc = cudaGetDeviceCount(&n);
    if (rc || n == 0)
        return err_set(err, "cuda: no device: %s", rc ? cudaGetErrorString(rc) : "none is visible");
    struct backend_on_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, "cuda: out of memory");
    if (device_init(c, err) < 0) {
        cuda_close(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}

static int cuda_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err)
{
    void *p;
    if (alloc_bytes(&p, size_bytes, err) < 0)
        return -1;
    note(self(b), cudaMemsetAsync(p, 0, size_bytes, self(b)->call.stream), "alloc");
    *out = p;
    return 0;
}

static void cuda_free(struct backend *b, void *p)
{
    (void)b;
    cudaFree(p);
}

static void *cuda_alloc_host(size_t size_bytes)
{
    void *p;
    return cudaMallocHost(&p, size_bytes ? size_bytes : 1) == cudaSuccess ? p : NULL;
}

static void cuda_free_host(void *p)
{
    cudaFreeHost(p);
}

/* Upload, bring into the operators' order, and wait: the raw bytes go again. */
static int place(struct backend_on_cuda *c, const struct tensor *host, void *placed,
                 struct err *err)
{
    size_t size = (size_t)(host->mat_bytes * host->n_mats);
    void *raw;
    if (alloc_bytes(&raw, size, err) < 0)
        return -1;
    int rc = cudaMemcpyAsync(raw, host->data, size, cudaMemcpyHostToDevice, c->call.stream);
    if (!rc)
        rc = cuda_place(host, raw, placed, &c->call);
    if (!rc)
        rc = cudaStreamSynchronize(c->call.stream);
    cudaFree(raw);
    return rc ? err_set(err, "cuda: weights: %s", cudaGetErrorString(rc)) : 0;
}

static int cuda_bind(struct backend *b, const struct tensor *host, void **out, struct err *err)
{
    struct backend_on_cuda *c = self(b);
    for (size_t i = 0; i < c->n_bound; i++)
        if (c->bound[i].host == host->data) {
            *out = c->bound[i].device;
            return 0;
        }
    struct bound *more = realloc(c->bound, (c->n_bound + 1) * sizeof *more);
    if (!more)
        return err_set(err, "cuda: out of memory");
    c->bound = more;
    void *placed;
    if (alloc_bytes(&placed, (size_t)(host->mat_bytes * host->n_mats), err) < 0)
        return -1;
    c->bound[c->n_bound++] = (struct bound){host->data, placed};
    if (place(c, host, placed, err) < 0)
        return -1;
    *out = placed;
    return 0;
}

static void cuda_upload(struct backend *b, void *dst, const void *host, size_t size_bytes)
{
    note(self(b),
         cudaMemcpyAsync(dst, host, size_bytes, cudaMemcpyHostToDevice, self(b)->call.stream),
         "upload");
}

static void cuda_download(struct backend *b, void *host, const void *src, size_t size_bytes)
{
    note(self(b),
         cudaMemcpyAsync(host, src, size_bytes, cudaMemcpyDeviceToHost, self(b)->call.stream),
         "download");
    note(self(b), cudaStreamSynchronize(self(b)->call.stream), "download");
}

static void cuda_copy(struct backend *b, void *dst, const void *src, size_t size_bytes)
{
    note(self(b),
         cudaMemcpyAsync(dst, src, size_bytes, cudaMemcpyDeviceToDevice, self(b)->call.stream),
         "copy");
}

static void cuda_zero(struct backend *b, void *dst, size_t size_bytes)
{
    note(self(b), cudaMemsetAsync(dst, 0, size_bytes, self(b)->call.stream), "zero");
}

static const void *cuda_host_view(struct backend *b, const void *p)
{
    (void)b, (void)p;
    return NULL;
}

/* The products read rounded rows and leave them as they are. */
static const bool is_product[N_OPS] = {
    [OP_MATMUL_MM] = true,     [OP_MATMUL_MV] = true,     [OP_EXPERTS_MM] = true,
    [OP_EXPERTS_MV] = true,    [OP_PROJECT_MV] = true,    [OP_GLU_MV] = true,
    [OP_ADD_MATMUL_MM] = true, [OP_ADD_MATMUL_MV] = true,
};

static void cuda_run(struct backend *b, enum op op, const struct op_args *args)
{
    const void *rounded = self(b)->rounded.x.data;
    const struct tensor *outs[] = {&args->out, &args->out2, &args->out3, &args->out4};
    bool keeps = is_product[op];
    for (int i = 0; i < 4; i++)
        keeps = keeps && outs[i]->data != rounded;
    if (!keeps)
        self(b)->rounded.x.data = NULL;
    note(self(b), cuda_ops[op](args, &self(b)->call), ops[op].name);
}

static bool same_key(const struct graph_key *x, const struct graph_key *y)
{
    return x->owner == y->owner && x->out == y->out && x->n_tokens == y->n_tokens &&
           x->n_wanted == y->n_wanted;
}

/* The first time runs as it is, so that whatever is loaded or allocated at first use is there when
 * the second is captured. */
static bool cuda_graph_begin(struct backend *b, const struct graph_key *key)
{
    struct backend_on_cuda *c = self(b);
    size_t i = 0;
    while (i < c->n_graphs && !same_key(&c->graphs[i].key, key))
        i++;
    c->rounded.x.data = NULL;
    if (i == c->n_graphs) {
        struct graph *more = realloc(c->graphs, (i + 1) * sizeof *more);
        if (more) {
            c->graphs = more;
            c->graphs[c->n_graphs++] = (struct graph){.key = *key};
        }
        return false;
    }
    if (c->graphs[i].exec) {
        note(c, cudaGraphLaunch(c->graphs[i].exec, c->call.stream), "graph");
        return true;
    }
    c->capturing = i;
    c->is_capturing = !cudaStreamBeginCapture(c->call.stream, cudaStreamCaptureModeThreadLocal);
    return false;
}

static void cuda_graph_end(struct backend *b)
{
    struct backend_on_cuda *c = self(b);
    struct graph *g = &c->graphs[c->capturing];
    cudaGraph_t captured;
    c->rounded.x.data = NULL;
    if (!c->is_capturing)
        return;
    c->is_capturing = false;
    int rc = cudaStreamEndCapture(c->call.stream, &captured);
    if (!rc) {
        rc = cudaGraphInstantiate(&g->exec, captured, 0);
        cudaGraphDestroy(captured);
    }
    note(c, rc ? rc : (int)cudaGraphLaunch(g->exec, c->call.stream), "graph");
}

static void cuda_graph_forget(struct backend *b, const void *owner)
{
    struct backend_on_cuda *c = self(b);
    size_t n = 0;
    cudaStreamSynchronize(c->call.stream);
    for (size_t i = 0; i < c->n_graphs; i++)
        if (c->graphs[i].key.owner != owner)
            c->graphs[n++] = c->graphs[i];
        else if (c->graphs[i].exec)
            cudaGraphExecDestroy(c->graphs[i].exec);
    c->n_graphs = n;
}

static void cuda_mark(struct backend *b)
{
    struct backend_on_cuda *c = self(b);
    c->is_marked = c->mark && !cudaEventRecord(c->mark, c->call.stream);
}

static int cuda_finish(struct backend *b, struct err *err)
{
    struct backend_on_cuda *c = self(b);
    note(c, c->is_marked ? cudaEventSynchronize(c->mark) : cudaStreamSynchronize(c->call.stream),
         "forward pass");
    c->is_marked = false;
    int rc = c->failed;
    c->failed = 0;
    return rc ? err_set(err, "cuda: %s: %s", c->failed_op, cudaGetErrorString(rc)) : 0;
}

const struct backend_device backend_cuda = {
    .name = "cuda",
    .fuses = true,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .bind = cuda_bind,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .host_view = cuda_host_view,
    .run = cuda_run,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_forget = cuda_graph_forget,
    .mark = cuda_mark,
    .finish = cuda_finish,
};
