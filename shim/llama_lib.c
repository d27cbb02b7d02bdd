#include "config.h"

#include "shim/llama_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/interpose_int.h"

enum { LIBS = 8, CALLERS = 32, OWNED = 256 };
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
    uintptr_t from, to;    /* an object's code */
    struct llama_lib *lib; /* NULL: nothing leads from it to a library */
} callers[CALLERS];
static _Atomic int n_callers;
static struct {
    const void *object;
    struct llama_lib *lib;
} owned[OWNED];
static _Atomic bool missed;
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
    uintptr_t address; /* in the object that is sought */
    uintptr_t from, to;
    const char *path;
};

static int match(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *s = data;
    (void)size;
    s->path = info->dlpi_name ? info->dlpi_name : "";
    for (int i = 0; i < info->dlpi_phnum; i++) {
        s->from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        s->to = s->from + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && s->address >= s->from && s->address < s->to)
            return 1;
    }
    return 0;
}

/* What the code at an address reaches by itself. */
static struct llama_lib *search(uintptr_t address)
{
    struct search s = {.address = address};
    if (!dl_iterate_phdr(match, &s))
        return NULL;
    struct llama_lib *lib = s.path[0] ? take_object(s.path) : take(RTLD_NEXT);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    int n = atomic_load(&n_callers);
    if (n < CALLERS) {
        callers[n] = (struct caller){s.from, s.to, lib};
        atomic_store(&n_callers, n + 1);
    }
    pthread_mutex_unlock(&lock);
    return lib;
}

struct loaded {
    unsigned long long n; /* objects that were ever loaded */
    int n_paths;
    char *paths[512];
};

static int list(struct dl_phdr_info *info, size_t size, void *data)
{
    struct loaded *l = data;
    (void)size;
    l->n = info->dlpi_adds;
    if (info->dlpi_name && info->dlpi_name[0] && l->n_paths < 512 &&
        (l->paths[l->n_paths] = strdup(info->dlpi_name)))
        l->n_paths++;
    return 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = info->dlpi_adds;
    return 1;
}

/* For code that nothing leads from: a binding's, which got its functions by dlsym, or one that is
 * not the caller, since the call was its last act and was made by a jump. There is one library,
 * whatever its name; of several the first, which is the one whose wrappers dlsym gives. */
static struct llama_lib *any(void)
{
    static _Atomic unsigned long long seen;
    unsigned long long now = 0;
    dl_iterate_phdr(count, &now);
    if (atomic_load(&seen) != now) {
        struct loaded l = {0};
        dl_iterate_phdr(list, &l);
        take(RTLD_NEXT);
        for (int i = 0; i < l.n_paths; i++) {
            take_object(l.paths[i]);
            free(l.paths[i]);
        }
        atomic_store(&seen, l.n);
    }
    return atomic_load(&n_libs) ? &libs[0] : NULL;
}

static struct llama_lib *owner(const void *object)
{
    struct llama_lib *lib = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; object && !lib && i < OWNED; i++)
        if (owned[i].object == object)
            lib = owned[i].lib;
    pthread_mutex_unlock(&lock);
    return lib;
}

struct llama_lib *llama_lib_of(const void *caller, const void *object)
{
    uintptr_t at = (uintptr_t)caller;
    int n = atomic_load_explicit(&n_callers, memory_order_acquire), kept = errno, i = 0;
    struct llama_lib *lib = atomic_load(&n_libs) > 1 ? owner(object) : NULL;
    while (!lib && i < n && !(at >= callers[i].from && at < callers[i].to))
        i++;
    if (!lib)
        lib = i < n ? callers[i].lib : search(at);
    if (!lib)
        lib = any();
    errno = kept;
    return lib;
}

static void set_owner(const void *object, const void *as, struct llama_lib *lib)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < OWNED; i++)
        if (owned[i].object == object) {
            owned[i].object = as;
            owned[i].lib = lib;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void llama_lib_own(struct llama_lib *lib, const void *object)
{
    if (object)
        set_owner(NULL, object, lib);
}

void llama_lib_disown(const void *object)
{
    if (object)
        set_owner(object, NULL, NULL);
}

bool llama_lib_missed(void)
{
    return atomic_load_explicit(&missed, memory_order_relaxed) && atomic_exchange(&missed, false);
}

void *llama_lib_wrapper(void *handle, const char *name)
{
    const struct entry *e = entries;
    while (e < entries + N_ENTRIES && strcmp(e->name, name) != 0)
        e++;
    if (e == entries + N_ENTRIES || !e->wrapper || !find(handle, e))
        return NULL;
    struct llama_lib *lib = take(handle);
    if (lib == &libs[0])
        return e->wrapper;
    if (lib && !lib->refused[0] && e == &entries[0])
        atomic_store(&missed, true); /* whose call it is could not be told of others */
    return NULL;
}
