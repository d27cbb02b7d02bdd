/* How the tagger gets into a process. Preloaded, it interposes the driver's functions. Without, or
 * where CUPTI is asked for, the CUDA driver loads the library that CUDA_INJECTION64_PATH names and
 * calls it from within cuInit: then it subscribes to CUPTI. Where that is refused and the library
 * is preloaded, the functions are interposed after all. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/cupti.h"
#include "shim/interpose.h"
#include "shim/log.h"
#include "shim/tags.h"

__attribute__((visibility("default"))) int InitializeInjection(void);

/* Subscribe to CUPTI; or say why not, and what is done instead. */
static void subscribe(bool refuse)
{
    char why[400], all[512];
    interpose_wait();
    if (refuse)
        strcpy(why, "PROBE_CUPTI=interpose");
    else if (cupti_attach(why, sizeof why))
        return;
    bool wrapped = interpose_take_over();
    snprintf(all, sizeof all, "%s; %s", why,
             wrapped ? "the driver's functions are wrapped instead"
                     : "kernels are not recorded: to wrap the driver's functions, preload the "
                       "library too");
    tags_refused(all);
    log_info("%s", all);
}

int InitializeInjection(void)
{
    static _Atomic int called;
    int kept = errno;
    const char *choice = getenv("PROBE_CUPTI");
    if (!called++ && !(choice && !strcmp(choice, "off")) && !interpose_active())
        subscribe(choice && !strcmp(choice, "interpose"));
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
