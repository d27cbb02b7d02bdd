#include "config.h"

#include "shim/tags_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sql/record.h"

enum { SYMBOL_MAX = 8192 };

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* The number of a kernel of that name and owner, made when it is new; 0 without room. */
static uint32_t kernel_named(const char *name, uint32_t owner)
{
    size_t n = strlen(name);
    for (uint64_t seed = owner;; seed += UINT64_C(1) << 32) {
        uint64_t hash = XXH3_64bits_withSeed(name, n, seed);
        uint32_t known = map_get(&tags.kernel_of, hash);
        if (known) {
            const struct tags_kernel *k = &tags.kernels[known - 1];
            if (k->owner == owner && !strcmp(k->name, name))
                return known;
            continue;
        }
        struct tags_kernel *list =
            tags_grow(tags.kernels, tags.n_kernels, TAGS_KERNELS, sizeof *list);
        char *copy = list ? strdup(name) : NULL;
        if (list)
            tags.kernels = list;
        if (!copy || map_set(&tags.kernel_of, hash, tags.n_kernels + 1)) {
            free(copy);
            return 0;
        }
        list[tags.n_kernels] = (struct tags_kernel){copy, owner};
        return ++tags.n_kernels;
    }
}

/* Copy a name whose address may be none: some versions of CUPTI give such. */
static void copy_symbol(char out[SYMBOL_MAX], const char *symbol)
{
    size_t page = 4096, at = 0;
    out[0] = 0;
    while (symbol && at < SYMBOL_MAX - 1) {
        size_t n = page - (size_t)((address(symbol) + at) % page);
        n = n < SYMBOL_MAX - 1 - at ? n : SYMBOL_MAX - 1 - at;
        struct iovec here = {out + at, n}, there = {(char *)(uintptr_t)symbol + at, n};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)n)
            break;
        out[at + n] = 0;
        if (memchr(out + at, 0, n))
            return;
        at += n;
    }
    out[at] = 0;
}

uint32_t tags_kernel_of(const void *handle, const char *symbol)
{
    char name[SYMBOL_MAX];
    uint32_t known = map_get(&tags.by_handle, address(handle));
    if (known)
        return known;
    copy_symbol(name, symbol);
    uint32_t kernel = kernel_named(name[0] ? name : "(unnamed)", 0);
    if (kernel)
        map_set(&tags.by_handle, address(handle), kernel);
    return kernel;
}

/* The number of an owner, made when it is new; 0 without room. */
static uint32_t owner_of(const void *handle)
{
    uint32_t known = map_get(&tags.by_owner, address(handle));
    if (known)
        return known;
    struct tags_owner *list = tags_grow(tags.owners, tags.n_owners, TAGS_KERNELS, sizeof *list);
    if (!list)
        return 0;
    tags.owners = list;
    list[tags.n_owners] = (struct tags_owner){0};
    if (handle && map_set(&tags.by_owner, address(handle), tags.n_owners + 1))
        return 0;
    return ++tags.n_owners;
}

/* The owner that a handle of any kind stands for; 0 = not known. */
static uint32_t owner_behind(const void *handle)
{
    uint32_t kernel = map_get(&tags.by_handle, address(handle));
    return kernel ? tags.kernels[kernel - 1].owner : map_get(&tags.by_owner, address(handle));
}

bool tags_is_library_kernel(const void *handle)
{
    pthread_mutex_lock(&tags.lock);
    bool is = map_get(&tags.library_kernels, address(handle)) != 0;
    pthread_mutex_unlock(&tags.lock);
    return is;
}

bool tags_known(const void *handle)
{
    pthread_mutex_lock(&tags.lock);
    bool known = map_get(&tags.by_handle, address(handle)) != 0;
    pthread_mutex_unlock(&tags.lock);
    return known;
}

void tags_kernel(const void *handle, const void *owner, const char *name, bool of_library)
{
    pthread_mutex_lock(&tags.lock);
    map_set(&tags.library_kernels, address(handle), of_library);
    uint32_t kernel = kernel_named(name, owner_of(owner));
    uint32_t before = map_get(&tags.by_handle, address(handle));
    if (before != kernel) {
        map_set(&tags.by_handle, address(handle), kernel);
        if (before) /* the handle had another meaning, which threads may remember */
            atomic_fetch_add(&tags.generation, 1);
    }
    pthread_mutex_unlock(&tags.lock);
}

