/* Byte-level BPE: a pre-tokenizer cuts the text into words, and within a word the bytes merge by
 * rank. In the vocabulary a byte is written as one printable character: GPT-2's encoder.py. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "config.h"

#include "engine/mem.h"
#include "engine/tokenizer_int.h"
#include "err.h"

#include <pcre2.h>
#include <string.h>

#define N_STEPS_MAX 4
#define RANK_MAX    (1 << 24) /* so that a float holds every rank exactly */

/* Unicode's White_Space, written out: PCRE2's \s also holds U+180E. */
#define WS "\\t-\\r\\x{85}\\p{Z}"
/* English contractions, in either case where ci is set; gpt-2 knows lower case only. */
#define CONTRACTIONS    "'s|'t|'re|'ve|'m|'ll|'d"
#define CONTRACTIONS_CI "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"

/* The pre-tokenizers: patterns as the models' own tokenizer.json files state them. Each step cuts
 * what the step before left, into its matches and what lies between them. */
static const struct pre_tokenizer {
    const char *name;    /* of tokenizer.ggml.pre */
    bool ignores_merges; /* a word that is a token is that token */
    bool adds_bos;       /* where the file does not say */
    const char *steps[N_STEPS_MAX];
} pre_tokenizers[] = {
    {"default",
     false,
     false,
     {"[\\p{P}\\$\\+<=>\\^~\\|]+",
      CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])",
      "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2",
     false,
     false,
     {CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])"}},
    {"llama-bpe",
     true,
     true,
     {CONTRACTIONS_CI "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS
                      "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS
                      "]+"}},
    {"qwen2",
     false,
     false,
     {CONTRACTIONS_CI "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS
                      "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"}},
    {"qwen35",
     false,
     false,
     {CONTRACTIONS_CI "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                      "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS
                      "]+"}},
};
#define N_PRE_TOKENIZERS (sizeof pre_tokenizers / sizeof *pre_tokenizers)

/* Two tokens that merge. */
struct merge {
    int32_t left, right; /* left -1 = free slot */
    int32_t rank, id;    /* lowest rank first; the token of the two */
};

struct bpe {
    const struct pre_tokenizer *pre;
    pcre2_code *steps[N_STEPS_MAX]; /* NULL after the last */
    struct merge *merges;           /* open addressing by (left, right) */
    size_t mask;
};

/* ---- bytes as characters ---- */

/* The character that stands for a byte: itself where it is printable Latin-1, else U+0100 on. */
static uint32_t byte_char(uint8_t byte)
{
    bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    if (printable)
        return byte;
    uint32_t n = 0x100; /* the others in order: 0-32, 127-160, 173 */
    return byte <= 32 ? n + byte : byte <= 160 ? n + 33 + (byte - 127u) : n + 67;
}

/* The byte that a character stands for, or -1. */
static int char_byte(uint32_t c)
{
    if (c < 0x100)
        return byte_char((uint8_t)c) == c ? (int)c : -1;
    c -= 0x100;
    return c <= 32 ? (int)c : c <= 66 ? (int)(c - 33 + 127) : c == 67 ? 173 : -1;
}

