/* The device side of capture: one pass over each row of logits gives its top-k, log-sum-exp, the
 * counts of what is not finite, and the values at a watch list. Driver API only: no host code here.
 *
 * A block reads its share of a row a tile at a time. Elements that reach the block's threshold go
 * to a candidate list in shared memory; when the list is long, its k best are kept and the k-th
 * becomes the threshold. The order is total (value, then lowest id), so the result does not depend
 * on which thread came first. The last block of a row merges the lists of the others. */
#include "shim/capture_cuda.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define THREADS    CAPTURE_CUDA_THREADS
#define WARPS      (THREADS / 32)
#define SELECT_AT  128 /* list length at which the k best are kept */
#define LIST_LEN   512 /* most candidates; well above CAPTURE_CUDA_MAX_K */
#define RUN        8   /* tiles read between two looks for candidates */
#define LOG2E      1.44269504088896340736f
#define LN2        0.69314718055994530942f
#define HUGE_LOGIT 1e7f

/* A value as an unsigned number of the same order; NaN gives 0, which loses. */
static __device__ __forceinline__ uint32_t order_of(float x)
{
    const uint32_t u = __float_as_uint(x + 0.0f); /* -0 compares equal to +0 */
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Sort key: larger is better. High half: the order of the value; low half: the complement of the
 * id, so that ties go to the lowest. NaN gives 0. */
static __device__ __forceinline__ uint64_t key_of(float x, int32_t id)
{
    const uint32_t order = order_of(x);
    return order ? (uint64_t)order << 32 | (uint32_t)~id : 0;
}

static __device__ __forceinline__ int32_t id_of(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}

/* The value of a key, for the fast comparison against the threshold. */
static __device__ __forceinline__ float value_of(uint64_t key)
{
    uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u ^ 0x80000000u : ~u);
}

/* What a thread has seen that is not finite. */
struct counts {
    int32_t n_nan, n_posinf, n_neginf, first_bad;
};

/* Candidates, in no order. */
struct list {
    alignas(16) uint64_t key[LIST_LEN];
    int32_t n; /* may run past LIST_LEN: then only LIST_LEN are there */
};

/* The state of one block, in shared memory. */
struct block_state {
    struct list list[2];         /* the sieve's, and the one that select_best fills */
    uint64_t kth;                /* the k-th best of the last select_best */
    uint32_t best[RUN][THREADS]; /* see tile_run */
    uint32_t warp_order[WARPS];
    float warp_max[WARPS], warp_sum[WARPS];
    struct counts counts;
    int32_t is_last;
    uint32_t replay;
};

/* A thread's view of the block's candidates, the same in every thread. */
struct sieve {
    int32_t list;       /* which list is filled */
    uint64_t threshold; /* a new candidate's key is above this */
};

static __device__ void sieve_reset(struct block_state *b, struct sieve *v)
{
    if (threadIdx.x == 0) {
        b->list[0].n = 0;
        b->counts.n_nan = b->counts.n_posinf = b->counts.n_neginf = 0;
        b->counts.first_bad = INT32_MAX;
    }
    v->list = 0;
    v->threshold = 0;
    __syncthreads();
}

/* Set the first threshold, cheaply: the least over the warps of each warp's ceil(k / WARPS)-th
 * largest order among its threads' best. At least k values reach it. Every thread calls it. */
static __device__ __forceinline__ void first_threshold(struct block_state *b, struct sieve *v,
                                                       uint32_t own, int32_t k)
{
    uint32_t order = 0;
    for (int32_t i = 0; i < k; i += WARPS) {
        order = __reduce_max_sync(~0u, own);
        const uint32_t holders = __ballot_sync(~0u, own == order);
        if (__ffs(holders) - 1 == (int32_t)threadIdx.x % 32)
            own = 0;
    }
    if (threadIdx.x % 32 == 0)
        b->warp_order[threadIdx.x / 32] = order;
    __syncthreads();
    order = __reduce_min_sync(~0u, b->warp_order[threadIdx.x % WARPS]);
    v->threshold = (uint64_t)order << 32; /* below every key of this order */
}

