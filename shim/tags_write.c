/* The writer's side of the tagger: code images are read, and what a list number stands for goes
 * into the database, when the first record that names it is written. */
#include "config.h"

#include "shim/tags_int.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shim/core.h"
#include "shim/log.h"
#include "sql/cubin.h"
#include "sql/fatbin.h"
#include "sql/store_kernels.h"

static const struct {
    const char *kind, *detail;
} gaps[N_TAGS_GAPS] = {
    [TAGS_OUTSIDE] = {"launches_outside", "between the forwards that the engine marks"},
    [TAGS_UNMARKED] = {"forwards_unmarked",
                       "no engine marks them: each ends where results go to the host"},
    [TAGS_GRAPH] = {"graph_unknown", "launches of CUDA graphs that were not seen being built"},
    [TAGS_CONDITIONAL] =
        {"graph_conditional",
         "launches of CUDA graphs with conditional parts, which are listed once or not at all"},
    [TAGS_UNSEEN] = {"launches_unseen", "through a deprecated function of the driver"},
    [TAGS_LISTS] = {"kernel_lists_left_out", "forwards with too many or too long lists"},
    [TAGS_MODULES] = {"modules_left_out", "code images that found no room"},
    [TAGS_AMBIGUOUS] = {"kernels_ambiguous", "kernels whose code is one of several of that name"},
    [TAGS_UNREAD] = {"modules_unread", NULL},
    [TAGS_PAUSED] = {"kernels_paused", "forwards while the engine had kernels not recorded"},
};

/* A code image that was read; images with the same bytes share one. */
struct parsed {
    struct cubin cubin;
    size_t bytes;
    int64_t seen_ns;
};

/* What this configuration or kernel is in the database, and in any other. */
struct stored {
    int64_t id; /* 0 = not yet */
    unsigned char identity[SHA256_BYTES];
};

enum { LIST_NEW, LIST_PUT, LIST_SETTLED };

static struct {
    struct parsed *parsed; /* (n_parsed) */
    uint32_t n_parsed, n_links, n_there;
    struct link {
        uint32_t id, parsed; /* image number -> index of what was read from it */
    } * links;
    struct there {
        uint32_t id;
        size_t size;
        const unsigned char *bytes; /* NULL: it was read */
    } * there;
    struct stored *configs, *kernels;
    unsigned char *lists; /* LIST_... */
    uint32_t room_configs, room_kernels, room_lists;
    uint32_t n_put, *put;                /* lists of this transaction */
    uint32_t graphs_put, graphs_settled; /* rows of tags.graphs */
    uint64_t stated[N_TAGS_GAPS];
    bool version_stated, refusal_stated;
    struct err unread; /* why an image was not */
} done;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Make a list reach to index n - 1, the new part zero. */
static int reach(void *list, uint32_t *room, uint32_t n, size_t bytes)
{
    void **at = list;
    uint32_t wide = *room ? *room : 256;
    if (n <= *room)
        return 0;
    while (wide < n)
        wide *= 2;
    char *more = realloc(*at, wide * bytes);
    if (!more)
        return -1;
    memset(more + *room * bytes, 0, (wide - *room) * bytes);
    *at = more;
    *room = wide;
    return 0;
}

