#include "config.h"

#include "tests/real.h"

#include "collector/xalloc.h"
#include "engine/backend.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"

#include <math.h>

static struct err err;

static void die(void)
{
    printf("Bail out! %s\n", err.text);
    exit(99);
}

void real_open(struct real_model *out, const char *path)
{
    if (gguf_open(path, &out->gguf, &err) || model_open(out->gguf, &out->model, &err) ||
        backend_open("cpu", &out->backend, &err))
        die();
}

void real_close(struct real_model *model)
{
    model_close(model->model);
    gguf_close(model->gguf);
    backend_close(model->backend);
}

static void append_file(const struct tokenizer *tokenizer, const char *path, struct token_list *ids)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    if (!file) {
        err_set(&err, "%s: cannot be read", path);
        die();
    }
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    if (tokenizer_encode(tokenizer, text, n, 0, ids, &err))
        die();
}

static int32_t most_frequent(const struct token_list *ids, int32_t n_vocab)
{
    int *counts = xcalloc((size_t)n_vocab, sizeof *counts);
    int32_t best = 0;
    for (size_t i = 0; i < ids->n; i++)
        counts[ids->ids[i]]++;
    for (int32_t v = 1; v < n_vocab; v++)
        best = counts[v] > counts[best] ? v : best;
    free(counts);
    return best;
}

void real_prompts(struct real_prompts *out, const struct real_model *model,
                  const char *const *files, int stride, int most)
{
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    if (tokenizer_open(model->gguf, &tokenizer, &err))
        die();
    for (; *files; files++)
        append_file(tokenizer, *files, &ids);
    out->common = most_frequent(&ids, model->model->hp.n_vocab);
    out->n = ids.n < REAL_LENGTH ? 0 : (int)((ids.n - REAL_LENGTH) / (size_t)stride + 1);
    out->n = out->n < most ? out->n : most;
    out->ids = xcalloc((size_t)out->n, sizeof *out->ids);
    for (int p = 0; p < out->n; p++)
        memcpy(out->ids[p], ids.ids + (size_t)p * (size_t)stride, sizeof out->ids[p]);
    token_list_free(&ids);
    tokenizer_close(tokenizer);
}

/* Put one logit into a list of the largest, ties to the lowest id. */
static void keep(struct real_row *row, int32_t token, float logit)
{
    int i = row->n_topk;
    if (i == REAL_TOPK && logit <= row->topk[i - 1].logit)
        return;
    if (i < REAL_TOPK)
        row->n_topk++;
    else
        i--;
    for (; i > 0 && row->topk[i - 1].logit < logit; i--)
        row->topk[i] = row->topk[i - 1];
    row->topk[i] = (struct pair_logit){token, logit};
}

static void reduce(struct real_row *row, const float *logits, int32_t n_vocab)
{
    row->hash = 0xcbf29ce484222325u; /* FNV-1a over words */
    for (int32_t v = 0; v < n_vocab; v++) {
        uint32_t bits;
        memcpy(&bits, &logits[v], sizeof bits);
        row->hash = (row->hash ^ bits) * 0x100000001b3u;
        if (isnan(logits[v]))
            row->n_nan++;
        else
            keep(row, v, logits[v]);
    }
    if (row->n_nan)
        row->n_topk = 0;
}

