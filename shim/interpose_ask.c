#include "config.h"

#include "shim/interpose_int.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/gpu.h"
#include "shim/llama_lib.h"
#include "shim/tags.h"
#include "sql/fatbin.h"

enum {
    DEPTH = 16,
    FILE_MAX = 256 << 20,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76
};

/* dlsym of the C library: ours stands before it in programs that are preloaded with us. */
typedef void *(*dlsym_fn)(void *, const char *);
__attribute__((visibility("hidden"))) dlsym_fn interpose_real_dlsym;

static dlsym_fn real_dlsym(void)
{
    if (!interpose_real_dlsym)
        *(void **)&interpose_real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return interpose_real_dlsym;
}

/* Called by dlsym below, before anything else may have run. */
__attribute__((visibility("hidden"))) void *interpose_pick(void *handle, const char *name);

void *interpose_pick(void *handle, const char *name)
{
    if (!real_dlsym() || !name)
        return NULL;
    if (!strncmp(name, "llama_", 6) && handle != RTLD_DEFAULT && handle != RTLD_NEXT)
        return llama_lib_wrapper(handle, name);
    return interpose_named(handle, name);
}

void *interpose_past(void *handle, const char *name)
{
    return real_dlsym() ? interpose_real_dlsym(handle, name) : NULL;
}

/* Not under the sanitizers, which ask for symbols before they can watch any code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INTERPOSES_DLSYM = 0 };
#else
enum { INTERPOSES_DLSYM = 1 };

/* dlsym: a wrapper where there is one; else on to the real one by a jump, so that it sees its
 * caller, on which RTLD_NEXT and RTLD_DEFAULT depend. */
__asm__(".pushsection .text\n\t"
        ".globl dlsym\n\t"
        ".type dlsym,@function\n"
        "dlsym:\n\t"
        "endbr64\n\t"
        "push %rdi\n\t"
        "push %rsi\n\t"
        "sub $8, %rsp\n\t"
        "call interpose_pick\n\t"
        "add $8, %rsp\n\t"
        "pop %rsi\n\t"
        "pop %rdi\n\t"
        "test %rax, %rax\n\t"
        "jne 1f\n\t"
        "jmp *interpose_real_dlsym(%rip)\n"
        "1:\n\t"
        "ret\n\t"
        ".size dlsym, . - dlsym\n\t"
        ".popsection");
#endif

bool interpose_preloaded(void)
{
    void *(*ours)(void *, const char *) = dlsym;
    void *address, *program = dlopen(NULL, RTLD_NOW);
    memcpy(&address, &ours, sizeof address);
    /* Not RTLD_DEFAULT: a library that is linked with -Bsymbolic finds itself there. */
    return INTERPOSES_DLSYM && program && real_dlsym() &&
           interpose_real_dlsym(program, "dlsym") == address;
}

static void *driver(void)
{
    static _Atomic(void *) lib;
    void *known = atomic_load(&lib);
    if (!known) {
        known = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
        atomic_store(&lib, known);
    }
    return known;
}

void *interpose_driver(const char *name)
{
    void *lib = driver();
    return lib ? interpose_past(lib, name) : NULL;
}

void *interpose_in(void *handle, const char *name)
{
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        return interpose_driver(name);
    return interpose_past(handle, name);
}

#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuStreamIsCapturing, (void *, int *))                                                        \
    X(cuGraphGetNodes, (void *, void **, size_t *))                                                \
    X(cuGraphNodeGetType, (void *, uint32_t *))                                                    \
    X(cuGraphKernelNodeGetParams_v2, (void *, struct cu_kernel_node *))                            \
    X(cuGraphKernelNodeGetAttribute, (void *, uint32_t, uint32_t *))                               \
    X(cuGraphChildGraphNodeGetGraph, (void *, void **))                                            \
    X(cuKernelGetFunction, (void **, void *))                                                      \
    X(cuFuncGetName, (const char **, void *))                                                      \
    X(cuCtxGetDevice, (int *))                                                                     \
    X(cuDeviceGetAttribute, (int *, int, int))                                                     \
    X(cuDeviceGetName, (char *, int, int))                                                         \
    X(cuDriverGetVersion, (int *))

#define DECLARE(name, params) int(*name) params;
static struct {
    DRIVER_FUNCTIONS(DECLARE)
} ask;

