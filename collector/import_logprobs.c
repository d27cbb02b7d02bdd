/* Responses with log-probabilities. Every file is read twice: to check it, to learn which way of
 * joining all responses allow, and to number the texts; then to write. Memory is that of one line
 * and of the texts. */
#include "config.h"

#include "collector/import.h"
#include "collector/logprobs.h"
#include "collector/texts.h"
#include "collector/xalloc.h"
#include "sql/context_hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How the contexts of two responses are known to be equal, strongest first. */
enum way { BY_TOKENS, BY_PROMPT, BY_ID, BY_ORDER, N_WAYS };

static const char *const way_names[N_WAYS] = {"tokens", "prompt", "id", "order"};

struct counts {
    uint64_t n_rows, n_failed, n_short, n_null, n_same;
};

/* One choice of the response at hand, as far as it has been read. */
struct choice {
    uint64_t context;
    int64_t pos, seq; /* seq -1: no row of it yet */
    int32_t last;     /* token before, -1 = unknown */
};

struct input {
    const struct import *import;
    struct texts *texts;
    unsigned ways; /* of BY_TOKENS, ...: those that every response so far allows */
    enum way way;
    bool has_ids, has_texts; /* of every token */
    bool has_lengths;        /* of every prompt */
    bool is_logits;          /* a value above 0 was seen */
    uint64_t seed;           /* of the contexts */
    struct counts counts;
    int64_t n_seqs;
    char models[IMPORT_FILES][120];
    struct choice choices[LOGPROBS_CHOICES];
};

/* What one token's list becomes. */
struct list {
    int n_top;
    struct record_top top[RECORD_TOP_MAX];
    uint32_t n_null, n_same;
    int32_t first_null;
};

/* ---- one list ---- */

static int32_t token_of(struct input *in, const struct logprob_entry *entry)
{
    return entry->id >= 0 && in->has_ids ? (int32_t)entry->id : texts_find(in->texts, entry);
}

/* Best first, ties by the lowest id; of two entries with one id the better one. */
static void list_add(struct list *list, int32_t token, float value)
{
    int at = 0;
    while (at < list->n_top && list->top[at].token != token)
        at++;
    if (at < list->n_top) {
        list->n_same++;
        if (!(value > list->top[at].logit))
            return;
        list->n_top--;
        memmove(list->top + at, list->top + at + 1, (size_t)(list->n_top - at) * sizeof *list->top);
    }
    for (at = list->n_top; at > 0; at--) {
        const struct record_top *before = list->top + at - 1;
        if (before->logit > value || (before->logit == value && before->token < token))
            break;
    }
    if (at == RECORD_TOP_MAX)
        return;
    list->n_top -= list->n_top == RECORD_TOP_MAX;
    memmove(list->top + at + 1, list->top + at, (size_t)(list->n_top - at) * sizeof *list->top);
    list->top[at] = (struct record_top){token, value};
    list->n_top++;
}

/* Servers add the chosen token to the list whatever its rank: as the last it says nothing of those
 * before it that are not listed, so it bounds nothing. */
static void drop_chosen(struct list *list, int32_t chosen)
{
    int n = list->n_top;
    if (n > 1 && list->top[n - 1].token == chosen &&
        list->top[n - 1].logit < list->top[n - 2].logit)
        list->n_top--;
}

static void read_list(struct input *in, const struct logprob_token *token, struct list *list)
{
    *list = (struct list){.first_null = -1};
    for (int i = 0; i < token->n_list; i++) {
        const struct logprob_entry *entry = token->list + i;
        int32_t id = token_of(in, entry);
        if (entry->state == LOGPROB_NUMBER)
            list_add(list, id, entry->value);
        list->n_null += entry->state == LOGPROB_NULL;
        if (entry->state == LOGPROB_NULL && (list->first_null < 0 || id < list->first_null))
            list->first_null = id;
    }
    drop_chosen(list, token_of(in, &token->chosen));
}

/* Whether it makes a row: two values, or not one number among what is listed (the best of a row is
 * never -inf, so it was NaN or +inf). */
static bool is_row(struct counts *counts, const struct logprob_token *token,
                   const struct list *list)
{
    bool whole = list->n_top > 1 || (!list->n_top && list->n_null);
    counts->n_rows += whole;
    counts->n_short += !whole && (token->n_list || token->chosen.state == LOGPROB_NUMBER);
    counts->n_null += list->n_top ? list->n_null : 0;
    counts->n_same += list->n_same;
    return whole;
}

/* ---- the first reading ---- */

