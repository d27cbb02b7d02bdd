#include "config.h"

#include "shim/llama_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "shim/interpose_int.h"

enum { LIBS = 4, CALLERS = 16 };
typedef int32_t (*llama_decode_fn)(struct llama_context *, struct llama_passed);

static const struct entry {
    const char *name;
    size_t at; /* offset in struct llama_lib */
    void *wrapper;
    bool needed;
} entries[] = {
#define WRAPPED(needed, type, name, parameters)                                                    \
    {#name, offsetof(struct llama_lib, name), (void *)name, needed},
#define CALLED(needed, type, name, parameters)                                                     \
    {#name, offsetof(struct llama_lib, name), NULL, needed},
    LLAMA_WRAPPED(WRAPPED) LLAMA_CALLED(CALLED)};
enum { N_ENTRIES = sizeof entries / sizeof *entries };

static struct llama_lib libs[LIBS];
static _Atomic int n_libs;
static struct caller {
    uintptr_t from, to; /* an object's code */
    struct llama_lib *lib;
} callers[CALLERS];
static _Atomic int n_callers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void unlock_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

/* A function of an object and of what it needs, never ours. */
static void *find(void *handle, const struct entry *e)
{
    void *fn = interpose_past(handle, e->name);
    return fn == e->wrapper ? NULL : fn;
}

/* Whether a batch is what we take it for: the library makes one, over a pattern. */
static bool has_our_batch(const struct llama_lib *lib)
{
    struct llama_passed made, want;
    memset(&made, 0xa5, sizeof made);
    want = made;
    want.batch = (struct llama_batch){.n_tokens = 3, .token = &want.batch.n_tokens};
    lib->llama_batch_get_one(&made, want.batch.token, 3);
    return made.batch.n_tokens == 3 && made.batch.token == want.batch.token && !made.batch.embd &&
           !made.batch.pos && !made.batch.n_seq_id && !made.batch.seq_id && !made.batch.logits &&
           !memcmp(made.beyond, want.beyond, sizeof made.beyond);
}

/* Keep the library of a function loaded. */
static void pin(const void *fn)
{
    Dl_info info;
    if (dladdr(fn, &info) && info.dli_fname)
        (void)dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
}

static struct llama_lib *known(llama_decode_fn decode)
{
    int n = atomic_load(&n_libs);
    for (int i = 0; i < n; i++)
        if (libs[i].llama_decode == decode)
            return &libs[i];
    return NULL;
}

static struct llama_lib *add(const struct llama_lib *made)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    struct llama_lib *lib = known(made->llama_decode);
    int n = atomic_load(&n_libs);
    if (!lib && n < LIBS) {
        lib = &libs[n];
        *lib = *made;
        atomic_store(&n_libs, n + 1);
    }
    pthread_mutex_unlock(&lock);
    return lib;
}

/* The library whose functions an object reaches; NULL: none, or too many. The loader is asked
 * outside of our lock: it has one of its own, under which it runs code that may come to us. */
static struct llama_lib *take(void *handle)
{
    struct llama_lib made = {0};
    for (int i = 0; i < N_ENTRIES; i++) {
        void *fn = find(handle, &entries[i]);
        memcpy((char *)&made + entries[i].at, &fn, sizeof fn);
        if (!made.llama_decode || known(made.llama_decode))
            return known(made.llama_decode);
        if (!fn && entries[i].needed && !made.refused[0])
            snprintf(made.refused, sizeof made.refused, "it has no %s", entries[i].name);
    }
    if (!made.refused[0] && !has_our_batch(&made))
        snprintf(made.refused, sizeof made.refused, "its batches have another layout");
    pin((const void *)made.llama_decode);
    return add(&made);
}

/* The same, for an object that is loaded. */
static struct llama_lib *take_object(const char *path)
{
    void *handle = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    struct llama_lib *lib = handle ? take(handle) : NULL;
    if (handle)
        dlclose(handle);
    return lib;
}

struct search {
    uintptr_t address; /* in the object that is sought; 0: one whose name is libllama's */
    uintptr_t from, to;
    const char *path;
};

static int match(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *s = data;
    (void)size;
    s->path = info->dlpi_name ? info->dlpi_name : "";
    const char *base = strrchr(s->path, '/');
    base = base ? base + 1 : s->path;
    if (!s->address)
        return !strncmp(base, "libllama.", 9); /* it may go on with a version or a back end */
    for (int i = 0; i < info->dlpi_phnum; i++) {
        s->from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        s->to = s->from + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && s->address >= s->from && s->address < s->to)
            return 1;
    }
    return 0;
}

static void remember(const struct search *s, struct llama_lib *lib)
{
    pthread_mutex_lock(&lock);
    int n = atomic_load(&n_callers);
    if (n < CALLERS) {
        callers[n] = (struct caller){s->from, s->to, lib};
        atomic_store(&n_callers, n + 1);
    }
    pthread_mutex_unlock(&lock);
}

/* Code that nothing leads to a library from (a binding's, which got its functions by dlsym) means
 * the first one. */
static struct llama_lib *search(uintptr_t address)
{
    struct search s = {.address = address}, any = {0};
    bool found = dl_iterate_phdr(match, &s);
    struct llama_lib *lib = !found ? NULL : s.path[0] ? take_object(s.path) : take(RTLD_NEXT);
    if (!lib && atomic_load(&n_libs))
        lib = &libs[0];
    if (!lib)
        lib = take(RTLD_NEXT);
    if (!lib && dl_iterate_phdr(match, &any))
        lib = take_object(any.path);
    if (found && lib)
        remember(&s, lib);
    return lib;
}

struct llama_lib *llama_lib_of(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    int n = atomic_load_explicit(&n_callers, memory_order_acquire), kept = errno;
    for (int i = 0; i < n; i++)
        if (at >= callers[i].from && at < callers[i].to)
            return callers[i].lib;
    struct llama_lib *lib = search(at);
    errno = kept;
    return lib;
}

void *llama_lib_wrapper(void *handle, const char *name)
{
    const struct entry *e = entries;
    while (e < entries + N_ENTRIES && strcmp(e->name, name) != 0)
        e++;
    if (e == entries + N_ENTRIES || !e->wrapper || !find(handle, e))
        return NULL;
    /* Whose call it is cannot be told of others than the first. */
    return take(handle) == &libs[0] ? e->wrapper : NULL;
}
