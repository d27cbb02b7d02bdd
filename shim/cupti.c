#include "config.h"

#include "shim/cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shim/calls.h"
#include "shim/cupti_find.h"
#include "shim/log.h"
#include "shim/tags.h"

/* The first version whose graphs are known to be told right, and the first that is not known. */
enum { OLDEST = 130001, NEWEST = 139999 };

#define CUPTI_FUNCTIONS(X)                                                                         \
    X(get_version, "cuptiGetVersion", (uint32_t *))                                                \
    X(subscribe, "cuptiSubscribe",                                                                 \
      (void **, void (*)(void *, uint32_t, uint32_t, const void *), void *))                       \
    X(unsubscribe, "cuptiUnsubscribe", (void *))                                                   \
    X(enable, "cuptiEnableCallback", (uint32_t, void *, uint32_t, uint32_t))                       \
    X(result_text, "cuptiGetResultString", (int, const char **))                                   \
    X(callback_name, "cuptiGetCallbackName", (uint32_t, uint32_t, const char **))

#define DECLARE(name, symbol, params) int(*name) params;
static struct {
    CUPTI_FUNCTIONS(DECLARE)
    /* Not in every version. */
    int (*subscribe_named)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *,
                           struct cupti_subscriber_params *);
} api;

static const uint16_t events[] = {
    CUPTI_MODULE_LOADED,      CUPTI_GRAPHNODE_CREATED,          CUPTI_GRAPHNODE_DESTROY_STARTING,
    CUPTI_GRAPHEXEC_CREATED,  CUPTI_GRAPHEXEC_DESTROY_STARTING, CUPTI_GRAPHNODE_CLONED,
    CUPTI_GRAPH_NODE_UPDATED, CUPTI_GRAPH_NODE_SET_PARAMS,
};

static void on_event(struct tags_thread *t, uint32_t id, const struct cupti_resource *r)
{
    const struct cupti_module *m = r->descriptor;
    const struct cupti_graph *g = r->descriptor;
    if (!g)
        return;
    switch (id) {
    case CUPTI_MODULE_LOADED:
        tags_image(t, m->id, m->image, m->size);
        break;
    case CUPTI_GRAPHNODE_CREATED:
        tags_node_created(t, g->node);
        break;
    case CUPTI_GRAPHNODE_CLONED:
        tags_node_cloned(t, g->node, g->original_node);
        break;
    case CUPTI_GRAPHNODE_DESTROY_STARTING:
        tags_node_destroyed(g->node);
        break;
    case CUPTI_GRAPHEXEC_CREATED:
        tags_exec_created(t, g->exec);
        break;
    case CUPTI_GRAPHEXEC_DESTROY_STARTING:
        tags_exec_destroyed(g->exec);
        break;
    case CUPTI_GRAPH_NODE_UPDATED:
        tags_exec_node_from(g->exec, g->original_node, g->node);
        break;
    case CUPTI_GRAPH_NODE_SET_PARAMS:
        tags_exec_node_set(t, g->exec, g->node);
        break;
    }
}

static uint8_t row_of[CUPTI_MAX_ID + 1]; /* 1 + index of a call, by id */
static _Atomic bool granted;             /* all that is needed is enabled */

static void on_callback(void *user, uint32_t domain, uint32_t id, const void *data)
{
    int kept = errno;
    (void)user;
    int row = domain == CUPTI_DOMAIN_DRIVER && id <= CUPTI_MAX_ID ? row_of[id] - 1 : -1;
    bool start = row >= 0 ? calls_starts(row) : id == CUPTI_MODULE_LOADED;
    struct tags_thread *t = data && granted ? tags_self(start) : NULL;
    const struct cupti_call *call = data;
    if (!t)
        goto out;
    if (domain == CUPTI_DOMAIN_RESOURCE)
        on_event(t, id, data);
    else if (row >= 0 && call->site == CUPTI_ENTER)
        calls_enter(t, row, call->params, call->symbol);
    else if (row >= 0)
        calls_exit(t, row, call->params, call->result && *call->result != 0);
out:
    errno = kept;
}