/* Keep a copy for disassembly, where PROBE_SAVE_CUBINS names a folder. */
static void save_cubin(const struct cubin *c, const void *bytes, size_t size)
{
    char path[sizeof probe.options.save_cubins + SHA256_HEX + 8];
    if (!probe.options.save_cubins[0])
        return;
    snprintf(path, sizeof path, "%s/%s.cubin", probe.options.save_cubins, c->hash);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return;
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        log_line("%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void add_link(uint32_t id, uint32_t parsed)
{
    struct link *list = tags_grow(done.links, done.n_links, TAGS_CONFIGS, sizeof *list);
    if (!list)
        return;
    done.links = list;
    list[done.n_links++] = (struct link){id, parsed};
}

static void read_cubin(uint32_t id, const void *bytes, size_t size)
{
    char name[40];
    snprintf(name, sizeof name, "module %u", id);
    struct parsed p = {.bytes = size, .seen_ns = now_ns()};
    if (cubin_read(&p.cubin, name, bytes, size, &done.unread))
        tags_count(TAGS_UNREAD, 1);
    save_cubin(&p.cubin, bytes, size);
    for (uint32_t i = 0; i < done.n_parsed; i++)
        if (!strcmp(done.parsed[i].cubin.hash, p.cubin.hash)) {
            cubin_free(&p.cubin);
            add_link(id, i);
            return;
        }
    struct parsed *list = tags_grow(done.parsed, done.n_parsed, TAGS_KERNELS, sizeof *list);
    if (!list) {
        tags_count(TAGS_MODULES, 1);
        cubin_free(&p.cubin);
        return;
    }
    done.parsed = list;
    list[done.n_parsed] = p;
    add_link(id, done.n_parsed++);
}

/* The architecture of the cubins in a fat binary that the driver takes: the latest of the device's
 * generation that the device can run. */
static int best_arch(const unsigned char *bytes, size_t size)
{
    struct fatbin_image image;
    int device = atomic_load(&tags.arch), best = 0;
    for (size_t at = 0; fatbin_next(bytes, size, &at, &image);)
        if (image.kind == FATBIN_CUBIN && image.arch > best &&
            (!device || (image.arch <= device && image.arch / 10 == device / 10)))
            best = image.arch;
    return best;
}

static void read_fatbin(uint32_t id, const unsigned char *bytes, size_t size)
{
    struct fatbin_image image;
    int arch = best_arch(bytes, size);
    for (size_t at = 0; fatbin_next(bytes, size, &at, &image);) {
        unsigned char *plain;
        size_t n;
        if (image.kind != FATBIN_CUBIN || image.arch != arch)
            continue;
        if (fatbin_unpack(&image, &plain, &n, &done.unread)) {
            tags_count(TAGS_UNREAD, 1);
            continue;
        }
        read_cubin(id, plain, n);
        free(plain);
    }
}

static void read_bytes(uint32_t id, const unsigned char *bytes, size_t size)
{
    if (size > SELFMAG && !memcmp(bytes, ELFMAG, SELFMAG))
        read_cubin(id, bytes, size);
    else
        read_fatbin(id, bytes, size);
}

/* Read what was left in place; its library may have been unloaded since. */
static void read_there(struct there *t)
{
    unsigned char *copy = malloc(t->size);
    struct iovec to = {copy, t->size}, from = {(void *)(uintptr_t)t->bytes, t->size};
    if (copy && process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)t->size)
        read_bytes(t->id, copy, t->size);
    else {
        err_set(&done.unread, "module %u: not in memory any more", t->id);
        tags_count(TAGS_UNREAD, 1);
    }
    free(copy);
    t->bytes = NULL;
}

static void take_image(const struct tags_image *image)
{
    struct there *list =
        image->there ? tags_grow(done.there, done.n_there, TAGS_CONFIGS, sizeof *list) : NULL;
    if (!image->there)
        read_bytes(image->id, image->bytes, image->size);
    else if (list) {
        done.there = list;
        list[done.n_there++] = (struct there){image->id, image->size, image->there};
    } else
        tags_count(TAGS_MODULES, 1);
}

void tags_read_images(void)
{
    if (!atomic_load(&tags.version) || atomic_load(&tags.forked))
        return;
    pthread_mutex_lock(&tags.lock);
    struct tags_image *next, *image = tags.images;
    tags.images = NULL;
    tags.images_end = &tags.images;
    pthread_mutex_unlock(&tags.lock);
    for (; image; image = next) {
        next = image->next;
        take_image(image);
        pthread_mutex_lock(&tags.lock);
        tags.image_bytes -= image->there ? 0 : image->size;
        pthread_mutex_unlock(&tags.lock);
        free(image);
    }
}

/* Where a kernel's code is: one image, or none, or several that differ. */
struct found {
    const struct parsed *in;
    const struct cubin_kernel *kernel;
    bool several;
};

static void look_in(struct found *f, uint32_t parsed, const char *name)
{
    const struct parsed *p = &done.parsed[parsed];
    const struct cubin_kernel *k = cubin_find(&p->cubin, name);
    if (!k)
        return;
    if (!f->kernel)
        *f = (struct found){p, k, false};
    else if (strcmp(f->kernel->code_hash, k->code_hash))
        f->several = true;
}

/* A copy of the numbers of an owner's images; owned by the caller. */
static uint32_t *images_of(uint32_t owner, uint32_t *out_n)
{
    uint32_t *copy = NULL;
    *out_n = 0;
    pthread_mutex_lock(&tags.lock);
    const struct tags_owner *o = owner ? &tags.owners[owner - 1] : NULL;
    if (o && o->n && (copy = malloc(o->n * sizeof *copy)) != NULL) {
        memcpy(copy, o->images, o->n * sizeof *copy);
        *out_n = o->n;
    }
    pthread_mutex_unlock(&tags.lock);
    return copy;
}

static void look_in_image(struct found *f, uint32_t id, const char *name)
{
    for (uint32_t i = 0; i < done.n_there; i++)
        if (done.there[i].id == id && done.there[i].bytes)
            read_there(&done.there[i]);
    for (uint32_t i = 0; i < done.n_links; i++)
        if (done.links[i].id == id)
            look_in(f, done.links[i].parsed, name);
}

/* Among the images of its owner, or else among all. */
static const char *find_code(const struct tags_kernel *k, struct found *f)
{
    uint32_t n, *images = images_of(k->owner, &n);
    *f = (struct found){0};
    for (uint32_t i = 0; i < n; i++)
        look_in_image(f, images[i], k->name);
    free(images);
    if (f->kernel)
        return f->several ? "ambiguous" : "exact";
    for (uint32_t i = 0; i < done.n_parsed; i++)
        look_in(f, i, k->name);
    return f->several ? "ambiguous" : f->kernel ? "symbol" : NULL;
}

static int put_kernel(struct store *s, uint32_t number, struct stored **out,
                      const struct cubin_kernel **code, struct err *err)
{
    struct found f;
    struct sha256 identity;
    pthread_mutex_lock(&tags.lock);
    struct tags_kernel k = tags.kernels[number - 1];
    pthread_mutex_unlock(&tags.lock);
    if (reach(&done.kernels, &done.room_kernels, number, sizeof *done.kernels))
        return err_set(err, "out of memory for %u kernels", number);
    struct stored *at = *out = &done.kernels[number - 1];
    const char *how = find_code(&k, &f);
    *code = f.several ? NULL : f.kernel;
    if (at->id)
        return 0;
    struct store_kernel row = {.name = k.name,
                               .resolve = how,
                               .arch = -1,
                               .registers = -1,
                               .static_smem = -1,
                               .stack = -1,
                               .max_threads = -1};
    if (f.several)
        tags_count(TAGS_AMBIGUOUS, 1);
    else if (f.kernel) {
        row.code_hash = f.kernel->code_hash;
        row.const_hash = f.in->cubin.const_hash;
        row.module_hash = f.in->cubin.hash;
        row.module_bytes = (int64_t)f.in->bytes;
        row.first_seen_ns = f.in->seen_ns;
        row.arch = f.in->cubin.arch;
        row.registers = f.kernel->registers;
        row.static_smem = f.kernel->static_smem;
        row.stack = f.kernel->stack;
        row.max_threads = f.kernel->max_threads;
    }
    sha256_init(&identity);
    sha256_add(&identity, row.name, strlen(row.name) + 1);
    sha256_add(&identity, row.code_hash ? row.code_hash : "", row.code_hash ? SHA256_HEX : 1);
    sha256_add(&identity, row.const_hash ? row.const_hash : "",
               row.const_hash && row.const_hash[0] ? SHA256_HEX : 1);
    sha256_end(&identity, at->identity);
    return store_kernel(s, &row, &at->id, err);
}

static void unpack_three(uint32_t packed, uint32_t out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = packed >> 10 * i & 1023;
}

static int put_config(struct store *s, uint32_t number, struct err *err)
{
    const struct cubin_kernel *code = NULL;
    struct stored *kernel = NULL;
    struct sha256 identity;
    char attributes[120];
    if (reach(&done.configs, &done.room_configs, number, sizeof *done.configs))
        return err_set(err, "out of memory for %u launch configurations", number);
    struct stored *at = &done.configs[number - 1];
    if (at->id)
        return 0;
    pthread_mutex_lock(&tags.lock);
    struct tags_config c = tags.configs[number - 1];
    pthread_mutex_unlock(&tags.lock);
    if (put_kernel(s, c.kernel, &kernel, &code, err))
        return -1;
    struct store_config row = {.kernel_id = kernel->id, .attributes = attributes};
    const struct cu_geometry *g = &c.key.geometry;
    memcpy(row.grid, g->grid, sizeof row.grid);
    memcpy(row.block, g->block, sizeof row.block);
    row.dynamic_smem = g->smem;
    unpack_three(c.key.cluster, row.cluster);
    for (int i = 0; i < 3 && !c.key.cluster && code && code->cluster[0] > 0; i++)
        row.cluster[i] = (uint32_t)code->cluster[i];
    tags_attributes_text(c.key.attributes, attributes);
    sha256_init(&identity);
    sha256_add(&identity, kernel->identity, sizeof kernel->identity);
    sha256_add(&identity, g, sizeof *g);
    sha256_add(&identity, row.cluster, sizeof row.cluster);
    sha256_add(&identity, attributes, strlen(attributes));
    sha256_end(&identity, at->identity);
    return store_config(s, &row, &at->id, err);
}

/* The configurations of a list, those of graphs in their place; owned by the caller. NULL without
 * memory. */
static uint32_t *expand(uint32_t number, uint32_t *out_n)
{
    pthread_mutex_lock(&tags.lock);
    const struct tags_list *list = &tags.lists[number - 1];
    uint32_t *out = malloc((list->n_kernel + 1) * sizeof *out), n = 0;
    for (uint32_t i = 0; out && list->entries && i < list->n; i++) {
        uint32_t entry = list->entries[i];
        if (!(entry & TAGS_GRAPH_BIT)) {
            out[n++] = entry;
            continue;
        }
        const struct tags_list *graph = &tags.lists[(entry & ~TAGS_GRAPH_BIT) - 1];
        memcpy(out + n, graph->entries, graph->n * sizeof *out);
        n += graph->n;
    }
    pthread_mutex_unlock(&tags.lock);
    *out_n = n;
    return out;
}

static int put_items(struct store *s, uint32_t number, const uint32_t *configs, uint32_t n,
                     struct err *err)
{
    char hash[SHA256_HEX];
    struct sha256 sum;
    int64_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return err_set(err, "out of memory for a list of %u launches", n);
    sha256_init(&sum);
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = put_config(s, configs[i], err);
        if (rc)
            break;
        ids[i] = done.configs[configs[i] - 1].id;
        sha256_add(&sum, done.configs[configs[i] - 1].identity, SHA256_BYTES);
    }
    sha256_end_hex(&sum, hash);
    if (!rc)
        rc = store_list(s, number, hash, ids, n, err);
    free(ids);
    return rc;
}

