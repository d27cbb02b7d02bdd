#include "config.h"

#include "shim/cupti_find.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 512 };

struct mapped {
    char cupti[PATH],
        runtime[PATH]; /* path of libcupti, folder of libcudart or of a CUDA library */
};

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    struct mapped *m = user;
    const char *name = info->dlpi_name ? info->dlpi_name : "";
    const char *base = strrchr(name, '/');
    (void)size;
    base = base ? base + 1 : name;
    if (strlen(name) >= PATH)
        return 0;
    if (!strncmp(base, "libcupti.so", 11))
        strcpy(m->cupti, name);
    if (!strncmp(base, "libcudart.so", 12) && base > name)
        snprintf(m->runtime, PATH, "%.*s", (int)(base - name - 1), name);
    return 0;
}

/* Open folder/name, if that is there. */
static void *open_in(const char *folder, const char *name, char *path, size_t size)
{
    int n = snprintf(path, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

void *cupti_find(char *path, size_t size)
{
    static const char *const beside[] = {"libcupti.so.13", "../../cuda_cupti/lib/libcupti.so.13",
                                         "../extras/CUPTI/lib64/libcupti.so.13"};
    static const char *const folders[] = {"/usr/local/cuda/lib64",
                                          "/usr/local/cuda/extras/CUPTI/lib64"};
    struct mapped m = {"", ""};
    void *lib = NULL;
    dl_iterate_phdr(look, &m);
    if (m.cupti[0]) {
        snprintf(path, size, "%s", m.cupti);
        return dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    }
    for (size_t i = 0; !lib && m.runtime[0] && i < sizeof beside / sizeof *beside; i++)
        lib = open_in(m.runtime, beside[i], path, size);
    if (!lib) {
        snprintf(path, size, "libcupti.so.13");
        lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; !lib && i < sizeof folders / sizeof *folders; i++)
        lib = open_in(folders[i], "libcupti.so.13", path, size);
    return lib;
}
