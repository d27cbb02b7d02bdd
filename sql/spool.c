#include "config.h"

#include "sql/spool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static_assert(sizeof(struct spool_header) <= SPOOL_HEADER_BYTES,
              "the header has outgrown its pages");

/* Stands for the layout of header and records: change it when either changes. */
static const char SPOOL_MAGIC[8] = "ntspool2";

const char *const spool_lost_names[N_LOST] = {
    [LOST_ROWS] = "rows_dropped",
    [LOST_FORWARDS] = "forwards_dropped",
    [LOST_RECORDS] = "records_dropped",
    [LOST_CALLS] = "calls_refused",
    [LOST_DEVICE_ROWS] = "device_rows_dropped",
};

/* Open above the standard streams: a host may have closed those and will open its own there. */
static int open_high(const char *path, int flags)
{
    int fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (fd < 0 || fd > 2)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int cause = errno;
    close(fd);
    errno = cause;
    return high;
}

/* The path still names the file that was locked: its last owner did not remove it meanwhile. */
static bool still_there(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int spool_lock(struct spool *sp, const char *db_path, bool create, struct err *err)
{
    *sp = (struct spool){.fd = -1};
    size_t n = strlen(db_path);
    if (n + sizeof "-spool" > sizeof sp->path)
        return err_set(err, "%.100s...: the path is too long", db_path);
    memcpy(sp->path, db_path, n);
    memcpy(sp->path + n, "-spool", sizeof "-spool");
    for (;;) {
        int fd = open_high(sp->path, create ? O_CREAT : 0);
        if (fd < 0 && errno == ENOENT && !create)
            return 2;
        if (fd < 0)
            return err_set(err, "%s: %s", sp->path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            int cause = errno;
            close(fd);
            return cause == EWOULDBLOCK ? 1
                                        : err_set(err, "%s: lock: %s", sp->path, strerror(cause));
        }
        if (still_there(fd, sp->path)) {
            sp->fd = fd;
            return 0;
        }
        close(fd);
    }
}

static int map(struct spool *sp, size_t bytes, int flags, int fd, struct err *err)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        return err_set(err, "%s: map %zu bytes: %s", sp->path, bytes, strerror(errno));
    sp->head = p;
    sp->map_bytes = bytes;
    return 0;
}

int spool_create(struct spool *sp, const struct run_identity *run, size_t slot_bytes, size_t bytes,
                 struct err *err)
{
    size_t n_slots = bytes > SPOOL_HEADER_BYTES ? (bytes - SPOOL_HEADER_BYTES) / slot_bytes : 0;
    if (n_slots < 16)
        n_slots = 16;
    if (n_slots > UINT32_MAX)
        n_slots = UINT32_MAX;
    bytes = SPOOL_HEADER_BYTES + n_slots * slot_bytes;
    /* Reserved, not only sized: a store into a hole of a full disk would be a SIGBUS. */
    sp->in_file =
        !ftruncate(sp->fd, 0) && !posix_fallocate(sp->fd, 0, (off_t)bytes + SPOOL_RESERVE_BYTES);
    if (!sp->in_file && ftruncate(sp->fd, 0))
        return err_set(err, "%s: %s", sp->path, strerror(errno));
    if (sp->in_file ? map(sp, bytes, MAP_SHARED, sp->fd, err)
                    : map(sp, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, err))
        return -1;
    sp->head->slot_bytes = (uint32_t)slot_bytes;
    sp->head->n_slots = (uint32_t)n_slots;
    sp->head->run = *run;
    atomic_thread_fence(memory_order_release);
    memcpy(sp->head->magic, SPOOL_MAGIC, sizeof SPOOL_MAGIC);
    return 0;
}

int spool_open(struct spool *sp, struct err *err)
{
    struct stat st;
    if (fstat(sp->fd, &st))
        return err_set(err, "%s: %s", sp->path, strerror(errno));
    if (st.st_size < SPOOL_HEADER_BYTES)
        return 1;
    if (map(sp, (size_t)st.st_size, MAP_SHARED, sp->fd, err))
        return -1;
    sp->in_file = true;
    struct spool_header *h = sp->head;
    if (memcmp(h->magic, SPOOL_MAGIC, sizeof SPOOL_MAGIC))
        return memcmp(h->magic, (char[8]){0}, 8)
                   ? err_set(err, "%s: not a spool of this version", sp->path)
                   : 1;
    if (h->slot_bytes < record_slot_bytes(1, 0) || h->slot_bytes % 8 || h->n_slots < 1 ||
        ((size_t)st.st_size - SPOOL_HEADER_BYTES) / h->slot_bytes < h->n_slots ||
        !memchr(h->run.uuid, 0, sizeof h->run.uuid))
        return err_set(err, "%s: damaged: %u slots of %u bytes in a file of %lld", sp->path,
                       h->n_slots, h->slot_bytes, (long long)st.st_size);
    return 0;
}

const struct record *spool_record(const struct spool *sp, uint64_t n)
{
    const struct record *r = spool_slot(sp, n);
    if (atomic_load_explicit(&r->seq, memory_order_acquire) != n + 1 ||
        r->n_bytes > sp->head->slot_bytes - sizeof *r || r->check != record_check(r, n + 1))
        return NULL;
    return r;
}

bool spool_intact(const struct spool *sp)
{
    return still_there(sp->fd, sp->path);
}

void spool_yield(struct spool *sp)
{
    if (sp->in_file && ftruncate(sp->fd, (off_t)sp->map_bytes))
        return; /* the space stays taken until the file is removed */
}

void spool_remove(struct spool *sp)
{
    if (sp->fd >= 0)
        unlink(sp->path);
}

void spool_unmap(struct spool *sp)
{
    if (sp->head)
        munmap(sp->head, sp->map_bytes);
    sp->head = NULL;
}

void spool_close(struct spool *sp)
{
    spool_unmap(sp);
    if (sp->fd >= 0)
        close(sp->fd);
    *sp = (struct spool){.fd = -1};
}