void tags_alias(const void *new_handle, const void *handle)
{
    pthread_mutex_lock(&tags.lock);
    uint32_t kernel = map_get(&tags.by_handle, address(handle));
    uint32_t owner = map_get(&tags.by_owner, address(handle));
    if (kernel && map_get(&tags.by_handle, address(new_handle)) != kernel) {
        map_set(&tags.by_handle, address(new_handle), kernel);
        atomic_fetch_add(&tags.generation, 1);
    } else if (owner)
        map_set(&tags.by_owner, address(new_handle), owner);
    pthread_mutex_unlock(&tags.lock);
}

void tags_load_begin(struct tags_thread *t, const void *owner_or_handle)
{
    t->load_owner = owner_or_handle;
    t->load_number = 0;
}

void tags_load_end(struct tags_thread *t, const void *new_owner)
{
    if (new_owner) {
        pthread_mutex_lock(&tags.lock);
        /* One that had the same address is gone: what it left must not be taken for this one's. */
        map_set(&tags.by_owner, address(new_owner), 0);
        uint32_t owner = t->load_number ? t->load_number : owner_of(NULL);
        if (owner)
            map_set(&tags.by_owner, address(new_owner), owner);
        pthread_mutex_unlock(&tags.lock);
    }
    t->load_owner = NULL;
    t->load_number = 0;
}

static void give_image(uint32_t owner, uint32_t id)
{
    struct tags_owner *o = owner ? &tags.owners[owner - 1] : NULL;
    uint32_t *list = o ? tags_grow(o->images, o->n, TAGS_KERNELS, sizeof *list) : NULL;
    if (!list)
        return; /* its kernels are looked for by name */
    o->images = list;
    list[o->n++] = id;
}

/* Say whose image it is that is loaded now. With the lock held. */
static void own_image(struct tags_thread *t, uint32_t id)
{
    uint32_t owner = owner_behind(t->load_owner);
    if (!owner && !t->load_number)
        t->load_number = owner_of(NULL);
    give_image(owner ? owner : t->load_number, id);
}

static void queue_image(struct tags_image *image)
{
    pthread_mutex_lock(&tags.lock);
    *tags.images_end = image;
    tags.images_end = &image->next;
    pthread_mutex_unlock(&tags.lock);
}

void tags_image(struct tags_thread *t, uint32_t id, const void *image, size_t size)
{
    struct tags_image *copy = NULL;
    pthread_mutex_lock(&tags.lock);
    own_image(t, id);
    bool room = image && size <= TAGS_IMAGE_BYTES - tags.image_bytes;
    if (room && (copy = malloc(sizeof *copy + size)) != NULL)
        tags.image_bytes += size;
    pthread_mutex_unlock(&tags.lock);
    if (!copy) {
        tags_count(TAGS_MODULES, 1);
        return;
    }
    *copy = (struct tags_image){.id = id, .size = size};
    memcpy(copy->bytes, image, size);
    queue_image(copy);
}

void tags_image_there(struct tags_thread *t, const void *image, size_t size)
{
    struct tags_image *note = malloc(sizeof *note);
    uint32_t id = tags_image_id();
    pthread_mutex_lock(&tags.lock);
    own_image(t, id);
    pthread_mutex_unlock(&tags.lock);
    if (!note) {
        tags_count(TAGS_MODULES, 1);
        return;
    }
    *note = (struct tags_image){.id = id, .size = size, .there = image};
    queue_image(note);
}

uint32_t tags_image_id(void)
{
    return atomic_fetch_add(&tags.image_id, 1);
}

void tags_arch(int sm)
{
    atomic_store(&tags.arch, sm);
}

bool tags_arch_known(void)
{
    return atomic_load_explicit(&tags.arch, memory_order_relaxed) != 0;
}

static int of_another(uint64_t key, uint32_t kernel, void *owner)
{
    (void)key;
    return tags.kernels[kernel - 1].owner != *(const uint32_t *)owner;
}

static int is_another(uint64_t key, uint32_t value, void *owner)
{
    (void)key;
    return value != *(const uint32_t *)owner;
}

void tags_unload(const void *handle)
{
    pthread_mutex_lock(&tags.lock);
    uint32_t owner = map_get(&tags.by_owner, address(handle));
    if (owner) {
        map_keep(&tags.by_handle, of_another, &owner);
        map_keep(&tags.by_owner, is_another, &owner);
        atomic_fetch_add(&tags.generation, 1);
    }
    pthread_mutex_unlock(&tags.lock);
}
