#include "config.h"

#include "collector/cmd.h"
#include "collector/run_writer.h"
#include "collector/simulate.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_SEED = 0x200,
    KEY_NOISE,
    KEY_DEFECT,
    KEY_SIZE,
    KEY_SCALE,
    KEY_SEQS,
    KEY_ROWS,
    KEY_BF16,
    KEY_EQUAL,
    KEY_CLASS
};

struct options {
    struct simulate_options simulate;
    const char *path, *cls;
};

static double parse_real(struct argp_state *state, const char *option, const char *arg, double max)
{
    char *end;
    double value = strtod(arg, &end);
    if (end == arg || *end || !(value >= 0 && value <= max))
        argp_error(state, "%s %s: not a number from 0 to %g", option, arg, max);
    return value;
}

static int parse_count(struct argp_state *state, const char *option, const char *arg)
{
    double value = parse_real(state, option, arg, 100000000);
    if (value < 1 || value != floor(value))
        argp_error(state, "%s %s: not a whole number above 0", option, arg);
    return (int)value;
}

/* The names of a table, for help and messages. */
static const char *names_of(const struct simulate_named *table, int n)
{
    static char text[512];
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", table[i].name);
    }
    return text;
}

static error_t parse_name(struct options *o, int key, const char *arg, struct argp_state *state)
{
    if (key == KEY_NOISE) {
        o->simulate.noise = simulate_noise_find(arg);
        if (o->simulate.noise == NOISE_N)
            argp_error(state, "--noise %s: not one of %s", arg, names_of(simulate_noises, NOISE_N));
    } else {
        o->simulate.defect = simulate_defect_find(arg);
        if (o->simulate.defect == DEFECT_N)
            argp_error(state, "--defect %s: not one of %s", arg,
                       names_of(simulate_defects, DEFECT_N));
    }
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o':
        o->path = arg;
        return 0;
    case KEY_SEED:
        o->simulate.seed = (uint64_t)parse_real(state, "--seed", arg, 9e15);
        return 0;
    case KEY_NOISE:
    case KEY_DEFECT:
        return parse_name(o, key, arg, state);
    case KEY_SIZE:
        o->simulate.size = parse_real(state, "--size", arg, 1e6);
        return 0;
    case KEY_SCALE:
        o->simulate.scale = parse_real(state, "--scale", arg, 1e3);
        return 0;
    case KEY_SEQS:
        o->simulate.n_seqs = parse_count(state, "--sequences", arg);
        return 0;
    case KEY_ROWS:
        o->simulate.n_rows = parse_count(state, "--rows", arg);
        return 0;
    case KEY_EQUAL:
        o->simulate.equal_share = parse_real(state, "--equal", arg, 1);
        return 0;
    case KEY_BF16:
        o->simulate.bf16 = true;
        return 0;
    case KEY_CLASS:
        o->cls = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: takes no argument; -o names the file", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (!o->path)
            argp_error(state, "which file? -o FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "database to write; one that exists gets another run", 0},
    {"seed", KEY_SEED, "N", 0, "the same seed gives the same rows (default 1)", 0},
    {"sequences", KEY_SEQS, "N", 0, "sequences (default 20)", 0},
    {"rows", KEY_ROWS, "N", 0, "positions of each (default 100)", 0},
    {"scale", KEY_SCALE, "S", 0, "scale of the contrasts, in logits (default 0.1)", 0},
    {"noise", KEY_NOISE, "SHAPE", 0, "shape of the noise (default normal)", 0},
    {"defect", KEY_DEFECT, "NAME", 0, "a defect to plant (default none)", 0},
    {"size", KEY_SIZE, "X", 0, "size of the defect (default: its own)", 0},
    {"bf16", KEY_BF16, NULL, 0, "round all logits to bf16", 0},
    {"equal", KEY_EQUAL, "SHARE", 0,
     "let each sequence begin with bit-equal rows, up to this share of it", 0},
    {"class", KEY_CLASS, "CLASS", 0,
     "the class that the arms declare: bitwise, reassoc, precision (the default), weights, engine",
     0},
    {0},
};

/* The tables of shapes and defects belong into the help. */
static char *help_filter(int key, const char *text, void *input)
{
    char *out = NULL;
    size_t size;
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    FILE *to = open_memstream(&out, &size);
    if (!to)
        return (char *)text;
    fprintf(to, "Shapes of noise:\n");
    for (int i = 0; i < NOISE_N; i++)
        fprintf(to, "  %-12s %s\n", simulate_noises[i].name, simulate_noises[i].words);
    fprintf(to, "\nDefects, with their default sizes:\n");
    for (int i = 0; i < DEFECT_N; i++)
        fprintf(to, "  %-12s %s (%g)\n", simulate_defects[i].name, simulate_defects[i].words,
                simulate_defects[i].size);
    fclose(to);
    return out;
}

static const struct argp argp = {
    options_table,
    parse,
    NULL,
    "Write a synthetic record of two arms, clean or with a named defect: to try verdicts on data "
    "whose "
    "truth is known.\v ",
    NULL,
    help_filter,
    NULL,
};

/* ---- writing ---- */

static double log_sum_exp(const struct pair_logit *list, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)list[i].logit - (double)list[0].logit);
    return n ? (double)list[0].logit + log(sum) : NAN;
}

