/* What the files of the CUDA capture share: the driver's functions, a context, a launch.
 * device_cuda.c records rows of a stream that runs, device_graph.c those of one that is being
 * captured into a graph; nobody else's. */
#ifndef NEARTIE_SHIM_DEVICE_CUDA_INT_H
#define NEARTIE_SHIM_DEVICE_CUDA_INT_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "shim/capture_cuda.h"
#include "shim/core.h"
#include "shim/probe.h"

enum {
    POOL_ROWS = 8192, /* results that can wait for the writer, in each context */
    SPLIT_ROWS = 128, /* most rows of a launch that several blocks share: bounds the workspace */
    MAX_STREAMS = 8   /* streams with a workspace of their own; others go without sharing */
};

/* The driver's functions that are called: those of the host process. */
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))             \
    X(cuStreamGetCtx, "cuStreamGetCtx", (CUstream, CUcontext *))                                   \
    X(cuCtxGetId, "cuCtxGetId", (CUcontext, unsigned long long *))                                 \
    X(cuCtxGetDevice_, "cuCtxGetDevice", (CUdevice *))                                             \
    X(cuCtxPush, "cuCtxPushCurrent_v2", (CUcontext))                                               \
    X(cuCtxPop, "cuCtxPopCurrent_v2", (CUcontext *))                                               \
    X(cuCaptureMode, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode *))                 \
    X(cuDeviceAttribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))            \
    X(cuLoad, "cuModuleLoadData", (CUmodule *, const void *))                                      \
    X(cuFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                   \
    X(cuRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned))                              \
    X(cuHostToDevice, "cuMemHostGetDevicePointer_v2", (CUdeviceptr *, void *, unsigned))           \
    X(cuAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                           \
    X(cuStreamNew, "cuStreamCreate", (CUstream *, unsigned))                                       \
    X(cuStreamWait, "cuStreamSynchronize", (CUstream))                                             \
    X(cuStreamFree, "cuStreamDestroy_v2", (CUstream))                                              \
    X(cuMemset, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                 \
    X(cuLaunch, "cuLaunchKernel",                                                                  \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))

#define DRIVER_MEMBER(name, symbol, params) CUresult(*name) params;
extern struct device_driver {
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
} driver;

/* What a pending row waits for. */
struct waiting {
    _Atomic bool busy;
    uint32_t launch;
    int32_t arm;
    int64_t since_ns;
};

/* The memory that a launch of several blocks a row works in; one stream's, so in order. */
struct workspace {
    CUstream stream;
    CUdeviceptr partials, arrived;
};

struct context {
    CUcontext handle;
    unsigned long long id; /* never used again, unlike the handle */
    CUfunction kernels[3]; /* by enum probe_dtype */
    int sm_count;
    struct waiting waiting[POOL_ROWS];
    int32_t next; /* where the next launch looks for room */
    int n_workspaces;
    struct workspace workspaces[MAX_STREAMS];
    /* Our pages, registered with the driver: readable also after the context is gone. */
    struct capture_cuda_row *rows;
    int32_t (*watch)[CAPTURE_CUDA_MAX_K];
    CUdeviceptr rows_dev, watch_dev;
};

/* Make host memory that the current context's kernels reach; NULL: failed. */
void *device_map(size_t bytes, CUdeviceptr *out_dev);

/* Device memory for the blocks that share a row: arrived is still to be zeroed. 0 = there is none.
 */
CUresult device_workspace(struct workspace *w);

/* Launch over n rows of the call, from row `from` on. args comes with k, n_watch, launch, watch,
 * rows, n_slots and replays; w may be NULL. */
CUresult device_launch(const struct context *c, const struct probe_logits *l, int32_t from,
                       int32_t n, const struct workspace *w, struct capture_cuda_args *args);

/* Whether several blocks share a row in a launch over n rows. */
int32_t device_splits(const struct context *c, const struct probe_logits *l, int32_t n);

/* The results of one row into its record, whose n_top is the length of list that was asked for. */
void device_fill(struct record_row *row, const struct capture_cuda_row *got);

/* Put the capture into the graph that the stream is being captured into: from now on device_poll
 * finds what its replays leave. NULL, or the reason why not. The caller holds the capture's lock
 * and has made the context current. */
const char *device_capture_graph(struct probe *p, struct context *c, uint64_t forward_id,
                                 int32_t arm, const struct probe_logits *l);

#endif
