#include "config.h"

#include "collector/obstacle.h"
#include "collector/xalloc.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Open the file that execvp would run; -1: there is none that can be read. */
static int open_command(const char *command)
{
    char path[PATH_MAX];
    const char *folder = getenv("PATH");
    if (strchr(command, '/'))
        return open(command, O_RDONLY | O_CLOEXEC);
    for (; folder && *folder; folder += *folder == ':') {
        size_t n = strcspn(folder, ":");
        snprintf(path, sizeof path, "%.*s/%s", n ? (int)n : 1, n ? folder : ".", command);
        if (!access(path, X_OK))
            return open(path, O_RDONLY | O_CLOEXEC);
        folder += n;
    }
    return -1;
}

/* Whether it runs with rights that its user has not: then the loader takes no foreign library. */
static bool gains_rights(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return false;
    return ((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
           ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid()) ||
           (getuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

/* Of an ELF file: whether it has a loader at all. */
static bool has_loader(int fd, const Elf64_Ehdr *head)
{
    Elf64_Phdr part;
    for (int i = 0; i < head->e_phnum; i++) {
        off_t at = (off_t)(head->e_phoff + (uint64_t)i * sizeof part);
        if (pread(fd, &part, sizeof part, at) != sizeof part)
            return true; /* not known */
        if (part.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static const char *look(int fd)
{
    Elf64_Ehdr head;
    if (gains_rights(fd))
        return "it runs with the rights of another user, and the loader then preloads no library";
    if (pread(fd, &head, sizeof head, 0) != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG))
        return NULL; /* a script; or it cannot be run */
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_X86_64)
        return "it is a program for another kind of processor than the probe";
    return has_loader(fd, &head) ? NULL : "it is statically linked: no library can be preloaded";
}

const char *obstacle_of(const char *command)
{
    int fd = open_command(command);
    const char *why = fd < 0 ? NULL : look(fd);
    if (fd >= 0)
        close(fd);
    return why;
}
