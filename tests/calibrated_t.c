/* The calibrated rule on simulated pairs, in small: false alarms over every noise shape, and the
 * defects that must always be caught, with the reason that names them. tests/verdict_table prints
 * the same over 1,000 seeds. */
#include "tests/tap.h"
#include "tests/trial.h"

enum { CLEAN_SEEDS = 48, DEFECT_SEEDS = 10 };

static const char *const control_names[TRIAL_N_CONTROLS] = {"the same kind", "another kind",
                                                            "the prior"};

/* Grid and bit-equal rows alternate with the seed. */
static void test_clean(enum trial_control control, enum simulate_noise noise, int *total)
{
    int defects = 0;
    for (int seed = 1; seed <= CLEAN_SEEDS; seed++) {
        struct verdict verdict;
        struct trial trial = {
            .test = {.noise = noise, .bf16 = seed & 1, .equal_share = seed >> 1 & 1},
            .control = control};
        trial_judge(&trial, (uint64_t)seed, &verdict);
        if (verdict_is_defect(verdict.cls)) {
            diag("seed %d: %s, %s", seed, verdict_names[verdict.cls], verdict.reason);
            defects++;
        }
        verdict_fini(&verdict);
    }
    *total += defects;
    ok(defects <= 1, "clean, %s noise, floor from %s: %d of %d seeds convicted",
       simulate_noises[noise].name, control_names[control], defects, CLEAN_SEEDS);
}

/* Sequences that lie further apart than a few of them show: a control of one or four sequences. */
static void test_few(int control_seqs, bool stored)
{
    enum { SEEDS = 150 };
    int defects = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        struct verdict verdict;
        struct trial trial = {.test = {.noise = NOISE_SEQUENCE},
                              .control = TRIAL_SAME,
                              .control_seqs = control_seqs,
                              .stored = stored};
        trial_judge(&trial, (uint64_t)seed, &verdict);
        defects += verdict_is_defect(verdict.cls);
        verdict_fini(&verdict);
    }
    ok(defects <= 1, "clean, sequence noise, a %s of %d: %d of %d seeds convicted",
       stored ? "calibration" : "control", control_seqs, defects, SEEDS);
}

/* Every seed must be caught; most must give this reason. */
static void test_defect(const struct trial *trial, enum verdict_class cls, const char *reason)
{
    int caught = 0, named = 0;
    for (int seed = 1; seed <= DEFECT_SEEDS; seed++) {
        struct verdict verdict;
        trial_judge(trial, (uint64_t)seed, &verdict);
        caught += verdict_is_defect(verdict.cls);
        const char *where = cls == VERDICT_NONFINITE ? verdict.beside : verdict.reason;
        bool hit = verdict.cls == cls && !strncmp(where, reason, strlen(reason));
        named += hit;
        if (!hit)
            diag("seed %d: %s, %s; beside %s", seed, verdict_names[verdict.cls], verdict.reason,
                 verdict.beside);
        verdict_fini(&verdict);
    }
    const char *name = simulate_defects[trial->test.defect].name;
    is_int(caught, DEFECT_SEEDS, "%s, floor from %s: always caught", name,
           control_names[trial->control]);
    ok(named >= DEFECT_SEEDS - 1, "%s, floor from %s: named %s, %s", name,
       control_names[trial->control], verdict_names[cls], reason);
}

static const struct {
    enum simulate_defect defect;
    double size;
    int controls; /* bit set over enum trial_control */
    enum verdict_class cls;
    const char *reason;
} defects[] = {
    {DEFECT_ALL, 10, 7, VERDICT_SYSTEMATIC, "scale"},
    {DEFECT_HALF, 30, 1, VERDICT_SYSTEMATIC, "scale"},
    {DEFECT_HALF, 30, 6, VERDICT_UNEXPLAINED,
     ""}, /* the median alone stays below 4 times the floor */
    {DEFECT_TEMPERATURE, 1, 7, VERDICT_SYSTEMATIC, "slope"},
    {DEFECT_SHIFT, 1, 7, VERDICT_SYSTEMATIC, "sign"},
    {DEFECT_ID, 5, 1, VERDICT_SYSTEMATIC, "id"},
    {DEFECT_BATCH_ROW, 100, 7, VERDICT_SYSTEMATIC, "batch_row > 0"},
    {DEFECT_RESIDUE, 20, 7, VERDICT_SYSTEMATIC, "pos mod 64 = 63"},
    {DEFECT_BOUNDARY, 20, 7, VERDICT_SYSTEMATIC, "a.first 3 rows after a boundary"},
    {DEFECT_UBATCH_NAN, 100, 7, VERDICT_NONFINITE, "SYSTEMATIC(a.ubatch_index > 0)"},
};

/* The same input and seed give the same figures. */
static void test_reproducible(void)
{
    struct verdict first, second;
    const struct trial trial = {.test = {.defect = DEFECT_LATE, .n_rows = 200}};
    trial_judge(&trial, 3, &first);
    trial_judge(&trial, 3, &second);
    int same = first.cls == second.cls && first.n_tags == second.n_tags;
    for (int t = 0; t < TEST_N; t++)
        same &= !memcmp(&first.tests[t].p, &second.tests[t].p, sizeof first.tests[t].p);
    ok(same, "the same rows and seed give the same verdict");
    verdict_fini(&first);
    verdict_fini(&second);
}

int main(void)
{
    int total = 0;
    for (int control = 0; control < TRIAL_N_CONTROLS; control++)
        for (int noise = 0; noise < NOISE_N; noise++)
            test_clean((enum trial_control)control, (enum simulate_noise)noise, &total);
    ok(total * 100 <= TRIAL_N_CONTROLS * NOISE_N * CLEAN_SEEDS,
       "at most 1 %% of all clean seeds convicted: %d", total);
    for (int stored = 0; stored < 2; stored++) {
        test_few(1, stored);
        test_few(4, stored);
    }
    for (size_t d = 0; d < sizeof defects / sizeof *defects; d++)
        for (int control = 0; control < TRIAL_N_CONTROLS; control++) {
            const struct trial trial = {
                .test = {.defect = defects[d].defect, .size = defects[d].size, .n_rows = 200},
                .control = (enum trial_control)control};
            if (defects[d].controls >> control & 1)
                test_defect(&trial, defects[d].cls, defects[d].reason);
        }
    test_reproducible();
    return tap_done();
}
