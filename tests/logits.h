/* Logits of a model file for given tokens, for the tests that compare them: forward_t and
 * ref_table. Everything that cannot work ends the program with a line that says why. */
#ifndef NEARTIE_TESTS_LOGITS_H
#define NEARTIE_TESTS_LOGITS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "err.h"

static struct backend *backend;
static struct err err;

struct subject {
    struct gguf *g;
    struct model *m;
};

static inline void die(void)
{
    printf("Bail out! %s\n", err.text);
    exit(99);
}

static inline struct subject subject_open(const char *path)
{
    struct subject s = {0};
    if (gguf_open(path, &s.g, &err) < 0 || model_open(s.g, &s.m, &err) < 0)
        die();
    return s;
}

static inline void subject_close(struct subject *s)
{
    model_close(s->m);
    gguf_close(s->g);
}

static inline struct knobs knobs_of(const char *text)
{
    struct knobs k;
    char buf[128], *save = NULL;
    knobs_init(&k);
    snprintf(buf, sizeof buf, "%s", text);
    for (char *p = strtok_r(buf, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *value = strchr(p, '=');
        *value++ = '\0';
        if (knobs_set(&k, p, value, &err) < 0)
            die();
    }
    return k;
}

static inline struct forward *context(const struct subject *s, const char *knobs, int32_t n_ctx,
                                      int32_t n_seqs)
{
    struct forward_params p = {.n_ctx = n_ctx, .n_seqs = n_seqs, .knobs = knobs_of(knobs)};
    struct forward *f;
    if (forward_new(s->m, backend, &p, &f, &err) < 0)
        die();
    return f;
}

/* Logits of every token, (n, n_vocab), by one prefill or by n decode steps; owned. */
static inline float *logits_of(const struct subject *s, const char *knobs, enum forward_phase phase,
                               const int32_t *tokens, int32_t n)
{
    struct forward *f = context(s, knobs, n, 1);
    size_t n_vocab = (size_t)s->m->hp.n_vocab;
    float *out = malloc((size_t)n * n_vocab * sizeof *out);
    bool *wanted = malloc((size_t)n);
    memset(wanted, 1, (size_t)n);
    int32_t step = phase == FORWARD_PREFILL ? n : 1;
    for (int32_t i = 0; i < n; i += step) {
        struct forward_logits l;
        struct forward_batch b = {phase, step, tokens + i, NULL, wanted};
        if (forward_run(f, &b, &l, &err) < 0)
            die();
        memcpy(out + (size_t)i * n_vocab, l.data, (size_t)step * n_vocab * sizeof *out);
    }
    free(wanted);
    forward_free(f);
    return out;
}

static inline double max_difference(const float *a, const float *b, size_t n)
{
    double max = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        max = d > max || isnan(d) ? d : max;
    }
    return max;
}

static inline void *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(1, *size + 1);
    if (fread(data, 1, *size, file) != *size)
        data = NULL;
    fclose(file);
    return data;
}

/* The integers of "key": [..] in a JSON text; returns their number. */
static inline int32_t json_ints(const char *json, const char *key, int32_t *out, int32_t max)
{
    const char *p = strstr(json, key);
    int32_t n = 0;
    p = p ? strchr(p, '[') : NULL;
    while (p && *p != ']' && n < max)
        out[n++] = (int32_t)strtol(p + 1, (char **)&p, 10);
    return n;
}

#endif
