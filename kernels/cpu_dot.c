#include "config.h"

#include "kernels/cpu_dot.h"
#include "kernels/quant.h"

static const struct {
    const char *name;
    const struct cpu_dot *dots;
} isas[N_CPU_ISAS] = {
    [CPU_PORTABLE] = {"portable", cpu_dots_portable},
#ifdef __x86_64__
    [CPU_AVX2] = {"avx2", cpu_dots_avx2},
    [CPU_AVX512_VNNI] = {"avx512-vnni", cpu_dots_avx512},
#else
    [CPU_AVX2] = {"avx2", NULL},
    [CPU_AVX512_VNNI] = {"avx512-vnni", NULL},
#endif
};

bool cpu_isa_works(enum cpu_isa isa)
{
#ifdef __x86_64__
    if (isa == CPU_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
    if (isa == CPU_AVX512_VNNI)
        return cpu_isa_works(CPU_AVX2) && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#endif
    return isa == CPU_PORTABLE;
}

enum cpu_isa cpu_isa_best(void)
{
    enum cpu_isa isa = N_CPU_ISAS - 1;
    while (!cpu_isa_works(isa))
        isa--;
    return isa;
}

const char *cpu_isa_name(enum cpu_isa isa)
{
    return isas[isa].name;
}

size_t cpu_dot_pack_bytes(int32_t n)
{
    size_t bytes = (size_t)n + (size_t)n / 32 * sizeof(float) + (size_t)n / 16 * sizeof(int16_t);
    return (bytes + 63) / 64 * 64;
}

const struct cpu_dot *cpu_dot_find(enum cpu_isa isa, int32_t type)
{
    const struct quant_info *info = quant_find((uint32_t)type);
    return info && info->to_float ? &isas[isa].dots[type] : NULL;
}
