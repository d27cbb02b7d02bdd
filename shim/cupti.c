#include "config.h"

#include "shim/cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shim/cupti_find.h"
#include "shim/log.h"
#include "shim/tags.h"

/* The first version whose graphs are known to be told right, and the first that is not known. */
enum { OLDEST = 130001, NEWEST = 139999 };

#define CUPTI_FUNCTIONS(X)                                                                         \
    X(get_version, "cuptiGetVersion", (uint32_t *))                                                \
    X(subscribe, "cuptiSubscribe",                                                                 \
      (void **, void (*)(void *, uint32_t, uint32_t, const void *), void *))                       \
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

/* What a driver function is to the tagger. Arguments are numbered in words of 8 bytes. */
enum what {
    NOTHING,
    LAUNCH,
    LAUNCH_COOPERATIVE,
    LAUNCH_EX,
    LAUNCH_UNREAD,
    LAUNCH_GRAPH,
    READ,
    LOAD,       /* *a is the new owner */
    TOUCH,      /* a is an owner or a handle whose image may be loaded now */
    UNLOAD,     /* a */
    GET_KERNEL, /* *a of owner b, named c */
    ALIAS,      /* *a is the same as b */
    ADD_KERNEL, /* a points to the parameters */
    ADD_NODE,   /* the same, of a node of any type */
    SET_KERNEL, /* a, of the node b of a graph */
    SET_NODE,
    EXEC_SET_KERNEL, /* a; which node is told by an event */
    EXEC_SET_NODE,
    EXEC_ENABLE, /* a, node b, whether */
    EXEC_UPDATE, /* a */
    EXEC_LOSE,   /* a */
    INSTANTIATE  /* *a is the new exec */
};

