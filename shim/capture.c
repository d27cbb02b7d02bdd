#include "config.h"

#include "shim/capture.h"

#include <math.h>
#include <string.h>

/* Sixteen floats at once in gcc's vector notation: one AVX-512 register, two AVX or four SSE. */
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint64_t vq __attribute__((vector_size(64)));
enum { LANES = 16, BLOCK = 1024 }; /* a block of floats is 4 KB: it stays in L1 for its passes */

/* Everything below is inlined into one function for each instruction set. */
#define INLINE static inline __attribute__((always_inline))

/* State of a row between its blocks. */
struct scan {
    int32_t keys[RECORD_TOP_MAX]; /* descending; see key_of */
    int32_t ids[RECORD_TOP_MAX];
    int32_t n_top, k;
    int32_t threshold; /* a key must be above it to enter the list */
    float max;         /* largest finite value so far, -inf before the first */
    double sum;        /* of exp(x - max) */
    struct capture *out;
};

INLINE vi select_i(vi mask, vi a, vi b)
{
    return (mask & a) | (~mask & b);
}

/* An integer that orders as the float does, the same for both zeros, lowest for NaN. It does not
 * depend on whether the host flushes denormals. */
INLINE vi keys_of(vi bits)
{
    vi key = bits ^ ((bits >> 31) & 0x7fffffff);
    key -= key == -1; /* -0.0 */
    vi nan = (bits & 0x7fffffff) > 0x7f800000;
    return select_i(nan, (vi){0} + INT32_MIN, key);
}

INLINE int32_t key_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return INT32_MIN;
    if (bits == INT32_MIN)
        return 0;
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

