#include "config.h"

#include "shim/gpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "shim/facts.h"

enum { NOTHING, BEING_NOTED, NOTED, RECORDED };

static _Atomic int state;
static struct gpu noted; /* written before state is NOTED, never after */

bool gpu_known(void)
{
    return atomic_load_explicit(&state, memory_order_relaxed) != NOTHING;
}

void gpu_note(const struct gpu *gpu)
{
    int nothing = NOTHING;
    if (!atomic_compare_exchange_strong(&state, &nothing, BEING_NOTED))
        return;
    noted = *gpu;
    atomic_store(&state, NOTED);
}

/* The version of the kernel's driver, which only the kernel tells; empty if it does not. */
static void driver_version(char *text, int32_t size)
{
    FILE *f = fopen("/sys/module/nvidia/version", "re");
    text[0] = 0;
    if (!f)
        return;
    if (fgets(text, size, f))
        text[strcspn(text, "\n")] = 0;
    fclose(f);
}

void gpu_record(struct facts *f, struct spool *sp)
{
    int is_noted = NOTED;
    if (!atomic_compare_exchange_strong(&state, &is_noted, RECORDED))
        return;
    char sm[16] = "", sm_count[16] = "", cuda[24] = "", version[64];
    if (noted.sm)
        snprintf(sm, sizeof sm, "%d", noted.sm);
    if (noted.sm_count)
        snprintf(sm_count, sizeof sm_count, "%d", noted.sm_count);
    if (noted.cuda)
        snprintf(cuda, sizeof cuda, "%d.%d", noted.cuda / 1000, noted.cuda % 1000 / 10);
    driver_version(version, sizeof version);
    const char *const values[][2] = {{"gpu_name", noted.name},
                                     {"sm", sm},
                                     {"sm_count", sm_count},
                                     {"cuda_version", cuda},
                                     {"driver_version", version}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][1][0])
            facts_setting(f, sp, values[i][0], values[i][1], "api");
}
