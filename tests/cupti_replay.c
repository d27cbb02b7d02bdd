/* Injects libprobe.so into itself as the CUDA driver does, and has a fake libcupti play back a
 * recording. usage: cupti_replay LIBPROBE FOLDER-OF-LIBCUPTI TRACE */
#include <dlfcn.h>
#include <stdio.h>

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
    if (cupti && (*(void **)&replay = dlsym(cupti, "fake_replay")))
        printf("callbacks %d\n", replay(argv[3]));
    return 0;
}
