#include "config.h"

#include "collector/cmd.h"
#include "collector/simulate.h"
#include "collector/xalloc.h"
#include "sql/store.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

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
    KEY_CLASS,
    BATCH = 1000 /* records in a transaction */
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

struct writer {
    struct store *store;
    uint64_t n_records, n_rows, n_forwards;
    int64_t now_ns;
    uint64_t seed;
    union {
        struct record head;
        char bytes[8192];
    } slots[BATCH]; /* the store reads its records until the commit */
};

/* Body of the record that comes next. */
static void *next_body(struct writer *w)
{
    return w->slots[w->n_records % BATCH].head.body;
}

static int put(struct writer *w, enum record_kind kind, size_t n_bytes, struct err *err)
{
    struct record *r = &w->slots[w->n_records % BATCH].head;
    r->kind = (uint16_t)kind;
    r->n_bytes = (uint16_t)n_bytes;
    w->n_records++;
    if (store_put(w->store, r, err))
        return -1;
    if (w->n_records % BATCH)
        return 0;
    return store_commit(w->store, w->n_records, err) || store_begin(w->store, err) ? -1 : 0;
}

static int put_arm(struct writer *w, int arm, const char *label, const char *cls, struct err *err)
{
    struct record_arm *body = next_body(w);
    *body = (struct record_arm){.arm = arm, .phase = (uint32_t)arm - 1};
    snprintf(body->label, sizeof body->label, "%s", label);
    snprintf(body->cls, sizeof body->cls, "%s", cls);
    return put(w, RECORD_ARM, sizeof *body, err);
}

static int put_setting(struct writer *w, const char *name, const char *value, struct err *err)
{
    struct record_setting *body = next_body(w);
    *body = (struct record_setting){.source = "api"};
    snprintf(body->name, sizeof body->name, "%s", name);
    memcpy(body->text, value, strlen(value));
    return put(w, RECORD_SETTING, offsetof(struct record_setting, text) + strlen(value), err);
}

static int put_forward(struct writer *w, int arm, const struct pair_place *place, struct err *err)
{
    struct record_forward *body = next_body(w);
    *body = (struct record_forward){
        .forward_id = ++w->n_forwards,
        .started_ns = w->now_ns += 1000,
        .n_past = place->n_past,
        .arm = arm,
        .n_tokens = place->n_tokens,
        .n_seqs = place->n_seqs,
        .ubatch_index = place->ubatch_index,
        .n_ubatch = place->n_ubatch,
        .thread = 1,
    };
    return put(w, RECORD_FORWARD, sizeof *body, err);
}

static double log_sum_exp(const struct pair_logit *list, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)list[i].logit - (double)list[0].logit);
    return n ? (double)list[0].logit + log(sum) : NAN;
}

/* One context is one (seed, sequence, position). */
static uint64_t context_hash(const struct writer *w, const struct pair_row *row)
{
    const uint64_t key[3] = {w->seed, (uint64_t)row->seq, (uint64_t)row->pos};
    return XXH3_64bits(key, sizeof key) | 1;
}

static int put_side(struct writer *w, int arm, const struct pair_row *row,
                    const struct pair_side *side, struct err *err)
{
    if (put_forward(w, arm, &side->place, err))
        return -1;
    struct record_row *body = next_body(w);
    *body = (struct record_row){
        .row_id = ++w->n_rows,
        .forward_id = w->n_forwards,
        .context_hash = context_hash(w, row),
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
    return put(w, RECORD_ROW, record_row_bytes(side->n_topk, 0), err);
}

static int put_rows(struct writer *w, const struct simulate_options *options, struct err *err)
{
    struct simulate simulate;
    struct pair_row row;
    simulate_init(&simulate, options);
    while (simulate_row(&simulate, &row))
        if (put_side(w, 1, &row, &row.a, err) || put_side(w, 2, &row, &row.b, err))
            return -1;
    return 0;
}

static int put_all(struct writer *w, const struct options *o, struct err *err)
{
    char model[160];
    snprintf(model, sizeof model, "seed %" PRIu64 ", noise %s, defect %s", o->simulate.seed,
             simulate_noises[o->simulate.noise].name, simulate_defects[o->simulate.defect].name);
    return put_setting(w, "engine", "neartie simulate", err) ||
                   put_setting(w, "model_path", model, err) ||
                   put_arm(w, 1, "prefill", o->cls, err) || put_arm(w, 2, "decode", o->cls, err) ||
                   put_rows(w, &o->simulate, err)
               ? -1
               : 0;
}

static void fill_identity(struct run_identity *run, int64_t now_ns)
{
    unsigned char random[16] = {0};
    *run = (struct run_identity){.probe_version = PACKAGE_VERSION, .pid = getpid()};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memcpy(random, &now_ns, sizeof now_ns);
    for (int i = 0; i < 16; i++)
        snprintf(run->uuid + 2 * i, 3, "%02x", random[i]);
    run->started_ns = now_ns;
}

static int simulate_file(const struct options *o, const char *path, struct err *err)
{
    struct run_identity run;
    struct timespec now;
    uint64_t n_done;
    int rc = -1;
    struct writer *w = xcalloc(1, sizeof *w);
    clock_gettime(CLOCK_REALTIME, &now);
    w->now_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    w->seed = o->simulate.seed;
    fill_identity(&run, w->now_ns);
    if (store_open(&w->store, path, err) || store_run_begin(w->store, &run, &n_done, err) ||
        store_begin(w->store, err))
        goto out;
    if (put_all(w, o, err) || store_commit(w->store, w->n_records, err)) {
        store_rollback(w->store);
        goto out;
    }
    rc = store_run_end(w->store, "closed", w->now_ns, err);
out:
    store_close(w->store, !rc);
    free(w);
    return rc;
}

/* A new file appears when it is whole: a part of one would read as a run that died. */
static int simulate_new_file(const struct options *o, struct err *err)
{
    static const char *const parts[] = {"", "-wal", "-shm", "-journal"};
    char *path = NULL;
    if (asprintf(&path, "%s.part", o->path) < 0)
        return err_set(err, "%s: %s", o->path, strerror(errno));
    int rc = simulate_file(o, path, err);
    if (!rc && rename(path, o->path))
        rc = err_set(err, "%s: %s", o->path, strerror(errno));
    for (size_t i = 0; rc && i < sizeof parts / sizeof *parts; i++) {
        char *part = NULL;
        if (asprintf(&part, "%s%s", path, parts[i]) < 0)
            break;
        unlink(part);
        free(part);
    }
    free(path);
    return rc;
}

int cmd_simulate(int argc, char **argv)
{
    struct options o = {.simulate = {.seed = 1}, .cls = "precision"};
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = access(o.path, F_OK) ? simulate_new_file(&o, &err) : simulate_file(&o, o.path, &err);
    return rc ? cmd_fail(&err) : CMD_OK;
}
