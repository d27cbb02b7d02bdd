#include "config.h"

#include "collector/judge.h"

#include <string.h>

/* What each class means, for people who have not read the rule. */
static const struct {
    enum doc_tone tone;
    const char *sentence;
} meanings[VERDICT_N_CLASSES] = {
    [VERDICT_NOT_ENGAGED] = {DOC_NONE, "Every row is bit-equal: what was changed between the arms "
                                       "did not act, so nothing can be concluded."},
    [VERDICT_NOT_COMPARABLE] = {DOC_NONE, "Nothing can be concluded: no two rows saw the same "
                                          "tokens, or what is left is no sample."},
    [VERDICT_NONFINITE] = {DOC_BAD, "Logits hold NaN or +inf: a defect, whatever token came out."},
    [VERDICT_SAMPLER_MISMATCH] = {DOC_BAD, "Decoding was greedy, and the emitted token is not the "
                                           "best recorded logit: look at the sampler."},
    [VERDICT_CONTRACT_VIOLATION] = {DOC_BAD, "The arms promise bit-equal rows, and rows differ."},
    [VERDICT_SYSTEMATIC] = {DOC_BAD, "The difference has a pattern that rounding noise has not: "
                                     "look for a defect at what is named."},
    [VERDICT_UNEXPLAINED] = {DOC_BAD, "The arms differ by more than the noise floor explains."},
    [VERDICT_EXACT_TIE] = {DOC_NOTE, "At every flip two tokens had exactly the same logit: a rule "
                                     "for ties decided, not arithmetic."},
    [VERDICT_NEAR_TIE] = {DOC_NOTE, "Tokens flip on near-ties, as often as the noise floor lets "
                                    "expect: no sign of a defect. The texts may still differ in "
                                    "what they say."},
    [VERDICT_EXPOSED] = {DOC_NOTE, "No token flipped, but with these margins and this noise flips "
                                   "are to be expected."},
    [VERDICT_STABLE] = {DOC_GOOD, "No token flipped, and none was likely to."},
};

/* What a test says where it rejects; the figures follow. */
static const char *const findings[TEST_N] = {
    [TEST_TAG] = "the difference goes with",
    [TEST_ID] = "one token is moved the same way in every sequence",
    [TEST_SIGN] = "B moves the runner-up the same way in row after row",
    [TEST_SLOPE] = "B stretches or shrinks all gaps alike, as a temperature, a scale or a cap does",
    [TEST_SCALE] = "typical rows differ more than those of a sound pair",
    [TEST_WORST] = "a token flipped where A was sure of it",
    [TEST_COUNT] = "more tokens flipped than noise explains",
    [TEST_MAX] = "one row differs by more than any row of a sound pair would",
    [TEST_EXCEED] = "many rows differ by more than every row of a sound pair",
};

/* What a tag looks at. */
static const struct {
    const char *field, *words;
} fields[] = {
    {"phase", "0 prefill, 1 decode, 2 verify"},
    {"batch_row", "row of the batch, from 0"},
    {"n_tokens", "tokens of the forward pass"},
    {"n_seqs", "sequences of the forward pass"},
    {"ubatch_index", "micro-batch, from 0"},
    {"n_ubatch", "micro-batches of the batch"},
    {"kernel_list", "sequence of kernel launches"},
    {"kernel", "forward passes that launch it"},
    {"pos", "position in the sequence"},
    {"rows after a boundary", "a forward pass that goes on with a sequence begins there"},
    {"rows before a boundary", "the end of a forward pass"},
    {"rows of a partial tile", "the last rows of a forward pass, which do not fill a tile"},
};

static const char *field_words(const char *field)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(field, fields[i].field))
            return fields[i].words;
    return "a tag of the engine's";
}

static void write_tag(struct doc *doc, const struct verdict_tag *tag)
{
    const char *side = tag->side == 0 ? "arm A, " : tag->side == 1 ? "arm B, " : "";
    doc_fact(doc, verdict_test_names[TEST_TAG],
             "%s %s (%s%s): %.3g times the floor there, %.3g times in all other rows",
             findings[TEST_TAG], tag->name, side, field_words(tag->field), tag->ratio,
             tag->ratio_rest);
}

void judge_write_head(struct doc *doc, const struct judgement *j)
{
    const struct verdict *v = &j->verdict;
    char why[sizeof v->reason + sizeof v->beside + 16];
    snprintf(why, sizeof why, "%s%s%s", v->reason, v->beside[0] ? "; beside it " : "", v->beside);
    doc_verdict(doc, meanings[v->cls].tone, verdict_names[v->cls], why, meanings[v->cls].sentence);
    for (int t = 0; t < TEST_N; t++)
        if (v->tests[t].rejects && t == TEST_TAG)
            write_tag(doc, v->tags);
        else if (v->tests[t].rejects)
            doc_fact(doc, verdict_test_names[t], "%s: %s", findings[t], v->tests[t].detail);
}