/* Whether a driver function of that name does what ours do. */
static bool is_like_ours(const char *name)
{
    static const char *const starts[] = {
        "cuLaunchKernel",   "cuLaunchCooperative", "cuGraphLaunch",        "cuGraphInstantiate",
        "cuGraphAddKernel", "cuGraphAddNode",      "cuGraphExecKernelNode"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (!strncmp(name, starts[i], strlen(starts[i])))
            return true;
    return false;
}

/* Functions of a driver newer than this file: their launches would not be seen. */
static void look_for_new(void)
{
    const char *name;
    for (uint32_t id = 1; id <= CUPTI_MAX_ID; id++)
        if (!row_of[id] && !api.callback_name(CUPTI_DOMAIN_DRIVER, id, &name) && name &&
            is_like_ours(name))
            log_info("kernels launched by %s are not recorded", name);
}

static int fail(char *why, size_t size, const char *call, int rc)
{
    const char *text = NULL;
    if (api.result_text)
        api.result_text(rc, &text);
    snprintf(why, size, "%s: error %d%s%s", call, rc, text ? ": " : "", text ? text : "");
    return rc ? rc : -1;
}

static int resolve(void *lib, const char *path, char *why, size_t size)
{
#define RESOLVE(name, symbol, params)                                                              \
    if (!(*(void **)&api.name = dlsym(lib, symbol)))                                               \
        return snprintf(why, size, "%s has no %s", path, symbol), -1;
    CUPTI_FUNCTIONS(RESOLVE)
    *(void **)&api.subscribe_named = dlsym(lib, "cuptiSubscribe_v2");
    return 0;
}

static int subscribe(void **subscriber, char *why, size_t size)
{
    char other[64] = "";
    struct cupti_subscriber_params params = {sizeof params, "neartie", other, sizeof other};
    int rc = api.subscribe_named ? api.subscribe_named(subscriber, on_callback, NULL, &params)
                                 : api.subscribe(subscriber, on_callback, NULL);
    if (!rc)
        return 0;
    fail(why, size, "cuptiSubscribe", rc);
    size_t n = strlen(why);
    if (other[0])
        snprintf(why + n, size - n, "; the subscriber is %.63s", other);
    return -1;
}

static int enable_all(void *subscriber, char *why, size_t size)
{
    int rc = 0;
    for (int i = 0; i < calls_count() && !rc; i++)
        rc = api.enable(1, subscriber, CUPTI_DOMAIN_DRIVER, calls_id(i));
    for (size_t i = 0; i < sizeof events / sizeof *events && !rc; i++)
        rc = api.enable(1, subscriber, CUPTI_DOMAIN_RESOURCE, events[i]);
    return rc ? fail(why, size, "cuptiEnableCallback", rc) : 0;
}

bool cupti_attach(char *why, size_t size)
{
    char path[512], version[16];
    uint32_t number = 0;
    void *subscriber = NULL, *lib = cupti_find(path, sizeof path);
    if (!lib) {
        snprintf(why, size, "no libcupti.so.13 was found");
        return false;
    }
    if (resolve(lib, path, why, size))
        return false;
    int rc = api.get_version(&number);
    if (rc) {
        fail(why, size, "cuptiGetVersion", rc);
        return false;
    }
    if (number < OLDEST || number > NEWEST) {
        snprintf(why, size, "%.200s is version %u, needed is %d to %d", path, number, OLDEST,
                 NEWEST);
        return false;
    }
    for (int i = 0; i < calls_count(); i++)
        row_of[calls_id(i)] = (uint8_t)(i + 1);
    if (subscribe(&subscriber, why, size))
        return false;
    if (enable_all(subscriber, why, size)) {
        api.unsubscribe(subscriber);
        return false;
    }
    granted = true;
    snprintf(version, sizeof version, "%u", number);
    tags_version(version);
    look_for_new();
    return true;
}
