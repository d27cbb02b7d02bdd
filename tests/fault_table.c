/* Real kernel faults on a real model, one at a time: which of them the calibrated rule convicts and
 * what it names, the seed's rule beside it; and every benign pair of arms judged with every other
 * as its control. Printed by
 *   tests/fault_table [--only NAME,...] [--tags N] MODEL TEXT...
 * from the prompts of the text files; with --only those faults alone, and no benign pair; with
 * --tags the N strongest tags of each. A fault is judged against a sound arm; its control is the
 * same two arms, both sound, on other prompts. Where nothing is convicted, the largest contrast
 * that the fault makes against the sound twin of its own arm stands beside the floor. */
#include "collector/seed.h"
#include "tests/real.h"

#include "collector/stat_dist.h"
#include "collector/xalloc.h"

#include <math.h>

enum { SEED_WINDOW = 24 };

static const struct real_arm sound[] = {
    {"prefill", "FAST=1", FORWARD_PREFILL},
    {"decode", "FAST=1", FORWARD_DECODE},
    {"prefill, f32", "FAST=0", FORWARD_PREFILL},
    {"decode, f32", "FAST=0", FORWARD_DECODE},
    {"decode, KV f32", "FAST=1 KV=f32", FORWARD_DECODE},
    {"decode, KV q8_0", "FAST=1 KV=q8_0", FORWARD_DECODE},
    {"prefill, KV q8_0", "FAST=1 KV=q8_0", FORWARD_PREFILL},
    {"decode, split 4", "FAST=1 FA_SPLIT=4", FORWARD_DECODE},
    {"decode, split 4, KV q8_0", "FAST=1 FA_SPLIT=4 KV=q8_0", FORWARD_DECODE},
    {"decode, float64", "FAST=0 REF=1", FORWARD_DECODE},
};
enum { N_SOUND = sizeof sound / sizeof *sound };

static struct seed_row seed_row_of(const struct real_row *a, const struct real_row *b, int pos)
{
    struct seed_row out = {.pos = pos};
    if (!a->n_topk || !b->n_topk)
        return out; /* not finite: argmax 0 on both sides, no difference */
    out.a1 = a->topk[0].token;
    out.a2 = a->topk[1].token;
    out.b1 = b->topk[0].token;
    out.b2 = b->topk[1].token;
    out.margin_a = a->topk[0].logit - a->topk[1].logit;
    out.margin_b = b->topk[0].logit - b->topk[1].logit;
    for (int i = 0; i < REAL_TOPK; i++)
        for (int j = 0; j < REAL_TOPK; j++)
            if (a->topk[i].token == b->topk[j].token && (i < 2 || j < 2))
                out.delta = fmaxf(out.delta, fabsf(a->topk[i].logit - b->topk[j].logit));
    return out;
}

/* Prompts of the first half on which the seed's rule says UNEXPLAINED or SYSTEMATIC. */
static int seed_convictions(const struct real_run *a, const struct real_run *b, int *out_n)
{
    int convicted = 0;
    *out_n = 0;
    for (int p = 0; p < a->n_prompts; p++) {
        if (p / REAL_BATCH % 2)
            continue;
        struct seed_row rows[SEED_WINDOW];
        struct seed_summary summary;
        struct err err;
        for (int i = 0; i < SEED_WINDOW; i++) {
            int pos = REAL_LENGTH - SEED_WINDOW + i, at = p * REAL_LENGTH + pos;
            rows[i] = seed_row_of(&a->rows[at], &b->rows[at], pos);
        }
        (*out_n)++;
        if (!seed_summarize(rows, SEED_WINDOW, &summary, &err))
            convicted += summary.cls == SEED_UNEXPLAINED || summary.cls == SEED_SYSTEMATIC;
    }
    return convicted;
}

static void judge(struct verdict *out, struct pairs *test, struct pairs *control,
                  enum floor_kind kind)
{
    struct floor floor;
    struct err err;
    if (control)
        floor_from_pairs(&floor, control, kind, FLOOR_PRECISION, verdict_grid(test));
    else
        floor_from_prior(&floor, FLOOR_PRECISION, verdict_grid(test));
    const struct verdict_options options = {.cls = FLOOR_PRECISION,
                                            .floor = &floor,
                                            .control = control,
                                            .greedy = 1,
                                            .chunk = REAL_CHUNK,
                                            .seed = 1};
    if (verdict_judge(out, test, &options, &err)) {
        fprintf(stderr, "fault_table: %s\n", err.text);
        exit(1);
    }
    floor_fini(&floor);
}

