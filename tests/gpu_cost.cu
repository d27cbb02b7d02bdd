/* What the probe costs a launch: the same loops in one process, before and after it is attached.
 * usage: gpu_cost LIBPROBE (with PROBE_DB set; do not preload it) */
#include <algorithm>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 15, LAUNCHES = 20000, NODES = 500, REPLAYS = 200 };

__global__ void empty(int *x)
{
}

static double now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static cudaStream_t stream;

/* The median over the repeats, in ns of one. */
template <typename F> static double measure(int n, F body)
{
    double took[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        cudaStreamSynchronize(stream);
        double start = now_ns();
        for (int i = 0; i < n; i++)
            body(i);
        cudaStreamSynchronize(stream);
        took[r] = (now_ns() - start) / n;
    }
    std::sort(took, took + REPEATS);
    return took[REPEATS / 2];
}

static void launch(int i)
{
    empty<<<1 + (i & 7), 32, 0, stream>>>(NULL);
}

static cudaGraphExec_t build()
{
    cudaGraph_t g;
    cudaGraphExec_t e;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (int i = 0; i < NODES; i++)
        launch(i);
    cudaStreamEndCapture(stream, &g);
    cudaGraphInstantiate(&e, g, 0);
    cudaGraphDestroy(g);
    return e;
}

static void table(const char *when)
{
    cudaGraphExec_t e = build();
    for (int i = 0; i < 2; i++) {
        double eager = measure(LAUNCHES, launch);
        double graph = measure(REPLAYS, [&](int) { cudaGraphLaunch(e, stream); });
        size_t left, all;
        cudaMemGetInfo(&left, &all);
        printf("%-8s %9.1f ns a launch, %9.1f ns a replay of %d, device memory in use %.1f MiB\n",
               when, eager, graph, (int)NODES, (double)(all - left) / (1 << 20));
    }
}

int main(int argc, char **argv)
{
    cudaStreamCreate(&stream);
    launch(0);
    table("off");
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*attach)(void);
    if (!lib || !(*(void **)&attach = dlsym(lib, "InitializeInjection"))) {
        printf("%s\n", argc > 1 ? dlerror() : "which library?");
        return 1;
    }
    attach();
    table("on");
    return 0;
}