static struct forward *context(const struct real_model *model, const struct real_arm *arm)
{
    struct forward_params params = {.n_ctx = REAL_LENGTH, .n_seqs = REAL_BATCH};
    char text[128], *save = NULL;
    struct forward *f;
    knobs_init(&params.knobs);
    snprintf(text, sizeof text, "PRIME_CHUNK=%d %s", REAL_CHUNK, arm->knobs);
    for (char *name = strtok_r(text, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char *value = strchr(name, '=');
        *value++ = '\0';
        if (knobs_set(&params.knobs, name, value, &err))
            die();
    }
    if (forward_new(model->model, model->backend, &params, &f, &err))
        die();
    return f;
}

static void run_prefill(struct real_run *out, struct forward *f, const struct real_prompts *prompts,
                        int p)
{
    struct forward_logits logits;
    bool wanted[REAL_LENGTH];
    int32_t seqs[REAL_LENGTH], n_chunks = (REAL_LENGTH + REAL_CHUNK - 1) / REAL_CHUNK;
    for (int i = 0; i < REAL_LENGTH; i++) {
        wanted[i] = true;
        seqs[i] = p % REAL_BATCH;
    }
    struct forward_batch batch = {FORWARD_PREFILL, REAL_LENGTH, prompts->ids[p], seqs, wanted};
    if (forward_run(f, &batch, &logits, &err))
        die();
    for (int i = 0; i < REAL_LENGTH; i++) {
        struct real_row *row = &out->rows[p * REAL_LENGTH + i];
        int32_t start = i / REAL_CHUNK * REAL_CHUNK;
        int32_t n = REAL_LENGTH - start < REAL_CHUNK ? REAL_LENGTH - start : REAL_CHUNK;
        reduce(row, logits.data + (size_t)i * (size_t)logits.n_vocab, logits.n_vocab);
        row->place = (struct pair_place){0,        i - start, n,           1, start / REAL_CHUNK,
                                         n_chunks, start,     PAIR_UNKNOWN};
    }
}

/* Decode the prompts from `first` on, side by side. */
static void run_decode(struct real_run *out, struct forward *f, const struct real_prompts *prompts,
                       int first)
{
    int n = prompts->n - first < REAL_BATCH ? prompts->n - first : REAL_BATCH;
    for (int i = 0; i < REAL_LENGTH; i++) {
        struct forward_logits logits;
        int32_t tokens[REAL_BATCH];
        for (int k = 0; k < n; k++)
            tokens[k] = prompts->ids[first + k][i];
        struct forward_batch batch = {FORWARD_DECODE, n, tokens, NULL, NULL};
        if (forward_run(f, &batch, &logits, &err))
            die();
        for (int k = 0; k < n; k++) {
            struct real_row *row = &out->rows[(first + k) * REAL_LENGTH + i];
            reduce(row, logits.data + (size_t)k * (size_t)logits.n_vocab, logits.n_vocab);
            row->place = (struct pair_place){1, k, n, n, 0, 1, i, PAIR_UNKNOWN};
        }
    }
}

void real_run(struct real_run *out, const struct real_model *model,
              const struct real_prompts *prompts, const struct real_arm *arm,
              const struct fault *fault)
{
    struct forward *f = context(model, arm);
    out->n_prompts = prompts->n;
    out->rows = xcalloc((size_t)prompts->n * REAL_LENGTH, sizeof *out->rows);
    faults_plant(fault, f, prompts->common);
    for (int p = 0; p < prompts->n; p++) {
        if (p % REAL_BATCH == 0)
            for (int k = 0; k < REAL_BATCH; k++)
                forward_seq_reset(f, k);
        if (arm->phase == FORWARD_PREFILL)
            run_prefill(out, f, prompts, p);
        else if (p % REAL_BATCH == 0)
            run_decode(out, f, prompts, p);
    }
    faults_plant(NULL, NULL, 0);
    forward_free(f);
}

static struct pair_side side_of(const struct real_row *row)
{
    return (struct pair_side){.topk = row->topk,
                              .n_topk = row->n_topk,
                              .n_nan = row->n_nan,
                              .first_bad = PAIR_UNKNOWN,
                              .emitted = row->n_topk ? row->topk[0].token : PAIR_UNKNOWN,
                              .place = row->place};
}

struct pairs *real_pairs(const struct real_run *a, const struct real_run *b, int half)
{
    struct pairs *pairs = pairs_new(NULL, 0);
    for (int p = 0; p < a->n_prompts; p++)
        for (int i = 0; i < REAL_LENGTH && (half < 0 || p / REAL_BATCH % 2 == half); i++) {
            const struct real_row *x = &a->rows[p * REAL_LENGTH + i];
            const struct real_row *y = &b->rows[p * REAL_LENGTH + i];
            struct pair_row row = {.seq = p,
                                   .pos = i,
                                   .comparable = true,
                                   .bit_equal = x->hash == y->hash,
                                   .a = side_of(x),
                                   .b = side_of(y)};
            if (pairs_add(pairs, &row, &err))
                die();
        }
    return pairs;
}
