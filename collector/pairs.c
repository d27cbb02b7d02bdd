#include "config.h"

#include "collector/pairs_int.h"
#include "collector/xalloc.h"

#include <assert.h>
#include <math.h>

/* A contrast against a masked logit is infinite; a number this large says as much and adds up. */
static const double LARGEST_CONTRAST = 1e30;

/* What one row says, before it is stored. */
struct reduced {
    double margin, contrast, peak;
    uint8_t flags;
    bool flip;
    struct pair_flip detail;
};

struct pairs *pairs_new(const char *const *tag_names, int n_tags)
{
    assert(n_tags >= 0 && n_tags <= PAIR_MAX_TAGS);
    struct pairs *pairs = xcalloc(1, sizeof *pairs);
    for (int i = 0; i < n_tags; i++)
        pairs->tag_names[i] = xstrdup(tag_names[i]);
    pairs->n_tags = n_tags;
    pairs->wheres.item_size = sizeof(struct pair_where);
    return pairs;
}

void pairs_free(struct pairs *pairs)
{
    if (!pairs)
        return;
    for (int i = 0; i < pairs->n_tags; i++)
        free(pairs->tag_names[i]);
    pair_tokens_fini(&pairs->seq_ids);
    pair_tokens_fini(&pairs->ids);
    intern_free(&pairs->wheres);
    void *const columns[] = {
        pairs->seq,       pairs->pos,       pairs->margin,    pairs->contrast, pairs->peak,
        pairs->where,     pairs->offset[0], pairs->offset[1], pairs->flags,    pairs->seq_number,
        pairs->seq_first, pairs->flips,     pairs->kernels,
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        free(columns[i]);
    free(pairs);
}

/* Room for one more element in an array that doubles. */
static void *grow(void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    *cap = *cap ? 2 * *cap : 64;
    return xrealloc(array, *cap, size);
}

void pairs_reserve(struct pairs *pairs, size_t n)
{
    if (n <= pairs->cap)
        return;
    pairs->seq = xrealloc(pairs->seq, n, sizeof *pairs->seq);
    pairs->pos = xrealloc(pairs->pos, n, sizeof *pairs->pos);
    pairs->margin = xrealloc(pairs->margin, n, sizeof *pairs->margin);
    pairs->contrast = xrealloc(pairs->contrast, n, sizeof *pairs->contrast);
    pairs->peak = xrealloc(pairs->peak, n, sizeof *pairs->peak);
    pairs->where = xrealloc(pairs->where, n, sizeof *pairs->where);
    for (int side = 0; side < 2; side++)
        pairs->offset[side] = xrealloc(pairs->offset[side], n, sizeof *pairs->offset[side]);
    pairs->flags = xrealloc(pairs->flags, n, sizeof *pairs->flags);
    pairs->cap = n;
}

double pairs_ulp_bf16(double x)
{
    int exponent;
    frexp(x, &exponent);
    return x == 0 ? 0 : ldexp(1, exponent - 8);
}

double pairs_ulp_f16(double x)
{
    int exponent;
    frexp(x, &exponent);
    return x == 0 ? 0 : ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
}

/* Whether x is a whole multiple of a step that is a power of two. */
static bool on_step(double x, double step)
{
    return step == 0 ? x == 0 : fmod(x, step) == 0;
}

bool pairs_is_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0xffff) == 0;
}

bool pairs_is_f16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    if (exponent > 15 || exponent < -24)
        return x == 0;
    int spare = exponent >= -14 ? 13 : -1 - exponent; /* mantissa bits that a half lacks */
    return (bits & ((1u << spare) - 1)) == 0;
}

/* A step as small as this is no grid, and need not be followed further. */
static const double LEAST_STEP = 0x1p-16;

static void note_gap(struct pair_grid *grid, float gap)
{
    if (gap == 0 || !isfinite(gap) || (grid->step > 0 && grid->step < LEAST_STEP))
        return;
    double step = grid->step > 0 ? grid->step : ldexp(1, 30);
    while (!on_step(gap, step))
        step /= 2;
    grid->step = step;
    for (int i = 0; i < grid->n_gaps; i++)
        if (grid->gaps[i] == gap)
            return;
    if (grid->n_gaps < (int)(sizeof grid->gaps / sizeof *grid->gaps))
        grid->gaps[grid->n_gaps++] = gap;
}

