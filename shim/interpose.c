#include "config.h"

#include "shim/interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shim/calls.h"
#include "shim/interpose_int.h"
#include "shim/tags.h"

#define EXPORT __attribute__((visibility("default")))

/* Functions of at most six arguments, each a pointer or a number that fits one: passed on as they
 * are. CALL is in the table of calls.h, the others are seen to here. */
#define SIX_ARGUMENTS(CALL, OTHER)                                                                 \
    CALL(cuModuleLoad)                                                                             \
    CALL(cuModuleLoadData)                                                                         \
    CALL(cuModuleLoadDataEx)                                                                       \
    CALL(cuModuleLoadFatBinary)                                                                    \
    CALL(cuModuleUnload)                                                                           \
    CALL(cuModuleGetFunction)                                                                      \
    CALL(cuLibraryUnload)                                                                          \
    CALL(cuLibraryGetKernel)                                                                       \
    CALL(cuLibraryGetModule)                                                                       \
    CALL(cuKernelGetFunction)                                                                      \
    CALL(cuGraphLaunch)                                                                            \
    CALL(cuGraphLaunch_ptsz)                                                                       \
    CALL(cuGraphInstantiate)                                                                       \
    CALL(cuGraphInstantiate_v2)                                                                    \
    CALL(cuGraphInstantiateWithFlags)                                                              \
    CALL(cuGraphInstantiateWithParams)                                                             \
    CALL(cuGraphInstantiateWithParams_ptsz)                                                        \
    CALL(cuGraphExecKernelNodeSetParams)                                                           \
    CALL(cuGraphExecKernelNodeSetParams_v2)                                                        \
    CALL(cuGraphExecNodeSetParams)                                                                 \
    CALL(cuGraphExecUpdate)                                                                        \
    CALL(cuGraphExecUpdate_v2)                                                                     \
    CALL(cuGraphExecChildGraphNodeSetParams)                                                       \
    CALL(cuGraphNodeSetEnabled)                                                                    \
    CALL(cuMemcpyDtoH_v2)                                                                          \
    CALL(cuMemcpyDtoH_v2_ptds)                                                                     \
    CALL(cuMemcpyDtoHAsync_v2)                                                                     \
    CALL(cuMemcpyDtoHAsync_v2_ptsz)                                                                \
    OTHER(cuGraphExecDestroy)                                                                      \
    OTHER(cuStreamBeginCapture)                                                                    \
    OTHER(cuStreamBeginCapture_ptsz)                                                               \
    OTHER(cuStreamBeginCapture_v2)                                                                 \
    OTHER(cuStreamBeginCapture_v2_ptsz)                                                            \
    OTHER(cuStreamBeginCaptureToGraph)                                                             \
    OTHER(cuStreamBeginCaptureToGraph_ptsz)                                                        \
    OTHER(cuStreamEndCapture)                                                                      \
    OTHER(cuStreamEndCapture_ptsz)                                                                 \
    OTHER(cuGetProcAddress)                                                                        \
    OTHER(cuGetProcAddress_v2)

#define MORE_ARGUMENTS(CALL)                                                                       \
    CALL(cuLaunchKernel)                                                                           \
    CALL(cuLaunchKernel_ptsz)                                                                      \
    CALL(cuLaunchCooperativeKernel)                                                                \
    CALL(cuLaunchCooperativeKernel_ptsz)                                                           \
    CALL(cuLaunchKernelEx)                                                                         \
    CALL(cuLaunchKernelEx_ptsz)                                                                    \
    CALL(cuLibraryLoadData)                                                                        \
    CALL(cuLibraryLoadFromFile)

#define AT(name) AT_##name,
enum { SIX_ARGUMENTS(AT, AT) MORE_ARGUMENTS(AT) N_ENTRIES };

typedef int (*six_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

#define DECLARE_SIX(name)                                                                          \
    EXPORT int name(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
SIX_ARGUMENTS(DECLARE_SIX, DECLARE_SIX)

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void *, void **, void **);
EXPORT int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, void *, void **, void **);
EXPORT int cuLaunchKernel_ptsz(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void *, void **, void **);
EXPORT int cuLaunchCooperativeKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, void *, void **, void **);
EXPORT int cuLaunchCooperativeKernel_ptsz(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                                          unsigned, unsigned, void *, void **, void **);
typedef int (*launch_ex_fn)(const struct cu_config *, void *, void **, void **);
EXPORT int cuLaunchKernelEx(const struct cu_config *, void *, void **, void **);
EXPORT int cuLaunchKernelEx_ptsz(const struct cu_config *, void *, void **, void **);
typedef int (*load_fn)(void **, const void *, void *, void **, unsigned, void *, void **, unsigned);
EXPORT int cuLibraryLoadData(void **, const void *, void *, void **, unsigned, void *, void **,
                             unsigned);