static int put_list(struct store *s, uint32_t number, struct err *err)
{
    uint32_t n;
    if (reach(&done.lists, &done.room_lists, number, sizeof *done.lists))
        return err_set(err, "out of memory for %u kernel lists", number);
    if (done.lists[number - 1] != LIST_NEW)
        return 0;
    tags_read_images();
    uint32_t *configs = expand(number, &n);
    uint32_t *put = configs ? tags_grow(done.put, done.n_put, TAGS_NUMBERED, sizeof *put) : NULL;
    if (put)
        done.put = put;
    int rc = put ? put_items(s, number, configs, n, err)
                 : err_set(err, "out of memory for kernel list %u", number);
    free(configs);
    if (rc)
        return -1;
    done.put[done.n_put++] = number;
    done.lists[number - 1] = LIST_PUT;
    return 0;
}

int tags_put(struct store *s, const struct record *r, struct err *err)
{
    const struct record_end *e = (const struct record_end *)r->body;
    if (r->kind != RECORD_END || r->n_bytes < sizeof *e || !e->list || e->list > tags.n_lists)
        return 0;
    return put_list(s, e->list, err);
}

static int put_graphs(struct store *s, struct err *err)
{
    for (uint32_t n = done.graphs_put;; n++) {
        struct tags_graph g;
        pthread_mutex_lock(&tags.lock);
        bool more = n < tags.n_graphs;
        if (more)
            g = tags.graphs[n];
        pthread_mutex_unlock(&tags.lock);
        if (!more)
            return 0;
        if (put_list(s, g.list, err) ||
            store_graph_exec(s, g.list, g.label, g.version, g.created_ns, err))
            return -1;
        done.graphs_put = n + 1;
    }
}

