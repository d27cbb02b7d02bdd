/* Real kernel faults in small: planted into the demo model's CPU forward pass one at a time, each
 * must be convicted with the reason that names it; the sound pair must not. tests/fault_table
 * prints all of them over two models. */
#include "collector/xalloc.h"
#include "tests/real.h"
#include "tests/tap.h"

static const struct real_arm arms[] = {{"prefill", "FAST=1", FORWARD_PREFILL},
                                       {"decode", "FAST=1", FORWARD_DECODE}};

static const struct {
    const char *name;
    enum verdict_class cls;
    const char *reason;
} expected[] = {
    {"rope-boundary", VERDICT_SYSTEMATIC, ""},
    {"mask-leak", VERDICT_SYSTEMATIC, ""},
    {"batch-crossed", VERDICT_SYSTEMATIC, "batch_row"},
    {"heads-swapped", VERDICT_SYSTEMATIC, "scale"},
    {"stale-row", VERDICT_SYSTEMATIC, "pos mod 16 = 15"},
    {"block-scale", VERDICT_SYSTEMATIC, "scale"},
    {"tail-unwritten", VERDICT_SYSTEMATIC, "rows of a partial tile of 8"},
    {"logits-1%", VERDICT_SYSTEMATIC, "slope"},
    {"row-nan", VERDICT_NONFINITE, "B: "},
};

static void judge(struct verdict *out, struct pairs *test, struct pairs *control)
{
    struct floor floor;
    struct err err;
    floor_from_pairs(&floor, control, FLOOR_SAME, FLOOR_PRECISION, verdict_grid(test));
    const struct verdict_options options = {.cls = FLOOR_PRECISION,
                                            .floor = &floor,
                                            .control = control,
                                            .greedy = 1,
                                            .chunk = REAL_CHUNK,
                                            .seed = 1};
    if (verdict_judge(out, test, &options, &err))
        ok(0, "%s", err.text);
    floor_fini(&floor);
}

static const struct fault *find_fault(const char *name)
{
    for (int k = 0; k < n_faults; k++)
        if (!strcmp(faults[k].name, name))
            return &faults[k];
    return NULL;
}

static void test_sound(const struct real_run *runs)
{
    struct pairs *test = real_pairs(&runs[0], &runs[1], 0);
    struct pairs *control = real_pairs(&runs[0], &runs[1], 1);
    struct verdict verdict;
    judge(&verdict, test, control);
    if (!ok(!verdict_is_defect(verdict.cls), "prefill against decode, both sound, is no defect"))
        diag("%s, %s", verdict_names[verdict.cls], verdict.reason);
    ok(verdict.n_flips > 0 && verdict.expected > (double)verdict.n_flips / 2 &&
           verdict.expected < (double)verdict.n_flips * 2,
       "the floor expects about as many flips as there are");
    diag("%zu flips, %.3g expected, s %.3g over %.3g", verdict.n_flips, verdict.expected,
         verdict.scale, verdict.floor_scale);
    verdict_fini(&verdict);
    pairs_free(test);
    pairs_free(control);
}

static void test_fault(const struct real_model *model, const struct real_prompts *prompts,
                       const struct real_run *runs, size_t k)
{
    const struct fault *fault = find_fault(expected[k].name);
    if (!ok(fault != NULL, "%s is a fault", expected[k].name))
        return;
    bool prefill = fault->side == FAULT_PREFILL;
    struct real_run faulty;
    struct verdict verdict;
    real_run(&faulty, model, prompts, &arms[!prefill], fault);
    struct pairs *test = real_pairs(&runs[prefill], &faulty, 0);
    struct pairs *control = real_pairs(&runs[prefill], &runs[!prefill], 1);
    judge(&verdict, test, control);
    if (!ok(verdict.cls == expected[k].cls &&
                !strncmp(verdict.reason, expected[k].reason, strlen(expected[k].reason)),
            "%s (%s): %s, %s", fault->name, fault->words, verdict_names[expected[k].cls],
            expected[k].reason))
        diag("got %s, %s; beside %s", verdict_names[verdict.cls], verdict.reason, verdict.beside);
    verdict_fini(&verdict);
    pairs_free(test);
    pairs_free(control);
    free(faulty.rows);
}

int main(void)
{
    const char *top = getenv("abs_top_srcdir");
    char model_path[512], text_path[512];
    const char *const files[] = {text_path, NULL};
    struct real_model model;
    struct real_prompts prompts;
    struct real_run runs[2];
    snprintf(model_path, sizeof model_path, "%s/tests/data/tiny-qwen3-q8_0.gguf", top ? top : ".");
    snprintf(text_path, sizeof text_path, "%s/tests/data/prompt.txt", top ? top : ".");
    real_open(&model, model_path);
    /* The text is short: its prompts overlap, and begin 26 ids apart. */
    real_prompts(&prompts, &model, files, 26, 24);
    is_int(prompts.n, 24, "24 prompts");
    for (int a = 0; a < 2; a++)
        real_run(&runs[a], &model, &prompts, &arms[a], NULL);
    test_sound(runs);
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++)
        test_fault(&model, &prompts, runs, k);
    for (int a = 0; a < 2; a++)
        free(runs[a].rows);
    free(prompts.ids);
    real_close(&model);
    return tap_done();
}
