/* The layouts and numbers of shim/cupti_abi.h against those of the CUDA Toolkit, where there is
 * one. */
#include "config.h"

#include "shim/cupti_abi.h"
#include "tests/tap.h"

#if defined(HAVE_CUDA) && __has_include(<cupti.h>)
#include <cupti.h>

#define SAME_SIZE(a, b) is_int((long)sizeof(a), (long)sizeof(b), "the size of " #a)
#define SAME_PLACE(a, at_a, b, at_b)                                                               \
    is_int((long)offsetof(a, at_a), (long)offsetof(b, at_b), "the place of " #b "." #at_b)

static void check_numbers(void)
{
#define DRIVER_ID(name, number)   is_int(CUPTI_DRIVER_TRACE_CBID_##name, number, #name);
#define RESOURCE_ID(name, number) is_int(CUPTI_CBID_RESOURCE_##name, number, #name);
    CUPTI_DRIVER_IDS(DRIVER_ID)
    CUPTI_RESOURCE_IDS(RESOURCE_ID)
    is_int(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DOMAIN_DRIVER, "the driver's domain");
    is_int(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_DOMAIN_RESOURCE, "the domain of resources");
    is_int(CUPTI_API_EXIT, CUPTI_EXIT, "the site at the end of a call");
}

static void check_callbacks(void)
{
    SAME_PLACE(struct cupti_call, params, CUpti_CallbackData, functionParams);
    SAME_PLACE(struct cupti_call, result, CUpti_CallbackData, functionReturnValue);
    SAME_PLACE(struct cupti_call, symbol, CUpti_CallbackData, symbolName);
    SAME_PLACE(struct cupti_call, correlation, CUpti_CallbackData, correlationId);
    SAME_PLACE(struct cupti_resource, descriptor, CUpti_ResourceData, resourceDescriptor);
    SAME_PLACE(struct cupti_module, size, CUpti_ModuleResourceData, cubinSize);
    SAME_PLACE(struct cupti_module, image, CUpti_ModuleResourceData, pCubin);
    SAME_PLACE(struct cupti_graph, node, CUpti_GraphData, node);
    SAME_PLACE(struct cupti_graph, original_node, CUpti_GraphData, originalNode);
    SAME_PLACE(struct cupti_graph, exec, CUpti_GraphData, graphExec);
    SAME_PLACE(struct cupti_subscriber_params, old_name, CUpti_SubscriberParams, oldSubscriberName);
    is_int(CUpti_SubscriberParams_STRUCT_SIZE, (long)sizeof(struct cupti_subscriber_params),
           "the size of a subscriber's parameters");
}

static void check_arguments(void)
{
    SAME_PLACE(struct cu_launch, geometry, cuLaunchKernel_params, gridDimX);
    SAME_PLACE(struct cu_launch, geometry.smem, cuLaunchKernel_params, sharedMemBytes);
    SAME_PLACE(struct cu_launch, geometry.block[2], cuLaunchCooperativeKernel_params, blockDimZ);
    SAME_PLACE(struct cu_launch_ex, f, cuLaunchKernelEx_params, f);
    SAME_PLACE(struct cu_config, stream, CUlaunchConfig, hStream);
    SAME_PLACE(struct cu_config, attributes, CUlaunchConfig, attrs);
    SAME_PLACE(struct cu_config, n_attributes, CUlaunchConfig, numAttrs);
    SAME_SIZE(struct cu_attribute, CUlaunchAttribute);
    SAME_PLACE(struct cu_attribute, value, CUlaunchAttribute, value);
    SAME_SIZE(struct cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v2);
    SAME_PLACE(struct cu_kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
    SAME_PLACE(struct cu_node, kernel, CUgraphNodeParams, kernel);
    is_int(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_CLUSTER, "the attribute for clusters");
    is_int(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_CARVEOUT,
           "the attribute for the carve-out");
    is_int(CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_NODE_CONDITIONAL, "the type of conditional nodes");
}

int main(void)
{
    check_numbers();
    check_callbacks();
    check_arguments();
    return tap_done();
}
#else
int main(void)
{
    skip("the layouts are those of the CUDA Toolkit", "built without one");
    return tap_done();
}
#endif
