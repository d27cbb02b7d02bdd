/* Records what CUPTI tells a subscriber while a program runs: every driver and resource callback,
 * a line each, and the cubins; the file is what replay_t plays back. Built against NVIDIA's own
 * headers, and injected: CUDA_INJECTION64_PATH=gpu_trace.so TRACE_DIR=DIR PROGRAM. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static FILE *out;
static char dir[3000];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_SubscriberHandle subscriber;

#define P(x) (uint64_t)(uintptr_t)(x)

static void print_geometry(const char *kind, const void *f, const unsigned *g)
{
    fprintf(out, " %s f=%" PRIx64 " grid=%u,%u,%u block=%u,%u,%u smem=%u", kind, P(f), g[0], g[1],
            g[2], g[3], g[4], g[5], g[6]);
}

static void print_ex(const CUlaunchConfig *c, const void *f)
{
    print_geometry("launchex", f, &c->gridDimX);
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const unsigned *v = (const unsigned *)&c->attrs[i].value;
        fprintf(out, " attr=%d:%u,%u,%u", c->attrs[i].id, v[0], v[1], v[2]);
    }
}

static void print_node(const char *kind, const CUDA_KERNEL_NODE_PARAMS *n, int version)
{
    print_geometry(kind,
                   n->func       ? (void *)n->func
                   : version > 1 ? (void *)n->kern
                                 : NULL,
                   &n->gridDimX);
}

/* The arguments that the probe looks at; at EXIT, with what the call gave back. */
static void print_params(CUpti_CallbackId id, const void *params, int exit)
{
    switch (id) {
#define CASE(name)                                                                                 \
    case CUPTI_DRIVER_TRACE_CBID_##name: {                                                         \
        const name##_params *p = params;
#define END                                                                                        \
    break;                                                                                         \
    }
        CASE(cuLaunchKernel) print_geometry("launch", p->f, &p->gridDimX);
        END CASE(cuLaunchKernel_ptsz) print_geometry("launch", p->f, &p->gridDimX);
        END CASE(cuLaunchCooperativeKernel) print_geometry("coop", p->f, &p->gridDimX);
        END CASE(cuLaunchCooperativeKernel_ptsz) print_geometry("coop", p->f, &p->gridDimX);
        END CASE(cuLaunchKernelEx) print_ex(p->config, p->f);
        END CASE(cuLaunchKernelEx_ptsz) print_ex(p->config, p->f);
        END CASE(cuGraphLaunch) fprintf(out, " exec=%" PRIx64, P(p->hGraph));
        END CASE(cuGraphLaunch_ptsz) fprintf(out, " exec=%" PRIx64, P(p->hGraphExec));
        END CASE(cuModuleLoadData) if (exit) fprintf(out, " module=%" PRIx64, P(*p->module));
        END CASE(cuModuleLoadDataEx) if (exit) fprintf(out, " module=%" PRIx64, P(*p->module));
        END CASE(cuModuleLoadFatBinary) if (exit) fprintf(out, " module=%" PRIx64, P(*p->module));
        END CASE(cuModuleLoad) if (exit) fprintf(out, " module=%" PRIx64, P(*p->module));
        END CASE(cuModuleUnload) fprintf(out, " module=%" PRIx64, P(p->hmod));
        END CASE(cuModuleGetFunction)
            fprintf(out, " module=%" PRIx64 " name=%s", P(p->hmod), p->name);
        if (exit)
            fprintf(out, " f=%" PRIx64, P(*p->hfunc));
        END CASE(cuLibraryLoadData) if (exit) fprintf(out, " library=%" PRIx64, P(*p->library));
        END CASE(cuLibraryLoadFromFile) if (exit) fprintf(out, " library=%" PRIx64, P(*p->library));
        END CASE(cuLibraryUnload) fprintf(out, " library=%" PRIx64, P(p->library));
        END CASE(cuLibraryGetKernel)
            fprintf(out, " library=%" PRIx64 " name=%s", P(p->library), p->name);
        if (exit)
            fprintf(out, " f=%" PRIx64, P(*p->pKernel));
        END CASE(cuLibraryGetModule) fprintf(out, " library=%" PRIx64, P(p->library));
        if (exit)
            fprintf(out, " module=%" PRIx64, P(*p->pMod));
        END CASE(cuKernelGetFunction) fprintf(out, " kernel=%" PRIx64, P(p->kernel));
        if (exit)
            fprintf(out, " f=%" PRIx64, P(*p->pFunc));
        END CASE(cuFuncLoad) fprintf(out, " f=%" PRIx64, P(p->function));
        END CASE(cuGraphAddKernelNode) print_node("node", (const void *)p->nodeParams, 1);
        fprintf(out, " graph=%" PRIx64, P(p->hGraph));
        if (exit)
            fprintf(out, " node=%" PRIx64, P(*p->phGraphNode));
        END CASE(cuGraphAddKernelNode_v2) print_node("node", p->nodeParams, 2);
        fprintf(out, " graph=%" PRIx64, P(p->hGraph));
        if (exit)
            fprintf(out, " node=%" PRIx64, P(*p->phGraphNode));
        END CASE(cuGraphAddNode) if (p->nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL)
            print_node("node", (const void *)&p->nodeParams->kernel, 2);
        fprintf(out, " type=%d graph=%" PRIx64, p->nodeParams->type, P(p->hGraph));
        END CASE(cuGraphAddNode_v2) if (p->nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL)
            print_node("node", (const void *)&p->nodeParams->kernel, 2);
        fprintf(out, " type=%d graph=%" PRIx64, p->nodeParams->type, P(p->hGraph));
        END CASE(cuGraphExecKernelNodeSetParams) print_node("node", (const void *)p->nodeParams, 1);
        fprintf(out, " exec=%" PRIx64 " node=%" PRIx64, P(p->hGraphExec), P(p->hNode));
        END CASE(cuGraphExecKernelNodeSetParams_v2) print_node("node", p->nodeParams, 2);
        fprintf(out, " exec=%" PRIx64 " node=%" PRIx64, P(p->hGraphExec), P(p->hNode));
        END CASE(cuGraphKernelNodeSetParams_v2) print_node("node", p->nodeParams, 2);
        fprintf(out, " node=%" PRIx64, P(p->hNode));
        END CASE(cuGraphExecUpdate)
            fprintf(out, " exec=%" PRIx64 " graph=%" PRIx64, P(p->hGraphExec), P(p->hGraph));
        END CASE(cuGraphExecUpdate_v2)
            fprintf(out, " exec=%" PRIx64 " graph=%" PRIx64, P(p->hGraphExec), P(p->hGraph));
        END CASE(cuGraphInstantiateWithFlags) fprintf(out, " graph=%" PRIx64, P(p->hGraph));
        if (exit)
            fprintf(out, " exec=%" PRIx64, P(*p->phGraphExec));
        END CASE(cuGraphInstantiateWithParams) fprintf(out, " graph=%" PRIx64, P(p->hGraph));
        if (exit)
            fprintf(out, " exec=%" PRIx64, P(*p->phGraphExec));
        END CASE(cuGraphNodeSetEnabled) fprintf(out, " exec=%" PRIx64 " node=%" PRIx64 " on=%u",
                                                P(p->hGraphExec), P(p->hNode), p->isEnabled);
        END CASE(cuGraphExecDestroy) fprintf(out, " exec=%" PRIx64, P(p->hGraphExec));
        END default : break;
    }
}

