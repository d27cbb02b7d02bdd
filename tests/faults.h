/* Real kernel faults for the CPU engine, one at a time, by a switch that only the programs that
 * link this file have: the linker sends every backend_run of the engine through here
 * (-Wl,--wrap=backend_run), and a fault changes one operator's arguments, result or memory. The
 * engine itself knows nothing of it. */
#ifndef NEARTIE_TESTS_FAULTS_H
#define NEARTIE_TESTS_FAULTS_H

#include "engine/forward_int.h"

enum fault_side {
    FAULT_DECODE,        /* strikes decode steps: judged against a sound prefill */
    FAULT_PREFILL,       /* strikes prefill chunks: judged against sound decode steps */
    FAULT_HYBRID_DECODE, /* as above, in models with delta-net layers only */
    FAULT_HYBRID_PREFILL
};

struct fault_call {
    struct backend *backend;
    enum op op;
    struct op_args *args;
};

struct fault {
    const char *name, *words;
    enum fault_side side;
    void (*run)(struct fault_call *call); /* in place of the operator: calls faults_run itself */
};

extern const struct fault faults[];
extern const int n_faults;

/* Plant a fault into this context from now on; NULL: none. `token` is an id that faults on one id
 * strike. */
void faults_plant(const struct fault *fault, struct forward *f, int32_t token);

#endif
