#include "config.h"

#include "kernels/cuda_blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

/* The library is 0.4 s of start-up and more: it is loaded when a device is opened, not before. */
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

/* A shape's plan; found once, so that the same shape takes the same way every time. */
struct plan {
    int32_t n_outputs, n_tokens, k;
    int64_t out_stride;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulAlgo_t algo;
};

struct cuda_blas {
#define DECLARE(name) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
    void *library;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    struct plan *plans; /* (n_plans) */
    size_t n_plans;
};

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static bool load(struct cuda_blas *b)
{
    b->library = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    bool found = b->library != NULL;
#define RESOLVE(name)                                                                              \
    if (found)                                                                                     \
        found = (*(void **)&b->name = dlsym(b->library, #name)) != NULL;
    FUNCTIONS(RESOLVE)
    return found;
}

void cuda_blas_close(struct cuda_blas *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_plans; i++) {
        b->cublasLtMatrixLayoutDestroy(b->plans[i].w);
        b->cublasLtMatrixLayoutDestroy(b->plans[i].x);
        b->cublasLtMatrixLayoutDestroy(b->plans[i].out);
    }
    free(b->plans);
    if (b->desc)
        b->cublasLtMatmulDescDestroy(b->desc);
    if (b->handle)
        b->cublasLtDestroy(b->handle);
    if (b->library)
        dlclose(b->library);
    free(b);
}

struct cuda_blas *cuda_blas_open(void)
{
    struct cuda_blas *b = calloc(1, sizeof *b);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    if (b && load(b) && !b->cublasLtCreate(&b->handle) &&
        !b->cublasLtMatmulDescCreate(&b->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
        !b->cublasLtMatmulDescSetAttribute(b->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                           sizeof transposed))
        return b;
    cuda_blas_close(b);
    return NULL;
}

/* Ask for the best algorithm with the workspace that there is. */
static bool choose(struct cuda_blas *b, struct plan *p)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    const size_t bytes = CUDA_BLAS_WORKSPACE;
    int n_found = 0;
    if (b->cublasLtMatmulPreferenceCreate(&preference))
        return false;
    if (!b->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes))
        b->cublasLtMatmulAlgoGetHeuristic(b->handle, b->desc, p->w, p->x, p->out, p->out,
                                          preference, 1, &found, &n_found);
    b->cublasLtMatmulPreferenceDestroy(preference);
    if (n_found)
        p->algo = found.algo;
    return n_found > 0;
}

static const struct plan *plan_for(struct cuda_blas *b, int32_t n_outputs, int32_t n_tokens,
                                   int32_t k, int64_t out_stride)
{
    for (size_t i = 0; i < b->n_plans; i++) {
        const struct plan *p = &b->plans[i];
        if (p->n_outputs == n_outputs && p->n_tokens == n_tokens && p->k == k &&
            p->out_stride == out_stride)
            return p;
    }
    struct plan *more = realloc(b->plans, (b->n_plans + 1) * sizeof *more);
    if (!more)
        return NULL;
    b->plans = more;
    struct plan *p = &more[b->n_plans];
    *p = (struct plan){
        .n_outputs = n_outputs, .n_tokens = n_tokens, .k = k, .out_stride = out_stride};
    if (b->cublasLtMatrixLayoutCreate(&p->w, CUDA_R_16BF, (uint64_t)k, (uint64_t)n_outputs, k) ||
        b->cublasLtMatrixLayoutCreate(&p->x, CUDA_R_16BF, (uint64_t)k, (uint64_t)n_tokens, k) ||
        b->cublasLtMatrixLayoutCreate(&p->out, CUDA_R_32F, (uint64_t)n_outputs, (uint64_t)n_tokens,
                                      out_stride) ||
        !choose(b, p))
        return NULL;
    b->n_plans++;
    return p;
}

int cuda_blas_matmul(struct cuda_blas *b, const struct cuda_blas_args *a, void *stream)
{
    const float one = 1, beta = a->adds ? 1 : 0;
    const struct plan *p = plan_for(b, a->n_outputs, a->n_tokens, a->k, a->out_stride);
    if (!p)
        return -1;
    return b->cublasLtMatmul(b->handle, b->desc, &one, a->w, p->w, a->x, p->x, &beta, a->out,
                             p->out, a->out, p->out, &p->algo, a->workspace, CUDA_BLAS_WORKSPACE,
                             stream)
               ? -1
               : 0;
}