static void note_grid(struct pair_grid *grid, const struct pair_side *side)
{
    for (int i = 0; i < side->n_topk; i++) {
        float logit = side->topk[i].logit;
        if (!isfinite(logit))
            continue;
        grid->n_logits++;
        grid->n_off_bf16 += !pairs_is_bf16(logit);
        grid->n_off_f16 += !pairs_is_f16(logit);
        grid->max_abs = fmax(grid->max_abs, fabsf(logit));
        note_gap(grid, side->topk[0].logit - logit);
    }
    grid->n_rows++;
    grid->sum_ulp_bf16 += pairs_ulp_bf16(side->topk[0].logit);
}

struct pair_known pair_find(const struct pair_side *side, int32_t token)
{
    for (int i = 0; i < side->n_topk; i++)
        if (side->topk[i].token == token)
            return (struct pair_known){side->topk[i].logit, true};
    for (int i = 0; i < side->n_extra; i++)
        if (side->extra[i].token == token)
            return (struct pair_known){side->extra[i].logit, true};
    return (struct pair_known){side->topk[side->n_topk - 1].logit, false};
}

/* high - low, where two masked logits are equally masked. */
static double gap(double high, double low)
{
    if (high == low)
        return 0;
    return fmax(-LARGEST_CONTRAST, fmin(LARGEST_CONTRAST, high - low));
}

/* The runner-up's contrast: exact, or the smallest size that the bounds allow. */
static double runner_up_contrast(const struct pair_row *row, double margin, bool *bounded)
{
    struct pair_known b_i = pair_find(&row->b, row->a.topk[0].token);
    struct pair_known b_v = pair_find(&row->b, row->a.topk[1].token);
    double x = margin + gap(b_v.value, b_i.value);
    x = fmax(-LARGEST_CONTRAST, fmin(LARGEST_CONTRAST, x));
    *bounded = !b_i.exact || !b_v.exact;
    if (!b_i.exact && !b_v.exact)
        return 0;
    if (!b_i.exact)
        return fmax(x, 0);
    return b_v.exact ? x : fmin(x, 0);
}

static void reduce_flip(const struct pair_row *row, struct reduced *out)
{
    const struct pair_side *a = &row->a, *b = &row->b;
    struct pair_known a_j = pair_find(a, b->topk[0].token), b_i = pair_find(b, a->topk[0].token);
    double gap_a = gap(a->topk[0].logit, a_j.value), gap_b = gap(b->topk[0].logit, b_i.value);
    out->flip = true;
    out->flags |= PAIR_FLIPPED;
    out->peak = fmax(out->peak, gap_a + gap_b);
    if (!b_i.exact) /* nothing is known of the runner-up's contrast; what B chose moved by this */
        out->contrast = gap_a + gap_b;
    out->detail = (struct pair_flip){
        .token_a = a->topk[0].token,
        .token_b = b->topk[0].token,
        .a_i = a->topk[0].logit,
        .a_j = a_j.exact ? (float)a_j.value : NAN,
        .b_i = b_i.exact ? (float)b_i.value : NAN,
        .b_j = b->topk[0].logit,
        .gap_a = (float)gap_a,
        .gap_b = (float)gap_b,
        .contrast = (float)(gap_a + gap_b),
        .bounded = !a_j.exact || !b_i.exact,
    };
}

/* Same argmax, both emitted ids known and different, both as good as the best: the arms break ties
 * by different rules. */
static void reduce_tie_rule(const struct pair_row *row, struct reduced *out)
{
    const struct pair_side *a = &row->a, *b = &row->b;
    if (a->emitted == PAIR_UNKNOWN || b->emitted == PAIR_UNKNOWN || a->emitted == b->emitted)
        return;
    struct pair_known a_e = pair_find(a, a->emitted), b_e = pair_find(b, b->emitted);
    if (!a_e.exact || !b_e.exact || a_e.value != a->topk[0].logit || b_e.value != b->topk[0].logit)
        return;
    out->flip = true;
    out->detail = (struct pair_flip){
        .token_a = a->emitted,
        .token_b = b->emitted,
        .a_i = a->topk[0].logit,
        .a_j = (float)pair_find(a, b->emitted).value,
        .b_i = (float)pair_find(b, a->emitted).value,
        .b_j = b->topk[0].logit,
        .emitted_only = true,
    };
    out->detail.gap_a = out->detail.a_i - out->detail.a_j;
    out->detail.gap_b = out->detail.b_j - out->detail.b_i;
    out->detail.contrast = out->detail.gap_a + out->detail.gap_b;
}

/* Bit-equal as far as the lists show. */
static bool lists_equal(const struct pair_side *a, const struct pair_side *b)
{
    if (a->n_topk != b->n_topk)
        return false;
    for (int i = 0; i < a->n_topk; i++)
        if (a->topk[i].token != b->topk[i].token || a->topk[i].logit != b->topk[i].logit)
            return false;
    return true;
}

