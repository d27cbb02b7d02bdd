/* One trial of the calibrated rule on simulated rows: a tested pair and, drawn apart from it, its
 * clean control. Shared by the test and the table of false alarms and power. */
#ifndef NEARTIE_TESTS_TRIAL_H
#define NEARTIE_TESTS_TRIAL_H

#include "collector/calibrated.h"
#include "collector/simulate.h"

#include <stdio.h>
#include <stdlib.h>

/* What the verdict may know of the noise. */
enum trial_control { TRIAL_SAME, TRIAL_OTHER, TRIAL_PRIOR, TRIAL_N_CONTROLS };

struct trial {
    struct simulate_options test; /* its seed is set by trial_judge */
    enum trial_control control;
    double control_scale; /* scale of the control's noise over the test's; 0: 1 */
    int control_seqs;     /* its sequences; 0: as many as the test has */
    bool stored;          /* a calibration: the verdict does not see the control's rows */
};

/* A floor as `neartie calibrate` stores it. */
static inline void trial_store(struct floor *floor, enum floor_class cls, double ulp)
{
    struct floor_point points[FLOOR_N_POINTS];
    struct floor stored;
    struct err err;
    int n = floor_points(floor, points);
    if (floor_from_points(&stored, FLOOR_SAME, cls, floor->measured, floor->n, floor->n_seqs,
                          points, n, ulp, &err)) {
        fprintf(stderr, "trial: %s\n", err.text);
        exit(1);
    }
    floor_fini(floor);
    *floor = stored;
}

/* Judge one seed; the caller frees the verdict. */
static inline void trial_judge(const struct trial *trial, uint64_t seed, struct verdict *out)
{
    struct simulate_options test_options = trial->test, control_options = trial->test;
    double scale = test_options.scale > 0 ? test_options.scale : 0.1;
    test_options.seed = 2 * seed;
    control_options.seed = 2 * seed + 1;
    control_options.defect = DEFECT_NONE;
    if (trial->control_seqs)
        control_options.n_seqs = trial->control_seqs;
    control_options.scale = scale * (trial->control_scale > 0 ? trial->control_scale : 1);
    struct pairs *test = simulate_pairs(&test_options), *control = NULL;
    enum floor_class cls = test_options.bf16 ? FLOOR_REASSOC_BF16_HEAD : FLOOR_PRECISION;
    struct floor floor;
    double ulp = verdict_grid(test);
    if (trial->control == TRIAL_PRIOR) {
        floor_from_prior(&floor, cls, ulp);
    } else {
        control = simulate_pairs(&control_options);
        floor_from_pairs(&floor, control, trial->control == TRIAL_SAME ? FLOOR_SAME : FLOOR_OTHER,
                         cls, ulp);
        if (trial->stored)
            trial_store(&floor, cls, ulp);
    }
    const struct verdict_options options = {.cls = cls,
                                            .floor = &floor,
                                            .control = trial->stored ? NULL : control,
                                            .greedy = 1,
                                            .chunk = 32,
                                            .seed = seed};
    struct err err;
    if (verdict_judge(out, test, &options, &err)) {
        fprintf(stderr, "trial: %s\n", err.text);
        exit(1);
    }
    floor_fini(&floor);
    pairs_free(test);
    pairs_free(control);
}

#endif
