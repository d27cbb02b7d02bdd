/* Launches of every kind, a step each: the program that callbacks are recorded from, and that the
 * probe's lists are compared with the activity records of. usage: gpu_cases [CUBIN] */
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int rc_ = (int)(call);                                                                     \
        if (rc_) {                                                                                 \
            printf("%s: error %d\n", #call, rc_);                                                  \
            failed = 1;                                                                            \
        }                                                                                          \
    } while (0)

static int failed;

static void step(const char *name)
{
    typedef void (*note_fn)(const char *);
    static note_fn note = (note_fn)dlsym(RTLD_DEFAULT, "trace_note");
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!note && path) {
        void *lib = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
        note = lib ? (note_fn)dlsym(lib, "trace_note") : NULL;
    }
    if (note)
        note(name);
}

__global__ void add(float *x, float y)
{
    x[threadIdx.x + blockIdx.x * blockDim.x] += y;
}
__global__ void scale(float *x, float y)
{
    x[threadIdx.x + blockIdx.x * blockDim.x] *= y;
}
__global__ void shared(float *x)
{
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[255 - threadIdx.x];
}
template <int N> __global__ void templated(float *x)
{
    x[threadIdx.x] += N;
}
__global__ void __cluster_dims__(2, 1, 1) clustered(float *x)
{
    x[threadIdx.x] += 1;
}
__global__ void dynamic(float *x)
{
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}

static float *x;
static cudaStream_t stream;

static void eager()
{
    step("eager");
    add<<<4, 128, 0, stream>>>(x, 1);
    scale<<<2, 256, 0, stream>>>(x, 2);
    shared<<<1, 256, 0, stream>>>(x);
    templated<3><<<1, 32, 0, stream>>>(x);
    dynamic<<<1, 64, 4096, stream>>>(x);
    add<<<4, 128, 0, stream>>>(x, 1);
    clustered<<<4, 64, 0, stream>>>(x);
    CHECK(cudaStreamSynchronize(stream));
    step("failing launch");
    add<<<1, 4096, 0, stream>>>(x, 1);
    cudaGetLastError();
}

static void extended()
{
    step("launch with attributes");
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a[2];
    c.gridDim = 4, c.blockDim = 32, c.stream = stream, c.attrs = a, c.numAttrs = 2;
    a[0].id = cudaLaunchAttributeClusterDimension;
    a[0].val.clusterDim.x = 2, a[0].val.clusterDim.y = 1, a[0].val.clusterDim.z = 1;
    a[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a[1].val.programmaticStreamSerializationAllowed = 1;
    CHECK(cudaLaunchKernelEx(&c, add, x, 1.f));
    step("cooperative");
    float y = 1;
    void *args[] = {&x, &y};
    CHECK(cudaLaunchCooperativeKernel((void *)add, dim3(2), dim3(64), args, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static cudaGraph_t capture(int n, int block)
{
    cudaGraph_t g;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++) {
        add<<<1 + i, block, 0, stream>>>(x, 1);
        CHECK(cudaMemsetAsync(x, 0, 16, stream));
        scale<<<1, block, 0, stream>>>(x, 2);
    }
    CHECK(cudaStreamEndCapture(stream, &g));
    return g;
}

static void captured()
{
    step("capture");
    cudaGraph_t g = capture(3, 64);
    cudaGraphExec_t e;
    step("instantiate");
    CHECK(cudaGraphInstantiate(&e, g, 0));
    step("graph launch");
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(e, stream));
    CHECK(cudaStreamSynchronize(stream));
    step("exec update");
    cudaGraph_t h = capture(3, 96);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(e, h, &info));
    CHECK(cudaGraphDestroy(h));
    CHECK(cudaGraphLaunch(e, stream));
    step("exec set params");
    cudaGraphNode_t nodes[16];
    size_t n = 16;
    CHECK(cudaGraphGetNodes(g, nodes, &n));
    float y = 3;
    void *args[] = {&x, &y};
    cudaKernelNodeParams p = {};
    p.func = (void *)add, p.gridDim = 7, p.blockDim = 32, p.kernelParams = args;
    CHECK(cudaGraphExecKernelNodeSetParams(e, nodes[0], &p));
    CHECK(cudaGraphLaunch(e, stream));
    step("template set params");
    CHECK(cudaGraphKernelNodeSetParams(nodes[0], &p));
    cudaGraphExec_t e2;
    CHECK(cudaGraphInstantiate(&e2, g, 0));
    CHECK(cudaGraphLaunch(e2, stream));
    step("clone");
    cudaGraph_t c;
    cudaGraphExec_t e3;
    CHECK(cudaGraphClone(&c, g));
    CHECK(cudaGraphInstantiate(&e3, c, 0));
    CHECK(cudaGraphLaunch(e3, stream));
    step("node disabled");
    CHECK(cudaGraphNodeSetEnabled(e2, nodes[2], 0));
    CHECK(cudaGraphLaunch(e2, stream));
    step("destroy");
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphExecDestroy(e2));
    CHECK(cudaGraphExecDestroy(e3));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaGraphDestroy(c));
}

