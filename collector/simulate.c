#include "config.h"

#include "collector/simulate.h"
#include "collector/stat_dist.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BIASED_ID = 7, /* of DEFECT_ID: one list in thirty holds it */
    BIASED_EVERY = 30
};

const struct simulate_named simulate_noises[NOISE_N] = {
    [NOISE_NORMAL] = {"normal", "normal", 0},
    [NOISE_T4] = {"t4", "t with 4 degrees of freedom", 0},
    [NOISE_POSITION] = {"position", "scale log-normal over positions", 0},
    [NOISE_SEQUENCE] = {"sequence", "scale log-normal over sequences", 0},
    [NOISE_MEAN] = {"mean", "a mean of each sequence's own", 0},
};

const struct simulate_named simulate_defects[DEFECT_N] = {
    [DEFECT_NONE] = {"none", "clean", 0},
    [DEFECT_ALL] = {"all", "noise of every row times N", 10},
    [DEFECT_HALF] = {"half", "noise of half the rows times N", 30},
    [DEFECT_RARE] = {"rare", "noise of one row in 100 times N", 30},
    [DEFECT_TEMPERATURE] = {"temperature", "temperature raised by N per cent", 1},
    [DEFECT_SHIFT] = {"shift", "runner-up raised by N s", 1},
    [DEFECT_ID] = {"id", "one id raised by N s", 3},
    [DEFECT_BATCH_ROW] = {"batch-row", "noise times N in batch rows above 0", 100},
    [DEFECT_LATE] = {"late", "noise times N from the middle of a sequence", 4},
    [DEFECT_RESIDUE] = {"residue", "noise times N where pos mod 64 = 63", 10},
    [DEFECT_BOUNDARY] = {"boundary", "noise times N in 3 rows after a chunk boundary", 10},
    [DEFECT_SEQUENCE] = {"sequence", "noise times N in one sequence of 8", 10},
    [DEFECT_UBATCH_NAN] = {"ubatch-nan", "noise times N after micro-batch 0, one row NaN", 100},
};

enum simulate_noise simulate_noise_find(const char *name)
{
    int k = 0;
    while (k < NOISE_N && strcmp(simulate_noises[k].name, name))
        k++;
    return (enum simulate_noise)k;
}

enum simulate_defect simulate_defect_find(const char *name)
{
    int k = 0;
    while (k < DEFECT_N && strcmp(simulate_defects[k].name, name))
        k++;
    return (enum simulate_defect)k;
}

void simulate_init(struct simulate *simulate, const struct simulate_options *options)
{
    *simulate = (struct simulate){.options = *options, .seq = -1};
    struct simulate_options *o = &simulate->options;
    o->n_seqs = o->n_seqs ? o->n_seqs : 20;
    o->n_rows = o->n_rows ? o->n_rows : 100;
    o->scale = o->scale > 0 ? o->scale : 0.1;
    o->size = o->size > 0 ? o->size : simulate_defects[o->defect].size;
    o->chunk = o->chunk ? o->chunk : 32;
    o->batch = o->batch ? o->batch : 8;
    simulate->pos = o->n_rows - 1;
    stat_rng_seed(&simulate->rng, o->seed);
}

/* Whether the defect strikes this row with a larger noise. */
static bool row_affected(struct simulate *simulate)
{
    const struct simulate_options *o = &simulate->options;
    int pos = simulate->pos;
    switch (o->defect) {
    case DEFECT_ALL:
        return true;
    case DEFECT_HALF:
        return stat_rng_below(&simulate->rng, 2);
    case DEFECT_RARE:
        return !stat_rng_below(&simulate->rng, 100);
    case DEFECT_BATCH_ROW:
        return simulate->seq % o->batch > 0;
    case DEFECT_LATE:
        return pos >= o->n_rows / 2;
    case DEFECT_RESIDUE:
        return pos % 64 == 63;
    case DEFECT_BOUNDARY:
        return pos >= o->chunk && pos % o->chunk < 3;
    case DEFECT_SEQUENCE:
        return simulate->seq % 8 == 3;
    case DEFECT_UBATCH_NAN:
        return pos >= o->chunk;
    default:
        return false;
    }
}

/* The scale of this row's contrasts. */
static double row_scale(struct simulate *simulate)
{
    double scale = simulate->options.scale * simulate->seq_scale;
    if (simulate->options.noise == NOISE_POSITION)
        scale *= exp(0.5 * stat_rng_normal(&simulate->rng));
    return row_affected(simulate) ? scale * simulate->options.size : scale;
}

/* Noise of one logit of one arm, such that a contrast (four of these) has this scale. */
static double logit_noise(struct simulate *simulate, double scale)
{
    /* 1.4826 times the median size of the sum of four t4 is 2.5295 (of 20 million draws). */
    static const double t4_unit = 1 / 2.5295;
    if (simulate->options.noise == NOISE_T4)
        return scale * t4_unit * stat_rng_t4(&simulate->rng);
    return scale / 2 * stat_rng_normal(&simulate->rng);
}

static float round_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A new sequence: what its rows share. */
static void begin_sequence(struct simulate *simulate)
{
    const struct simulate_options *o = &simulate->options;
    simulate->seq++;
    simulate->pos = 0;
    simulate->seq_scale =
        o->noise == NOISE_SEQUENCE ? exp(0.5 * stat_rng_normal(&simulate->rng)) : 1;
    simulate->seq_mean = 0;
    if (o->noise == NOISE_MEAN)
        simulate->seq_mean = o->scale / 2 * stat_rng_normal(&simulate->rng);
    double share = o->equal_share * stat_rng_uniform(&simulate->rng);
    simulate->equal_until = (int)(share * o->n_rows);
}

