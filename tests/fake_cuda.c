/* A fake libcuda.so.1 for tests of the probe without a GPU: the functions that a program which
 * launches kernels calls, with the driver's signatures and return values. It runs nothing; it
 * counts launches, so that a test can tell that every call came through, and calls the library that
 * is to be injected. FAKE_FAIL=NAME makes that function return an error. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 999, NODES = 64, NOT_FOUND = 500 };

struct function {
    char name[64];
    void *module;
};

struct node {
    void *f;
    unsigned geometry[7];
};

struct graph {
    size_t n;
    struct node nodes[NODES];
};

static struct graph *capturing;
static void *capture_stream;
static long n_launches;

#define EXPORT __attribute__((visibility("default")))
#define FAIL_HERE                                                                                  \
    if (fails(__func__))                                                                           \
    return FAILED

static int fails(const char *name)
{
    const char *wanted = getenv("FAKE_FAIL");
    return wanted && !strcmp(wanted, name);
}

EXPORT int cuInit(unsigned flags);
EXPORT long fake_launches(void);
EXPORT int cuCtxGetDevice(int *device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetName(char *name, int size, int device);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuModuleLoadData(void **module, const void *image);
EXPORT int cuModuleUnload(void *module);
EXPORT int cuModuleGetFunction(void **f, void *module, const char *name);
EXPORT int cuLibraryLoadData(void **library, const void *code, void *a, void **b, unsigned c,
                             void *d, void **e, unsigned f);
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name);
EXPORT int cuLibraryUnload(void *library);
EXPORT int cuKernelGetFunction(void **f, void *kernel);
EXPORT int cuFuncGetName(const char **name, void *f);
EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned smem, void *stream, void **params, void **extra);
EXPORT int cuStreamBeginCapture_v2(void *stream, int mode);
EXPORT int cuStreamEndCapture(void *stream, void **graph);
EXPORT int cuStreamIsCapturing(void *stream, int *status);
EXPORT int cuGraphGetNodes(void *graph, void **nodes, size_t *n);
EXPORT int cuGraphNodeGetType(void *node, unsigned *type);
EXPORT int cuGraphKernelNodeGetParams_v2(void *node, void *params);
EXPORT int cuGraphKernelNodeGetAttribute(void *node, unsigned id, void *value);
EXPORT int cuGraphChildGraphNodeGetGraph(void *node, void **graph);
EXPORT int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
EXPORT int cuGraphExecDestroy(void *exec);
EXPORT int cuGraphLaunch(void *exec, void *stream);
EXPORT int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t n);
EXPORT int cuGetProcAddress_v2(const char *name, void **fn, int version, unsigned long long flags,
                               int *status);

/* As the driver does: what CUDA_INJECTION64_PATH names is loaded, and called from within. */
int cuInit(unsigned flags)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*inject)(void) = NULL;
    (void)flags;
    if (lib && (*(void **)&inject = dlsym(lib, "InitializeInjection")) != NULL)
        inject();
    return 0;
}

long fake_launches(void)
{
    return n_launches;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 16 ? 132 : 0; /* an sm_90 with 132 of them */
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13010;
    return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
    FAIL_HERE;
    (void)image;
    *module = malloc(16);
    return 0;
}

int cuModuleUnload(void *module)
{
    free(module);
    return 0;
}

int cuModuleGetFunction(void **f, void *module, const char *name)
{
    FAIL_HERE;
    struct function *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->module = module;
    *f = made;
    return 0;
}

int cuLibraryLoadData(void **library, const void *code, void *a, void **b, unsigned c, void *d,
                      void **e, unsigned f)
{
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return cuModuleLoadData(library, code);
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    return cuModuleGetFunction(kernel, library, name);
}

int cuLibraryUnload(void *library)
{
    free(library);
    return 0;
}

/* The function of a kernel has an address of its own. */
int cuKernelGetFunction(void **f, void *kernel)
{
    *f = (char *)kernel + 1;
    return 0;
}

int cuFuncGetName(const char **name, void *f)
{
    *name = ((struct function *)((uintptr_t)f & ~(uintptr_t)1))->name;
    return 0;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned smem, void *stream, void **params, void **extra)
{
    FAIL_HERE;
    (void)params, (void)extra;
    if (bx * by * bz > 1024)
        return 1;
    if (capturing && stream == capture_stream && capturing->n < NODES)
        capturing->nodes[capturing->n++] =
            (struct node){(char *)f + 1, {gx, gy, gz, bx, by, bz, smem}};
    else
        n_launches++;
    return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    FAIL_HERE;
    (void)mode;
    capturing = calloc(1, sizeof *capturing);
    capture_stream = stream;
    return 0;
}

int cuStreamEndCapture(void *stream, void **graph)
{
    (void)stream;
    *graph = capturing;
    capturing = NULL;
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = capturing && stream == capture_stream;
    return 0;
}

int cuGraphGetNodes(void *graph, void **nodes, size_t *n)
{
    FAIL_HERE;
    struct graph *g = graph;
    for (size_t i = 0; nodes && i < *n && i < g->n; i++)
        nodes[i] = &g->nodes[i];
    *n = g->n;
    return 0;
}

int cuGraphNodeGetType(void *node, unsigned *type)
{
    (void)node;
    *type = 0;
    return 0;
}

int cuGraphKernelNodeGetParams_v2(void *node, void *params)
{
    struct node *n = node;
    memset(params, 0, 72);
    memcpy(params, &n->f, sizeof n->f);
    memcpy((char *)params + sizeof n->f, n->geometry, sizeof n->geometry);
    return 0;
}

int cuGraphKernelNodeGetAttribute(void *node, unsigned id, void *value)
{
    (void)node, (void)id, (void)value;
    return 1;
}

int cuGraphChildGraphNodeGetGraph(void *node, void **graph)
{
    (void)node, (void)graph;
    return 1;
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    FAIL_HERE;
    (void)flags;
    struct graph *copy = malloc(sizeof *copy);
    memcpy(copy, graph, sizeof *copy);
    *exec = copy;
    return 0;
}

int cuGraphExecDestroy(void *exec)
{
    free(exec);
    return 0;
}

int cuGraphLaunch(void *exec, void *stream)
{
    FAIL_HERE;
    (void)stream;
    n_launches += (long)((struct graph *)exec)->n;
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t n)
{
    (void)from;
    memset(to, 0, n);
    return 0;
}

/* A name without its version means the newest that the caller knows. */
int cuGetProcAddress_v2(const char *name, void **fn, int version, unsigned long long flags,
                        int *status)
{
    static const struct {
        const char *name;
        void *fn;
    } table[] = {
        {"cuInit", (void *)cuInit},
        {"cuLibraryLoadData", (void *)cuLibraryLoadData},
        {"cuLibraryGetKernel", (void *)cuLibraryGetKernel},
        {"cuLibraryUnload", (void *)cuLibraryUnload},
        {"cuLaunchKernel", (void *)cuLaunchKernel},
        {"cuStreamBeginCapture", (void *)cuStreamBeginCapture_v2},
        {"cuStreamEndCapture", (void *)cuStreamEndCapture},
        {"cuGraphInstantiate", (void *)cuGraphInstantiateWithFlags},
        {"cuGraphExecDestroy", (void *)cuGraphExecDestroy},
        {"cuGraphLaunch", (void *)cuGraphLaunch},
        {"cuMemcpyDtoH", (void *)cuMemcpyDtoH_v2},
        {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
    };
    (void)version, (void)flags, (void)status;
    *fn = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            *fn = table[i].fn;
    return *fn ? 0 : NOT_FOUND;
}
