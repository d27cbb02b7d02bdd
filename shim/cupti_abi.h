/* The little of CUPTI's and the CUDA driver's binary interface that the tagger reads, declared here
 * so that the library builds without the CUDA Toolkit and works wherever it runs. Layouts and
 * numbers are those of cupti_callbacks.h, cupti_driver_cbid.h, generated_cuda_meta.h and cuda.h of
 * CUDA 12.4 to 13.0 on 64-bit Linux; tests/cupti_abi_t.c compares them with the toolkit's. */
#ifndef NEARTIE_SHIM_CUPTI_ABI_H
#define NEARTIE_SHIM_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { CUPTI_DOMAIN_DRIVER = 1, CUPTI_DOMAIN_RESOURCE = 3 };
enum { CUPTI_ENTER, CUPTI_EXIT };

/* Numbers of driver functions and of resource events. */
#define CUPTI_DRIVER_IDS(X)                                                                        \
    X(cuModuleLoad, 18)                                                                            \
    X(cuModuleLoadData, 19)                                                                        \
    X(cuModuleLoadDataEx, 20)                                                                      \
    X(cuModuleLoadFatBinary, 21)                                                                   \
    X(cuModuleUnload, 22)                                                                          \
    X(cuModuleGetFunction, 23)                                                                     \
    X(cuFuncGetAttribute, 85)                                                                      \
    X(cuLaunch, 115)                                                                               \
    X(cuLaunchGrid, 116)                                                                           \
    X(cuLaunchGridAsync, 117)                                                                      \
    X(cuMemcpyDtoH_v2, 278)                                                                        \
    X(cuMemcpyDtoHAsync_v2, 279)                                                                   \
    X(cuLaunchKernel, 307)                                                                         \
    X(cuMemcpyDtoH_v2_ptds, 398)                                                                   \
    X(cuMemcpyDtoHAsync_v2_ptsz, 422)                                                              \
    X(cuLaunchKernel_ptsz, 442)                                                                    \
    X(cuLaunchCooperativeKernel, 477)                                                              \
    X(cuLaunchCooperativeKernel_ptsz, 478)                                                         \
    X(cuLaunchCooperativeKernelMultiDevice, 480)                                                   \
    X(cuFuncSetAttribute, 481)                                                                     \
    X(cuGraphAddKernelNode, 502)                                                                   \
    X(cuGraphInstantiate, 513)                                                                     \
    X(cuGraphLaunch, 514)                                                                          \
    X(cuGraphLaunch_ptsz, 515)                                                                     \
    X(cuGraphKernelNodeSetParams, 521)                                                             \
    X(cuGraphExecKernelNodeSetParams, 538)                                                         \
    X(cuGraphExecUpdate, 561)                                                                      \
    X(cuGraphInstantiate_v2, 578)                                                                  \
    X(cuGraphExecChildGraphNodeSetParams, 586)                                                     \
    X(cuGraphInstantiateWithFlags, 643)                                                            \
    X(cuGraphNodeSetEnabled, 650)                                                                  \
    X(cuLaunchKernelEx, 652)                                                                       \
    X(cuLaunchKernelEx_ptsz, 653)                                                                  \
    X(cuGraphInstantiateWithParams, 656)                                                           \
    X(cuGraphInstantiateWithParams_ptsz, 657)                                                      \
    X(cuLibraryLoadData, 678)                                                                      \
    X(cuLibraryLoadFromFile, 679)                                                                  \
    X(cuLibraryUnload, 680)                                                                        \
    X(cuLibraryGetKernel, 681)                                                                     \
    X(cuLibraryGetModule, 682)                                                                     \
    X(cuKernelGetFunction, 683)                                                                    \
    X(cuLibraryGetGlobal, 684)                                                                     \
    X(cuLibraryGetManaged, 685)                                                                    \
    X(cuKernelGetAttribute, 686)                                                                   \
    X(cuKernelSetAttribute, 687)                                                                   \
    X(cuGraphAddKernelNode_v2, 689)                                                                \
    X(cuGraphKernelNodeSetParams_v2, 691)                                                          \
    X(cuGraphExecKernelNodeSetParams_v2, 692)                                                      \
    X(cuGraphExecUpdate_v2, 696)                                                                   \
    X(cuGraphAddNode, 712)                                                                         \
    X(cuGraphNodeSetParams, 713)                                                                   \
    X(cuGraphExecNodeSetParams, 714)                                                               \
    X(cuGraphAddNode_v2, 723)                                                                      \
    X(cuFuncLoad, 742)

