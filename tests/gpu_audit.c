/* Counts what CUPTI's activity records say was run, to compare the lists of a preloaded probe with.
 * Injected: CUDA_INJECTION64_PATH=gpu_audit.so; AUDIT_OUT=FILE gets a line for each kernel and way
 * of launching it: name, grid, block, dynamic and static shared memory, registers, count,
 * tab-separated; and FILE.functions one for each kernel that was launched or captured: name, and
 * the registers and static shared memory that cuFuncGetAttribute gives. Built against NVIDIA's own
 * headers. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 8 << 20, ROWS = 1 << 16, FUNCTIONS = 8192 };

static struct row {
    CUpti_ActivityKernel10 k;
    long count;
} * rows;
static int n_rows, n_given, n_taken;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int same(const CUpti_ActivityKernel10 *a, const CUpti_ActivityKernel10 *b)
{
    return a->gridX == b->gridX && a->gridY == b->gridY && a->gridZ == b->gridZ &&
           a->blockX == b->blockX && a->blockY == b->blockY && a->blockZ == b->blockZ &&
           a->dynamicSharedMemory == b->dynamicSharedMemory && !strcmp(a->name, b->name);
}

static void take(const CUpti_ActivityKernel10 *k)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_rows && !same(&rows[i].k, k))
        i++;
    if (i == n_rows && n_rows < ROWS) {
        rows[n_rows].k = *k;
        rows[n_rows++].k.name = strdup(k->name);
    }
    if (i < n_rows)
        rows[i].count++;
    pthread_mutex_unlock(&lock);
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    n_given++;
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = BUFFER_BYTES;
    *max_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext c, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *r = NULL;
    size_t dropped = 0;
    n_taken++;
    (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
            r->kind == CUPTI_ACTIVITY_KIND_KERNEL)
            take((const CUpti_ActivityKernel10 *)r);
    cuptiActivityGetNumDroppedRecords(c, stream, &dropped);
    if (dropped)
        fprintf(stderr, "gpu_audit: %zu records were dropped\n", dropped);
    free(buffer);
}

/* What the driver says of each function that a launch names. */
static struct function {
    CUfunction f;
    char *name;
    int registers, smem;
} functions[FUNCTIONS];
static int n_functions;

static void ask(CUfunction f, const char *name)
{
    struct function *at = functions;
    CUfunction real = f;
    pthread_mutex_lock(&lock);
    while (at < functions + n_functions && at->f != f)
        at++;
    if (name && at == functions + n_functions && n_functions < FUNCTIONS) {
        if (cuFuncGetAttribute(&at->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f))
            cuKernelGetFunction(&real, (CUkernel)f);
        if (!cuFuncGetAttribute(&at->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, real) &&
            !cuFuncGetAttribute(&at->smem, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, real)) {
            at->f = f;
            at->name = strdup(name);
            n_functions++;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void CUPTIAPI on_launch(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                               const void *data)
{
    const CUpti_CallbackData *call = data;
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || call->callbackSite != CUPTI_API_ENTER)
        return;
    if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx ||
        id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz)
        ask(((const cuLaunchKernelEx_params *)call->functionParams)->f, call->symbolName);
    else
        ask(((const cuLaunchKernel_params *)call->functionParams)->f, call->symbolName);
}

static int watch_launches(void)
{
    static const CUpti_CallbackId ids[] = {
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    };
    CUpti_SubscriberHandle subscriber;
    int rc = cuptiSubscribe(&subscriber, on_launch, NULL);
    for (size_t i = 0; !rc && i < sizeof ids / sizeof *ids; i++)
        rc = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, ids[i]);
    return rc;
}

static void write_functions(const char *path)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.functions", path);
    FILE *f = fopen(name, "w");
    for (int i = 0; f && i < n_functions; i++)
        fprintf(f, "%s\t%d\t%d\n", functions[i].name, functions[i].registers, functions[i].smem);
    if (f)
        fclose(f);
}

static void finish(void)
{
    const char *path = getenv("AUDIT_OUT");
    if (getpid() != owner || !path)
        return;
    int rc = cuptiActivityFlushAll(1);
    fprintf(stderr, "gpu_audit: %d buffers given, %d taken, %d kinds of launch, flush %d\n",
            n_given, n_taken, n_rows, rc);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n_rows; i++) {
        const CUpti_ActivityKernel10 *k = &rows[i].k;
        fprintf(f, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%ld\n", k->name, k->gridX, k->gridY,
                k->gridZ, k->blockX, k->blockY, k->blockZ, k->dynamicSharedMemory,
                k->staticSharedMemory, k->registersPerThread, rows[i].count);
    }
    if (f)
        fclose(f);
    write_functions(path);
}

/* The driver calls this from within cuInit, before there is any context. */
int InitializeInjection(void);

int InitializeInjection(void)
{
    rows = calloc(ROWS, sizeof *rows);
    owner = getpid();
    int rc = cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    int rc2 = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    int rc3 = watch_launches();
    if (rc || rc2 || rc3)
        fprintf(stderr, "gpu_audit: error %d %d %d\n", rc, rc2, rc3);
    atexit(finish);
    return 1;
}
