#include "config.h"

#include "collector/images.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/xalloc.h"
#include "sql/fatbin.h"

static const int machine_cubin = 190;

static void add_cubin(struct images *out, const char *path, const void *bytes, size_t n)
{
    struct cubin c;
    if (cubin_read(&c, path, bytes, n, &out->why)) {
        cubin_free(&c);
        out->n_other++;
        return;
    }
    out->list = xrealloc(out->list, (size_t)out->n + 1, sizeof *out->list);
    out->list[out->n++] = c;
}

static void add_fatbin(struct images *out, const char *path, const void *bytes, size_t n)
{
    struct fatbin_image image;
    for (size_t at = 0; fatbin_next(bytes, n, &at, &image);) {
        unsigned char *plain;
        size_t n_plain;
        if (image.kind != FATBIN_CUBIN || fatbin_unpack(&image, &plain, &n_plain, &out->why)) {
            out->n_other++;
            continue;
        }
        add_cubin(out, path, plain, n_plain);
        free(plain);
    }
}

static void read_file(struct images *out, const char *path, char *bytes, size_t n)
{
    Elf *elf = elf_memory(bytes, n);
    size_t names;
    GElf_Ehdr head;
    GElf_Shdr h;
    if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &head)) {
        elf_end(elf);
        return;
    }
    out->is_cubin = head.e_machine == machine_cubin;
    if (out->is_cubin)
        add_cubin(out, path, bytes, n);
    else if (!elf_getshdrstrndx(elf, &names))
        for (Elf_Scn *s = NULL; (s = elf_nextscn(elf, s)) != NULL;) {
            const char *name = gelf_getshdr(s, &h) ? elf_strptr(elf, names, h.sh_name) : NULL;
            Elf_Data *data =
                name && (!strcmp(name, ".nv_fatbin") || !strcmp(name, "__nv_relfatbin"))
                    ? elf_rawdata(s, NULL)
                    : NULL;
            if (data && data->d_buf)
                add_fatbin(out, path, data->d_buf, data->d_size);
        }
    elf_end(elf);
}

int images_read(const char *path, struct images *out, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out = (struct images){0};
    if (fd < 0 || fstat(fd, &st)) {
        err_set(err, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    size_t n = S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    void *at = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    elf_version(EV_CURRENT);
    if (at == MAP_FAILED)
        return n ? err_set(err, "%s: %s", path, strerror(errno)) : 0;
    read_file(out, path, at, n);
    munmap(at, n);
    return 0;
}

void images_free(struct images *images)
{
    for (int i = 0; i < images->n; i++)
        cubin_free(&images->list[i]);
    free(images->list);
    *images = (struct images){0};
}