static void explicit_graph()
{
    step("explicit");
    cudaGraph_t g, child;
    cudaGraphNode_t a, b, c;
    float y = 1;
    void *args[] = {&x, &y};
    cudaKernelNodeParams p = {};
    p.func = (void *)add, p.gridDim = 3, p.blockDim = 32, p.kernelParams = args;
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphAddKernelNode(&a, g, NULL, 0, &p));
    cudaGraphNodeParams np = {};
    np.type = cudaGraphNodeTypeKernel;
    np.kernel.func = (void *)scale, np.kernel.gridDim = 5, np.kernel.blockDim = 32;
    np.kernel.kernelParams = args;
    CHECK(cudaGraphAddNode(&b, g, &a, NULL, 1, &np));
    step("child graph");
    CHECK(cudaGraphCreate(&child, 0));
    p.gridDim = 9;
    CHECK(cudaGraphAddKernelNode(&c, child, NULL, 0, &p));
    CHECK(cudaGraphAddChildGraphNode(&c, g, &b, 1, child));
    CHECK(cudaGraphAddChildGraphNode(&c, g, &c, 1, child));
    cudaGraphExec_t e;
    step("instantiate explicit");
    CHECK(cudaGraphInstantiate(&e, g, 0));
    CHECK(cudaGraphLaunch(e, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphDestroy(g));
    step("conditional");
    CHECK(cudaGraphCreate(&g, 0));
    cudaGraphConditionalHandle h;
    CHECK(cudaGraphConditionalHandleCreate(&h, g, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams cp = {};
    cp.type = cudaGraphNodeTypeConditional;
    cp.conditional.handle = h, cp.conditional.type = cudaGraphCondTypeIf, cp.conditional.size = 1;
    CHECK(cudaGraphAddNode(&a, g, NULL, NULL, 0, &cp));
    p.gridDim = 11;
    CHECK(cudaGraphAddKernelNode(&b, cp.conditional.phGraph_out[0], NULL, 0, &p));
    CHECK(cudaGraphInstantiate(&e, g, 0));
    CHECK(cudaGraphLaunch(e, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
}

static void launch_driver(CUfunction f)
{
    float y = 1;
    void *args[] = {&x, &y};
    CHECK(cuLaunchKernel(f, 2, 1, 1, 32, 1, 1, 0, stream, args, NULL));
    CHECK(cudaStreamSynchronize(stream));
}

/* The same file loaded, unloaded and loaded again: handles come back. */
static void driver(const char *cubin)
{
    for (int i = 0; i < 2; i++) {
        CUmodule m;
        CUfunction f;
        step("module");
        CHECK(cuModuleLoad(&m, cubin));
        CHECK(cuModuleGetFunction(&f, m, "plain"));
        launch_driver(f);
        step("module unload");
        CHECK(cuModuleUnload(m));
    }
    CUlibrary l;
    CUkernel k;
    CUfunction f;
    step("library");
    CHECK(cuLibraryLoadFromFile(&l, cubin, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&k, l, "plain"));
    launch_driver((CUfunction)k);
    CHECK(cuKernelGetFunction(&f, k));
    launch_driver(f);
    CHECK(cuLibraryUnload(l));
}

int main(int argc, char **argv)
{
    CHECK(cudaMalloc((void **)&x, 1 << 20));
    CHECK(cudaStreamCreate(&stream));
    eager();
    extended();
    captured();
    explicit_graph();
    if (argc > 1)
        driver(argv[1]);
    step("end");
    CHECK(cudaDeviceSynchronize());
    float y;
    CHECK(cudaMemcpy(&y, x, 4, cudaMemcpyDeviceToHost));
    printf("%s\n", failed ? "failed" : "done");
    return failed;
}