/* Keep the k best, sorted, and raise the threshold to the k-th. Four threads count the rank of one
 * candidate. Every thread calls it, after a barrier. */
static __device__ __noinline__ struct sieve select_best(struct block_state *b, struct sieve v,
                                                        int32_t k)
{
    const struct list *from = &b->list[v.list];
    struct list *to = &b->list[v.list ^ 1];
    const int32_t n = min(from->n, LIST_LEN), quarter = threadIdx.x % 4;
    for (int32_t base = 0; base < n; base += THREADS / 4) {
        const int32_t i = base + threadIdx.x / 4;
        const uint64_t key = i < n ? from->key[i] : 0;
        int32_t rank = 0;
#pragma unroll 4
        for (int32_t j = 2 * quarter; j < n; j += 8) {
            const ulonglong2 two = *(const ulonglong2 *)(from->key + j);
            rank += (two.x > key) + (j + 1 < n && two.y > key);
        }
        rank += __shfl_xor_sync(~0u, rank, 1);
        rank += __shfl_xor_sync(~0u, rank, 2);
        if (i < n && quarter == 0 && rank < k) {
            to->key[rank] = key;
            if (rank == k - 1)
                b->kth = key;
        }
    }
    if (threadIdx.x == 0)
        to->n = min(n, k);
    __syncthreads();
    v.list ^= 1;
    if (n >= k)
        v.threshold = max(v.threshold, b->kth);
    return v;
}

/* Reserve n places on a list; the first one. Those from LIST_LEN on do not exist. */
static __device__ __forceinline__ int32_t list_reserve(struct list *list, int32_t n)
{
    return atomicAdd(&list->n, n);
}

/* Put the keys above the threshold on the list, and sort it out when it is long. `own` is the order
 * of this thread's best value; items.put(list, threshold) puts the thread's keys and returns where
 * they end. Every thread calls it. */
template <class ITEMS>
static __device__ __forceinline__ void offer(struct block_state *b, struct sieve *v, int32_t k,
                                             uint32_t own, const ITEMS &items)
{
    struct list *list = &b->list[v->list];
    const int32_t held = list->n;
    __syncthreads();
    for (;;) {
        int32_t end = 0;
        if (own && own >= (uint32_t)(v->threshold >> 32))
            end = items.put(list, v->threshold);
        if (!__syncthreads_or(end > SELECT_AT))
            return;
        const bool fits = list->n <= LIST_LEN;
        const struct sieve best = select_best(b, *v, k);
        if (fits) {
            *v = best;
            return;
        }
        /* More than fit: the k-th best of those that did bounds the k-th of all. Again, from it on;
         * at least LIST_LEN - k candidates fewer than before. */
        v->threshold = best.threshold - 1;
        if (threadIdx.x == 0)
            list->n = held;
        __syncthreads();
    }
}

/* An element type: how many fit a 16-byte vector, the vectors that a thread loads at a time, its
 * bits, and the float that it stands for. */
template <class T> struct vec;
template <> struct vec<float> {
    enum { n = 4, n_loads = 4 };
    typedef uint32_t bits;
    static __device__ __forceinline__ float one(uint32_t v)
    {
        return __uint_as_float(v);
    }
    static __device__ __forceinline__ void widen(uint4 v, float *x)
    {
        x[0] = one(v.x), x[1] = one(v.y), x[2] = one(v.z), x[3] = one(v.w);
    }
};

