#include "config.h"

#include "shim/calls.h"

#include "shim/tags.h"

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

int calls_count(void)
{
    return N_ROWS;
}

uint16_t calls_id(int index)
{
    return rows[index].id;
}

bool calls_starts(int index)
{
    return rows[index].what <= LAUNCH_GRAPH;
}

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

void calls_enter(struct tags_thread *t, int index, const void *params, const char *symbol)
{
    const struct row *r = &rows[index];
    void *const *args = params;
    switch ((enum what)r->what) {
    case LAUNCH:
    case LAUNCH_COOPERATIVE:
    case LAUNCH_EX:
        begin_launch(t, r->what, params, symbol);
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

void calls_exit(struct tags_thread *t, int index, const void *params, bool failed)
{
    const struct row *r = &rows[index];
    void *const *args = params;
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
            tags_kernel(*(void **)args[r->a], args[r->b], args[r->c],
                        r->id == CUPTI_cuLibraryGetKernel);
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