static int note_entry(struct input *in, const struct logprobs *lines,
                      const struct logprob_entry *entry, struct err *err)
{
    if (entry->id < 0 && !entry->text)
        return logprobs_fail(lines, err, "a token has neither text nor id");
    in->has_ids &= entry->id >= 0;
    in->has_texts &= entry->text != NULL;
    in->is_logits |= entry->state == LOGPROB_NUMBER && entry->value > 1e-3f;
    return texts_add(in->texts, entry, err);
}

static int note_token(struct input *in, const struct logprobs *lines,
                      const struct logprob_token *token, struct err *err)
{
    struct list list;
    if (note_entry(in, lines, &token->chosen, err))
        return -1;
    for (int i = 0; i < token->n_list; i++)
        if (note_entry(in, lines, token->list + i, err))
            return -1;
    if (!in->has_ids && !in->has_texts)
        return logprobs_fail(lines, err, "its tokens have %s alone, others have %s alone",
                             token->chosen.text ? "texts" : "ids",
                             token->chosen.text ? "ids" : "texts");
    read_list(in, token, &list);
    is_row(&in->counts, token, &list);
    return 0;
}

/* The ways that this response allows; an id of the server's own making only where asked for. */
static unsigned ways_of(const struct input *in, const struct logprob_response *response)
{
    bool by_id = in->import->join && !strcmp(in->import->join, way_names[BY_ID]);
    unsigned ways = 1 << BY_ORDER;
    ways |= response->n_prompt_ids ? 1 << BY_TOKENS : 0;
    ways |= response->prompt ? 1 << BY_PROMPT : 0;
    ways |= response->custom_id || (by_id && response->id) ? 1 << BY_ID : 0;
    return ways;
}

static int note_response(struct input *in, const struct logprobs *lines, int file,
                         const struct logprob_response *response, struct err *err)
{
    const char *join = in->import->join;
    if (response->model)
        snprintf(in->models[file], sizeof in->models[file], "%s", response->model);
    if (response->goes_on)
        return 0;
    in->ways &= ways_of(in, response);
    in->has_lengths &= response->n_prompt_tokens > 0;
    if (join && !(in->ways & 1u << in->way))
        return logprobs_fail(lines, err, "--join=%s, but it states no %s", join,
                             in->way == BY_TOKENS   ? "token ids of its prompt"
                             : in->way == BY_PROMPT ? "request or prompt"
                                                    : "custom_id or id");
    if (!join && in->ways == 1 << BY_ORDER)
        return logprobs_fail(lines, err,
                             "it states no token ids, request, prompt or custom_id by which it "
                             "could join others, or not the one that those before state; "
                             "--join=order compares responses by their order");
    return 0;
}

static int note_file(struct input *in, struct logprobs *lines, int file, struct err *err)
{
    struct logprob_response response;
    struct logprob_token token;
    int rc;
    while ((rc = logprobs_next(lines, &response, err)) > 0) {
        uint64_t n_tokens = 0;
        import_progress(in->import, "checking response", response.number);
        while (!response.is_failed && (rc = logprobs_token(lines, &token, err)) > 0) {
            if (!n_tokens++ && note_response(in, lines, file, &response, err))
                return -1;
            if (note_token(in, lines, &token, err))
                return -1;
        }
        if (rc < 0)
            return -1;
        in->counts.n_failed += !n_tokens && !response.goes_on;
    }
    return rc;
}

static int for_each_file(struct input *in, void *writer,
                         int (*fn)(struct input *, struct logprobs *, int, void *, struct err *),
                         struct err *err)
{
    int rc = 0;
    for (int i = 0; i < in->import->n_files && rc == 0; i++) {
        struct logprobs *lines;
        rc = logprobs_open(&lines, texts_db(in->texts), in->import->files[i], err);
        if (rc == 0)
            rc = fn(in, lines, i, writer, err);
        logprobs_close(lines);
    }
    return rc;
}

static int check_file(struct input *in, struct logprobs *lines, int file, void *writer,
                      struct err *err)
{
    (void)writer;
    struct counts before = in->counts;
    if (note_file(in, lines, file, err))
        return -1;
    uint64_t n_short = in->counts.n_short - before.n_short;
    if (in->counts.n_rows > before.n_rows)
        return 0;
    if (n_short)
        return err_set(err,
                       "%s: %" PRIu64
                       " tokens, each with fewer than two values: ask the server for "
                       "top_logprobs of 2 or more, and not for probabilities at temperature 0",
                       in->import->files[file], n_short);
    return err_set(err, "%s: no log-probabilities: ask the server for logprobs and top_logprobs",
                   in->import->files[file]);
}

