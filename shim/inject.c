/* How the tagger gets into a process. Preloaded, it interposes the driver's functions. Without, the
 * CUDA driver loads the library that CUDA_INJECTION64_PATH names and calls it from within cuInit:
 * then it subscribes to CUPTI. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim/cupti.h"
#include "shim/interpose.h"
#include "shim/log.h"
#include "shim/tags.h"

__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void)
{
    static _Atomic int called;
    char why[400];
    int kept = errno;
    const char *choice = getenv("PROBE_CUPTI");
    bool wanted = !choice || (strcmp(choice, "off") != 0 && strcmp(choice, "interpose") != 0);
    if (!called++ && wanted && !interpose_active() && !cupti_attach(why, sizeof why)) {
        tags_refused(why);
        log_info("kernels are not recorded: %s", why);
    }
    errno = kept;
    return 1;
}

/* Preloaded, and CUPTI is asked for: the driver shall call us. */
__attribute__((constructor)) static void name_ourselves(void)
{
    Dl_info info;
    char path[PATH_MAX];
    const char *choice = getenv("PROBE_CUPTI");
    if (!choice || strcmp(choice, "cupti") != 0 || getenv("CUDA_INJECTION64_PATH"))
        return;
    void *self;
    int (*entry)(void) = InitializeInjection;
    memcpy(&self, &entry, sizeof self);
    if (!dladdr(self, &info) || !info.dli_fname)
        return;
    const char *name = info.dli_fname[0] == '/' ? info.dli_fname : realpath(info.dli_fname, path);
    if (name)
        setenv("CUDA_INJECTION64_PATH", name, 0);
}