/* Whether the driver has all that is asked for. */
static bool can_ask(void)
{
    static _Atomic int state; /* 0 not tried, 1 yes, 2 no */
    if (!state) {
        bool all = true;
#define RESOLVE(name, params)                                                                      \
    *(void **)&ask.name = interpose_driver(#name);                                                 \
    all = all && ask.name;
        DRIVER_FUNCTIONS(RESOLVE)
        state = all ? 1 : 2;
    }
    return state == 1;
}

bool interpose_captures(void *stream)
{
    int status = 0;
    /* The legacy stream cannot, and asking about it would disturb a capture elsewhere. */
    if (!stream || stream == (void *)1 || !can_ask())
        return false;
    return !ask.cuStreamIsCapturing(stream, &status) && status;
}

/* A node's attributes, as a launch would give them. */
static void read_attributes(void *node, struct tags_key *key)
{
    static const uint32_t ids[] = {CU_COOPERATIVE, CU_CLUSTER, CU_PRIORITY};
    struct cu_attribute list[sizeof ids / sizeof *ids];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct cu_attribute a = {.id = ids[i]};
        if (!ask.cuGraphKernelNodeGetAttribute(node, ids[i], a.value) && a.value[0])
            list[n++] = a;
    }
    key->attributes = tags_attributes(list, n, &key->cluster);
}

void interpose_alias(void *kernel)
{
    void *function = NULL;
    if (tags_is_library_kernel(kernel) && can_ask() && !ask.cuKernelGetFunction(&function, kernel))
        tags_alias(function, kernel);
}

static bool scan_node(struct tags_thread *t, void *node, int depth);

/* Whether all was seen. */
static bool scan(struct tags_thread *t, void *graph, int depth)
{
    size_t n = 0;
    if (depth > DEPTH || ask.cuGraphGetNodes(graph, NULL, &n))
        return false;
    void **nodes = malloc((n + 1) * sizeof *nodes);
    bool whole = nodes && (!n || !ask.cuGraphGetNodes(graph, nodes, &n));
    for (size_t i = 0; whole && i < n; i++)
        whole = scan_node(t, nodes[i], depth);
    free(nodes);
    return whole;
}

static bool scan_kernel(struct tags_thread *t, void *node)
{
    struct cu_kernel_node params = {0};
    const char *name = NULL;
    if (ask.cuGraphKernelNodeGetParams_v2(node, &params))
        return false;
    struct tags_key key = {.f = params.f ? params.f : params.kernel, .geometry = params.geometry};
    read_attributes(node, &key);
    if (!tags_known(key.f) && params.f && ask.cuFuncGetName(&name, params.f))
        name = NULL;
    if (name && !strncmp(name, "probe_capture_", 14))
        return true; /* the probe's own, which the graph's replays launch with the engine's */
    tags_exec_item(t, node, &key, name);
    return true;
}

static bool scan_node(struct tags_thread *t, void *node, int depth)
{
    uint32_t type;
    void *child;
    if (ask.cuGraphNodeGetType(node, &type))
        return false;
    switch (type) {
    case CU_NODE_KERNEL:
        return scan_kernel(t, node);
    case CU_NODE_CHILD:
        return !ask.cuGraphChildGraphNodeGetGraph(node, &child) && scan(t, child, depth + 1);
    case CU_NODE_CONDITIONAL:
        tags_exec_item(t, node, NULL, NULL);
    }
    return true;
}

void interpose_scan(struct tags_thread *t, void *graph)
{
    if (!can_ask() || !scan(t, graph, 0))
        tags_exec_end(t); /* then its launches are of a graph that is not known */
}

void interpose_note_device(void)
{
    int device, major, minor;
    struct gpu gpu = {0};
    if ((tags_arch_known() && gpu_known()) || !can_ask() || ask.cuCtxGetDevice(&device) ||
        ask.cuDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, device) ||
        ask.cuDeviceGetAttribute(&minor, ATTRIBUTE_MINOR, device))
        return;
    gpu.sm = 10 * major + minor;
    tags_arch(gpu.sm);
    if (ask.cuDeviceGetAttribute(&gpu.sm_count, ATTRIBUTE_MULTIPROCESSORS, device))
        gpu.sm_count = 0;
    if (ask.cuDeviceGetName(gpu.name, sizeof gpu.name, device))
        gpu.name[0] = 0;
    if (ask.cuDriverGetVersion(&gpu.cuda))
        gpu.cuda = 0;
    gpu_note(&gpu);
}

void interpose_image(struct tags_thread *t, const void *code)
{
    Dl_info info;
    size_t size;
    const void *image = fatbin_of_pointer(code, &size);
    interpose_note_device();
    if (!size)
        return; /* text, for the driver to compile: there is no code to read */
    /* What is part of a loaded library stays where it is, and is read only if it is launched. */
    if (dladdr(image, &info))
        tags_image_there(t, image, size);
    else
        tags_image(t, tags_image_id(), image, size);
}

void interpose_file(struct tags_thread *t, const char *path)
{
    struct stat st;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t size = fd >= 0 && !fstat(fd, &st) && st.st_size < FILE_MAX ? (size_t)st.st_size : 0;
    void *at = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    interpose_note_device();
    if (at != MAP_FAILED) {
        tags_image(t, tags_image_id(), at, size);
        munmap(at, size);
    }
    if (fd >= 0)
        close(fd);
}
