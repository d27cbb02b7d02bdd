#include "config.h"

#include "shim/identity.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static void hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Random, as a version 4 UUID without its dashes; from clock and pid where there is no entropy. */
static void make_uuid(char out[33])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, GRND_NONBLOCK) != sizeof b) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t mix[2] = {(uint64_t)now.tv_sec << 32 | (uint64_t)now.tv_nsec, (uint64_t)getpid()};
        XXH128_hash_t h = XXH3_128bits(mix, sizeof mix);
        memcpy(b, &h, sizeof b);
    }
    b[6] = (b[6] & 15) | 64;
    b[8] = (b[8] & 63) | 128;
    hex(out, b, sizeof b);
}

/* The GNU build id among the notes of one segment; returns whether it was there. */
static bool find_build_id(const char *p, size_t size, char *out, size_t out_size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, p, sizeof note);
        size_t name = (note.n_namesz + 3u) & ~(size_t)3, desc = (note.n_descsz + 3u) & ~(size_t)3;
        if (sizeof note + name + desc > size)
            return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            !memcmp(p + sizeof note, "GNU", 4) && note.n_descsz * 2 < out_size) {
            hex(out, (const unsigned char *)p + sizeof note + name, note.n_descsz);
            return true;
        }
        p += sizeof note + name + desc;
        size -= sizeof note + name + desc;
    }
    return false;
}

/* The first object is the executable: look at it and stop. */
static int executable_notes(struct dl_phdr_info *info, size_t size, void *out)
{
    struct run_identity *run = out;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_NOTE &&
            find_build_id((const char *)(info->dlpi_addr + ph->p_vaddr), ph->p_memsz, run->build_id,
                          sizeof run->build_id))
            break;
    }
    return 1;
}

/* Append one argument as a JSON string; bytes outside ASCII that are not valid UTF-8 would not be
 * JSON, so each becomes the character of its number. Returns NULL where it does not fit. */
static char *json_string(char *p, const char *end, const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    if (end - p < 3)
        return NULL;
    *p++ = '"';
    for (; *t; t++) {
        if (end - p < 8)
            return NULL;
        if (*t == '"' || *t == '\\')
            p += sprintf(p, "\\%c", *t);
        else if (*t < 32 || *t > 126)
            p += sprintf(p, "\\u%04x", *t);
        else
            *p++ = (char)*t;
    }
    *p++ = '"';
    return p;
}

/* The command line as a JSON array; arguments beyond its room become one "...". */
static void read_argv(char *out, size_t size)
{
    char buf[8192];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    buf[n] = 0;
    char *p = out, *end = out + size - sizeof ",\"...\"]";
    *p++ = '[';
    for (const char *arg = buf; arg < buf + n; arg += strlen(arg) + 1) {
        char *start = p;
        if (arg > buf)
            *p++ = ',';
        bool cut = n == sizeof buf - 1 && arg + strlen(arg) == buf + n;
        p = cut ? NULL : json_string(p, end, arg);
        if (!p) {
            p = start + sprintf(start, "%s\"...\"", arg > buf ? "," : "");
            break;
        }
    }
    strcpy(p, "]");
}

void identity_fill(struct run_identity *run)
{
    struct utsname name;
    struct timespec now;
    memset(run, 0, sizeof *run);
    make_uuid(run->uuid);
    if (!uname(&name))
        snprintf(run->host, sizeof run->host, "%s", name.nodename);
    if (readlink("/proc/self/exe", run->exe, sizeof run->exe - 1) < 0)
        run->exe[0] = 0;
    dl_iterate_phdr(executable_notes, run);
    read_argv(run->argv, sizeof run->argv);
    snprintf(run->probe_version, sizeof run->probe_version, "%s", PACKAGE_VERSION);
    run->pid = getpid();
    clock_gettime(CLOCK_REALTIME, &now);
    run->started_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}
