#include "config.h"

#include "shim/capture_int.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
static bool avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}

static bool avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static bool portable_usable(void)
{
    return true;
}

const struct capture_path capture_paths[] = {
#ifdef __x86_64__
    {"avx512", avx512_usable, capture_row_avx512},
    {"avx2", avx2_usable, capture_row_avx2},
#endif
    {"portable", portable_usable, capture_row_portable},
    {NULL, NULL, NULL},
};

void capture_row(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n, int32_t k)
{
    const struct capture_path *p = capture_paths;
    while (!p->usable())
        p++;
    p->row(out, row, dtype, n, k);
}

/* Exact; in integers, so that it is right where the host flushes denormals too. */
static uint32_t bits_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return sign | 0x7f800000 | m << 13;
    if (e)
        return sign | (e + 112) << 23 | m << 13;
    if (!m)
        return sign;
    int top = 31 - __builtin_clz(m);
    return sign | (uint32_t)(top + 103) << 23 | (m << (23 - top) & 0x7fffff);
}

float capture_value(const void *row, enum probe_dtype dtype, int32_t id)
{
    if (dtype == PROBE_F32)
        return ((const float *)row)[id];
    uint16_t half = ((const uint16_t *)row)[id];
    uint32_t bits = dtype == PROBE_F16 ? bits_of_f16(half) : (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
