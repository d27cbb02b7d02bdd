/* What the preloaded probe costs a launch: the driver's own functions and the probe's wrappers of
 * them in turn, in one process. usage: LD_PRELOAD=libprobe.so gpu_cost; or gpu_cost LIBCUPTI, which
 * attaches a subscriber that does nothing, to tell what CUPTI costs by itself; or gpu_cost long,
 * which launches 25 million kernels and prints how the process grows. */
#include <algorithm>
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 801, LAUNCHES = 100, NODES = 500 };

typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void **, void **);
typedef CUresult (*replay_fn)(CUgraphExec, CUstream);

static CUfunction kernel;
static CUstream stream;
static CUgraphExec exec;
static void *arguments[1];

static double now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double median(double *list)
{
    std::sort(list, list + ROUNDS);
    return list[ROUNDS / 2];
}

/* Both in turn, the queue empty each time; the host's time for one. */
template <typename F> static void compare(const char *what, int n, F one, void *a, void *b)
{
    static double took[2][ROUNDS], difference[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        for (int k = 0; k < 2; k++) {
            int which = (r + k) & 1;
            cuStreamSynchronize(stream);
            double start = now_ns();
            for (int i = 0; i < n; i++)
                one(which ? b : a, i);
            took[which][r] = (now_ns() - start) / n;
        }
        difference[r] = took[1][r] - took[0][r];
    }
    double d = median(difference);
    printf("%-8s %8.1f ns by the driver, %8.1f ns with the probe, difference %+7.1f ns\n", what,
           median(took[0]), median(took[1]), d);
}

static void one_launch(void *fn, int i)
{
    ((launch_fn)fn)(kernel, 1 + (i & 7), 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

static void one_replay(void *fn, int)
{
    ((replay_fn)fn)(exec, stream);
}

static void on_callback(void *, unsigned, unsigned, const void *)
{
}

static int subscribe(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW), *handle;
    int (*subscribe)(void **, void (*)(void *, unsigned, unsigned, const void *), void *);
    int (*enable)(unsigned, void *, unsigned, unsigned);
    if (!lib || !(*(void **)&subscribe = dlsym(lib, "cuptiSubscribe")) ||
        !(*(void **)&enable = dlsym(lib, "cuptiEnableCallback")))
        return 1;
    int rc = subscribe(&handle, on_callback, NULL);
    return rc ? rc : enable(1, handle, 1, 307) || enable(1, handle, 1, 514);
}

static double resident_mib()
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = -1;
    if (f)
        fclose(f);
    return resident * 4096. / (1 << 20);
}

/* 8 million launches one by one, 17 million in replays of 500; every 4,096 some results are read,
 * which ends a forward. */
static void launch_long()
{
    CUdeviceptr x;
    int host;
    cuMemAlloc(&x, 4);
    for (int part = 0; part < 8; part++) {
        for (int i = 0; i < 1000000; i++) {
            one_launch((void *)cuLaunchKernel, i);
            if (i % 4096 == 0)
                cuMemcpyDtoH(&host, x, 4);
        }
        for (int i = 0; i < 4250; i++) {
            one_replay((void *)cuGraphLaunch, i);
            if (i % 8 == 0)
                cuMemcpyDtoH(&host, x, 4);
        }
        printf("%.3f million launches: %.1f MiB resident\n", (part + 1) * 3.125, resident_mib());
        fflush(stdout);
    }
}

static double used_mib()
{
    size_t left, all;
    cuMemGetInfo(&left, &all);
    return (double)(all - left) / (1 << 20);
}

static void set_up()
{
    static const char source[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .entry empty(.param .u64 x)\n{\nret;\n}\n";
    static void *nothing;
    CUmodule module;
    CUcontext context;
    CUdevice device;
    CUgraph graph;
    arguments[0] = &nothing;
    cuInit(0);
    cuDeviceGet(&device, 0);
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuModuleLoadData(&module, source);
    cuModuleGetFunction(&kernel, module, "empty");
    cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < NODES; i++)
        one_launch((void *)cuLaunchKernel, i);
    cuStreamEndCapture(stream, &graph);
    cuGraphInstantiate(&exec, graph, 0);
}

int main(int argc, char **argv)
{
    set_up();
    if (argc > 1 && !strcmp(argv[1], "long")) {
        launch_long();
        return 0;
    }
    /* The C library's dlsym gives the driver's own functions also under the probe. */
    void *(*plain_dlsym)(void *, const char *) = NULL;
    *(void **)&plain_dlsym = dlsym(dlopen("libc.so.6", RTLD_NOW), "dlsym");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *launch = plain_dlsym(driver, "cuLaunchKernel"), *probed = dlsym(driver, "cuLaunchKernel");
    void *replay = plain_dlsym(driver, "cuGraphLaunch"), *preplay = dlsym(driver, "cuGraphLaunch");
    printf("%s\n", launch != probed ? "the probe wraps the driver" : "no probe");
    compare("launch", LAUNCHES, one_launch, launch, probed);
    compare("replay", 4, one_replay, replay, preplay);
    if (argc > 1) {
        double before = used_mib();
        int rc = subscribe(argv[1]);
        printf("%s attached: %d, %+.1f MiB of device memory\n", argv[1], rc, used_mib() - before);
        compare("launch", LAUNCHES, one_launch, launch, launch);
        compare("replay", 4, one_replay, replay, replay);
    }
    return 0;
}
