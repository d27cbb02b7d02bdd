/* The GPU that a run used: columns of `runs`. A thread of the host, in whose CUDA context something
 * was launched, asks the driver once; the writer hands the answers on. CUDA is never initialised.
 */
#ifndef NEARTIE_SHIM_GPU_H
#define NEARTIE_SHIM_GPU_H

#include <stdbool.h>
#include <stdint.h>

struct facts;
struct spool;

/* What the driver did not tell is empty or 0, and not recorded. */
struct gpu {
    char name[128];   /* as the driver calls it */
    int32_t sm;       /* compute capability times 10 */
    int32_t sm_count; /* multiprocessors */
    int32_t cuda;     /* the newest CUDA of the driver: 13000 for 13.0 */
};

/* Whether a GPU was noted. */
bool gpu_known(void);

/* Note the GPU, if it is the first. Any thread. */
void gpu_note(const struct gpu *gpu);

/* Record what was noted, once. The writer's thread, or one that holds the writer off. */
void gpu_record(struct facts *f, struct spool *sp);

#endif