#define CUPTI_RESOURCE_IDS(X)                                                                      \
    X(MODULE_LOADED, 6)                                                                            \
    X(MODULE_UNLOAD_STARTING, 7)                                                                   \
    X(GRAPHNODE_CREATED, 13)                                                                       \
    X(GRAPHNODE_DESTROY_STARTING, 14)                                                              \
    X(GRAPHEXEC_CREATED, 18)                                                                       \
    X(GRAPHEXEC_DESTROY_STARTING, 19)                                                              \
    X(GRAPHNODE_CLONED, 20)                                                                        \
    X(GRAPH_NODE_UPDATED, 22)                                                                      \
    X(GRAPH_NODE_SET_PARAMS, 23)

#define CUPTI_ID(name, number) CUPTI_##name = number,
enum cupti_id { CUPTI_DRIVER_IDS(CUPTI_ID) CUPTI_RESOURCE_IDS(CUPTI_ID) CUPTI_MAX_ID = 1023 };
#undef CUPTI_ID

struct cupti_subscriber_params {
    size_t struct_size; /* 32: up to here, the form that CUPTI 12.6 to 13.1 knows */
    const char *name;
    char *old_name; /* out: who has subscribed before */
    size_t old_size;
};

/* What a callback of the driver domain is given. */
struct cupti_call {
    uint32_t site; /* CUPTI_ENTER or CUPTI_EXIT */
    const char *function;
    const void *params;    /* the call's arguments, in order, each aligned as in a struct */
    const int32_t *result; /* CUresult; at EXIT */
    const char *symbol;    /* name of the kernel launched */
    void *context;
    uint32_t context_uid;
    uint64_t *data;
    uint32_t correlation;
};

struct cupti_resource {
    void *context, *stream;
    const void *descriptor; /* one of the two below */
};

struct cupti_module {
    uint32_t id;
    size_t size;
    const void *image;
};

struct cupti_graph {
    void *graph, *original_graph, *node, *original_node;
    uint32_t node_type; /* not valid in GRAPHNODE_CREATED */
    void *dependency, *exec;
};

/* How a kernel is launched, as it stands in every structure of the driver. */
struct cu_geometry {
    uint32_t grid[3], block[3], smem;
};

struct cu_launch { /* cuLaunchKernel, cuLaunchCooperativeKernel */
    void *f;
    struct cu_geometry geometry;
};

struct cu_attribute {
    uint32_t id, pad;
    uint32_t value[16];
};

enum {
    CU_COOPERATIVE = 2,
    CU_CLUSTER = 4,
    CU_CLUSTER_POLICY = 5,
    CU_PROGRAMMATIC = 6,
    CU_PRIORITY = 8,
    CU_PREFERRED_CLUSTER = 11,
    CU_DEVICE_UPDATABLE = 13,
    CU_CARVEOUT = 14
};

struct cu_config {
    struct cu_geometry geometry;
    void *stream;
    const struct cu_attribute *attributes;
    uint32_t n_attributes;
};

struct cu_launch_ex { /* cuLaunchKernelEx */
    const struct cu_config *config;
    void *f;
};

struct cu_kernel_node { /* CUDA_KERNEL_NODE_PARAMS; version 1 ends before kernel */
    void *f;
    struct cu_geometry geometry;
    void **arguments, **extra;
    void *kernel; /* in place of f where that is NULL */
    void *context;
};

struct cu_node { /* CUgraphNodeParams */
    uint32_t type, reserved[3];
    struct cu_kernel_node kernel;
};

enum { CU_NODE_KERNEL = 0, CU_NODE_CHILD = 4, CU_NODE_CONDITIONAL = 13 };

#endif