static void reduce(const struct pair_row *row, struct reduced *out)
{
    const struct pair_side *a = &row->a, *b = &row->b;
    bool bounded;
    *out = (struct reduced){.margin = gap(a->topk[0].logit, a->topk[1].logit)};
    out->contrast = runner_up_contrast(row, out->margin, &bounded);
    out->peak = fabs(out->contrast);
    if (row->bit_equal == PAIR_UNKNOWN ? lists_equal(a, b) : row->bit_equal)
        out->flags |= PAIR_EQUAL;
    if (bounded)
        out->flags |= PAIR_BOUNDED;
    if (a->topk[1].token < a->topk[0].token)
        out->flags |= PAIR_LOWER;
    int32_t list_a = a->place.kernel_list, list_b = b->place.kernel_list;
    if (list_a != PAIR_UNKNOWN && list_b != PAIR_UNKNOWN)
        out->flags |= list_a == list_b ? PAIR_SAME_LIST : PAIR_KERNELS;
    if (a->topk[0].token != b->topk[0].token)
        reduce_flip(row, out);
    else
        reduce_tie_rule(row, out);
}

static int check_side(const struct pair_row *row, const struct pair_side *side, struct err *err)
{
    long long seq = row->seq;
    if (side->n_nan || side->n_posinf || !side->n_topk)
        return 0; /* the row is counted as not finite, its list is not read */
    if (side->n_topk < 2)
        return err_set(err, "sequence %lld, position %d: a list of 1 logit, at least 2 needed", seq,
                       row->pos);
    for (int i = 0; i < side->n_topk; i++) {
        if (isnan(side->topk[i].logit))
            return err_set(err, "sequence %lld, position %d: NaN at place %d of a list", seq,
                           row->pos, i);
        if (i > 0 && side->topk[i].logit > side->topk[i - 1].logit)
            return err_set(err, "sequence %lld, position %d: logit %g at place %d after %g", seq,
                           row->pos, (double)side->topk[i].logit, i,
                           (double)side->topk[i - 1].logit);
    }
    return 0;
}

static bool side_is_finite(const struct pair_side *side)
{
    return !side->n_nan && !side->n_posinf && side->n_topk && isfinite(side->topk[0].logit);
}

static void note_nonfinite(struct pairs *pairs, const struct pair_row *row, bool a_ok, bool b_ok)
{
    const struct pair_side *bad = a_ok ? &row->b : &row->a;
    pairs->n_nonfinite[0] += !a_ok;
    pairs->n_nonfinite[1] += !b_ok;
    if (pairs->n_nonfinite_rows++)
        return;
    pairs->nonfinite = (struct pair_fault){
        .seq = row->seq,
        .pos = row->pos,
        .side = a_ok   ? 1
                : b_ok ? 0
                       : 2,
        .n_nan = bad->n_nan,
        .n_posinf = bad->n_posinf,
        .first_bad = bad->first_bad,
        .emitted = bad->emitted,
        .argmax = PAIR_UNKNOWN,
    };
}

/* Whether the sampler's choice is the best logit, ties with it, or is another. */
static void note_emitted(struct pairs *pairs, const struct pair_row *row, int side_index)
{
    const struct pair_side *side = side_index ? &row->b : &row->a;
    if (side->emitted == PAIR_UNKNOWN || side->emitted == side->topk[0].token)
        return;
    struct pair_known chosen = pair_find(side, side->emitted);
    if (chosen.exact && chosen.value == side->topk[0].logit) {
        pairs->n_tie_rule++;
        return;
    }
    if (pairs->n_mismatch++)
        return;
    pairs->mismatch = (struct pair_fault){
        .seq = row->seq,
        .pos = row->pos,
        .side = side_index,
        .first_bad = PAIR_UNKNOWN,
        .emitted = side->emitted,
        .argmax = side->topk[0].token,
    };
}

/* The sequence's index; a number other than the last row's begins a new one. */
static uint32_t enter_sequence(struct pairs *pairs, int64_t seq)
{
    if (pairs->n_seqs && pairs->seq_number[pairs->n_seqs - 1] == seq)
        return (uint32_t)pairs->n_seqs - 1;
    pairs_close(pairs);
    size_t cap = pairs->cap_seqs;
    pairs->seq_number =
        grow(pairs->seq_number, pairs->n_seqs, &pairs->cap_seqs, sizeof *pairs->seq_number);
    pairs->seq_first = grow(pairs->seq_first, pairs->n_seqs, &cap, sizeof *pairs->seq_first);
    pairs->seq_number[pairs->n_seqs] = seq;
    pairs->seq_first[pairs->n_seqs] = pairs->n;
    return (uint32_t)pairs->n_seqs++;
}