EXPORT int cuLibraryLoadFromFile(void **, const void *, void *, void **, unsigned, void *, void **,
                                 unsigned);

#define CALL_ENTRY(function)  {#function, CUPTI_##function, (void *)function},
#define OTHER_ENTRY(function) {#function, 0, (void *)function},
static const struct entry {
    const char *name;
    uint16_t id; /* enum cupti_id, or 0 */
    void *wrapper;
} entries[N_ENTRIES] = {SIX_ARGUMENTS(CALL_ENTRY, OTHER_ENTRY) MORE_ARGUMENTS(CALL_ENTRY)};

static _Atomic(void *) real[N_ENTRIES];
static int8_t row[N_ENTRIES];   /* of calls.h, -1 = none; filled when it is decided */
static _Atomic int state;       /* enum state */
static _Atomic int n_capturing; /* streams whose work becomes a graph, at least */

enum state {
    UNDECIDED,
    OFF,     /* nobody gets a wrapper */
    ON,      /* wrappers take note */
    STANDBY, /* CUPTI is the first choice: wrappers are given out and pass calls through, */
    WAITING  /* also while it is asked, and once it has been granted */
};

static int decide(void)
{
    const char *choice = getenv("PROBE_CUPTI");
    bool off = choice && !strcmp(choice, "off"), second = choice && !strcmp(choice, "cupti");
    for (int i = 0; i < N_ENTRIES; i++) {
        row[i] = -1;
        for (int k = 0; k < calls_count(); k++)
            if (entries[i].id && calls_id(k) == entries[i].id)
                row[i] = (int8_t)k;
    }
    int known = UNDECIDED, decided = off || !interpose_preloaded() ? OFF : second ? STANDBY : ON;
    return atomic_compare_exchange_strong(&state, &known, decided) ? decided : known;
}

static int current_state(void)
{
    int known = atomic_load_explicit(&state, memory_order_acquire);
    return known ? known : decide();
}

bool interpose_active(void)
{
    return current_state() == ON;
}

static bool gives_wrappers(void)
{
    return current_state() != OFF;
}

void interpose_wait(void)
{
    int known = current_state();
    if (known == STANDBY)
        atomic_compare_exchange_strong(&state, &known, WAITING);
}

bool interpose_take_over(void)
{
    int known = current_state();
    if (known != ON && known != OFF)
        atomic_compare_exchange_strong(&state, &known, ON);
    return current_state() == ON;
}

/* The driver is in use, and has not called us from within cuInit: it never will. */
static void take_over_uncalled(void)
{
    tags_refused("the CUDA driver called no InitializeInjection of this library: "
                 "CUDA_INJECTION64_PATH names another; the driver's functions are wrapped instead");
    interpose_take_over();
}

/* The driver's function, found in the driver itself for callers that are linked with it. */
static void *real_of(int i)
{
    void *fn = atomic_load_explicit(&real[i], memory_order_relaxed);
    if (!fn) {
        fn = interpose_driver(entries[i].name);
        atomic_store(&real[i], fn);
    }
    return fn;
}

enum { NOT_INITIALIZED = 3 };

/* Before the driver's part of a call; NULL: it is none of our concern. */
static struct tags_thread *enter(int i, const void *params)
{
    int known = current_state();
    if (row[i] < 0 || known == OFF || known == WAITING)
        return NULL;
    if (known == STANDBY)
        take_over_uncalled();
    if (tags_paused() && calls_starts(row[i]) && !atomic_load(&n_capturing))
        return NULL;
    tags_version("interposed");
    struct tags_thread *t = tags_self(calls_starts(row[i]));
    if (t)
        calls_enter(t, row[i], params, NULL);
    if (t && calls_starts(row[i]))
        interpose_note_device();
    return t;
}

static void leave(struct tags_thread *t, int i, const void *params, int rc)
{
    int kept = errno;
    if (t)
        calls_exit(t, row[i], params, rc != 0);
    errno = kept;
}

