/* Which instruction set the fast forms use, found out at run time. */
#include "config.h"
#include "kernels/cpu.h"

int64_t cpu_worth_threads = 100000;

void kernels_always_thread(void)
{
    cpu_worth_threads = 0;
}

static const struct {
    op_fn forms[N_OPS];
} isas[N_CPU_ISAS] = {
#define OP(id, name, ...) cpu_##name##_portable,
    [CPU_PORTABLE] = {{
#include "kernels/ops.def"
#undef OP
    }},
#ifdef __x86_64__
#define OP(id, name, ...) cpu_##name##_avx2,
    [CPU_AVX2] = {{
#include "kernels/ops.def"
#undef OP
    }},
#define OP(id, name, ...) cpu_##name##_avx512,
    [CPU_AVX512_VNNI] = {{
#include "kernels/ops.def"
#undef OP
    }},
#endif
};

static enum cpu_isa isa_in_use = CPU_PORTABLE;

__attribute__((constructor)) static void isa_choose(void)
{
    isa_in_use = cpu_isa_best();
}

const char *kernels_isa(void)
{
    return cpu_isa_name(isa_in_use);
}

bool kernels_set_isa(const char *name)
{
    for (enum cpu_isa isa = 0; isa < N_CPU_ISAS; isa++)
        if (!strcmp(cpu_isa_name(isa), name) && cpu_isa_works(isa)) {
            isa_in_use = isa;
            return true;
        }
    return false;
}

#define OP(id, name, ...)                                                                          \
    void cpu_##name##_fast(const struct op_args *a)                                                \
    {                                                                                              \
        isas[isa_in_use].forms[OP_##id](a);                                                        \
    }
#include "kernels/ops.def"
#undef OP