static uint32_t where_of(struct pairs *pairs, const struct pair_row *row)
{
    struct pair_where where = {.a = row->a.place, .b = row->b.place};
    where.a.n_past = where.b.n_past = PAIR_UNKNOWN;
    for (int i = 0; i < PAIR_MAX_TAGS; i++)
        where.tags[i] = row->tags && i < pairs->n_tags ? row->tags[i] : PAIR_UNKNOWN;
    return intern_number(&pairs->wheres, &where); /* no padding: all members are int32_t */
}

/* The row's place in its forward, where the forward has one sequence. */
static int32_t offset_of(const struct pair_row *row, const struct pair_place *place)
{
    if (place->n_past == PAIR_UNKNOWN || place->n_seqs > 1 || row->pos < place->n_past)
        return PAIR_UNKNOWN;
    return row->pos - place->n_past;
}

static void store(struct pairs *pairs, const struct pair_row *row, const struct reduced *reduced)
{
    size_t n = pairs->n;
    if (n == pairs->cap)
        pairs_reserve(pairs, n ? n + n / 2 : 256);
    pairs->seq[n] = enter_sequence(pairs, row->repeat ? row->first_seq : row->seq);
    pairs->pos[n] = row->pos;
    pairs->margin[n] = (float)reduced->margin;
    pairs->contrast[n] = (float)reduced->contrast;
    pairs->peak[n] = (float)reduced->peak;
    pairs->where[n] = where_of(pairs, row);
    pairs->offset[0][n] = offset_of(row, &row->a.place);
    pairs->offset[1][n] = offset_of(row, &row->b.place);
    pairs->flags[n] = (uint8_t)(reduced->flags | (row->repeat ? PAIR_REPEAT : 0));
    pairs->n_repeats += row->repeat;
    pairs->n_equal += (reduced->flags & PAIR_EQUAL) != 0;
    pairs->n++;
    if (!reduced->flip)
        return;
    pairs->flips = grow(pairs->flips, pairs->n_flips, &pairs->cap_flips, sizeof *pairs->flips);
    struct pair_flip *flip = &pairs->flips[pairs->n_flips++];
    *flip = reduced->detail;
    flip->seq = row->seq;
    flip->pos = row->pos;
    flip->margin_a = (float)reduced->margin;
    flip->margin_b = (float)gap(row->b.topk[0].logit, row->b.topk[1].logit);
    flip->row = n;
}

int pairs_add(struct pairs *pairs, const struct pair_row *row, struct err *err)
{
    if (!row->comparable) {
        pairs->n_refused++;
        return 0;
    }
    if (check_side(row, &row->a, err) || check_side(row, &row->b, err))
        return -1;
    bool a_ok = side_is_finite(&row->a), b_ok = side_is_finite(&row->b);
    if (a_ok)
        note_emitted(pairs, row, 0);
    if (b_ok)
        note_emitted(pairs, row, 1);
    if (!a_ok || !b_ok) {
        note_nonfinite(pairs, row, a_ok, b_ok);
        return 0;
    }
    struct reduced reduced;
    reduce(row, &reduced);
    store(pairs, row, &reduced);
    note_grid(&pairs->grid[0], &row->a);
    note_grid(&pairs->grid[1], &row->b);
    if (!(reduced.flags & PAIR_EQUAL) && !row->repeat)
        pairs_add_ids(pairs, row);
    return 0;
}

void pairs_kernel_list(struct pairs *pairs, int32_t kernel_list, const int32_t *configs, int n)
{
    for (int i = 0; i < n; i++) {
        pairs->kernels =
            grow(pairs->kernels, pairs->n_kernels, &pairs->cap_kernels, sizeof *pairs->kernels);
        pairs->kernels[pairs->n_kernels++] = (struct pair_kernel){kernel_list, configs[i]};
    }
}

size_t pairs_seq_end(const struct pairs *pairs, size_t s)
{
    return s + 1 < pairs->n_seqs ? pairs->seq_first[s + 1] : pairs->n;
}

size_t pairs_n_rows(const struct pairs *pairs)
{
    return pairs->n;
}

size_t pairs_n_sequences(const struct pairs *pairs)
{
    return pairs->n_seqs;
}

size_t pairs_n_refused(const struct pairs *pairs)
{
    return pairs->n_refused;
}

size_t pairs_n_bit_equal(const struct pairs *pairs)
{
    return pairs->n_equal;
}

size_t pairs_n_nonfinite(const struct pairs *pairs)
{
    return pairs->n_nonfinite_rows;
}

size_t pairs_flips(const struct pairs *pairs, const struct pair_flip **out)
{
    *out = pairs->flips;
    return pairs->n_flips;
}
