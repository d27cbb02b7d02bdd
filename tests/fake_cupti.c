/* A fake libcupti.so.13 that plays back what the real one told on a GPU (gpu_trace.c recorded it):
 * each callback with its arguments, and only those that the subscriber has enabled.
 * FAKE_CUPTI_FAIL= NAME:CODE makes a function return that error; FAKE_CUPTI_FAIL_FROM=N lets N
 * calls of cuptiEnableCallback pass before; FAKE_CUPTI_VERSION is the version it claims. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/cupti_abi.h"

#define EXPORT __attribute__((visibility("default")))
typedef void (*callback_fn)(void *, uint32_t, uint32_t, const void *);

EXPORT int cuptiGetVersion(uint32_t *version);
EXPORT int cuptiSubscribe(void **subscriber, callback_fn fn, void *user);
EXPORT int cuptiSubscribe_v2(void **subscriber, callback_fn fn, void *user,
                             struct cupti_subscriber_params *params);
EXPORT int cuptiUnsubscribe(void *subscriber);
EXPORT int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id);
EXPORT int cuptiGetResultString(int rc, const char **text);
EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name);
EXPORT int fake_replay(const char *path);

static callback_fn callback;
static unsigned char enabled[4][CUPTI_MAX_ID + 1];

static int failure(const char *name)
{
    const char *wanted = getenv("FAKE_CUPTI_FAIL");
    size_t n = strlen(name);
    return wanted && !strncmp(wanted, name, n) && wanted[n] == ':' ? atoi(wanted + n + 1) : 0;
}

int cuptiGetVersion(uint32_t *version)
{
    const char *claimed = getenv("FAKE_CUPTI_VERSION");
    *version = claimed ? (uint32_t)atoi(claimed) : 130001;
    return failure(__func__);
}

int cuptiSubscribe(void **subscriber, callback_fn fn, void *user)
{
    int rc = failure(__func__);
    (void)user;
    *subscriber = enabled;
    callback = rc ? NULL : fn;
    return rc;
}

int cuptiSubscribe_v2(void **subscriber, callback_fn fn, void *user,
                      struct cupti_subscriber_params *params)
{
    int rc = failure(__func__);
    if (params->struct_size != 32)
        return 1;
    if (rc == 39)
        snprintf(params->old_name, params->old_size, "CUPTI for another tool");
    return rc ? rc : cuptiSubscribe(subscriber, fn, user);
}

int cuptiUnsubscribe(void *subscriber)
{
    callback = NULL;
    memset(enabled, 0, sizeof enabled);
    return subscriber == enabled ? failure(__func__) : 1;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id)
{
    static int n;
    const char *from = getenv("FAKE_CUPTI_FAIL_FROM"); /* calls that succeed before */
    int rc = n++ < (from ? atoi(from) : 0) ? 0 : failure(__func__);
    if (rc || subscriber != enabled || domain > 3 || id > CUPTI_MAX_ID)
        return rc ? rc : 1;
    enabled[domain][id] = (unsigned char)enable;
    return 0;
}

int cuptiGetResultString(int rc, const char **text)
{
    *text = rc == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name)
{
    *name = "";
    return domain == CUPTI_DOMAIN_DRIVER && id < 807 ? 0 : 1;
}

/* One line of the recording. */
struct line {
    char text[4096];
    unsigned id;
    char site, function[80];
};

/* The text behind "key=" in the line; NULL: it has none. */
static const char *field(const struct line *l, const char *key, char out[2048])
{
    char with[32];
    snprintf(with, sizeof with, " %s=", key);
    const char *at = strstr(l->text, with);
    if (!at || sscanf(at + strlen(with), "%2047s", out) != 1)
        return NULL;
    return out;
}

static void *pointer(const struct line *l, const char *key)
{
    char text[2048];
    return field(l, key, text) ? (void *)(uintptr_t)strtoull(text, NULL, 16) : NULL;
}

