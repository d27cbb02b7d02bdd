/* Which tag the calibrated rule names where several hold the bad rows: rows of a known size,
 * without a flip, in decode batches of four sequences. */
#include "collector/calibrated.h"
#include "collector/stat_perm.h"
#include "tests/tap.h"

enum { N_ROWS = 128, BATCH = 4 };

/* The size of a row's noise, in units of the floor's. */
typedef double (*size_fn)(int seq, int pos);

/* The last sequence of an odd number runs alone. */
static struct pair_row row_of(int seq, int pos, int n_seqs)
{
    int width = seq / BATCH * BATCH + BATCH <= n_seqs ? BATCH : n_seqs % BATCH;
    struct pair_row row = {.seq = seq, .pos = pos, .comparable = true, .bit_equal = 0};
    row.a = (struct pair_side){.n_topk = 2, .emitted = 1, .place = PAIR_PLACE_UNKNOWN};
    row.b = row.a;
    row.b.place = (struct pair_place){1, seq % BATCH, width, width, 0, 1, pos, PAIR_UNKNOWN};
    return row;
}

static struct pairs *make(int n_seqs, size_fn size, uint64_t seed)
{
    struct pairs *pairs = pairs_new(NULL, 0);
    struct stat_rng rng;
    struct err err;
    stat_rng_seed(&rng, seed);
    for (int seq = 0; seq < n_seqs; seq++)
        for (int pos = 0; pos < N_ROWS; pos++) {
            struct pair_row row = row_of(seq, pos, n_seqs);
            double noise = 0.1 * stat_rng_normal(&rng) * size(seq, pos);
            const struct pair_logit a[] = {{1, 100}, {2, 0}}, b[] = {{1, 100}, {2, (float)noise}};
            row.a.topk = a;
            row.b.topk = b;
            if (pairs_add(pairs, &row, &err))
                ok(0, "%s", err.text);
        }
    return pairs;
}

static double sound(int seq, int pos)
{
    (void)seq;
    (void)pos;
    return 1;
}

/* Bad where the batch row is not 0; the sequence that ran alone happens to be quiet, so that all
 * that ran in a batch stands out from it. */
static double beside_a_quiet_one(int seq, int pos)
{
    (void)pos;
    return seq == 12 ? 0.03 : seq % BATCH ? 5 : 2.2;
}

/* Bad at every 32nd position, and more so at every other of these. */
static double unevenly(int seq, int pos)
{
    (void)seq;
    return pos % 64 == 63 ? 60 : pos % 64 == 31 ? 5 : 1;
}

static void test_name(const char *what, int n_seqs, size_fn size, const char *reason)
{
    struct pairs *test = make(n_seqs, size, 1), *control = make(12, sound, 2);
    struct floor floor;
    struct verdict verdict;
    struct err err;
    floor_from_pairs(&floor, control, FLOOR_SAME, FLOOR_PRECISION, 0);
    const struct verdict_options options = {
        .cls = FLOOR_PRECISION, .floor = &floor, .control = control, .greedy = 1, .seed = 1};
    if (!ok(!verdict_judge(&verdict, test, &options, &err), "%s: judged", what))
        diag("%s", err.text);
    is_str(verdict.reason, reason, "%s", what);
    for (size_t i = 0; i < verdict.n_tags && i < 4; i++)
        diag("%s: %.3g times the floor, the rest %.3g, fit %.4g", verdict.tags[i].name,
             verdict.tags[i].ratio, verdict.tags[i].ratio_rest, verdict.tags[i].fit);
    verdict_fini(&verdict);
    floor_fini(&floor);
    pairs_free(test);
    pairs_free(control);
}

int main(void)
{
    test_name("a sound pair", 12, sound, "");
    test_name("what one sequence alone lies outside of comes behind", 13, beside_a_quiet_one,
              "batch_row > 0");
    test_name("a position of 32 comes before one of 64 that holds half of it", 12, unevenly,
              "pos mod 32 = 31");
    return tap_done();
}