/* Types of 16 bits, two in each word. */
template <class HALF> static __device__ __forceinline__ void widen_halves(uint4 v, float *x)
{
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = HALF::one((uint16_t)(w[i] & 0xffff));
        x[2 * i + 1] = HALF::one((uint16_t)(w[i] >> 16));
    }
}
template <> struct vec<__half> {
    enum { n = 8, n_loads = 2 };
    typedef uint16_t bits;
    static __device__ __forceinline__ float one(uint16_t v)
    {
        return __half2float(__ushort_as_half(v));
    }
    static __device__ __forceinline__ void widen(uint4 v, float *x)
    {
        widen_halves<vec<__half>>(v, x);
    }
};
template <> struct vec<__nv_bfloat16> {
    enum { n = 8, n_loads = 2 };
    typedef uint16_t bits;
    static __device__ __forceinline__ float one(uint16_t v)
    {
        return __uint_as_float((uint32_t)v << 16);
    }
    static __device__ __forceinline__ void widen(uint4 v, float *x)
    {
        widen_halves<vec<__nv_bfloat16>>(v, x);
    }
};

/* 2^x to about 2 ulp, results below 2^-126 are 0. */
static __device__ __forceinline__ float pow2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Running sum of 2^(x log2 e + offset). The offset is a whole number near -max log2 e, so that
 * raising it loses nothing; logits beyond HUGE_LOGIT go by their distance to max instead. */
struct sum_exp {
    float max, offset, sum;
};

static __device__ __forceinline__ void sum_exp_raise(struct sum_exp *s, float max)
{
    if (max > s->max) {
        const float offset = -rintf(max * LOG2E);
        const float by = fabsf(max) < HUGE_LOGIT ? offset - s->offset : (s->max - max) * LOG2E;
        s->sum = s->sum > 0 ? s->sum * pow2(by) : 0;
        s->max = max;
        s->offset = offset;
    }
}

/* Add another sum to this one. */
static __device__ __forceinline__ struct sum_exp sum_exp_add(struct sum_exp s, float max, float sum)
{
    struct sum_exp other = {max, -rintf(max * LOG2E), sum};
    sum_exp_raise(&s, max);
    sum_exp_raise(&other, s.max);
    s.sum += other.sum;
    return s;
}

static __device__ __forceinline__ float sum_exp_log(struct sum_exp s)
{
    if (!(s.sum > 0))
        return -INFINITY;
    return fabsf(s.max) < HUGE_LOGIT ? (log2f(s.sum) - s.offset) * LN2 : s.max + log2f(s.sum) * LN2;
}

/* Elements of a tile as loaded: vector v of thread t covers elements (v * THREADS + t) * n. */
template <class T> struct raw_tile {
    uint4 v[vec<T>::n_loads];
};

/* The values of one tile that a thread holds, and the id of each. */
template <class T> struct tile {
    enum { n = vec<T>::n_loads * vec<T>::n, width = n * THREADS };
    float x[n];
    int32_t first; /* id of x[0]; may be negative */

    __device__ __forceinline__ int32_t id(int i) const
    {
        return first + (i / vec<T>::n) * THREADS * vec<T>::n + i % vec<T>::n;
    }
    /* Bit i set: the key of x[i] is above the threshold. */
    __device__ __forceinline__ uint32_t above(uint64_t threshold) const
    {
        const float least = threshold ? value_of(threshold) : -INFINITY;
        uint32_t mask = 0;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const bool ties = x[i] == least && (uint32_t)~id(i) > (uint32_t)threshold;
            mask |= (uint32_t)(x[i] > least || ties) << i;
        }
        return mask;
    }
    /* The key of x[i] for an index known only at run time. */
    __device__ __forceinline__ uint64_t key(int i) const
    {
        float value = x[0];
#pragma unroll
        for (int j = 1; j < n; j++)
            value = i == j ? x[j] : value;
        return key_of(value, id(i));
    }
};

/* Start loading the tile whose element 0 has id `base`; ids outside the row read as NaN. Element
 * `base` stands at a multiple of 16 bytes. */
