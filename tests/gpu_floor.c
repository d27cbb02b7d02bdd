/* What this GPU can do at most, measured: gigabytes a second that a copy reads and writes, and
 * bf16 operations a second of a large matrix product on random numbers. Prints
 * "copy TB/s" and "bf16 TFLOP/s", the medians of several. */
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda_blas.h"

enum { N_TIMES = 9, SIDE = 8192 };

struct bench {
    cudaStream_t stream;
    cudaEvent_t start, end;
    char *from, *to; /* device, COPY_BYTES each */
    void *workspace;
    struct cuda_blas *blas;
};
static const size_t copy_bytes = (size_t)2 << 30;

static void check(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "gpu_floor: %s: %s\n", what, cudaGetErrorString(rc));
        exit(1);
    }
}

static void copy(const struct bench *b)
{
    check(cudaMemcpyAsync(b->to, b->from, copy_bytes, cudaMemcpyDeviceToDevice, b->stream), "copy");
}

static void product(const struct bench *b)
{
    const struct cuda_blas_args args = {(float *)b->to, SIDE, b->from, b->from + (1 << 28), SIDE,
                                        SIDE,           SIDE, false,   b->workspace};
    check(cuda_blas_matmul(b->blas, &args, b->stream) ? cudaErrorInvalidValue : 0, "product");
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median of the seconds that a call takes. */
static double seconds(const struct bench *b, void (*call)(const struct bench *b))
{
    float ms[N_TIMES];
    call(b);
    for (int i = 0; i < N_TIMES; i++) {
        check(cudaEventRecord(b->start, b->stream), "event");
        call(b);
        check(cudaEventRecord(b->end, b->stream), "event");
        check(cudaEventSynchronize(b->end), "run");
        check(cudaEventElapsedTime(&ms[i], b->start, b->end), "event");
    }
    qsort(ms, N_TIMES, sizeof *ms, compare);
    return ms[N_TIMES / 2] * 1e-3;
}

/* bf16 numbers of magnitude 1/4 to 4 with random signs and digits. */
static void fill(struct bench *b)
{
    const size_t n = (size_t)SIDE * SIDE * 2;
    uint16_t *host = malloc(n * sizeof *host);
    uint32_t state = 1;
    if (!host)
        check(cudaErrorMemoryAllocation, "host");
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u; /* Knuth and Lewis, Numerical Recipes */
        host[i] = (uint16_t)((state >> 16 & 0x81ff) | 0x3e80);
    }
    check(cudaMemcpy(b->from, host, n * sizeof *host, cudaMemcpyHostToDevice), "upload");
    free(host);
}

int main(void)
{
    struct bench b = {0};
    check(cudaStreamCreate(&b.stream), "stream");
    check(cudaEventCreate(&b.start), "event");
    check(cudaEventCreate(&b.end), "event");
    check(cudaMalloc((void **)&b.from, copy_bytes), "memory");
    check(cudaMalloc((void **)&b.to, copy_bytes), "memory");
    check(cudaMalloc(&b.workspace, CUDA_BLAS_WORKSPACE), "memory");
    b.blas = cuda_blas_open();
    if (!b.blas)
        check(cudaErrorInitializationError, "cuBLASLt");
    fill(&b);
    printf("copy %.3f\n", 2e-12 * (double)copy_bytes / seconds(&b, copy));
    printf("bf16 %.1f\n", 2e-12 * SIDE * SIDE * (double)SIDE / seconds(&b, product));
    cuda_blas_close(b.blas);
    return 0;
}
