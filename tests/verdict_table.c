/* How often the calibrated rule convicts, over many seeds: clean pairs by the shape of their noise,
 * and defects by their size; the seed's rule on the same rows beside it. Printed by
 *   tests/verdict_table [--seeds 1000] [--power-seeds 100] [--why 0] [--each 0]
 *                       [--floor same|other|prior] [--curve DEFECT]
 * as one table: share of seeds with a defect-class verdict, and the most frequent verdict. With
 * --floor and --curve, so that processes share the work, only what has that floor or defect. Clean
 * seeds take turns with a bf16 grid and with bit-equal rows; with --each 1 every combination gets
 * all of them. */
#include "collector/seed.h"
#include "tests/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 24 }; /* of the seed's rule: the last positions of each prompt */

static const char *const control_names[TRIAL_N_CONTROLS] = {"same", "other", "prior"};

struct scenario {
    const char *name;
    struct trial trial;
};

/* What came out over the seeds. */
struct tally {
    int n, defects, named, by_class[VERDICT_N_CLASSES], by_test[TEST_N];
    int seed_windows, seed_defects;
};

static double worst_delta(const struct pair_row *row)
{
    const struct pair_logit *ids[4] = {&row->a.topk[0], &row->a.topk[1], &row->b.topk[0],
                                       &row->b.topk[1]};
    double delta = 0;
    for (int k = 0; k < 4; k++) {
        double a = NAN, b = NAN;
        for (int i = 0; i < row->a.n_topk; i++)
            if (row->a.topk[i].token == ids[k]->token)
                a = row->a.topk[i].logit;
        for (int i = 0; i < row->b.n_topk; i++)
            if (row->b.topk[i].token == ids[k]->token)
                b = row->b.topk[i].logit;
        if (!isnan(a - b))
            delta = fmax(delta, fabs(a - b));
    }
    return delta;
}

static struct seed_row seed_row_of(const struct pair_row *row)
{
    struct seed_row out = {.pos = row->pos, .a1 = -1, .a2 = -1, .b1 = -1, .b2 = -1};
    if (row->b.n_topk <
        2) { /* not finite: the rule sees argmax 0 on both sides and no difference */
        out.a1 = out.b1 = 0;
        return out;
    }
    out.a1 = row->a.topk[0].token;
    out.a2 = row->a.topk[1].token;
    out.b1 = row->b.topk[0].token;
    out.b2 = row->b.topk[1].token;
    out.margin_a = row->a.topk[0].logit - row->a.topk[1].logit;
    out.margin_b = row->b.topk[0].logit - row->b.topk[1].logit;
    out.delta = (float)worst_delta(row);
    return out;
}

/* Apply the seed's rule to the last rows of every sequence. */
static void tally_seed(const struct simulate_options *options, struct tally *tally)
{
    struct simulate simulate;
    struct pair_row row;
    struct seed_row rows[WINDOW];
    simulate_init(&simulate, options);
    int n_rows = simulate.options.n_rows, n = 0;
    while (simulate_row(&simulate, &row)) {
        if (row.pos >= n_rows - WINDOW)
            rows[n++] = seed_row_of(&row);
        if (row.pos < n_rows - 1)
            continue;
        struct seed_summary summary;
        struct err err;
        if (!seed_summarize(rows, n, &summary, &err)) {
            tally->seed_windows++;
            tally->seed_defects +=
                summary.cls == SEED_SYSTEMATIC || summary.cls == SEED_UNEXPLAINED;
        }
        n = 0;
    }
}

static void tally_verdict(const struct scenario *scenario, uint64_t seed, bool why,
                          struct tally *tally)
{
    struct verdict verdict;
    trial_judge(&scenario->trial, seed, &verdict);
    bool defect = verdict_is_defect(verdict.cls);
    tally->n++;
    tally->defects += defect;
    tally->by_class[verdict.cls]++;
    for (int t = 0; t < TEST_N; t++)
        tally->by_test[t] += verdict.tests[t].rejects;
    if (defect && why)
        printf("  seed %llu: %s, %s; beside %s\n", (unsigned long long)seed,
               verdict_names[verdict.cls], verdict.reason, verdict.beside);
    for (int t = 0; t < TEST_N && defect && why; t++)
        if (verdict.tests[t].rejects)
            printf("    %s: p %.2g, effect %.3g: %s\n", verdict_test_names[t], verdict.tests[t].p,
                   verdict.tests[t].effect, verdict.tests[t].detail);
    verdict_fini(&verdict);
}

static void print_tally(const struct scenario *scenario, const struct tally *tally)
{
    int top = 0;
    for (int c = 1; c < VERDICT_N_CLASSES; c++)
        if (tally->by_class[c] > tally->by_class[top])
            top = c;
    char seed[16] = "";
    if (tally->seed_windows)
        snprintf(seed, sizeof seed, "%.2f %%", 100. * tally->seed_defects / tally->seed_windows);
    printf("%-40s %-6s %6.2f %%  %8s  %-18s %5.1f %%", scenario->name,
           control_names[scenario->trial.control], 100. * tally->defects / tally->n, seed,
           verdict_names[top], 100. * tally->by_class[top] / tally->n);
    for (int t = 0; t < TEST_N; t++)
        if (tally->by_test[t])
            printf(" %s:%d", verdict_test_names[t], tally->by_test[t]);
    putchar('\n');
    fflush(stdout);
}