template <class T>
static __device__ __forceinline__ void tile_load(struct raw_tile<T> *raw, const T *row,
                                                 int32_t n_vocab, int32_t base)
{
    typedef typename vec<T>::bits bits;
    const int32_t first = base + (int32_t)threadIdx.x * vec<T>::n;
    if (base >= 0 && base <= n_vocab - tile<T>::width) {
#pragma unroll
        for (int i = 0; i < vec<T>::n_loads; i++)
            raw->v[i] = __ldcs((const uint4 *)(row + first + i * THREADS * vec<T>::n));
        return;
    }
#pragma unroll
    for (int i = 0; i < vec<T>::n_loads; i++) {
        union {
            uint4 v;
            bits e[vec<T>::n];
        } u;
#pragma unroll
        for (int j = 0; j < vec<T>::n; j++) {
            const int32_t id = first + i * THREADS * vec<T>::n + j;
            u.e[j] = id >= 0 && id < n_vocab ? ((const bits *)row)[id] : (bits)((bits)~0u >> 1);
        }
        raw->v[i] = u.v;
    }
}

template <class T>
static __device__ __forceinline__ void tile_widen(struct tile<T> *t, const struct raw_tile<T> *raw,
                                                  int32_t base)
{
    t->first = base + (int32_t)threadIdx.x * vec<T>::n;
#pragma unroll
    for (int i = 0; i < vec<T>::n_loads; i++)
        vec<T>::widen(raw->v[i], t->x + i * vec<T>::n);
}

/* Read a tile again and put this thread's keys above the threshold on the list; where they end. */
template <class T>
static __device__ __noinline__ int32_t tile_put(const T *row, int32_t n_vocab, int32_t base,
                                                struct list *list, uint64_t threshold)
{
    struct raw_tile<T> raw;
    struct tile<T> t;
    tile_load(&raw, row, n_vocab, base);
    tile_widen(&t, &raw, base);
    uint32_t left = t.above(threshold);
    if (!left)
        return 0;
    int32_t at = list_reserve(list, __popc(left));
    const int32_t end = at + __popc(left);
    for (; left && at < LIST_LEN; left &= left - 1)
        list->key[at++] = t.key(__ffs(left) - 1);
    return end;
}

/* A run of tiles that was read once; best[i] has the order of every thread's best in tile i. */
template <class T> struct tile_run {
    const T *row;
    int32_t n_vocab, base, n_tiles;
    const uint32_t (*best)[THREADS];

    __device__ __forceinline__ int32_t put(struct list *list, uint64_t threshold) const
    {
        int32_t end = 0;
        for (int32_t i = 0; i < n_tiles; i++) {
            const uint32_t own = best[i][threadIdx.x];
            if (own && own >= (uint32_t)(threshold >> 32))
                end = max(end, tile_put(row, n_vocab, base + i * tile<T>::width, list, threshold));
        }
        return end;
    }
};

static __device__ __forceinline__ bool is_finite(float x)
{
    return fabsf(x) <= 3.402823466e+38f;
}

/* Count what is not finite in a tile; ids outside the row do not count. */
template <class T>
static __device__ __forceinline__ void tile_count(const struct tile<T> *t, int32_t n_vocab,
                                                  struct counts *c)
{
#pragma unroll
    for (int i = 0; i < tile<T>::n; i++) {
        const float x = t->x[i];
        const int32_t id = t->id(i);
        if (id < 0 || id >= n_vocab || is_finite(x))
            continue;
        c->n_nan += x != x;
        c->n_posinf += x > 0;
        c->n_neginf += x < 0;
        if (!(x < 0))
            c->first_bad = min(c->first_bad, id);
    }
}

/* Add the counts of every thread to the block's. */
static __device__ void counts_add(struct counts *sum, const struct counts *c)
{
    if (c->n_nan)
        atomicAdd(&sum->n_nan, c->n_nan);
    if (c->n_posinf)
        atomicAdd(&sum->n_posinf, c->n_posinf);
    if (c->n_neginf)
        atomicAdd(&sum->n_neginf, c->n_neginf);
    if (c->first_bad != INT32_MAX)
        atomicMin(&sum->first_bad, c->first_bad);
}