/* Settle how contexts are known, and what seeds them. */
static int choose_way(struct input *in, struct err *err)
{
    if (!in->has_ids && in->import->join && in->way == BY_TOKENS)
        return err_set(err, "--join=tokens: %s and the others state texts of tokens, not all ids",
                       in->import->files[0]);
    if (!in->import->join)
        for (in->way = in->has_ids ? BY_TOKENS : BY_PROMPT; !(in->ways & 1u << in->way);)
            in->way++;
    if (!in->import->join && in->way == BY_ORDER)
        return err_set(err,
                       "%s: its tokens have no ids, and no response states a prompt or "
                       "custom_id; --join=order compares responses by their order",
                       in->import->files[0]);
    in->seed = in->way == BY_PROMPT ? 'p' : import_seed(in->import);
    if (!in->has_ids)
        in->seed += texts_hash(in->texts); /* these ids mean something among these texts alone */
    return 0;
}

/* ---- the second reading ---- */

static uint64_t never_0(uint64_t hash)
{
    return hash + (hash == 0);
}

static void begin_choices(struct input *in, const struct logprob_response *response)
{
    struct choice first = {.seq = -1, .last = -1};
    const char *id = response->custom_id ? response->custom_id : response->id;
    size_t n_id = (size_t)(response->custom_id ? response->n_custom_id : response->n_id);
    switch (in->way) {
    case BY_TOKENS:
        first.pos = response->n_prompt_ids - 1;
        first.last = response->prompt_ids[first.pos];
        first.context = context_hash(0, response->prompt_ids, (size_t)response->n_prompt_ids);
        break;
    case BY_PROMPT:
        first.context =
            XXH3_64bits_withSeed(response->prompt, (size_t)response->n_prompt, in->seed);
        break;
    case BY_ID:
        first.context = XXH3_64bits_withSeed(id, n_id, in->seed);
        break;
    case BY_ORDER:
    case N_WAYS:
        first.context = XXH3_64bits_withSeed(&response->number, sizeof response->number, in->seed);
    }
    if (in->way != BY_TOKENS && in->has_lengths) { /* equal text need not be equal tokens */
        first.pos = response->n_prompt_tokens - 1;
        first.context = XXH3_64bits_withSeed(&first.pos, sizeof first.pos, first.context);
    }
    first.context = never_0(first.context);
    for (int i = 0; i < LOGPROBS_CHOICES; i++)
        in->choices[i] = first;
}

static int put_sequence(struct run_writer *w, int64_t seq, const struct logprob_response *response,
                        struct err *err)
{
    const char *label = response->custom_id ? response->custom_id : response->id;
    struct record_sequence *body = run_next_body(w);
    *body = (struct record_sequence){.seq = seq, .parent = -1};
    snprintf(body->label, sizeof body->label, "%s", label ? label : "");
    return run_put(w, RECORD_SEQUENCE, sizeof *body, err);
}

static int put_list(struct run_writer *w, const struct input *in, const struct choice *choice,
                    const struct list *list, struct err *err)
{
    struct record_row *row = run_next_body(w);
    *row = (struct record_row){
        .row_id = ++w->n_rows,
        .forward_id = w->n_forwards,
        .context_hash = choice->context,
        .seq = choice->seq,
        .pos = choice->pos,
        .lse = in->is_logits || !list->n_top ? NAN : 0, /* of log-probabilities: log 1 */
        .input_token = choice->last,
        .n_nan = list->n_top ? 0 : list->n_null,
        .first_bad = list->n_top ? -1 : list->first_null,
        .n_top = (uint8_t)list->n_top,
    };
    memcpy(row->top, list->top, (size_t)list->n_top * sizeof *list->top);
    return run_put(w, RECORD_ROW, record_row_bytes(list->n_top, 0), err);
}

static int put_token(struct run_writer *w, struct input *in, int file,
                     const struct logprob_response *response, const struct logprob_token *token,
                     struct err *err)
{
    struct choice *choice = in->choices + token->choice;
    struct list list;
    struct record_forward forward = {
        .n_past = choice->pos, .arm = file + 1, .n_tokens = 1, .n_seqs = 1, .n_ubatch = 1};
    int32_t chosen = token_of(in, &token->chosen);
    read_list(in, token, &list);
    if (is_row(&in->counts, token, &list)) {
        if (choice->seq < 0) {
            choice->seq = in->n_seqs++;
            if (put_sequence(w, choice->seq, response, err))
                return -1;
        }
        if (run_put_forward(w, &forward, err) || put_list(w, in, choice, &list, err))
            return -1;
        *(struct record_token *)run_next_body(w) = (struct record_token){w->n_rows, chosen};
        if (run_put(w, RECORD_TOKEN, sizeof(struct record_token), err))
            return -1;
    }
    choice->context =
        in->has_ids ? context_hash(choice->context, &chosen, 1)
                    : never_0(XXH3_64bits_withSeed(token->chosen.text, (size_t)token->chosen.n_text,
                                                   choice->context));
    choice->last = chosen;
    choice->pos++;
    return 0;
}

