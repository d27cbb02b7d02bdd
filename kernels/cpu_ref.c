/* The reference forms: one source (the .inc files), compiled with float and with double
 * accumulation. Plain C, fixed order of summation, no contraction (-ffp-contract=off), so that a
 * result is the same on every machine and with any number of threads. */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

void row_store(int32_t type, void *row, int32_t col, int32_t n, const float *x)
{
    const struct quant_info *q = quant_find((uint32_t)type);
    q->from_float(x, row_at(q, row, col), n);
}

#define REAL                        float
#define FORM(name)                  cpu_##name##_f32
#define EXP                         expf
#define LOG1P                       log1pf
#define SQRT                        sqrtf
#define TO_FLOAT(type, row, out, n) quant_find((uint32_t)(type))->to_float(row, out, n)
#include "kernels/cpu_rows.inc"
#include "kernels/cpu_matmul_ref.inc"
#include "kernels/cpu_mixer.inc"
#include "kernels/cpu_fused.inc"
#undef REAL
#undef FORM
#undef EXP
#undef LOG1P
#undef SQRT

#define REAL       double
#define FORM(name) cpu_##name##_f64
#define EXP        exp
#define LOG1P      log1p
#define SQRT       sqrt
#include "kernels/cpu_rows.inc"
#include "kernels/cpu_matmul_ref.inc"
#include "kernels/cpu_mixer.inc"
#include "kernels/cpu_fused.inc"