/* Add a tile to the running sum; NaN and infinities are left out (the caller counts them). */
template <class T>
static __device__ __forceinline__ void tile_sum(const struct tile<T> *t, float max, bool finite,
                                                struct sum_exp *s)
{
    if (finite && fabsf(max) < HUGE_LOGIT) {
        sum_exp_raise(s, max);
#pragma unroll
        for (int i = 0; i < tile<T>::n; i++)
            s->sum += pow2(fmaf(t->x[i], LOG2E, s->offset));
        return;
    }
    float m = -INFINITY;
#pragma unroll
    for (int i = 0; i < tile<T>::n; i++)
        if (is_finite(t->x[i]))
            m = fmaxf(m, t->x[i]);
    sum_exp_raise(s, m);
    const bool is_huge = !(fabsf(s->max) < HUGE_LOGIT);
#pragma unroll
    for (int i = 0; i < tile<T>::n; i++)
        if (is_finite(t->x[i]))
            s->sum += pow2(is_huge ? (t->x[i] - s->max) * LOG2E : fmaf(t->x[i], LOG2E, s->offset));
}

/* Gather the threads' sums by warp, and their counts; block_sum may be called after a barrier. */
static __device__ void block_gather(struct block_state *b, struct sum_exp s, const struct counts *c)
{
    float max = s.max;
    for (int d = 16; d; d >>= 1)
        max = fmaxf(max, __shfl_xor_sync(~0u, max, d));
    sum_exp_raise(&s, max);
    for (int d = 16; d; d >>= 1)
        s.sum += __shfl_xor_sync(~0u, s.sum, d);
    if (threadIdx.x % 32 == 0) {
        b->warp_max[threadIdx.x / 32] = s.max;
        b->warp_sum[threadIdx.x / 32] = s.sum;
    }
    counts_add(&b->counts, c);
}

/* The sum over the warps, in the same order every time. */
static __device__ struct sum_exp block_sum(const struct block_state *b)
{
    struct sum_exp s = {-INFINITY, 0, 0};
    for (int w = 0; w < WARPS; w++)
        s = sum_exp_add(s, b->warp_max[w], b->warp_sum[w]);
    return s;
}

/* Take a tile into the sum and the counts; the order of this thread's best value. */
template <class T>
static __device__ __forceinline__ uint32_t tile_take(const struct raw_tile<T> *raw, int32_t n_vocab,
                                                     int32_t base, struct sum_exp *s,
                                                     struct counts *c)
{
    struct tile<T> t;
    tile_widen(&t, raw, base);
    float max = t.x[0], zero = 0.0f * t.x[0];
#pragma unroll
    for (int i = 1; i < tile<T>::n; i++) {
        max = fmaxf(max, t.x[i]);
        zero = fmaf(t.x[i], 0.0f, zero);
    }
    const bool finite = zero == 0.0f;
    if (!finite)
        tile_count(&t, n_vocab, c);
    tile_sum(&t, max, finite, s);
    return order_of(max);
}

/* Reduce this block's share of the row: its k best end on the sieve's list, its sum and its counts
 * in *b. */