static uint32_t number(const struct line *l, const char *key)
{
    char text[2048];
    return field(l, key, text) ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static struct cu_geometry geometry(const struct line *l)
{
    struct cu_geometry g = {.smem = number(l, "smem")};
    char text[2048];
    if (field(l, "grid", text))
        sscanf(text, "%u,%u,%u", &g.grid[0], &g.grid[1], &g.grid[2]);
    if (field(l, "block", text))
        sscanf(text, "%u,%u,%u", &g.block[0], &g.block[1], &g.block[2]);
    return g;
}

/* Launch attributes, of which a line may have several. */
static uint32_t attributes(const struct line *l, struct cu_attribute list[8])
{
    uint32_t n = 0;
    for (const char *p = l->text; n < 8 && (p = strstr(p, " attr=")) != NULL; p += 6) {
        struct cu_attribute *a = &list[n++];
        memset(a, 0, sizeof *a);
        sscanf(p, " attr=%u:%u,%u,%u", &a->id, &a->value[0], &a->value[1], &a->value[2]);
    }
    return n;
}

static int is(const struct line *l, const char *start)
{
    return !strncmp(l->function, start, strlen(start));
}

static void call(const struct line *l)
{
    static const struct {
        const char *function, *args[3]; /* keys; those with * are where results go */
    } plain[] = {
        {"cuGraphLaunch", {"exec"}},
        {"cuModuleLoad", {"*module"}},
        {"cuLibraryLoad", {"*library"}},
        {"cuModuleUnload", {"module"}},
        {"cuLibraryUnload", {"library"}},
        {"cuModuleGetFunction", {"*f", "module", "name"}},
        {"cuLibraryGetKernel", {"*f", "library", "name"}},
        {"cuKernelGetFunction", {"*f", "kernel"}},
        {"cuGraphExecUpdate", {"exec", "graph"}},
        {"cuGraphInstantiate", {"*exec", "graph"}},
        {"cuGraphNodeSetEnabled", {"exec", "node", "on"}},
        {"cuGraphExecKernelNodeSetParams", {"exec", "node"}},
        {"cuGraphKernelNodeSetParams", {"node"}},
    };
    struct cu_attribute list[8];
    struct cu_config config = {.geometry = geometry(l), .attributes = list};
    struct cu_launch launch = {pointer(l, "f"), config.geometry};
    struct cu_launch_ex ex = {&config, launch.f};
    struct cu_node node = {.type = number(l, "type"),
                           .kernel = {.f = launch.f, .geometry = config.geometry}};
    void *words[8] = {0}, *result = NULL;
    char name[2048], symbol[2048];
    int32_t rc = (int32_t)number(l, "rc");
    config.n_attributes = attributes(l, list);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        for (int k = 0; k < 3 && is(l, plain[i].function) && plain[i].args[k]; k++) {
            const char *key = plain[i].args[k];
            if (*key == '*')
                result = pointer(l, key + 1), words[k] = &result;
            else
                words[k] = !strcmp(key, "name") ? (void *)field(l, key, name) : pointer(l, key);
        }
    if (is(l, "cuGraphAddKernelNode"))
        words[4] = &node.kernel;
    if (is(l, "cuGraphAddNode"))
        words[l->id == CUPTI_cuGraphAddNode ? 4 : 5] = &node;
    if (is(l, "cuGraphExecKernelNodeSetParams"))
        words[2] = &node.kernel;
    if (is(l, "cuGraphKernelNodeSetParams"))
        words[1] = &node.kernel;
    struct cupti_call c = {.site = l->site == 'X',
                           .function = l->function,
                           .params = words,
                           .result = l->site == 'X' ? &rc : NULL,
                           .symbol = field(l, "sym", symbol)};
    if (is(l, "cuLaunchKernelEx"))
        c.params = &ex;
    else if (is(l, "cuLaunch"))
        c.params = &launch;
    callback(NULL, CUPTI_DOMAIN_DRIVER, l->id, &c);
}

static void event(const struct line *l, const char *folder)
{
    static char bytes[1 << 20];
    char path[8192], file[2048];
    struct cupti_module module = {number(l, "id"), number(l, "size"), bytes};
    struct cupti_graph graph = {.graph = pointer(l, "graph"),
                                .node = pointer(l, "node"),
                                .original_node = pointer(l, "onode"),
                                .exec = pointer(l, "exec")};
    struct cupti_resource r = {.descriptor = &graph};
    if (field(l, "file", file)) {
        snprintf(path, sizeof path, "%s/%s", folder, file);
        FILE *f = fopen(path, "rb");
        if (!f || fread(bytes, 1, module.size, f) != module.size)
            printf("%s: cannot be read\n", path);
        if (f)
            fclose(f);
    }
    if (l->id == CUPTI_MODULE_LOADED || l->id == CUPTI_MODULE_UNLOAD_STARTING)
        r.descriptor = &module;
    callback(NULL, CUPTI_DOMAIN_RESOURCE, l->id, &r);
    memset(bytes, 0xee, sizeof bytes); /* an image is valid during the callback alone */
}

/* Play the recording; how many callbacks were enabled, or -1. */
int fake_replay(const char *path)
{
    struct line l;
    char folder[4096];
    int n = 0;
    FILE *f = fopen(path, "r");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    while (f && fgets(l.text, sizeof l.text, f)) {
        unsigned domain = l.text[0] == 'D' ? CUPTI_DOMAIN_DRIVER : CUPTI_DOMAIN_RESOURCE;
        if (l.text[0] == 'N' || sscanf(l.text + 2, "%u %c %79s", &l.id, &l.site, l.function) < 1)
            continue;
        if (!callback || l.id > CUPTI_MAX_ID || !enabled[domain][l.id])
            continue;
        n++;
        if (domain == CUPTI_DOMAIN_DRIVER)
            call(&l);
        else
            event(&l, folder);
    }
    if (!f)
        return -1;
    fclose(f);
    return n;
}