/* Whoever has switched the kernels off finds that beside what else is missing. */
static void note_off(void)
{
    static bool noted;
    void *driver = noted || probe.options.cupti != CUPTI_OFF
                       ? NULL
                       : dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (!driver)
        return;
    noted = true;
    tags_refused("PROBE_CUPTI=off");
    dlclose(driver);
}

int tags_state(struct store *s, struct err *err)
{
    note_off();
    const char *refused = atomic_load(&tags.refused), *version = atomic_load(&tags.version);
    if ((!refused && !version) || atomic_load(&tags.forked))
        return 0; /* the counts are the parent's */
    if (version && !done.version_stated) {
        done.version_stated = true;
        facts_setting(&probe.facts, &probe.spool,
                      version[0] >= '0' && version[0] <= '9' ? "cupti_version" : "kernels_seen",
                      version, "api");
    }
    if (refused && !done.refusal_stated && store_gap(s, "cupti_refused", 1, refused, err))
        return -1;
    done.refusal_stated = refused != NULL;
    for (int i = 0; i < N_TAGS_GAPS; i++) {
        uint64_t count = atomic_load(&tags.gaps[i]);
        const char *detail = gaps[i].detail ? gaps[i].detail : done.unread.text;
        if (count != done.stated[i] && store_gap(s, gaps[i].kind, count, detail, err))
            return -1;
        done.stated[i] = count;
    }
    return put_graphs(s, err);
}

void tags_settle(void)
{
    for (uint32_t i = 0; i < done.n_put; i++) {
        uint32_t number = done.put[i];
        done.lists[number - 1] = LIST_SETTLED;
        pthread_mutex_lock(&tags.lock);
        struct tags_list *list = &tags.lists[number - 1];
        if (!list->is_graph) {
            free(list->entries);
            list->entries = NULL;
        }
        pthread_mutex_unlock(&tags.lock);
    }
    done.n_put = 0;
    done.graphs_settled = done.graphs_put;
}

void tags_forget(void)
{
    for (uint32_t i = 0; i < done.n_put; i++)
        done.lists[done.put[i] - 1] = LIST_NEW;
    done.n_put = 0;
    for (uint32_t i = 0; i < done.room_configs; i++)
        done.configs[i].id = 0;
    for (uint32_t i = 0; i < done.room_kernels; i++)
        done.kernels[i].id = 0;
    done.graphs_put = done.graphs_settled;
    memset(done.stated, 0, sizeof done.stated);
    done.refusal_stated = false;
}
