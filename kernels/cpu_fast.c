/* Which instruction set the fast forms use, found out at run time. */
#include "config.h"
#include "kernels/cpu.h"

int64_t cpu_worth_threads = 100000;

void kernels_always_thread(void)
{
    cpu_worth_threads = 0;
}

/* In order of preference. */
static const struct isa {
    const char *name;
    op_fn forms[N_OPS];
} isas[] = {
#ifdef __x86_64__
    {"avx512-vnni",
     {
#define OP(id, name, ...) cpu_##name##_avx512,
#include "kernels/ops.def"
#undef OP
     }},
    {"avx2",
     {
#define OP(id, name, ...) cpu_##name##_avx2,
#include "kernels/ops.def"
#undef OP
     }},
#endif
    {"portable",
     {
#define OP(id, name, ...) cpu_##name##_portable,
#include "kernels/ops.def"
#undef OP
     }},
};
enum { N_ISAS = sizeof isas / sizeof isas[0] };

static const struct isa *isa_in_use = &isas[N_ISAS - 1];

static bool isa_is_here(const struct isa *isa)
{
#ifdef __x86_64__
    if (isa == &isas[0])
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    if (isa == &isas[1])
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
#endif
    return true;
}

__attribute__((constructor)) static void isa_choose(void)
{
    for (size_t i = N_ISAS; i-- > 0;)
        if (isa_is_here(&isas[i]))
            isa_in_use = &isas[i];
}

const char *kernels_isa(void)
{
    return isa_in_use->name;
}

bool kernels_set_isa(const char *name)
{
    for (size_t i = 0; i < N_ISAS; i++)
        if (!strcmp(isas[i].name, name) && isa_is_here(&isas[i])) {
            isa_in_use = &isas[i];
            return true;
        }
    return false;
}

#define OP(id, name, ...)                                                                          \
    void cpu_##name##_fast(const struct op_args *a)                                                \
    {                                                                                              \
        isa_in_use->forms[OP_##id](a);                                                             \
    }
#include "kernels/ops.def"
#undef OP