template <class T>
static __device__ void scan_share(const struct capture_cuda_args &a, const T *row,
                                  struct block_state *b, struct sieve *v)
{
    const int32_t width = tile<T>::width;
    const int32_t misaligned = (int32_t)(((uintptr_t)row & 15) / sizeof(T));
    const int32_t n_tiles = (a.n_vocab + misaligned + width - 1) / width;
    const int32_t begin = (int32_t)((int64_t)n_tiles * blockIdx.x / gridDim.x);
    const int32_t end = (int32_t)((int64_t)n_tiles * (blockIdx.x + 1) / gridDim.x);
    struct counts c = {0, 0, 0, INT32_MAX};
    struct sum_exp s = {-INFINITY, 0, 0};
    struct raw_tile<T> raw, next;
    if (begin < end)
        tile_load(&next, row, a.n_vocab, begin * width - misaligned);
    sieve_reset(b, v);
    for (int32_t i = begin; i < end; i += RUN) {
        const int32_t n = min(RUN, end - i);
        uint32_t own = 0;
        for (int32_t j = 0; j < n; j++) {
            const int32_t base = (i + j) * width - misaligned;
            raw = next;
            if (i + j + 1 < end) /* in flight while this one is worked on */
                tile_load(&next, row, a.n_vocab, base + width);
            const uint32_t best = tile_take(&raw, a.n_vocab, base, &s, &c);
            b->best[j][threadIdx.x] = best;
            own = max(own, best);
        }
        if (i == begin)
            first_threshold(b, v, own, a.k);
        const struct tile_run<T> run = {
            row, a.n_vocab, i *width - misaligned, n, b->best
        };
        offer(b, v, a.k, own, run);
    }
    block_gather(b, s, &c);
    __syncthreads();
    *v = select_best(b, *v, a.k);
}

/* The keys that a thread takes from the lists of a row's blocks. */
struct share_keys {
    enum { n = CAPTURE_CUDA_SPLITS * CAPTURE_CUDA_MAX_K / THREADS };
    uint64_t keys[n];

    __device__ __forceinline__ int32_t put(struct list *list, uint64_t threshold) const
    {
        int32_t count = 0;
#pragma unroll
        for (int i = 0; i < n; i++)
            count += keys[i] > threshold;
        if (!count)
            return 0;
        int32_t at = list_reserve(list, count);
        const int32_t end = at + count;
#pragma unroll
        for (int i = 0; i < n; i++)
            if (keys[i] > threshold && at < LIST_LEN)
                list->key[at++] = keys[i];
        return end;
    }
};