/* One context is one (seed, sequence, position). */
static uint64_t context_hash(uint64_t seed, const struct pair_row *row)
{
    const uint64_t key[3] = {seed, (uint64_t)row->seq, (uint64_t)row->pos};
    return XXH3_64bits(key, sizeof key) | 1;
}

static int put_forward(struct run_writer *w, int arm, const struct pair_place *place,
                       struct err *err)
{
    return run_put_forward(w,
                           &(struct record_forward){.n_past = place->n_past,
                                                    .arm = arm,
                                                    .n_tokens = place->n_tokens,
                                                    .n_seqs = place->n_seqs,
                                                    .ubatch_index = place->ubatch_index,
                                                    .n_ubatch = place->n_ubatch},
                           err);
}

static int put_side(struct run_writer *w, uint64_t seed, int arm, const struct pair_row *row,
                    const struct pair_side *side, struct err *err)
{
    if (put_forward(w, arm, &side->place, err))
        return -1;
    struct record_row *body = run_next_body(w);
    *body = (struct record_row){
        .row_id = ++w->n_rows,
        .forward_id = w->n_forwards,
        .context_hash = context_hash(seed, row),
        .seq = row->seq,
        .pos = row->pos,
        .lse = log_sum_exp(side->topk, side->n_topk),
        .batch_row = side->place.batch_row,
        .input_token = -1,
        .n_vocab = SIMULATE_VOCAB,
        .n_nan = (uint32_t)side->n_nan,
        .n_posinf = (uint32_t)side->n_posinf,
        .first_bad = side->first_bad,
        .n_top = (uint8_t)side->n_topk,
    };
    for (int i = 0; i < side->n_topk; i++)
        body->top[i] = (struct record_top){side->topk[i].token, side->topk[i].logit};
    return run_put(w, RECORD_ROW, record_row_bytes(side->n_topk, 0), err);
}

static int put_rows(struct run_writer *w, const struct simulate_options *options, struct err *err)
{
    struct simulate simulate;
    struct pair_row row;
    simulate_init(&simulate, options);
    while (simulate_row(&simulate, &row))
        if (put_side(w, options->seed, 1, &row, &row.a, err) ||
            put_side(w, options->seed, 2, &row, &row.b, err))
            return -1;
    return 0;
}

static int put_all(struct run_writer *w, void *input, struct err *err)
{
    const struct options *o = input;
    char model[160];
    snprintf(model, sizeof model, "seed %" PRIu64 ", noise %s, defect %s", o->simulate.seed,
             simulate_noises[o->simulate.noise].name, simulate_defects[o->simulate.defect].name);
    return run_put_setting(w, "engine", "neartie simulate", err) ||
                   run_put_setting(w, "model_path", model, err) ||
                   run_put_arm(w, 1, "prefill", 0, o->cls, err) ||
                   run_put_arm(w, 2, "decode", 1, o->cls, err) || put_rows(w, &o->simulate, err)
               ? -1
               : 0;
}

int cmd_simulate(int argc, char **argv)
{
    struct options o = {.simulate = {.seed = 1}, .cls = "precision"};
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return run_write_file(o.path, put_all, &o, &err) ? cmd_fail(&err) : CMD_OK;
}
