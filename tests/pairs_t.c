/* What a pair of rows is reduced to: contrast, margins, flips, bounds, grids, what is refused. */
#include "collector/pairs_int.h"
#include "tests/tap.h"

#include <math.h>

static struct pair_side side(const struct pair_logit *list, int n)
{
    return (struct pair_side){.topk = list,
                              .n_topk = n,
                              .first_bad = PAIR_UNKNOWN,
                              .emitted = PAIR_UNKNOWN,
                              .place = PAIR_PLACE_UNKNOWN};
}

/* Add one comparable row of two lists. */
static int add(struct pairs *pairs, int64_t seq, int32_t pos, struct pair_side a,
               struct pair_side b)
{
    struct err err = {""};
    struct pair_row row = {
        .seq = seq, .pos = pos, .comparable = true, .bit_equal = PAIR_UNKNOWN, .a = a, .b = b};
    int rc = pairs_add(pairs, &row, &err);
    if (rc)
        diag("%s", err.text);
    return rc;
}

static void is_near(double got, double want, const char *name)
{
    if (!ok(fabs(got - want) < 1e-6, "%s", name))
        diag("got %.9g, want %.9g", got, want);
}

static void test_contrast(void)
{
    const struct pair_logit a[] = {{7, 10}, {3, 9}, {1, 5}};
    const struct pair_logit b[] = {{7, 10.5f}, {3, 9.75f}, {1, 5}};
    const struct pair_logit c[] = {{3, 11}, {7, 10.5f}, {1, 5}};
    const struct pair_flip *flips;
    struct pairs *pairs = pairs_new(NULL, 0);
    add(pairs, 0, 4, side(a, 3), side(b, 3));
    add(pairs, 0, 5, side(a, 3), side(c, 3));
    add(pairs, 0, 6, side(a, 3), side(a, 3));
    is_near(pairs->margin[0], 1, "margin is the gap of the first two");
    is_near(pairs->contrast[0], .25, "contrast is the change of the gap");
    is_near(pairs->contrast[1], 1.5, "contrast of a flip");
    is_int((long long)pairs_flips(pairs, &flips), 1, "one flip");
    is_near(flips[0].gap_a + flips[0].gap_b, 1.5, "a flip's contrast is the sum of both gaps");
    is_int(flips[0].pos, 5, "the flip's position");
    is_int(pairs->flags[1], PAIR_FLIPPED | PAIR_LOWER, "the runner-up has the lower id");
    is_int((long long)pairs_n_bit_equal(pairs), 1, "equal lists count as bit-equal");
    pairs_free(pairs);
}

static void test_bounds(void)
{
    const struct pair_logit a[] = {{7, 10}, {3, 9}};
    const struct pair_logit no_runner[] = {{7, 10}, {4, 6}};
    const struct pair_logit no_first[] = {{3, 12}, {4, 11}};
    const struct pair_logit other[] = {{4, 12}, {5, 11}};
    const struct pair_logit extra[] = {{7, 2}, {3, 1.5f}};
    const struct pair_flip *flips;
    struct pairs *pairs = pairs_new(NULL, 0);
    add(pairs, 0, 0, side(a, 2), side(no_runner, 2));
    add(pairs, 0, 1, side(a, 2), side(no_first, 2));
    add(pairs, 0, 2, side(a, 2), side(other, 2));
    struct pair_side b = side(other, 2);
    b.extra = extra;
    b.n_extra = 2;
    add(pairs, 0, 3, side(a, 2), b);
    is_near(pairs->contrast[0], -3, "a missing runner-up is at most the last logit");
    ok(pairs->flags[0] & PAIR_BOUNDED, "and the row is marked");
    is_near(pairs->contrast[1], 2, "a missing best id: the contrast of B's choice, at least");
    is_near(pairs->contrast[2], 2, "nothing shared: B's choice stands for the runner-up");
    is_near(pairs->peak[2], 2, "but the flip does: 10 - 9 and 12 - 11 at least");
    is_near(pairs->contrast[3], .5, "extra logits make it exact");
    pairs_flips(pairs, &flips);
    ok(flips[0].bounded && isnan(flips[0].b_i), "a bounded flip says so");
    is_int((long long)pairs->n, 4, "no row was dropped");
    pairs_free(pairs);
}

