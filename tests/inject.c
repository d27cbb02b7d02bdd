/* Faults on demand: preloaded before libprobe.so, it fails chosen calls that come from there.
 *   INJECT=NAME:N[:COUNT[:ERRNO]]   calls N ... N + COUNT - 1 of NAME fail, with ERRNO (ENOSPC)
 * When one has failed, and the file named by INJECT_HIT does not exist, it is made. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static struct {
    char name[32];
    long first, count;
    int error;
    _Atomic long n_calls;
    uintptr_t from, to; /* where libprobe.so is */
    bool ready;
} plan;

static int find_probe(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libprobe.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_LOAD && ph->p_flags & PF_X) {
            plan.from = info->dlpi_addr + ph->p_vaddr;
            plan.to = plan.from + ph->p_memsz;
        }
    }
    return 1;
}

__attribute__((constructor)) static void read_plan(void)
{
    const char *p = getenv("INJECT");
    size_t n = p ? strcspn(p, ":") : 0;
    if (!n || n >= sizeof plan.name || !p[n])
        return;
    memcpy(plan.name, p, n);
    char *end;
    plan.first = strtol(p + n + 1, &end, 10);
    plan.count = *end ? strtol(end + 1, &end, 10) : 1;
    plan.error = *end ? (int)strtol(end + 1, &end, 10) : ENOSPC;
    dl_iterate_phdr(find_probe, NULL);
    plan.ready = plan.from != 0;
}

/* Whether this call of name, made from the address, is to fail. */
static bool fails(const char *name, void *from)
{
    uintptr_t at = (uintptr_t)from;
    if (!plan.ready || at < plan.from || at >= plan.to || strcmp(name, plan.name) != 0)
        return false;
    long n = atomic_fetch_add(&plan.n_calls, 1) + 1;
    if (n < plan.first || n >= plan.first + plan.count)
        return false;
    int (*real_open)(const char *, int, ...) =
        (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    const char *hit = getenv("INJECT_HIT");
    int fd = hit ? real_open(hit, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
    errno = plan.error;
    return true;
}

/* ret name(params): returns on_failure, or what the real one returns. */
#define FAULT(ret, name, params, args, on_failure)                                                 \
    ret name params;                                                                               \
    ret name params                                                                                \
    {                                                                                              \
        static ret(*real) params;                                                                  \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        return fails(#name, __builtin_return_address(0)) ? (on_failure) : real args;               \
    }

FAULT(void *, calloc, (size_t n, size_t size), (n, size), NULL)
FAULT(int, close_range, (unsigned from, unsigned to, int flags), (from, to, flags), -1)
FAULT(int, fdatasync, (int fd), (fd), -1)
FAULT(int, flock, (int fd, int op), (fd, op), -1)
FAULT(int, ftruncate, (int fd, off_t size), (fd, size), -1)
FAULT(int, ftruncate64, (int fd, off_t size), (fd, size), -1)
FAULT(void *, malloc, (size_t size), (size), NULL)
FAULT(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
      (at, n, prot, flags, fd, offset), (void *)-1)
FAULT(void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
      (at, n, prot, flags, fd, offset), (void *)-1)
FAULT(int, posix_fallocate, (int fd, off_t from, off_t n), (fd, from, n), plan.error)
FAULT(ssize_t, pread64, (int fd, void *buf, size_t n, off_t at), (fd, buf, n, at), -1)
FAULT(int, pthread_create,
      (pthread_t *restrict out, const pthread_attr_t *restrict attr, void *(*fn)(void *),
       void *restrict arg),
      (out, attr, fn, arg), plan.error)
FAULT(ssize_t, pwrite64, (int fd, const void *buf, size_t n, off_t at), (fd, buf, n, at), -1)
FAULT(void *, realloc, (void *p, size_t size), (p, size), NULL)
FAULT(int, unlink, (const char *path), (path), -1)
FAULT(int, unshare, (int flags), (flags), -1)

#define FAULT_OPEN(name)                                                                           \
    int name(const char *path, int flags, ...);                                                    \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        static int (*real)(const char *, int, ...);                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;                                    \
        va_end(ap);                                                                                \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        return fails(#name, __builtin_return_address(0)) ? -1 : real(path, flags, mode);           \
    }
FAULT_OPEN(open)
FAULT_OPEN(open64)