/* What the fault alone does: the faulty arm against its sound twin, s and largest contrast. */
static void fault_size(const struct real_run *twin, const struct real_run *faulty,
                       double *out_scale, double *out_largest, size_t *out_flips)
{
    struct pairs *pairs = real_pairs(twin, faulty, 0);
    struct verdict verdict;
    judge(&verdict, pairs, NULL, FLOOR_PRIOR);
    *out_scale = verdict.scale;
    *out_largest = verdict.largest_contrast;
    *out_flips = verdict.n_flips;
    verdict_fini(&verdict);
    pairs_free(pairs);
}

/* What the command line asks for. */
struct wanted {
    const char *only; /* "a,b": these faults alone; NULL: all, and the benign pairs */
    size_t tags;      /* of each fault, the strongest */
};

static void print_tags(const struct verdict *verdict, size_t most)
{
    for (size_t i = 0; i < verdict->n_tags && i < most; i++) {
        const struct verdict_tag *tag = &verdict->tags[i];
        printf("    %s %-36s %6zu rows at %8.3g times the floor, %6zu others at %8.3g; fit %8.4g\n",
               tag->rejects ? "+" : " ", tag->name, tag->n, tag->ratio, tag->n_rest,
               tag->ratio_rest, tag->fit);
    }
}

static void print_fault(const struct fault *fault, const struct real_run *base,
                        const struct real_run *twin, const struct real_run *faulty, size_t tags)
{
    struct pairs *test = real_pairs(base, faulty, 0), *control = real_pairs(base, twin, 1);
    struct verdict verdict;
    double scale, largest;
    size_t flips;
    int n_seed, seed = seed_convictions(base, faulty, &n_seed);
    judge(&verdict, test, control, FLOOR_SAME);
    fault_size(twin, faulty, &scale, &largest, &flips);
    printf("%-17s %-46s %-12s %-30.30s %8.3g %8.3g %8.3g %4zu  %2d/%d\n", fault->name, fault->words,
           verdict_is_defect(verdict.cls) ? verdict_names[verdict.cls] : "-",
           verdict_is_defect(verdict.cls) ? verdict.cls == VERDICT_NONFINITE && *verdict.beside
                                                ? verdict.beside
                                                : verdict.reason
                                          : "",
           verdict.floor_scale, scale, largest, flips, seed, n_seed);
    if (*verdict.beside)
        printf("    beside: %s\n", verdict.beside);
    print_tags(&verdict, tags);
    verdict_fini(&verdict);
    pairs_free(test);
    pairs_free(control);
}

static bool is_hybrid(const struct real_model *model)
{
    for (int32_t i = 0; i < model->model->hp.n_layers; i++)
        if (model->model->layers[i].mixer == MIXER_DELTA_NET)
            return true;
    return false;
}

/* Whether a list "a,b" has the name; NULL has all. */
static bool is_wanted(const char *only, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = only; at && (at = strstr(at, name)); at++)
        if ((at == only || at[-1] == ',') && (at[n] == ',' || !at[n]))
            return true;
    return !only;
}

static void run_faults(const struct real_model *model, const struct real_prompts *prompts,
                       const struct real_run *runs, const struct wanted *wanted)
{
    printf("%-17s %-46s %-12s %-30s %8s %8s %8s %4s  seed's\n", "fault", "", "verdict", "reason",
           "floor s", "fault s", "largest", "flip");
    for (int k = 0; k < n_faults; k++) {
        const struct fault *fault = &faults[k];
        struct real_run faulty;
        bool prefill = fault->side == FAULT_PREFILL || fault->side == FAULT_HYBRID_PREFILL;
        if (!is_wanted(wanted->only, fault->name) ||
            (fault->side >= FAULT_HYBRID_DECODE && !is_hybrid(model)))
            continue;
        real_run(&faulty, model, prompts, &sound[!prefill], fault);
        print_fault(fault, &runs[prefill], &runs[!prefill], &faulty, wanted->tags);
        free(faulty.rows);
    }
}

/* Every pair of sound arms on the even prompts: with the same two arms on the odd prompts as its
 * control, with every other pair as one of another kind, and with none. */