/* What the driver is asked beside the call itself. */
static void inspect(struct tags_thread *t, int i, const uintptr_t *args, int rc)
{
    void *exec = (void *)args[0];
    switch (i) {
    case AT_cuGraphLaunch:
    case AT_cuGraphLaunch_ptsz:
        if (atomic_load(&n_capturing) && interpose_captures((void *)args[1]))
            tags_captured(t);
        break;
    case AT_cuGraphInstantiate:
    case AT_cuGraphInstantiate_v2:
    case AT_cuGraphInstantiateWithFlags:
    case AT_cuGraphInstantiateWithParams:
    case AT_cuGraphInstantiateWithParams_ptsz:
        if (!rc)
            interpose_scan(t, (void *)args[1]);
        break;
    case AT_cuGraphExecUpdate:
    case AT_cuGraphExecUpdate_v2:
        if (!rc) {
            tags_exec_begin(t);
            interpose_scan(t, (void *)args[1]);
            tags_exec_replaced(t, exec);
            tags_exec_end(t);
        }
        break;
    case AT_cuGraphExecKernelNodeSetParams:
    case AT_cuGraphExecKernelNodeSetParams_v2:
    case AT_cuGraphExecNodeSetParams:
        if (!rc)
            tags_exec_node_set(t, exec, (void *)args[1]);
        break;
    case AT_cuModuleLoad:
        if (!rc)
            interpose_file(t, (const char *)args[1]);
        break;
    case AT_cuModuleLoadData:
    case AT_cuModuleLoadDataEx:
    case AT_cuModuleLoadFatBinary:
        if (!rc)
            interpose_image(t, (const void *)args[1]);
        break;
    }
}

