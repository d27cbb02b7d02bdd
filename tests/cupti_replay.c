/* Injects libprobe.so into itself as the CUDA driver does, and has a fake libcupti play back a
 * recording; with `forward`, it is an engine that marks one forward. usage: cupti_replay LIBPROBE
 * FOLDER-OF-LIBCUPTI TRACE [forward] */
#include <stdio.h>

#include "shim/probe.h"

int main(int argc, char **argv)
{
    char path[4096];
    if (argc < 4)
        return 2;
    snprintf(path, sizeof path, "%s/libcupti.so.13", argv[2]);
    void *cupti = dlopen(path, RTLD_NOW), *probe = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*inject)(void), (*replay)(const char *);
    if (!probe || !(*(void **)&inject = dlsym(probe, "InitializeInjection"))) {
        printf("%s\n", dlerror());
        return 2;
    }
    printf("injected %d\n", inject());
    probe_abi_fn ops_of;
    *(void **)&ops_of = argc > 4 ? dlsym(probe, "probe_abi_v1") : NULL;
    const struct probe_ops *ops = argc > 4 ? ops_of(PROBE_ABI_VERSION) : NULL;
    struct probe_forward f = {sizeof f, 0, 1, 1, 0, 0, 1};
    uint64_t forward = ops ? ops->forward_begin(&f) : 0;
    if (cupti && (*(void **)&replay = dlsym(cupti, "fake_replay")))
        printf("callbacks %d\n", replay(argv[3]));
    if (ops)
        ops->forward_end(forward);
    return 0;
}