static void run_benign(const struct real_run *runs)
{
    struct pairs *even[N_SOUND][N_SOUND], *odd[N_SOUND][N_SOUND];
    int n[3] = {0}, convicted[3] = {0}, n_seed = 0, seed = 0;
    for (int a = 0; a < N_SOUND; a++)
        for (int b = 0; b < N_SOUND; b++) {
            even[a][b] = real_pairs(&runs[a], &runs[b], 0);
            odd[a][b] = real_pairs(&runs[a], &runs[b], 1);
        }
    for (int a = 0; a < N_SOUND; a++)
        for (int b = 0; b < N_SOUND; b++)
            for (int c = 0; c < N_SOUND && a != b; c++)
                for (int d = c + 1; d < N_SOUND; d++) {
                    bool same = (c == a && d == b) || (c == b && d == a);
                    struct verdict verdict;
                    judge(&verdict, even[a][b], same ? odd[a][b] : odd[c][d],
                          same ? FLOOR_SAME : FLOOR_OTHER);
                    n[same]++;
                    convicted[same] += verdict_is_defect(verdict.cls);
                    if (verdict_is_defect(verdict.cls))
                        printf("benign: %s against %s, control %s against %s: %s, %s\n",
                               sound[a].name, sound[b].name, sound[c].name, sound[d].name,
                               verdict_names[verdict.cls], verdict.reason);
                    if (same)
                        printf("benign: %-26s %-26s s %.3g over %.3g, flips %zu over %.3g\n",
                               sound[a].name, sound[b].name, verdict.scale, verdict.floor_scale,
                               verdict.n_flips, verdict.expected);
                    verdict_fini(&verdict);
                }
    for (int a = 0; a < N_SOUND; a++)
        for (int b = 0; b < N_SOUND; b++) {
            struct verdict verdict;
            int prompts;
            if (a == b)
                continue;
            judge(&verdict, even[a][b], NULL, FLOOR_PRIOR);
            n[2]++;
            convicted[2] += verdict_is_defect(verdict.cls);
            if (verdict_is_defect(verdict.cls))
                printf("benign: %s against %s, prior: %s, %s\n", sound[a].name, sound[b].name,
                       verdict_names[verdict.cls], verdict.reason);
            verdict_fini(&verdict);
            seed += seed_convictions(&runs[a], &runs[b], &prompts);
            n_seed += prompts;
        }
    printf("benign pairs convicted: %d of %d with a control of the same kind, %d of %d of another, "
           "%d of %d with none; the seed's rule: %d of %d prompts\n",
           convicted[1], n[1], convicted[0], n[0], convicted[2], n[2], seed, n_seed);
    for (int a = 0; a < N_SOUND; a++)
        for (int b = 0; b < N_SOUND; b++) {
            pairs_free(even[a][b]);
            pairs_free(odd[a][b]);
        }
}

/* Take the options off the front; returns how many words they are. */
static int options(int argc, char **argv, struct wanted *out)
{
    int n = 0;
    for (; n + 2 < argc && !strncmp(argv[n + 1], "--", 2); n += 2)
        if (!strcmp(argv[n + 1], "--only"))
            out->only = argv[n + 2];
        else if (!strcmp(argv[n + 1], "--tags"))
            out->tags = strtoul(argv[n + 2], NULL, 10);
    return n;
}

int main(int argc, char **argv)
{
    struct real_model model;
    struct real_prompts prompts;
    struct real_run runs[N_SOUND] = {0};
    struct wanted wanted = {0};
    int n = options(argc, argv, &wanted);
    if (argc - n < 3) {
        fprintf(stderr, "usage: %s [--only NAME,...] [--tags N] MODEL TEXT...\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    real_open(&model, argv[n + 1]);
    real_prompts(&prompts, &model, (const char *const *)argv + n + 2, REAL_LENGTH, 40);
    printf("%s: %d prompts of %d tokens, half of them for the controls\n", argv[n + 1], prompts.n,
           REAL_LENGTH);
    for (int a = 0; a < (wanted.only ? 2 : N_SOUND); a++)
        real_run(&runs[a], &model, &prompts, &sound[a], NULL);
    run_faults(&model, &prompts, runs, &wanted);
    if (!wanted.only)
        run_benign(runs);
    for (int a = 0; a < N_SOUND; a++)
        free(runs[a].rows);
    free(prompts.ids);
    real_close(&model);
    return 0;
}
