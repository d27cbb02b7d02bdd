/* A program that uses the CUDA driver as programs do: libcuda.so.1 is opened when it runs, and its
 * functions are asked for by dlsym or by cuGetProcAddress. Prints what every call returned.
 * usage: cuda_host dlsym|proc IMAGE [forward|pause|pause_unmarked]; pause: the graph is made, and
 * the second forward runs, while kernels are not to be recorded */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/probe.h"

static void *driver;
static int (*get_proc)(const char *, void **, int, unsigned long long, int *);

/* A function by its plain name, or by the name that the library exports. */
static void *find(const char *name, const char *exported)
{
    void *fn = NULL;
    if (get_proc)
        get_proc(name, &fn, 12000, 0, NULL);
    else
        fn = dlsym(driver, exported);
    return fn;
}

#define CALL(fn, type, ...)                                                                        \
    do {                                                                                           \
        int(*f_) type;                                                                             \
        *(void **)&f_ = fn;                                                                        \
        printf("%s %d\n", #fn, f_ ? f_(__VA_ARGS__) : -1);                                         \
    } while (0)

static void *launch_fn;

static void launch(void *f, unsigned grid, unsigned block, void *stream)
{
    CALL(launch_fn,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
          void **, void **),
         f, grid, 1, 1, block, 1, 1, 64, stream, NULL, NULL);
}

/* One forward: some kernels, then a graph of others twice, then the result is read. */
static void work(void *plain, void *other, void *exec, void *stream)
{
    static char to[16];
    void *replay = find("cuGraphLaunch", "cuGraphLaunch");
    void *read = find("cuMemcpyDtoH", "cuMemcpyDtoH_v2");
    launch(plain, 2, 32, stream);
    launch(other, 3, 32, stream);
    launch(plain, 2, 4096, stream); /* is refused */
    for (int i = 0; i < 2 && exec; i++)
        CALL(replay, (void *, void *), exec, stream);
    CALL(read, (void *, uintptr_t, size_t), to, 0, sizeof to);
}

static void *make_graph(void *f, void *stream)
{
    void *graph = NULL, *exec = NULL;
    void *begin = find("cuStreamBeginCapture", "cuStreamBeginCapture_v2");
    void *end = find("cuStreamEndCapture", "cuStreamEndCapture");
    void *instantiate = find("cuGraphInstantiate", "cuGraphInstantiateWithFlags");
    CALL(begin, (void *, int), stream, 0);
    launch(f, 5, 64, stream);
    launch(f, 6, 64, stream);
    CALL(end, (void *, void **), stream, &graph);
    if (graph)
        CALL(instantiate, (void **, void *, unsigned long long), &exec, graph, 0);
    return exec;
}

static void pause_kernels(const struct probe_ops *ops, int pause)
{
    if (ops)
        ops->kernels(!pause);
}

static void *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *bytes = calloc(1, 1 << 20);
    if (!f || !bytes || !fread(bytes, 1, 1 << 20, f))
        exit(2);
    fclose(f);
    return bytes;
}

int main(int argc, char **argv)
{
    static char stream[64];
    void *library = NULL, *plain = NULL, *other = NULL, *exec;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc < 3 || !driver)
        return 2;
    if (!strcmp(argv[1], "proc"))
        *(void **)&get_proc = dlsym(driver, "cuGetProcAddress_v2");
    CALL(find("cuInit", "cuInit"), (unsigned), 0);
    launch_fn = find("cuLaunchKernel", "cuLaunchKernel");
    void *load = find("cuLibraryLoadData", "cuLibraryLoadData");
    void *get = find("cuLibraryGetKernel", "cuLibraryGetKernel");
    CALL(load, (void **, const void *, void *, void **, unsigned, void *, void **, unsigned),
         &library, read_file(argv[2]), NULL, NULL, 0, NULL, NULL, 0);
    CALL(get, (void **, void *, const char *), &plain, library, "plain");
    CALL(get, (void **, void *, const char *), &other, library, "other");
    if (!plain || !other)
        return 0;
    const struct probe_ops *probe = argc > 3 ? probe_attach() : NULL;
    const struct probe_ops *pausing = argc > 3 && !strncmp(argv[3], "pause", 5) ? probe : NULL;
    const struct probe_ops *ops = argc > 3 && !strcmp(argv[3], "pause_unmarked") ? NULL : probe;
    pause_kernels(pausing, 1);
    exec = make_graph(other, stream);
    pause_kernels(pausing, 0);
    for (int i = 0; i < 3; i++) {
        struct probe_forward f = {sizeof f, 0, 1, 1, i, 0, 1};
        uint64_t forward = ops ? ops->forward_begin(&f) : 0;
        pause_kernels(pausing, i == 1);
        work(plain, other, exec, stream);
        pause_kernels(pausing, 0);
        if (ops)
            ops->forward_end(forward);
    }
    long (*count)(void);
    *(void **)&count = dlsym(driver, "fake_launches");
    printf("launches %ld\n", count ? count() : -1);
    return 0;
}