/* Ids of the candidates, all different, and their hidden logits, best first. */
static void draw_hidden(struct simulate *simulate, int32_t *tokens, double *logits)
{
    struct stat_rng *rng = &simulate->rng;
    logits[0] = 20 + 3 * stat_rng_normal(rng);
    for (int k = 0; k < SIMULATE_TOPK; k++) {
        if (k > 0)
            logits[k] = logits[k - 1] + log(stat_rng_uniform(rng)) * (k == 1 ? 10 : 1.5);
        bool again = true;
        while (again) {
            tokens[k] = (int32_t)stat_rng_below(rng, SIMULATE_VOCAB);
            again = tokens[k] == BIASED_ID;
            for (int j = 0; j < k && !again; j++)
                again = tokens[j] == tokens[k];
        }
    }
    if (!stat_rng_below(rng, BIASED_EVERY))
        tokens[stat_rng_below(rng, SIMULATE_TOPK)] = BIASED_ID;
}

static int compare_logit(const void *a, const void *b)
{
    const struct pair_logit *x = a, *y = b;
    if (x->logit != y->logit)
        return (x->logit < y->logit) - (x->logit > y->logit);
    return (x->token > y->token) - (x->token < y->token);
}

/* What a defect other than a larger noise does to B's logit k. */
static double defect_logit(const struct simulate_options *o, double logit, int k, int32_t token)
{
    if (o->defect == DEFECT_TEMPERATURE)
        return logit / (1 + o->size / 100);
    if (o->defect == DEFECT_SHIFT && k == 1)
        return logit + o->size * o->scale;
    if (o->defect == DEFECT_ID && token == BIASED_ID)
        return logit + o->size * o->scale;
    return logit;
}

static void draw_lists(struct simulate *simulate)
{
    const struct simulate_options *o = &simulate->options;
    int32_t tokens[SIMULATE_TOPK];
    double hidden[SIMULATE_TOPK], scale = row_scale(simulate);
    double shift = 3 * o->scale * stat_rng_normal(&simulate->rng);
    draw_hidden(simulate, tokens, hidden);
    for (int k = 0; k < SIMULATE_TOPK; k++) {
        double mean = k == 1 ? simulate->seq_mean : 0;
        double a = hidden[k] + logit_noise(simulate, scale);
        double b = hidden[k] + logit_noise(simulate, scale) + shift + mean;
        b = defect_logit(o, b, k, tokens[k]);
        simulate->a[k] = (struct pair_logit){tokens[k], o->bf16 ? round_bf16((float)a) : (float)a};
        simulate->b[k] = (struct pair_logit){tokens[k], o->bf16 ? round_bf16((float)b) : (float)b};
    }
    if (simulate->pos < simulate->equal_until)
        memcpy(simulate->b, simulate->a, sizeof simulate->b);
    qsort(simulate->a, SIMULATE_TOPK, sizeof *simulate->a, compare_logit);
    qsort(simulate->b, SIMULATE_TOPK, sizeof *simulate->b, compare_logit);
}

static void fill_row(struct simulate *simulate, struct pair_row *out)
{
    const struct simulate_options *o = &simulate->options;
    int pos = simulate->pos, start = pos / o->chunk * o->chunk;
    int length = o->n_rows - start < o->chunk ? o->n_rows - start : o->chunk;
    *out = (struct pair_row){
        .seq = simulate->seq,
        .pos = pos,
        .comparable = true,
        .bit_equal = pos < simulate->equal_until,
        .a = {.topk = simulate->a, .n_topk = SIMULATE_TOPK},
        .b = {.topk = simulate->b, .n_topk = SIMULATE_TOPK},
    };
    out->a.first_bad = out->b.first_bad = PAIR_UNKNOWN;
    out->a.emitted = simulate->a[0].token;
    out->b.emitted = simulate->b[0].token;
    out->a.place = (struct pair_place){.phase = 0,
                                       .batch_row = pos - start,
                                       .n_tokens = length,
                                       .n_seqs = 1,
                                       .ubatch_index = start / o->chunk,
                                       .n_ubatch = (o->n_rows + o->chunk - 1) / o->chunk,
                                       .n_past = start,
                                       .kernel_list = PAIR_UNKNOWN};
    out->b.place = (struct pair_place){.phase = 1,
                                       .batch_row = simulate->seq % o->batch,
                                       .n_tokens = o->batch,
                                       .n_seqs = o->batch,
                                       .ubatch_index = 0,
                                       .n_ubatch = 1,
                                       .n_past = pos,
                                       .kernel_list = PAIR_UNKNOWN};
}

bool simulate_row(struct simulate *simulate, struct pair_row *out)
{
    const struct simulate_options *o = &simulate->options;
    if (++simulate->pos >= o->n_rows) {
        if (simulate->seq + 1 >= o->n_seqs)
            return false;
        begin_sequence(simulate);
    }
    draw_lists(simulate);
    fill_row(simulate, out);
    if (o->defect == DEFECT_UBATCH_NAN && simulate->seq == 0 && simulate->pos == o->n_rows - 1) {
        out->b.n_nan = SIMULATE_VOCAB;
        out->b.first_bad = 0;
        out->b.n_topk = 0;
    }
    return true;
}

struct pairs *simulate_pairs(const struct simulate_options *options)
{
    struct simulate simulate;
    struct pair_row row;
    struct err err;
    struct pairs *pairs = pairs_new(NULL, 0);
    simulate_init(&simulate, options);
    while (simulate_row(&simulate, &row)) {
        int rc = pairs_add(pairs, &row, &err);
        assert(rc == 0);
        (void)rc;
    }
    return pairs;
}