/* turns: the seeds take turns with a bf16 grid and with bit-equal rows. */
static void run_scenario(const struct scenario *scenario, int n_seeds, bool turns, bool why)
{
    struct tally tally = {0};
    for (int seed = 1; seed <= n_seeds; seed++) {
        struct scenario turn = *scenario;
        struct simulate_options *test = &turn.trial.test;
        if (turns) {
            test->bf16 = seed & 1;
            test->equal_share = seed >> 1 & 1;
        }
        tally_verdict(&turn, (uint64_t)seed, why, &tally);
        test->seed = 2 * (uint64_t)seed;
        if (scenario->trial.control == TRIAL_SAME) /* the rows are the same under every control */
            tally_seed(test, &tally);
    }
    print_tally(scenario, &tally);
}

/* What the command line asks for. */
struct wanted {
    int seeds, power_seeds;
    bool why, each;
    const char *floor, *curve; /* NULL: all */
};

/* Clean pairs of one noise shape: on a grid and off it, with bit-equal rows and without. */
static void run_shape(enum simulate_noise noise, enum trial_control control, double control_scale,
                      int n_seeds, const struct wanted *wanted)
{
    for (int k = 0; k < (wanted->each ? 4 : 1); k++) {
        char name[64];
        struct simulate_options test = {.noise = noise, .bf16 = k & 1, .equal_share = k >> 1};
        snprintf(name, sizeof name, "clean %s%s%s", simulate_noises[noise].name,
                 k & 1 ? ", bf16 grid" : "", k >> 1 ? ", bit-equal rows" : "");
        run_scenario(
            &(struct scenario){name,
                               {.test = test, .control = control, .control_scale = control_scale}},
            n_seeds, !wanted->each, wanted->why);
    }
}

static void run_clean(enum trial_control control, const struct wanted *wanted)
{
    for (int noise = 0; noise < NOISE_N; noise++)
        run_shape((enum simulate_noise)noise, control, 1, wanted->seeds, wanted);
    for (double ratio = 0.5; ratio <= 2 && control == TRIAL_OTHER; ratio *= 4) {
        printf("control of another kind, its scale %g times the test's\n", ratio);
        for (int noise = 0; noise < NOISE_N; noise++)
            run_shape((enum simulate_noise)noise, control, ratio, (wanted->seeds + 3) / 4, wanted);
    }
}

/* A defect's power over its size. */
static void run_power(enum simulate_defect defect, const double *sizes, int n,
                      enum trial_control control, int n_seeds)
{
    for (int k = 0; k < n; k++) {
        char name[64];
        struct simulate_options test = {.defect = defect, .size = sizes[k], .n_rows = 200};
        snprintf(name, sizeof name, "%s %g", simulate_defects[defect].name, sizes[k]);
        run_scenario(&(struct scenario){name, {.test = test, .control = control}}, n_seeds, false,
                     false);
    }
}

static const struct curve {
    enum simulate_defect defect;
    double sizes[6];
} curves[] = {
    {DEFECT_ALL, {1.25, 1.5, 2, 3, 5, 10}},
    {DEFECT_HALF, {1.5, 2, 3, 5, 10, 30}},
    {DEFECT_RARE, {3, 5, 10, 30, 100, 300}},
    {DEFECT_TEMPERATURE, {0.1, 0.2, 0.3, 0.5, 1, 2}},
    {DEFECT_SHIFT, {0.1, 0.2, 0.3, 0.5, 1, 2}},
    {DEFECT_ID, {0.5, 1, 1.5, 2, 3, 5}},
    {DEFECT_BATCH_ROW, {1.25, 1.5, 2, 3, 10, 100}},
    {DEFECT_LATE, {1.25, 1.5, 2, 3, 4, 8}},
    {DEFECT_RESIDUE, {1.5, 2, 3, 5, 10, 20}},
    {DEFECT_BOUNDARY, {1.5, 2, 3, 5, 10, 20}},
    {DEFECT_SEQUENCE, {2, 3, 5, 10, 30, 100}},
    {DEFECT_UBATCH_NAN, {100}},
};

static void run_curves(enum trial_control control, const struct wanted *wanted)
{
    for (size_t c = 0; c < sizeof curves / sizeof *curves; c++) {
        int n = 0;
        while (n < 6 && curves[c].sizes[n] > 0)
            n++;
        if (!wanted->curve || !strcmp(wanted->curve, simulate_defects[curves[c].defect].name))
            run_power(curves[c].defect, curves[c].sizes, n, control, wanted->power_seeds);
    }
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv)
{
    const struct wanted wanted = {
        .seeds = atoi(option(argc, argv, "--seeds", "1000")),
        .power_seeds = atoi(option(argc, argv, "--power-seeds", "100")),
        .why = atoi(option(argc, argv, "--why", "0")),
        .each = atoi(option(argc, argv, "--each", "0")),
        .floor = option(argc, argv, "--floor", NULL),
        .curve = option(argc, argv, "--curve", NULL),
    };
    printf("%-40s %-6s %8s  %8s  %-18s %7s tests that reject\n", "pair", "floor", "defect",
           "seed's", "most frequent", "");
    for (int control = 0; control < TRIAL_N_CONTROLS; control++) {
        if (wanted.floor && strcmp(wanted.floor, control_names[control]))
            continue;
        if (wanted.seeds > 0)
            run_clean((enum trial_control)control, &wanted);
        if (wanted.power_seeds > 0)
            run_curves((enum trial_control)control, &wanted);
    }
    return 0;
}