static int put_file(struct input *in, struct logprobs *lines, int file, void *writer,
                    struct err *err)
{
    struct logprob_response response;
    struct logprob_token token;
    int rc;
    while ((rc = logprobs_next(lines, &response, err)) > 0) {
        bool begun = response.goes_on;
        import_progress(in->import, "writing response", response.number);
        while (!response.is_failed && (rc = logprobs_token(lines, &token, err)) > 0) {
            if (!begun)
                begin_choices(in, &response);
            begun = true;
            if (put_token(writer, in, file, &response, &token, err))
                return -1;
        }
        if (rc < 0)
            return -1;
    }
    return rc;
}

static int put_settings(struct run_writer *w, const struct input *in, struct err *err)
{
    char model_hash[24];
    snprintf(model_hash, sizeof model_hash, "%016" PRIx64, texts_hash(in->texts));
    if (import_put_head(w, in->import, 1, err) ||
        run_put_setting(w, "import_join", way_names[in->way], err) ||
        run_put_setting(w, "import_ids", in->has_ids ? "stated" : "of texts, local to the import",
                        err) ||
        run_put_setting(w, "import_values", in->is_logits ? "logits" : "log-probabilities", err) ||
        /* so that these ids keep their texts beside those of other runs in the file */
        (!in->has_ids && run_put_setting(w, "model_hash", model_hash, err)))
        return -1;
    for (int i = 0; i < in->import->n_files; i++) {
        char name[24];
        snprintf(name, sizeof name, "import_model_%c", 'a' + i);
        if (in->models[i][0] && run_put_setting(w, name, in->models[i], err))
            return -1;
    }
    return 0;
}

static int put_gaps(struct run_writer *w, const struct input *in, struct err *err)
{
    const struct counts *n = &in->counts;
    const struct {
        const char *kind;
        uint64_t count;
        const char *detail;
    } gaps[] = {
        {"import", n->n_rows,
         in->is_logits ? "logprobs: only listed logits are known; vocabulary, batches and kernels "
                         "are not"
                       : "logprobs: log-probabilities of listed tokens alone; logits, vocabulary, "
                         "batches and kernels are unknown; a delta is one of log-probabilities"},
        {"import_local_ids", in->has_ids ? 0 : n->n_rows,
         "ids number the texts; tokens of equal text are one, so are equal texts of the prefix"},
        {"import_short", n->n_short,
         "tokens left out: fewer than two are listed, beside a last one that may be of any rank"},
        {"import_null", n->n_null, "listed values that are null, NaN or infinity, left out"},
        {"import_same_token", n->n_same, "entries left out: the list has their token already"},
        {"import_failed", n->n_failed, "responses that are errors or have no log-probabilities"},
    };
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++)
        if (gaps[i].count && run_put_gap(w, gaps[i].kind, gaps[i].count, gaps[i].detail, err))
            return -1;
    return 0;
}

static int put_all(struct run_writer *w, void *input, struct err *err)
{
    struct input *in = input;
    uint64_t n_failed = in->counts.n_failed;
    in->counts = (struct counts){.n_failed = n_failed};
    if (put_settings(w, in, err))
        return -1;
    store_vocab(w->store, texts_vocab(in->texts, in->has_ids));
    return for_each_file(in, w, put_file, err) || put_gaps(w, in, err) ? -1 : 0;
}

static int parse_join(struct input *in, struct err *err)
{
    const char *join = in->import->join;
    for (in->way = 0; join && in->way < N_WAYS; in->way++)
        if (!strcmp(join, way_names[in->way]))
            return 0;
    return join ? err_set(err, "--join=%s: not one of tokens, prompt, id, order", join) : 0;
}

int import_logprobs(const struct import *import, struct err *err)
{
    struct input *in = xcalloc(1, sizeof *in);
    *in = (struct input){
        .import = import, .ways = ~0u, .has_ids = true, .has_texts = true, .has_lengths = true};
    int rc = parse_join(in, err) || texts_open(&in->texts, err) ||
                     for_each_file(in, NULL, check_file, err) || choose_way(in, err)
                 ? -1
                 : run_write_file(import->path, put_all, in, err);
    texts_close(in->texts);
    free(in);
    return rc;
}