static const struct row {
    uint16_t id;
    uint8_t what, a, b, c;
} rows[] = {
    {CUPTI_cuLaunchKernel, LAUNCH, 0, 0, 0},
    {CUPTI_cuLaunchKernel_ptsz, LAUNCH, 0, 0, 0},
    {CUPTI_cuLaunchCooperativeKernel, LAUNCH_COOPERATIVE, 0, 0, 0},
    {CUPTI_cuLaunchCooperativeKernel_ptsz, LAUNCH_COOPERATIVE, 0, 0, 0},
    {CUPTI_cuLaunchKernelEx, LAUNCH_EX, 0, 0, 0},
    {CUPTI_cuLaunchKernelEx_ptsz, LAUNCH_EX, 0, 0, 0},
    {CUPTI_cuLaunch, LAUNCH_UNREAD, 0, 0, 0},
    {CUPTI_cuLaunchGrid, LAUNCH_UNREAD, 0, 0, 0},
    {CUPTI_cuLaunchGridAsync, LAUNCH_UNREAD, 0, 0, 0},
    {CUPTI_cuLaunchCooperativeKernelMultiDevice, LAUNCH_UNREAD, 0, 0, 0},
    {CUPTI_cuGraphLaunch, LAUNCH_GRAPH, 0, 0, 0},
    {CUPTI_cuGraphLaunch_ptsz, LAUNCH_GRAPH, 0, 0, 0},
    {CUPTI_cuMemcpyDtoH_v2, READ, 0, 0, 0},
    {CUPTI_cuMemcpyDtoH_v2_ptds, READ, 0, 0, 0},
    {CUPTI_cuMemcpyDtoHAsync_v2, READ, 0, 0, 0},
    {CUPTI_cuMemcpyDtoHAsync_v2_ptsz, READ, 0, 0, 0},
    {CUPTI_cuModuleLoad, LOAD, 0, 0, 0},
    {CUPTI_cuModuleLoadData, LOAD, 0, 0, 0},
    {CUPTI_cuModuleLoadDataEx, LOAD, 0, 0, 0},
    {CUPTI_cuModuleLoadFatBinary, LOAD, 0, 0, 0},
    {CUPTI_cuLibraryLoadData, LOAD, 0, 0, 0},
    {CUPTI_cuLibraryLoadFromFile, LOAD, 0, 0, 0},
    {CUPTI_cuModuleUnload, UNLOAD, 0, 0, 0},
    {CUPTI_cuLibraryUnload, UNLOAD, 0, 0, 0},
    {CUPTI_cuModuleGetFunction, GET_KERNEL, 0, 1, 2},
    {CUPTI_cuLibraryGetKernel, GET_KERNEL, 0, 1, 2},
    {CUPTI_cuKernelGetFunction, ALIAS, 0, 1, 0},
    {CUPTI_cuLibraryGetModule, ALIAS, 0, 1, 0},
    {CUPTI_cuLibraryGetGlobal, TOUCH, 2, 0, 0},
    {CUPTI_cuLibraryGetManaged, TOUCH, 2, 0, 0},
    {CUPTI_cuKernelGetAttribute, TOUCH, 2, 0, 0},
    {CUPTI_cuKernelSetAttribute, TOUCH, 1, 0, 0},
    {CUPTI_cuFuncGetAttribute, TOUCH, 2, 0, 0},
    {CUPTI_cuFuncSetAttribute, TOUCH, 0, 0, 0},
    {CUPTI_cuFuncLoad, TOUCH, 0, 0, 0},
    {CUPTI_cuGraphAddKernelNode, ADD_KERNEL, 4, 1, 0},
    {CUPTI_cuGraphAddKernelNode_v2, ADD_KERNEL, 4, 2, 0},
    {CUPTI_cuGraphAddNode, ADD_NODE, 4, 0, 0},
    {CUPTI_cuGraphAddNode_v2, ADD_NODE, 5, 0, 0},
    {CUPTI_cuGraphKernelNodeSetParams, SET_KERNEL, 1, 0, 1},
    {CUPTI_cuGraphKernelNodeSetParams_v2, SET_KERNEL, 1, 0, 2},
    {CUPTI_cuGraphNodeSetParams, SET_NODE, 1, 0, 0},
    {CUPTI_cuGraphExecKernelNodeSetParams, EXEC_SET_KERNEL, 2, 0, 1},
    {CUPTI_cuGraphExecKernelNodeSetParams_v2, EXEC_SET_KERNEL, 2, 0, 2},
    {CUPTI_cuGraphExecNodeSetParams, EXEC_SET_NODE, 2, 0, 0},
    {CUPTI_cuGraphNodeSetEnabled, EXEC_ENABLE, 0, 1, 0},
    {CUPTI_cuGraphExecUpdate, EXEC_UPDATE, 0, 0, 0},
    {CUPTI_cuGraphExecUpdate_v2, EXEC_UPDATE, 0, 0, 0},
    {CUPTI_cuGraphExecChildGraphNodeSetParams, EXEC_LOSE, 0, 0, 0},
    {CUPTI_cuGraphInstantiate, INSTANTIATE, 0, 0, 0},
    {CUPTI_cuGraphInstantiate_v2, INSTANTIATE, 0, 0, 0},
    {CUPTI_cuGraphInstantiateWithFlags, INSTANTIATE, 0, 0, 0},
    {CUPTI_cuGraphInstantiateWithParams, INSTANTIATE, 0, 0, 0},
    {CUPTI_cuGraphInstantiateWithParams_ptsz, INSTANTIATE, 0, 0, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows };
static uint8_t row_of[CUPTI_MAX_ID + 1]; /* 1 + index, by id */

static const uint16_t events[] = {
    CUPTI_MODULE_LOADED,      CUPTI_GRAPHNODE_CREATED,          CUPTI_GRAPHNODE_DESTROY_STARTING,
    CUPTI_GRAPHEXEC_CREATED,  CUPTI_GRAPHEXEC_DESTROY_STARTING, CUPTI_GRAPHNODE_CLONED,
    CUPTI_GRAPH_NODE_UPDATED, CUPTI_GRAPH_NODE_SET_PARAMS,
};

static struct tags_key key_of_node(const struct cu_kernel_node *n, int version)
{
    return (struct tags_key){.f = n->f || version < 2 ? n->f : n->kernel, .geometry = n->geometry};
}

/* A call that names a kernel node's parameters; those of another type of node say nothing. */
static void begin_node(struct tags_thread *t, const struct row *r, const void *params)
{
    const struct cu_node *node = params;
    bool any = r->what == ADD_NODE || r->what == SET_NODE || r->what == EXEC_SET_NODE;
    int version = any ? 2 : r->what == ADD_KERNEL ? r->b : r->c;
    if (any && node->type == CU_NODE_CONDITIONAL)
        tags_node_begin(t, NULL);
    if (any && node->type != CU_NODE_KERNEL)
        return;
    struct tags_key key = key_of_node(any ? &node->kernel : params, version);
    tags_node_begin(t, &key);
}

static void begin_launch(struct tags_thread *t, enum what what, const void *params,
                         const char *symbol)
{
    const struct cu_launch *l = params;
    const struct cu_launch_ex *ex = params;
    struct tags_key key = {0};
    if (what == LAUNCH_EX) {
        key.f = ex->f;
        key.geometry = ex->config->geometry;
        key.attributes =
            tags_attributes(ex->config->attributes, ex->config->n_attributes, &key.cluster);
    } else {
        struct cu_attribute cooperative = {.id = CU_COOPERATIVE, .value = {1}};
        key.f = l->f;
        key.geometry = l->geometry;
        if (what == LAUNCH_COOPERATIVE)
            key.attributes = tags_attributes(&cooperative, 1, &key.cluster);
    }
    tags_launch(t, &key, symbol);
}

static void on_enter(struct tags_thread *t, const struct row *r, const struct cupti_call *call)
{
    void *const *args = call->params;
    switch ((enum what)r->what) {
    case LAUNCH:
    case LAUNCH_COOPERATIVE:
    case LAUNCH_EX:
        begin_launch(t, r->what, call->params, call->symbol);
        break;
    case LAUNCH_UNREAD:
        tags_count(TAGS_UNSEEN, 1);
        break;
    case LAUNCH_GRAPH:
        tags_launch_graph(t, args[0]);
        break;
    case READ:
        tags_read(t);
        break;
    case LOAD:
        tags_load_begin(t, NULL);
        break;
    case TOUCH:
        tags_load_begin(t, args[r->a]);
        break;
    case ALIAS:
    case GET_KERNEL:
        tags_load_begin(t, args[r->b]);
        break;
    case UNLOAD:
        tags_unload(args[r->a]);
        break;
    case ADD_KERNEL:
    case ADD_NODE:
    case SET_KERNEL:
    case SET_NODE:
    case EXEC_SET_KERNEL:
    case EXEC_SET_NODE:
        begin_node(t, r, args[r->a]);
        break;
    case INSTANTIATE:
        tags_exec_begin(t);
        break;
    case EXEC_LOSE:
        tags_exec_lost(args[r->a]);
        break;
    case EXEC_ENABLE:
    case EXEC_UPDATE:
    case NOTHING:
        break;
    }
}

static void on_exit(struct tags_thread *t, const struct row *r, const struct cupti_call *call)
{
    void *const *args = call->params;
    bool failed = call->result && *call->result != 0;
    switch ((enum what)r->what) {
    case LAUNCH:
    case LAUNCH_COOPERATIVE:
    case LAUNCH_EX:
    case LAUNCH_GRAPH:
    case ADD_KERNEL:
    case ADD_NODE:
    case EXEC_SET_KERNEL:
    case EXEC_SET_NODE:
        tags_returned(t, failed);
        break;
    case SET_KERNEL:
    case SET_NODE:
        if (!failed)
            tags_node_set(t, args[r->b]);
        tags_returned(t, failed);
        break;
    case LOAD:
        tags_load_end(t, failed ? NULL : *(void **)args[r->a]);
        break;
    case TOUCH:
        tags_load_end(t, NULL);
        break;
    case GET_KERNEL:
        tags_load_end(t, NULL);
        if (!failed)
            tags_kernel(*(void **)args[r->a], args[r->b], args[r->c]);
        break;
    case ALIAS:
        tags_load_end(t, NULL);
        if (!failed)
            tags_alias(*(void **)args[r->a], args[r->b]);
        break;
    case EXEC_ENABLE:
        if (!failed)
            tags_exec_enable(args[r->a], args[r->b], *(const uint32_t *)&args[2] != 0);
        break;
    case EXEC_UPDATE:
        if (failed)
            tags_exec_lost(args[r->a]);
        break;
    case INSTANTIATE:
        if (!failed)
            tags_exec_created(t, *(void **)args[r->a]);
        tags_exec_end(t);
        break;
    case LAUNCH_UNREAD:
    case READ:
    case UNLOAD:
    case EXEC_LOSE:
    case NOTHING:
        break;
    }
}

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

static void on_callback(void *user, uint32_t domain, uint32_t id, const void *data)
{
    int kept = errno;
    (void)user;
    const struct row *r = domain == CUPTI_DOMAIN_DRIVER && id <= CUPTI_MAX_ID && row_of[id]
                              ? &rows[row_of[id] - 1]
                              : NULL;
    bool start = r ? r->what <= LAUNCH_GRAPH : id == CUPTI_MODULE_LOADED;
    struct tags_thread *t = data ? tags_self(start) : NULL;
    const struct cupti_call *call = data;
    if (!t)
        goto out;
    if (domain == CUPTI_DOMAIN_RESOURCE)
        on_event(t, id, data);
    else if (r && call->site == CUPTI_ENTER)
        on_enter(t, r, call);
    else if (r)
        on_exit(t, r, call);
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
    for (int i = 0; i < N_ROWS && !rc; i++)
        rc = api.enable(1, subscriber, CUPTI_DOMAIN_DRIVER, rows[i].id);
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
    if (rc || number < OLDEST || number > NEWEST) {
        snprintf(why, size, "%.200s is version %u, needed is %d to %d", path, number, OLDEST,
                 NEWEST);
        return false;
    }
    for (int i = 0; i < N_ROWS; i++)
        row_of[rows[i].id] = (uint8_t)(i + 1);
    if (subscribe(&subscriber, why, size) || enable_all(subscriber, why, size))
        return false;
    snprintf(version, sizeof version, "%u", number);
    tags_version(version);
    look_for_new();
    return true;
}
