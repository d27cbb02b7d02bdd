#include "config.h"

#include "engine/cmd_arm.h"
#include "engine/mem.h"
#include "engine/record.h"
#include "err.h"

#include <string.h>

static int phase_parse(const char *text, enum forward_phase *out)
{
    static const char *const phases[] = {
        [FORWARD_PREFILL] = "prefill", [FORWARD_DECODE] = "decode"};
    for (int i = FORWARD_PREFILL; text && i <= FORWARD_DECODE; i++)
        if (!strcmp(text, phases[i])) {
            *out = (enum forward_phase)i;
            return 0;
        }
    return -1;
}

static int arm_parse(struct arm *a, const char *text, size_t n, const struct knobs *knobs,
                     struct err *err)
{
    char copy[sizeof a->label], *save = NULL;
    if (n >= sizeof a->label)
        return err_set(err, "arm %.*s...: longer than %zu bytes", 40, text, sizeof a->label - 1);
    *a = (struct arm){.knobs = *knobs};
    memcpy(a->label, text, n);
    strcpy(copy, a->label);
    if (phase_parse(strtok_r(copy, ":", &save), &a->phase))
        return err_set(err, "arm \"%s\": must begin with prefill or decode", a->label);
    for (char *knob; (knob = strtok_r(NULL, ":", &save));) {
        char *value = strchr(knob, '=');
        if (!value)
            return err_set(err, "arm %s: \"%s\" is not KNOB=VALUE", a->label, knob);
        *value++ = 0;
        if (knobs_set(&a->knobs, knob, value, err))
            return -1;
    }
    return 0;
}

int arms_parse(const char *text, const struct knobs *knobs, struct arm *arms, size_t n_max,
               size_t *out_n, struct err *err)
{
    *out_n = 0;
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        if (*out_n == n_max)
            return err_set(err, "arms %s: more than %zu", text, n_max);
        if (arm_parse(&arms[*out_n], p, n, knobs, err))
            return -1;
        for (size_t i = 0; i < *out_n; i++)
            if (!strcmp(arms[i].label, arms[*out_n].label))
                return err_set(err, "arms %s: %s stands twice", text, arms[i].label);
        ++*out_n;
        if (!p[n])
            return 0;
        p += n + 1;
    }
}

int arm_prefill(struct forward *f, struct record *r, int32_t id, const struct arm_input *in,
                arm_row_fn row, void *user, struct err *err)
{
    const struct forward_params *params = forward_params_of(f);
    int32_t chunk = params->knobs.value[KNOB_PRIME_CHUNK], rc = 0;
    chunk = chunk > 0 && chunk < in->n ? chunk : in->n;
    bool *wanted = xreallocarray(NULL, (size_t)chunk, sizeof *wanted);
    int32_t *seqs = xreallocarray(NULL, (size_t)chunk, sizeof *seqs);
    for (int32_t i = 0; i < chunk; i++) {
        wanted[i] = true;
        seqs[i] = in->slot;
    }
    for (int32_t from = 0; rc == 0 && from < in->n; from += chunk) {
        struct forward_logits logits;
        int32_t n = in->n - from < chunk ? in->n - from : chunk;
        struct forward_batch batch = {FORWARD_PREFILL, n, in->tokens + from, seqs, wanted};
        struct record_piece piece = {from / chunk, (in->n + chunk - 1) / chunk};
        rc = record_forward(r, id, piece, f, &batch, &logits, err);
        for (int32_t i = 0; rc == 0 && i < n; i++)
            row(user, from + i, logits.data + (size_t)i * (size_t)logits.n_vocab);
    }
    free(seqs);
    free(wanted);
    return rc;
}