/* Leave this block's result for the row's last block. Returns whether this is the last. */
static __device__ bool hand_over(const struct capture_cuda_args &a, struct block_state *b,
                                 const struct sieve *v)
{
    struct capture_cuda_partials *p = a.partials + blockIdx.y;
    const struct list *list = &b->list[v->list];
    const int32_t t = threadIdx.x, column = blockIdx.x;
    if (t < a.k)
        p->top[t][column] = t < list->n ? list->key[t] : 0;
    if (t == 96) {
        const struct sum_exp s = block_sum(b);
        p->sum[column] = s.sum, p->max[column] = s.max;
        p->n_nan[column] = b->counts.n_nan, p->n_posinf[column] = b->counts.n_posinf;
        p->n_neginf[column] = b->counts.n_neginf, p->first_bad[column] = b->counts.first_bad;
    }
    __syncthreads();
    if (t == 0) {
        __threadfence(); /* of the whole block's writes, which the barrier ordered before it */
        b->is_last = atomicInc(a.arrived + blockIdx.y, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return b->is_last;
}

/* Take in what all blocks of this row left: the row's result replaces the block's. Every warp takes
 * a share of the lists from their best keys on, so that first_threshold finds a good one. */
static __device__ void take_in(const struct capture_cuda_args &a, struct block_state *b,
                               struct sieve *v)
{
    const struct capture_cuda_partials *p = a.partials + blockIdx.y;
    const int32_t n_lists = gridDim.x, n_columns = 2 << (31 - __clz(n_lists - 1));
    const int32_t place = threadIdx.x % 32 * WARPS + threadIdx.x / 32;
    const int32_t column = place & (n_columns - 1), n_ranks = THREADS / n_columns;
    struct share_keys items;
    uint64_t own = 0;
#pragma unroll
    for (int i = 0; i < share_keys::n; i++) {
        const int32_t rank = i * n_ranks + place / n_columns;
        items.keys[i] = column < n_lists && rank < a.k
                            ? __ldcg((const unsigned long long *)&p->top[rank][column])
                            : 0;
        own = max(own, items.keys[i]);
    }
    struct sum_exp s = {-INFINITY, 0, 0};
    struct counts c = {0, 0, 0, INT32_MAX};
    if (place < n_lists) {
        s = sum_exp_add(s, __ldcg(&p->max[column]), __ldcg(&p->sum[column]));
        c.n_nan = __ldcg(&p->n_nan[column]), c.n_posinf = __ldcg(&p->n_posinf[column]);
        c.n_neginf = __ldcg(&p->n_neginf[column]), c.first_bad = __ldcg(&p->first_bad[column]);
    }
    sieve_reset(b, v);
    block_gather(b, s, &c);
    first_threshold(b, v, (uint32_t)(own >> 32), a.k);
    offer(b, v, a.k, (uint32_t)(own >> 32), items);
    __syncthreads();
    *v = select_best(b, *v, a.k);
}

/* Where a replay's result for this block's row goes. */
static __device__ __forceinline__ struct capture_cuda_row *
slot_of(const struct capture_cuda_args &a, uint32_t replay)
{
    return a.rows + (int64_t)(replay % (uint32_t)a.n_slots) * gridDim.y + blockIdx.y;
}

/* Write the row's result; the host may read it once `done` is set. */
template <class T>
static __device__ void write_row(const struct capture_cuda_args &a, const T *row,
                                 struct block_state *b, const struct sieve *v)
{
    typedef typename vec<T>::bits bits;
    const bits *elements = (const bits *)row;
    const int32_t t = threadIdx.x;
    if (a.replays && t == 0) {
        b->replay = a.replays[blockIdx.y]++;
        *(volatile uint32_t *)&slot_of(a, b->replay)->done = 0; /* it may be read at this moment */
        __threadfence_system();
    }
    if (a.replays)
        __syncthreads();
    const uint32_t replay = a.replays ? b->replay : 0;
    struct capture_cuda_row *out = slot_of(a, replay);
    const struct list *list = &b->list[v->list];
    if (t < a.k) {
        const int32_t id = t < list->n ? id_of(list->key[t]) : -1;
        float logit = id >= 0 ? value_of(list->key[t]) : __int_as_float(0x7fc00000);
        if (logit == 0) /* the key has lost the sign of zero */
            logit = vec<T>::one(elements[id]);
        out->token[t] = id;
        out->logit[t] = logit;
    }
    if (t >= 64 && t - 64 < a.n_watch) {
        const int32_t id = a.watch[(int64_t)blockIdx.y * a.n_watch + t - 64];
        out->watch[t - 64] =
            id >= 0 && id < a.n_vocab ? vec<T>::one(elements[id]) : __int_as_float(0x7fc00000);
    }
    if (t == 128) {
        out->lse = b->counts.n_posinf ? INFINITY : sum_exp_log(block_sum(b));
        out->n_nan = b->counts.n_nan, out->n_posinf = b->counts.n_posinf;
        out->n_neginf = b->counts.n_neginf;
        out->first_bad = b->counts.first_bad == INT32_MAX ? -1 : b->counts.first_bad;
        out->row = (int32_t)blockIdx.y;
        out->launch = a.launch;
    }
    __syncthreads();
    if (t == 0) {
        __threadfence_system();
        *(volatile uint32_t *)&out->done = replay + 1;
    }
}

template <class T> static __device__ void capture(const struct capture_cuda_args &a)
{
    __shared__ struct block_state b;
    const T *row = (const T *)a.data + (int64_t)blockIdx.y * a.row_stride;
    struct sieve v;
    scan_share(a, row, &b, &v);
    if (gridDim.x > 1) {
        if (!hand_over(a, &b, &v))
            return;
        take_in(a, &b, &v);
    }
    write_row(a, row, &b, &v);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    probe_capture_f32(const __grid_constant__ struct capture_cuda_args a)
{
    capture<float>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    probe_capture_f16(const __grid_constant__ struct capture_cuda_args a)
{
    capture<__half>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    probe_capture_bf16(const __grid_constant__ struct capture_cuda_args a)
{
    capture<__nv_bfloat16>(a);
}