static void save_cubin(const CUpti_ModuleResourceData *m)
{
    char path[4096];
    static int n;
    snprintf(path, sizeof path, "%s/%d.cubin", dir, n);
    fprintf(out, " id=%u size=%zu file=%d.cubin", m->moduleId, m->cubinSize, n++);
    FILE *f = m->cubinSize <= 4 << 20 ? fopen(path, "w") : NULL;
    if (f) {
        fwrite(m->pCubin, 1, m->cubinSize, f);
        fclose(f);
    }
}

static void print_resource(CUpti_CallbackId id, const CUpti_ResourceData *r)
{
    if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED)
        save_cubin(r->resourceDescriptor);
    else if (id == CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING ||
             id == CUPTI_CBID_RESOURCE_MODULE_PROFILED)
        fprintf(out, " id=%u", ((CUpti_ModuleResourceData *)r->resourceDescriptor)->moduleId);
    else if (id >= CUPTI_CBID_RESOURCE_GRAPH_CREATED && r->resourceDescriptor &&
             id != CUPTI_CBID_RESOURCE_STREAM_ATTRIBUTE_CHANGED) {
        const CUpti_GraphData *g = r->resourceDescriptor;
        uint64_t node_id = 0;
        uint32_t graph_id = 0;
        if (id >= CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED &&
            id != CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED &&
            id != CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING &&
            id != CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING && g->node)
            cuptiGetGraphNodeId(g->node, &node_id);
        if (g->graph)
            cuptiGetGraphId(g->graph, &graph_id);
        fprintf(out,
                " graph=%" PRIx64 " original=%" PRIx64 " node=%" PRIx64 " onode=%" PRIx64
                " type=%d exec=%" PRIx64 " graphid=%u nodeid=%" PRIx64,
                P(g->graph), P(g->originalGraph), P(g->node), P(g->originalNode), (int)g->nodeType,
                P(g->graphExec), graph_id, node_id);
    }
}

static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
    (void)user;
    pthread_mutex_lock(&lock);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
        const CUpti_CallbackData *d = data;
        int exit = d->callbackSite == CUPTI_API_EXIT;
        fprintf(out, "D %ld %u %c %s %u", syscall(SYS_gettid), id, exit ? 'X' : 'E',
                d->functionName, d->contextUid);
        print_params(id, d->functionParams, exit);
        if (exit && *(CUresult *)d->functionReturnValue)
            fprintf(out, " rc=%d", *(CUresult *)d->functionReturnValue);
        if (!exit && d->symbolName && strstr(d->functionName, "aunch"))
            fprintf(out, " sym=%s", d->symbolName);
    } else {
        const CUpti_ResourceData *r = data;
        const char *name = "?";
        cuptiGetCallbackName(domain, id, &name);
        fprintf(out, "R %ld %u %s", syscall(SYS_gettid), id, name);
        print_resource(id, r);
    }
    putc('\n', out);
    pthread_mutex_unlock(&lock);
}

void trace_note(const char *text);
void trace_note(const char *text)
{
    pthread_mutex_lock(&lock);
    if (out)
        fprintf(out, "N %s\n", text);
    pthread_mutex_unlock(&lock);
}

int InitializeInjection(void);
int InitializeInjection(void)
{
    char path[4096];
    snprintf(dir, sizeof dir, "%s", getenv("TRACE_DIR") ? getenv("TRACE_DIR") : ".");
    snprintf(path, sizeof path, "%s/trace", dir);
    out = fopen(path, "w");
    if (!out)
        return 1;
    setvbuf(out, NULL, _IOLBF, 1 << 16);
    int rc = cuptiSubscribe(&subscriber, on_callback, NULL);
    fprintf(out, "N subscribe=%d global=%d\n", rc, dlsym(RTLD_DEFAULT, "trace_note") != NULL);
    if (!rc) {
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE);
    }
    return 1;
}