/* Write a byte's character as UTF-8; returns its length. */
static size_t put_byte_char(uint8_t byte, char out[static 2])
{
    uint32_t c = byte_char(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* ---- opening ---- */

/* The slot of a pair: its own, or the free one where it belongs. */
static struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    for (size_t i = h >> 32;; i++) {
        struct merge *m = &b->merges[i & b->mask];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

/* One line "left right" of the merges. */
static int add_merge(struct tokenizer *t, struct gguf_str s, int32_t rank, char *joined,
                     struct err *err)
{
    char buf[GGUF_NAME_MAX_BYTES + 4];
    const char *space = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    int32_t left = -1, right = -1, id = -1;
    if (space && s.n - 1 <= t->text_max) {
        size_t n_left = (size_t)(space - s.p), n_right = s.n - n_left - 1;
        left = tokenizer_find(t, s.p, n_left);
        right = tokenizer_find(t, space + 1, n_right);
        memcpy(joined, s.p, n_left);
        memcpy(joined + n_left, space + 1, n_right);
        id = tokenizer_find(t, joined, s.n - 1);
    }
    if (left < 0 || right < 0 || id < 0)
        return err_set(err,
                       "%s: key tokenizer.ggml.merges: number %d, \"%s\", is not two tokens "
                       "that make a third",
                       gguf_path(t->gguf), rank, gguf_printable(s, buf));
    struct merge *m = find_merge(t->bpe, left, right);
    if (m->left < 0)
        *m = (struct merge){left, right, rank, id};
    return 0;
}

static int read_merges(struct tokenizer *t, uint64_t *out_n, struct err *err)
{
    struct gguf_arr merges;
    if (gguf_get_arr(t->gguf, "tokenizer.ggml.merges", &merges, err))
        return -1;
    if (merges.type != GGUF_STR || merges.n > RANK_MAX)
        return err_set(err,
                       "%s: key tokenizer.ggml.merges: %llu of type %s, must be at most %d of str",
                       gguf_path(t->gguf), (unsigned long long)merges.n,
                       gguf_type_name(merges.type), RANK_MAX);
    size_t slots = 8;
    while (slots < 2 * merges.n)
        slots *= 2;
    t->bpe->mask = slots - 1;
    t->bpe->merges = xreallocarray(NULL, slots, sizeof *t->bpe->merges);
    for (size_t i = 0; i < slots; i++)
        t->bpe->merges[i].left = -1;
    char *joined = xcalloc(t->text_max, 1);
    int rc = 0;
    for (uint64_t i = 0; i < merges.n && !rc; i++)
        rc = add_merge(t, gguf_arr_str(t->gguf, &merges, i), (int32_t)i, joined, err);
    free(joined);
    *out_n = merges.n;
    return rc;
}

/* The file's pre-tokenizer; a file without one gets the first row. */
static int choose_pre(const struct tokenizer *t, const struct pre_tokenizer **out, struct err *err)
{
    struct gguf_str name = {"default", 7};
    if (gguf_has(t->gguf, "tokenizer.ggml.pre") &&
        gguf_get_str(t->gguf, "tokenizer.ggml.pre", &name, err))
        return -1;
    char known[128] = "", buf[GGUF_NAME_MAX_BYTES + 4];
    for (size_t i = 0; i < N_PRE_TOKENIZERS; i++) {
        const char *p = pre_tokenizers[i].name;
        if (strlen(p) == name.n && !memcmp(p, name.p, name.n)) {
            *out = &pre_tokenizers[i];
            return 0;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", p);
    }
    return err_set(err, "%s: unknown pre-tokenizer \"%s\", known are %s", gguf_path(t->gguf),
                   gguf_printable(name, buf), known);
}

static int compile(const char *pattern, pcre2_code **out, struct err *err)
{
    int code;
    PCRE2_SIZE offset;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                         &offset, NULL);
    if (!*out) {
        char text[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return err_set(err, "pre-tokenizer: %s at %zu of %s", text, offset, pattern);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it the matching is only slower */
    return 0;
}

static int bpe_open(struct tokenizer *t, struct err *err)
{
    uint64_t n_merges = 0;
    char text[2];
    struct bpe *b = t->bpe = xcalloc(1, sizeof *b);
    if (choose_pre(t, &b->pre, err) || read_merges(t, &n_merges, err))
        return -1;
    for (int i = 0; i < N_STEPS_MAX && b->pre->steps[i]; i++)
        if (compile(b->pre->steps[i], &b->steps[i], err))
            return -1;
    for (int byte = 0; byte < 256; byte++)
        t->byte_token[byte] = tokenizer_find(t, text, put_byte_char((uint8_t)byte, text));
    t->adds_bos = b->pre->adds_bos && t->bos >= 0;
    snprintf(t->description, sizeof t->description,
             "gpt2 (byte-level BPE), pre-tokenizer %s, "
             "%llu merges",
             b->pre->name, (unsigned long long)n_merges);
    return 0;
}

static void bpe_close(struct tokenizer *t)
{
    if (!t->bpe)
        return;
    for (int i = 0; i < N_STEPS_MAX; i++)
        pcre2_code_free(t->bpe->steps[i]);
    free(t->bpe->merges);
    free(t->bpe);
}

/* ---- encoding ---- */

/* What one call of encode carries along. */
struct work {
    const struct tokenizer *t;
    pcre2_match_data *match;
    struct symbol *symbols; /* room for one word's bytes */
    size_t n_symbols_max;
    char *chars; /* a short word as the vocabulary writes it */
    struct token_list *out;
    struct err *err;
};

static bool may_merge(const struct tokenizer *t, const char *text, const struct symbol *left,
                      const struct symbol *right, int32_t *out_id, float *out_cost)
{
    (void)text;
    if (left->id < 0 || right->id < 0)
        return false;
    const struct merge *m = find_merge(t->bpe, left->id, right->id);
    if (m->left < 0)
        return false;
    *out_id = m->id;
    *out_cost = (float)m->rank;
    return true;
}

/* The token of a whole word, or -1. */
static int32_t whole_word(const struct work *w, const char *text, size_t n)
{
    size_t n_chars = 0;
    if (n > w->t->text_max)
        return -1;
    for (size_t i = 0; i < n; i++)
        n_chars += put_byte_char((uint8_t)text[i], w->chars + n_chars);
    return tokenizer_find(w->t, w->chars, n_chars);
}

static int encode_word(struct work *w, const char *text, size_t n)
{
    const struct tokenizer *t = w->t;
    int32_t id = t->bpe->pre->ignores_merges ? whole_word(w, text, n) : -1;
    if (id >= 0) {
        token_list_push(w->out, id);
        return 0;
    }
    if (n > w->n_symbols_max) {
        w->n_symbols_max = 2 * n;
        w->symbols = xreallocarray(w->symbols, w->n_symbols_max, sizeof *w->symbols);
    }
    for (size_t i = 0; i < n; i++)
        w->symbols[i] =
            (struct symbol){.start = (uint32_t)i, .n = 1, .id = t->byte_token[(uint8_t)text[i]]};
    tokenizer_merge(t, text, w->symbols, (int32_t)n, may_merge);
    for (int32_t i = 0; i >= 0 && i < (int32_t)n; i = w->symbols[i].next) {
        const struct symbol *s = &w->symbols[i];
        if (s->id >= 0)
            token_list_push(w->out, s->id);
        else if (tokenizer_push_byte(t, (uint8_t)text[s->start], w->out, w->err))
            return -1;
    }
    return 0;
}

/* Cut valid UTF-8 by the steps from `step` on, and encode the words that come out. */
static int cut(struct work *w, int step, const char *text, size_t n)
{
    const pcre2_code *code = step < N_STEPS_MAX ? w->t->bpe->steps[step] : NULL;
    if (!n)
        return 0;
    if (!code)
        return encode_word(w, text, n);
    size_t done = 0;
    while (done < n) {
        int rc = pcre2_match(code, (PCRE2_SPTR)text, n, done, PCRE2_NO_UTF_CHECK, w->match, NULL);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
            return err_set(w->err, "pre-tokenizer: PCRE2 error %d after %zu of %zu bytes", rc, done,
                           n);
        const PCRE2_SIZE *m = pcre2_get_ovector_pointer(w->match);
        size_t from = rc > 0 ? m[0] : n, to = rc > 0 ? m[1] : n;
        if (cut(w, step + 1, text + done, from - done) || cut(w, step + 1, text + from, to - from))
            return -1;
        done = to;
    }
    return 0;
}

static int bpe_encode(const struct tokenizer *t, const char *text, size_t n, bool at_start,
                      struct token_list *out, struct err *err)
{
    (void)at_start;
    int rc = -1, length;
    struct work w = {.t = t, .out = out, .err = err};
    w.match = pcre2_match_data_create(1, NULL);
    w.chars = xcalloc(t->text_max, 2);
    if (!w.match) {
        err_set(err, "pre-tokenizer: out of memory");
        goto out;
    }
    for (size_t i = 0, from = 0; from < n; from = i) { /* runs of UTF-8, and of other bytes */
        while (i < n && (length = utf8_length(text + i, n - i)) != 0)
            i += (size_t)length;
        if (cut(&w, 0, text + from, i - from))
            goto out;
        for (from = i; i < n && !utf8_length(text + i, n - i); i++)
            ;
        if (i > from && encode_word(&w, text + from, i - from))
            goto out;
    }
    rc = 0;
out:
    pcre2_match_data_free(w.match);
    free(w.symbols);
    free(w.chars);
    return rc;
}

/* ---- decoding ---- */

/* The character at p, 0 where its length is not 1 to 4. */
static uint32_t decode_char(const char *p, int length)
{
    static const uint8_t lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = (uint8_t)p[0] & lead_mask[length];
    for (int i = 1; i < length; i++)
        c = c << 6 | ((uint8_t)p[i] & 0x3f);
    return c;
}

static int bpe_piece(const struct tokenizer *t, int32_t id, char *buf, size_t size)
{
    struct gguf_str s = t->text[id];
    if (t->type[id] == TOKEN_USER) /* added as plain text */
        return tokenizer_piece_add(buf, size, 0, s.p, s.n);
    int used = 0;
    for (size_t i = 0; i < s.n;) {
        int length = utf8_length(s.p + i, s.n - i);
        int byte = char_byte(decode_char(s.p + i, length));
        size_t step = length ? (size_t)length : 1;
        used = byte >= 0 && length ? tokenizer_piece_add(buf, size, used, (char[]){(char)byte}, 1)
                                   : tokenizer_piece_add(buf, size, used, s.p + i, step);
        i += step;
    }
    return used;
}

const struct tokenizer_kind tokenizer_bpe = {"gpt2", bpe_open, bpe_close, bpe_encode, bpe_piece};