static void test_refused(void)
{
    const struct pair_logit a[] = {{7, 10}, {3, 9}};
    const struct pair_logit unsorted[] = {{7, 1}, {3, 9}};
    const struct pair_logit nan_list[] = {{7, NAN}, {3, 9}};
    struct pairs *pairs = pairs_new(NULL, 0);
    struct err err = {""};
    struct pair_side bad = {.n_nan = 5, .first_bad = 0, .emitted = 14};
    struct pair_row row = {.comparable = false, .a = side(a, 2), .b = side(a, 2)};
    is_int(pairs_add(pairs, &row, &err), 0, "another context is not an error");
    is_int((long long)pairs_n_refused(pairs), 1, "but is counted as refused");
    is_int(add(pairs, 1, 9, side(a, 2), bad), 0, "a row of NaN is not an error");
    is_int((long long)pairs_n_nonfinite(pairs), 1, "but is counted");
    is_int(pairs->nonfinite.side, 1, "on side B");
    is_int(pairs->nonfinite.pos, 9, "with its position");
    is_int((long long)pairs->n, 0, "and is not compared");
    row.comparable = true;
    row.b = side(unsorted, 2);
    is_int(pairs_add(pairs, &row, &err), -1, "a list out of order is refused");
    is_str(err.text, "sequence 0, position 0: logit 9 at place 1 after 1", "with its reason");
    row.b = side(nan_list, 2);
    is_int(pairs_add(pairs, &row, &err), -1, "so is a NaN in a list");
    pairs_free(pairs);
}

static void test_ties(void)
{
    const struct pair_logit a[] = {{5, 4}, {2777, 4}};
    const struct pair_flip *flips;
    struct pairs *pairs = pairs_new(NULL, 0);
    struct pair_side first = side(a, 2), second = side(a, 2);
    first.emitted = 5;
    second.emitted = 2777;
    add(pairs, 0, 0, first, second);
    is_int((long long)pairs_flips(pairs, &flips), 1, "another emitted id of the same logit flips");
    ok(flips[0].emitted_only && flips[0].contrast == 0, "with a contrast of 0");
    is_int((long long)pairs->n_mismatch, 0, "and is no sampler mismatch");
    is_int((long long)pairs->n_tie_rule, 1, "but a tie rule that is not the lowest id");
    pairs_free(pairs);
}

static void test_grid(void)
{
    const struct pair_logit a[] = {{5, 20.375f}, {6, 20.25f}, {7, 19.5f}, {8, 18.75f}};
    const struct pair_logit b[] = {{5, 20.3711f}, {6, 20.25f}, {7, 19.5f}, {8, 18.75f}};
    struct pairs *pairs = pairs_new(NULL, 0);
    add(pairs, 0, 0, side(a, 4), side(b, 4));
    is_int((long long)pairs->grid[0].n_off_bf16, 0, "bf16 logits are seen");
    is_near(pairs->grid[0].step, .125, "with the step of their gaps");
    ok(pairs->grid[1].n_off_bf16 > 0, "others are not");
    is_near(pairs_ulp_bf16(20.), .125, "bf16: 0.125 from 16 to 32");
    is_near(pairs_ulp_bf16(40.25), .25, "bf16: 0.25 from 32 to 64");
    is_near(pairs_ulp_bf16(-16), .125, "bf16: a power of two belongs to the next step");
    is_near(pairs_ulp_f16(20.), 1. / 64, "f16: 1/64 from 16 to 32");
    ok(pairs_is_f16(1 / 16777216.f) && !pairs_is_f16(1 / 33554432.f),
       "f16: the smallest subnormal is 2^-24");
    pairs_free(pairs);
}

static void test_sequences(void)
{
    const struct pair_logit a[] = {{1, 4}, {2, 3}, {3, 2}};
    const struct pair_logit b[] = {{1, 4.5f}, {2, 3}, {3, 2}};
    const char *const names[] = {"cached"};
    struct pairs *pairs = pairs_new(names, 1);
    for (int seq = 0; seq < 3; seq++)
        for (int pos = 0; pos < 200; pos++)
            add(pairs, seq, pos, side(a, 3), side(b, 3));
    pairs_close(pairs);
    is_int((long long)pairs_n_sequences(pairs), 3, "three sequences");
    is_int((long long)pairs->seq_first[2], 400, "the third begins at row 400");
    is_int((long long)pairs->wheres.n, 1, "one place, interned");
    is_int((long long)pairs->ids.n_used, 3, "three ids");
    for (size_t i = 0; i < pairs->ids.n_slots; i++)
        if (pairs->ids.slots[i].n && pairs->ids.slots[i].token == 1) {
            is_int((long long)pairs->ids.slots[i].n, 3, "each in three sequences");
            is_near(pairs->ids.slots[i].sum, 1.5, "centred by the median of the shared ids");
        }
    pairs_free(pairs);
}

int main(void)
{
    test_contrast();
    test_bounds();
    test_refused();
    test_ties();
    test_grid();
    test_sequences();
    return tap_done();
}