INLINE float value_of_key(int32_t key)
{
    int32_t bits = key ^ ((key >> 31) & 0x7fffffff);
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

INLINE vi load(const float *x)
{
    vi v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* exp(t) for t <= 0 with relative error about 1e-7, and 0 for t < -87 or NaN: Cody and Waite's
 * reduction by ln 2, then the Taylor polynomial, whose degree 6 suffices on |r| <= ln2 / 2. */
INLINE vf exp_of(vf t)
{
    vi keep = t >= -87.0f;
    t = (vf)((vi)t & keep);
    vf n = t * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    vi scale = ((vi)n << 23) + 0x3f800000;
    n -= 12582912.0f;
    vf r = t - n * 0.693359375f + n * 2.12194440e-4f;
    vf p = r * (1.0f / 720) + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (vf)((vi)(p * (vf)scale) & keep);
}

INLINE int32_t largest(vi v)
{
    int32_t m = v[0];
    for (int i = 1; i < LANES; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

INLINE bool any(vi mask)
{
    vq q = (vq)mask;
    return (q[0] | q[1] | q[2] | q[3] | q[4] | q[5] | q[6] | q[7]) != 0;
}

/* Largest key of the block, and its largest finite value's key; the number of lanes that hold NaN
 * or an infinity. */
INLINE int32_t block_keys(const float *x, int n, int32_t *finite, int32_t *n_special)
{
    vi top = (vi){0} + INT32_MIN, top_finite = top, special = {0};
    for (int i = 0; i < n; i += LANES) {
        vi bits = load(x + i);
        vi key = keys_of(bits);
        vi bad = (bits & 0x7fffffff) >= 0x7f800000;
        special -= bad;
        top = select_i(key > top, key, top);
        key = select_i(bad, (vi){0} + INT32_MIN, key);
        top_finite = select_i(key > top_finite, key, top_finite);
    }
    *n_special = 0;
    for (int i = 0; i < LANES; i++)
        *n_special += special[i];
    *finite = largest(top_finite);
    return largest(top);
}

/* Count what is not finite; id is that of x[0]. Only for blocks that have any. */
INLINE void block_special(struct capture *out, const float *x, int n, int32_t id)
{
    for (int i = 0; i < n; i++) {
        bool nan = x[i] != x[i];
        bool posinf = x[i] == INFINITY;
        out->n_nan += nan;
        out->n_posinf += posinf;
        out->n_neginf += x[i] == -INFINITY;
        if (out->first_bad < 0 && (nan || posinf))
            out->first_bad = id + i;
    }
}

/* Ids come in ascending order, so that an equal key never passes one already in the list. */
INLINE void insert(struct scan *s, int32_t key, int32_t id)
{
    int i = s->n_top < s->k ? s->n_top++ : s->k - 1;
    for (; i > 0 && s->keys[i - 1] < key; i--) {
        s->keys[i] = s->keys[i - 1];
        s->ids[i] = s->ids[i - 1];
    }
    s->keys[i] = key;
    s->ids[i] = id;
    if (s->n_top == s->k)
        s->threshold = s->keys[s->k - 1];
}

INLINE void block_top(struct scan *s, const float *x, int n, int32_t id)
{
    for (int i = 0; i < n; i += LANES) {
        if (!any(keys_of(load(x + i)) > s->threshold))
            continue;
        for (int j = i; j < i + LANES; j++) {
            int32_t key = key_of(x[j]);
            if (key > s->threshold)
                insert(s, key, id + j);
        }
    }
}

INLINE void block_sum(struct scan *s, const float *x, int n, int32_t finite_key)
{
    if (finite_key == INT32_MIN)
        return;
    float max = value_of_key(finite_key);
    if (max > s->max) {
        s->sum *= exp((double)s->max - (double)max);
        s->max = max;
    }
    vf sum = {0}, m = (vf){0} + s->max;
    for (int i = 0; i < n; i += LANES)
        sum += exp_of((vf)load(x + i) - m);
    for (int i = 0; i < LANES; i++)
        s->sum += (double)sum[i];
}

/* One block of n values, n a multiple of LANES; all but the first n_real are NaN of ours. */
INLINE void block(struct scan *s, const float *x, int n, int n_real, int32_t id)
{
    int32_t finite, n_special;
    int32_t top = block_keys(x, n, &finite, &n_special);
    if (n_special > n - n_real)
        block_special(s->out, x, n_real, id);
    if (top > s->threshold)
        block_top(s, x, n, id);
    block_sum(s, x, n, finite);
}

/* Exact; in integers, so that it is right where the host flushes denormals too. */
INLINE float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, bits;
    if (e == 31)
        bits = 0x7f800000 | m << 13;
    else if (e)
        bits = (e + 112) << 23 | m << 13;
    else if (m) {
        int top = 31 - __builtin_clz(m);
        bits = (uint32_t)(top + 103) << 23 | (m << (23 - top) & 0x7fffff);
    } else
        bits = 0;
    bits |= sign;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

INLINE float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The block as floats: where it stands, or converted and padded in buf. */
INLINE const float *block_load(float *buf, const void *row, enum probe_dtype dtype, int32_t id,
                               int n_real, int n)
{
    const uint16_t *half = (const uint16_t *)row + id;
    if (dtype == PROBE_F32) {
        if (n == n_real)
            return (const float *)row + id;
        memcpy(buf, (const float *)row + id, (size_t)n_real * sizeof *buf);
    } else if (dtype == PROBE_F16) {
        for (int i = 0; i < n_real; i++)
            buf[i] = from_f16(half[i]);
    } else {
        for (int i = 0; i < n_real; i++)
            buf[i] = from_bf16(half[i]);
    }
    for (int i = n_real; i < n; i++)
        buf[i] = NAN;
    return buf;
}

static double log_sum(const struct scan *s)
{
    if (s->out->n_posinf)
        return (double)INFINITY;
    return s->max == -INFINITY ? -(double)INFINITY : (double)s->max + log(s->sum);
}

INLINE void reduce(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n,
                   int32_t k)
{
    float buf[BLOCK];
    struct scan s = {.k = k, .threshold = INT32_MIN, .max = -INFINITY, .out = out};
    out->n_nan = out->n_posinf = out->n_neginf = 0;
    out->first_bad = -1;
    for (int32_t id = 0, n_real; id < n; id += n_real) {
        n_real = n - id < BLOCK ? n - id : BLOCK;
        int padded = (n_real + LANES - 1) / LANES * LANES;
        block(&s, block_load(buf, row, dtype, id, n_real, padded), padded, n_real, id);
    }
    out->lse = log_sum(&s);
    out->n_top = s.n_top;
    for (int i = 0; i < s.n_top; i++)
        out->top[i] = (struct record_top){s.ids[i], capture_value(row, dtype, s.ids[i])};
}

#define CAPTURE_PATH(suffix)                                                                       \
    static void row_##suffix(struct capture *out, const void *row, enum probe_dtype dtype,         \
                             int32_t n, int32_t k)                                                 \
    {                                                                                              \
        if (dtype == PROBE_F32)                                                                    \
            reduce(out, row, PROBE_F32, n, k);                                                     \
        else if (dtype == PROBE_F16)                                                               \
            reduce(out, row, PROBE_F16, n, k);                                                     \
        else                                                                                       \
            reduce(out, row, PROBE_BF16, n, k);                                                    \
    }

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) CAPTURE_PATH(avx512);
__attribute__((target("avx2,fma"))) CAPTURE_PATH(avx2);

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

CAPTURE_PATH(portable)

static bool portable_usable(void)
{
    return true;
}

const struct capture_path capture_paths[] = {
#ifdef __x86_64__
    {"avx512", avx512_usable, row_avx512},
    {"avx2", avx2_usable, row_avx2},
#endif
    {"portable", portable_usable, row_portable},
    {NULL, NULL, NULL},
};

void capture_row(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n, int32_t k)
{
    const struct capture_path *p = capture_paths;
    while (!p->usable())
        p++;
    p->row(out, row, dtype, n, k);
}

float capture_value(const void *row, enum probe_dtype dtype, int32_t id)
{
    if (dtype == PROBE_F32)
        return ((const float *)row)[id];
    uint16_t half = ((const uint16_t *)row)[id];
    return dtype == PROBE_F16 ? from_f16(half) : from_bf16(half);
}