/* From which version of CUDA on cuGetProcAddress gives another function for a name. */
static const struct newer {
    const char *base, *name;
    unsigned version;
} newer[] = {
    {"cuGraphInstantiate", "cuGraphInstantiate_v2", 11000},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", 12000},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
    {"cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
};

/* The entry that cuGetProcAddress means by a name; -1 = none of ours. */
static int meant(const char *base, unsigned version, bool per_thread)
{
    static const char *const suffixes[] = {"", "_ptsz", "_ptds"};
    const char *name = base;
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (!strcmp(newer[i].base, base) && version >= newer[i].version)
            name = newer[i].name;
    int plain = -1;
    for (int i = 0; i < N_ENTRIES; i++)
        for (int k = 0; k < 3; k++) {
            size_t n = strlen(name);
            if (strncmp(entries[i].name, name, n) || strcmp(entries[i].name + n, suffixes[k]))
                continue;
            if (k == 0)
                plain = i;
            else if (per_thread)
                return i;
        }
    return plain;
}

enum { PER_THREAD = 2 }; /* of cuGetProcAddress's flags */

/* A function that was asked for by name: the wrapper in its place. Under a tool the driver gives
 * other addresses than the loader does, so that the name has to tell. */
static void replace(const char *name, void **function, unsigned version, uintptr_t flags)
{
    for (int i = 0; i < N_ENTRIES; i++)
        if (*function == real_of(i)) {
            *function = entries[i].wrapper;
            return;
        }
    int i = name ? meant(name, version, flags & PER_THREAD) : -1;
    if (i < 0 || *function == entries[i].wrapper)
        return;
    atomic_store(&real[i], *function);
    *function = entries[i].wrapper;
}

static void other(int i, const uintptr_t *args, int rc)
{
    switch (i) {
    case AT_cuGraphExecDestroy:
        if (!rc && interpose_active())
            tags_exec_destroyed((void *)args[0]);
        break;
    case AT_cuStreamEndCapture:
    case AT_cuStreamEndCapture_ptsz:
        if (atomic_fetch_sub(&n_capturing, 1) <= 0)
            atomic_store(&n_capturing, 0);
        break;
    case AT_cuGetProcAddress:
    case AT_cuGetProcAddress_v2:
        if (!rc && args[1] && *(void **)args[1] && gives_wrappers())
            replace((const char *)args[0], (void **)args[1], (unsigned)args[2], args[3]);
        break;
    default: /* begins of captures */
        if (!rc)
            atomic_fetch_add(&n_capturing, 1);
    }
}

static int call_six(int i, const uintptr_t *a)
{
    six_fn fn = (six_fn)real_of(i);
    if (!fn)
        return NOT_INITIALIZED;
    int kept = errno;
    struct tags_thread *t = enter(i, a);
    errno = kept;
    int rc = fn(a[0], a[1], a[2], a[3], a[4], a[5]);
    kept = errno;
    if (t)
        inspect(t, i, a, rc);
    else if (!entries[i].id)
        other(i, a, rc);
    errno = kept;
    leave(t, i, a, rc);
    return rc;
}

#define DEFINE_SIX(name)                                                                           \
    int name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)         \
    {                                                                                              \
        return call_six(AT_##name, (const uintptr_t[]){a, b, c, d, e, f});                         \
    }
SIX_ARGUMENTS(DEFINE_SIX, DEFINE_SIX)

/* After a launch: under capture it becomes a node; and a node names its kernel by another handle.
 */
static void check_launch(struct tags_thread *t, void *stream)
{
    void *kernel = t ? tags_new_kernel(t) : NULL;
    if (kernel)
        interpose_alias(kernel);
    if (t && atomic_load_explicit(&n_capturing, memory_order_relaxed) && interpose_captures(stream))
        tags_captured(t);
}

static int call_launch(int i, const struct cu_launch *l, void *stream, void **params, void **extra)
{
    launch_fn fn = (launch_fn)real_of(i);
    const struct cu_geometry *g = &l->geometry;
    if (!fn)
        return NOT_INITIALIZED;
    int kept = errno;
    struct tags_thread *t = enter(i, l);
    errno = kept;
    int rc = fn(l->f, g->grid[0], g->grid[1], g->grid[2], g->block[0], g->block[1], g->block[2],
                g->smem, stream, params, extra);
    check_launch(t, stream);
    leave(t, i, l, rc);
    return rc;
}

#define DEFINE_LAUNCH(name)                                                                        \
    int name(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
             unsigned bz, unsigned smem, void *stream, void **params, void **extra)                \
    {                                                                                              \
        struct cu_launch l = {f, {{gx, gy, gz}, {bx, by, bz}, smem}};                              \
        return call_launch(AT_##name, &l, stream, params, extra);                                  \
    }
DEFINE_LAUNCH(cuLaunchKernel)
DEFINE_LAUNCH(cuLaunchKernel_ptsz)
/* These have no last argument; it is passed on, and not looked at. */
DEFINE_LAUNCH(cuLaunchCooperativeKernel)
DEFINE_LAUNCH(cuLaunchCooperativeKernel_ptsz)

static int call_launch_ex(int i, const struct cu_config *config, void *f, void **params,
                          void **extra)
{
    launch_ex_fn fn = (launch_ex_fn)real_of(i);
    struct cu_launch_ex l = {config, f};
    if (!fn)
        return NOT_INITIALIZED;
    int kept = errno;
    struct tags_thread *t = config ? enter(i, &l) : NULL;
    errno = kept;
    int rc = fn(config, f, params, extra);
    check_launch(t, config ? config->stream : NULL);
    leave(t, i, &l, rc);
    return rc;
}

int cuLaunchKernelEx(const struct cu_config *config, void *f, void **params, void **extra)
{
    return call_launch_ex(AT_cuLaunchKernelEx, config, f, params, extra);
}

int cuLaunchKernelEx_ptsz(const struct cu_config *config, void *f, void **params, void **extra)
{
    return call_launch_ex(AT_cuLaunchKernelEx_ptsz, config, f, params, extra);
}

static int call_load(int i, void **library, const void *code, void *o, void **ov, unsigned no,
                     void *lo, void **lov, unsigned nlo)
{
    load_fn fn = (load_fn)real_of(i);
    const void *args[] = {library, code};
    if (!fn)
        return NOT_INITIALIZED;
    int kept = errno;
    struct tags_thread *t = enter(i, args);
    errno = kept;
    int rc = fn(library, code, o, ov, no, lo, lov, nlo);
    if (t && !rc && i == AT_cuLibraryLoadData)
        interpose_image(t, code);
    else if (t && !rc)
        interpose_file(t, code);
    leave(t, i, args, rc);
    return rc;
}

#define DEFINE_LOAD(name)                                                                          \
    int name(void **library, const void *code, void *o, void **ov, unsigned no, void *lo,          \
             void **lov, unsigned nlo)                                                             \
    {                                                                                              \
        return call_load(AT_##name, library, code, o, ov, no, lo, lov, nlo);                       \
    }
DEFINE_LOAD(cuLibraryLoadData)
DEFINE_LOAD(cuLibraryLoadFromFile)

void *interpose_named(void *handle, const char *name)
{
    if (!gives_wrappers() || !name || name[0] != 'c' || name[1] != 'u')
        return NULL;
    for (int i = 0; i < N_ENTRIES; i++) {
        if (strcmp(name, entries[i].name) != 0)
            continue;
        /* A handle of another library than the driver is its owner's business. */
        void *fn = interpose_in(handle, name), *ours = real_of(i);
        return fn && fn == ours ? entries[i].wrapper : NULL;
    }
    return NULL;
}
