/* SentencePiece's BPE as llama's GGUF files carry it: a space is written U+2581, characters merge
 * by the score of the token that they make, and what is in no token falls back to its bytes. */
#include "config.h"

#include "engine/mem.h"
#include "engine/tokenizer_int.h"
#include "err.h"

#include <math.h>
#include <string.h>

#define SPACE   "\xe2\x96\x81" /* U+2581 */
#define N_SPACE 3

/* "<0x0A>": the byte, or -1. */
static int byte_value(struct gguf_str s)
{
    char buf[3] = {0}, *end;
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>')
        return -1;
    memcpy(buf, s.p + 3, 2);
    long v = strtol(buf, &end, 16);
    return end == buf + 2 && buf[0] != '+' && buf[0] != '-' ? (int)v : -1;
}

static int spm_open(struct tokenizer *t, struct err *err)
{
    struct gguf_arr scores;
    if (gguf_get_arr(t->gguf, "tokenizer.ggml.scores", &scores, err))
        return -1;
    if (scores.type != GGUF_F32 || scores.n != (uint64_t)t->n_vocab)
        return err_set(err, "%s: key tokenizer.ggml.scores: %llu of type %s, must be %d of f32",
                       gguf_path(t->gguf), (unsigned long long)scores.n,
                       gguf_type_name(scores.type), t->n_vocab);
    t->score = xcalloc((size_t)t->n_vocab, sizeof *t->score);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        t->score[i] = (float)gguf_arr_f64(&scores, (uint64_t)i);
        if (isnan(t->score[i]))
            return err_set(err, "%s: key tokenizer.ggml.scores: token %d has the score nan",
                           gguf_path(t->gguf), i);
        int byte = t->type[i] == TOKEN_BYTE ? byte_value(t->text[i]) : -1;
        if (byte >= 0)
            t->byte_token[byte] = i;
    }
    if (t->bos < 0 && !gguf_has(t->gguf, "tokenizer.ggml.bos_token_id") && t->n_vocab > 2)
        t->bos = 1; /* SentencePiece's own order: unknown, begin, end */
    if (t->eos < 0 && !gguf_has(t->gguf, "tokenizer.ggml.eos_token_id") && t->n_vocab > 2)
        t->eos = 2;
    t->adds_bos = t->bos >= 0;
    t->adds_space = true;
    snprintf(t->description, sizeof t->description, "llama (SentencePiece scores)");
    return 0;
}

static bool may_merge(const struct tokenizer *t, const char *text, const struct symbol *left,
                      const struct symbol *right, int32_t *out_id, float *out_cost)
{
    if ((size_t)left->n + right->n > t->text_max)
        return false;
    int32_t id = tokenizer_find(t, text + left->start, left->n + right->n);
    if (id < 0 || t->type[id] != TOKEN_NORMAL)
        return false;
    *out_id = id;
    *out_cost = -t->score[id];
    return true;
}

/* The text with its spaces rewritten, owned by the caller. */
static char *escape(const char *text, size_t n, bool add_space, size_t *out_n)
{
    char *out = xcalloc(n + 1, N_SPACE), *p = out;
    if (add_space)
        p = mempcpy(p, SPACE, N_SPACE);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ')
            p = mempcpy(p, SPACE, N_SPACE);
        else
            *p++ = text[i];
    }
    *out_n = (size_t)(p - out);
    return out;
}

/* One symbol a character; a byte that begins none is a symbol of its own. Returns their number. */
static int32_t split(const struct tokenizer *t, const char *text, size_t n, struct symbol *symbols)
{
    int32_t n_symbols = 0;
    for (size_t i = 0; i < n; n_symbols++) {
        int length = utf8_length(text + i, n - i);
        struct symbol *s = &symbols[n_symbols];
        s->start = (uint32_t)i;
        s->n = length ? (uint32_t)length : 1;
        s->id = tokenizer_find(t, text + i, s->n);
        if (s->id >= 0 && t->type[s->id] != TOKEN_NORMAL)
            s->id = -1;
        i += s->n;
    }
    return n_symbols;
}

static int spm_encode(const struct tokenizer *t, const char *text, size_t n, bool at_start,
                      struct token_list *out, struct err *err)
{
    int rc = -1;
    size_t n_escaped;
    char *escaped = escape(text, n, at_start && t->adds_space, &n_escaped);
    struct symbol *symbols = xcalloc(n_escaped, sizeof *symbols);
    int32_t n_symbols = split(t, escaped, n_escaped, symbols);
    tokenizer_merge(t, escaped, symbols, n_symbols, may_merge);
    for (int32_t i = 0; i >= 0 && i < n_symbols; i = symbols[i].next) {
        const struct symbol *s = &symbols[i];
        if (s->id >= 0)
            token_list_push(out, s->id);
        else
            for (uint32_t k = 0; k < s->n; k++)
                if (tokenizer_push_byte(t, (uint8_t)escaped[s->start + k], out, err))
                    goto out;
    }
    rc = 0;
out:
    free(symbols);
    free(escaped);
    return rc;
}

static int spm_piece(const struct tokenizer *t, int32_t id, char *buf, size_t size)
{
    struct gguf_str s = t->text[id];
    int byte = t->type[id] == TOKEN_BYTE ? byte_value(s) : -1, used = 0;
    if (byte >= 0)
        return tokenizer_piece_add(buf, size, 0, (const char[]){(char)byte}, 1);
    for (size_t i = 0; i < s.n;) {
        bool is_space = s.n - i >= N_SPACE && !memcmp(s.p + i, SPACE, N_SPACE);
        used = tokenizer_piece_add(buf, size, used, is_space ? " " : s.p + i, 1);
        i += is_space ? N_SPACE : 1;
    }
    return used;
}

static void spm_close(struct tokenizer *t)
{
    free(t->score);
}

const struct tokenizer_kind tokenizer_spm = {"llama", spm_open, spm_close, spm_encode, spm_piece};
