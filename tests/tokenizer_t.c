/* Tokenizers: against the expected ids of third-party vocabularies, and on vocabularies made here.
 */
#include "config.h"

#include "engine/tokenizer.h"
#include "err.h"
#include "gguf_buf.h"
#include "tap.h"

#include <glob.h>

/* A vocabulary in use. */
struct vocab {
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static int vocab_open(struct vocab *v, const char *path)
{
    struct err err;
    *v = (struct vocab){0};
    if (gguf_open(path, &v->gguf, &err) || tokenizer_open(v->gguf, &v->tokenizer, &err)) {
        diag("%s", err.text);
        return -1;
    }
    return 0;
}

static void vocab_close(struct vocab *v)
{
    tokenizer_close(v->tokenizer);
    gguf_close(v->gguf);
}

/* A whole file, terminated; NULL when it cannot be read. */
static char *read_file(const char *path, size_t *out_n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = NULL;
    *out_n = 0;
    for (size_t n = 0, got = 1; got; *out_n = n += got) {
        text = realloc(text, n + 65536 + 1);
        got = fread(text + n, 1, 65536, f);
        text[n + got] = 0;
    }
    fclose(f);
    return text;
}

/* Ids written in decimal, with anything between them. */
static void read_ids(const char *p, const char *end, struct token_list *out)
{
    while (p < end) {
        if (*p < '0' || *p > '9') {
            p++;
            continue;
        }
        char *next;
        token_list_push(out, (int32_t)strtol(p, &next, 10));
        p = next;
    }
}

static bool same_ids(const struct token_list *a, const struct token_list *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->ids, b->ids, a->n * sizeof *a->ids));
}

static bool encodes_to(const struct vocab *v, const char *text, size_t n, unsigned flags,
                       const struct token_list *want)
{
    struct token_list got = {0};
    struct err err = {""};
    bool same = !tokenizer_encode(v->tokenizer, text, n, flags, &got, &err) && same_ids(&got, want);
    for (size_t i = 0; !same && i < (got.n > want->n ? got.n : want->n); i++)
        if (i >= got.n || i >= want->n || got.ids[i] != want->ids[i]) {
            diag("%s at %zu: got %d of %zu ids, want %d of %zu", err.text, i,
                 i < got.n ? got.ids[i] : -1, got.n, i < want->n ? want->ids[i] : -1, want->n);
            break;
        }
    token_list_free(&got);
    return same;
}

/* Does the text come back from its ids? */
static bool round_trip(const struct vocab *v, const char *text, size_t n, unsigned flags)
{
    struct token_list ids = {0};
    struct err err;
    size_t n_back;
    if (tokenizer_encode(v->tokenizer, text, n, flags, &ids, &err)) {
        diag("%s", err.text);
        return false;
    }
    char *back = tokenizer_decode(v->tokenizer, ids.ids, ids.n, flags & TOKENIZE_SPECIAL, &n_back);
    bool same = n == n_back && !memcmp(text, back, n);
    if (!same)
        diag("%zu bytes became %zu: \"%.*s\"", n, n_back, (int)(n_back < 80 ? n_back : 80), back);
    free(back);
    token_list_free(&ids);
    return same;
}

/* One vocabulary's .inp and .out: line i of .out is the ids of text i. */
static void test_vocab(const char *path)
{
    const char *separator = "\n__ggml_vocab_test__\n", *name = strrchr(path, '/') + 1;
    char file[4200];
    size_t n_inp, n_out;
    struct vocab v;
    snprintf(file, sizeof file, "%s.inp", path);
    char *inp = read_file(file, &n_inp);
    snprintf(file, sizeof file, "%s.out", path);
    char *out = read_file(file, &n_out);
    int n_texts = 0, n_bad = 0, n_lost = 0;
    if (!ok(inp && out && !vocab_open(&v, path), "%s opens", name))
        goto out;
    const char *p = inp, *line = out;
    for (const char *end; (end = strstr(p, separator)); p = end + strlen(separator)) {
        const char *line_end = strchr(line, '\n');
        struct token_list want = {0};
        if (!line_end)
            break;
        read_ids(line, line_end, &want);
        n_texts++;
        n_bad += !encodes_to(&v, p, (size_t)(end - p), 0, &want);
        n_lost += !round_trip(&v, p, (size_t)(end - p), 0);
        line = line_end + 1;
        token_list_free(&want);
    }
    ok(n_texts > 30 && !*line, "%s: %d texts, every line of .out used", name, n_texts);
    is_int(n_bad, 0, "%s: every text gets its ids", name);
    is_int(n_lost, 0, "%s: every text comes back from its ids", name);
    vocab_close(&v);
out:
    free(inp);
    free(out);
}

/* Replace C escapes in place: the ids of the longer texts were made by a tool that does so. */
static size_t unescape(char *text, size_t n)
{
    static const char letters[] = "nrt'\"\\", meanings[] = "\n\r\t'\"\\";
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *letter = text[i] == '\\' && i + 1 < n ? strchr(letters, text[i + 1]) : NULL;
        text[out++] = letter && *letter ? meanings[letter - letters] : text[i];
        i += letter && *letter;
    }
    return out;
}

/* The longer texts in one vocabulary. */
static void test_texts(const char *shared, const char *dir, const char *path)
{
    char file[4096];
    struct vocab v;
    glob_t texts;
    snprintf(file, sizeof file, "%s/texts/*.txt", shared);
    if (!ok(!glob(file, 0, NULL, &texts) && texts.gl_pathc, "there are texts"))
        return;
    if (!ok(!vocab_open(&v, path), "%s opens", dir))
        return globfree(&texts);
    for (size_t i = 0; i < texts.gl_pathc; i++) {
        const char *name = strrchr(texts.gl_pathv[i], '/') + 1;
        struct token_list want = {0};
        size_t n_text, n_ids;
        snprintf(file, sizeof file, "%s/tokens/%s/%.*s.ids", shared, dir, (int)strlen(name) - 4,
                 name);
        char *text = read_file(texts.gl_pathv[i], &n_text), *ids = read_file(file, &n_ids);
        if (text && ids) {
            read_ids(ids, ids + n_ids, &want);
            ok(round_trip(&v, text, n_text, 0), "%s: %s comes back", dir, name);
            ok(encodes_to(&v, text, unescape(text, n_text), 0, &want), "%s: %s", dir, name);
        } else {
            ok(0, "%s: %s and its ids can be read", dir, name);
        }
        token_list_free(&want);
        free(text);
        free(ids);
    }
    vocab_close(&v);
    globfree(&texts);
}

static void test_shared(void)
{
    static const char *const names[] = {"gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35"};
    const char *shared = tap_shared();
    char path[4096];
    if (!shared) {
        skip("third-party vocabularies", "NEARTIE_SHARED is not set");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", shared, names[i]);
        test_vocab(path);
        test_texts(shared, names[i], path);
    }
    snprintf(path, sizeof path, "%s/models/public/stories260K-f32.gguf", shared);
    test_texts(shared, "stories260K-f32", path);
}

/* ---- vocabularies made here ---- */

/* Open what the buffer holds; diagnoses a failure. */
static int vocab_from(struct vocab *v, const struct buf *b, struct err *err)
{
    *v = (struct vocab){0};
    if (gguf_open_bytes(b->p, b->n, "x.gguf", &v->gguf, err))
        return -1;
    return tokenizer_open(v->gguf, &v->tokenizer, err);
}

static void refuse(const struct buf *b, const char *text, const char *name)
{
    struct vocab v;
    struct err err = {""};
    int rc = vocab_from(&v, b, &err);
    if (!ok(rc == -1 && strstr(err.text, text) && !strchr(err.text, '\n'), "%s: \"%s\"", name,
            text))
        diag("rc %d, message \"%s\"", rc, err.text);
    vocab_close(&v);
}

/* Are these the ids of the text? */
static void is_ids(const struct vocab *v, const char *text, unsigned flags, const char *ids)
{
    struct token_list want = {0};
    read_ids(ids, ids + strlen(ids), &want);
    ok(encodes_to(v, text, strlen(text), flags, &want), "\"%.*s\" with flags %u: %s",
       (int)strcspn(text, "\n"), text, flags, ids);
    token_list_free(&want);
}

static void put_strings(struct buf *b, const char *key, const char *const *strings, size_t n)
{
    put_key_arr(b, key, GGUF_STR, n);
    for (size_t i = 0; i < n; i++)
        put_str(b, strings[i]);
}

static void put_numbers(struct buf *b, const char *key, enum gguf_type type, const void *p,
                        size_t n)
{
    put_key_arr(b, key, type, n);
    put(b, p, 4 * n);
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const bpe_texts[] = {"a",   "b",     "c",          "\xc4\xa0", "ab",
                                        "abc", "<|s|>", "<|s|><|t|>", "<|u|>",    "bc"};
static const int32_t bpe_types[] = {1, 1, 1, 1, 1, 1, 3, 3, 4, 1};
static const char *const bpe_merges[] = {"a b", "b c"};

/* A vocabulary of byte-level BPE with a few more keys to come. */
static void put_bpe(struct buf *b, const char *pre, size_t n_more)
{
    put_head(b, 3, 0, 5 + n_more);
    put_key_str(b, "tokenizer.ggml.model", "gpt2");
    put_key_str(b, "tokenizer.ggml.pre", pre);
    put_strings(b, "tokenizer.ggml.tokens", bpe_texts, COUNT(bpe_texts));
    put_numbers(b, "tokenizer.ggml.token_type", GGUF_I32, bpe_types, COUNT(bpe_types));
    put_strings(b, "tokenizer.ggml.merges", bpe_merges, COUNT(bpe_merges));
}

static void test_bpe(void)
{
    struct buf b = {0};
    struct vocab v;
    struct err err;
    put_bpe(&b, "qwen2", 3);
    put_key_u32(&b, "tokenizer.ggml.bos_token_id", 6);
    put_key_u32(&b, "tokenizer.ggml.eos_token_id", 8);
    put_key_bool(&b, "tokenizer.ggml.add_eos_token", true);
    if (!ok(!vocab_from(&v, &b, &err), "byte-level BPE opens"))
        return diag("%s", err.text);
    is_ids(&v, "", 0, "");
    is_ids(&v, "", TOKENIZE_ENDS, "8");
    is_ids(&v, "abc", 0, "4 2"); /* the merge of lower rank first */
    is_ids(&v, "cbc a", TOKENIZE_ENDS, "2 9 3 0 8");
    is_ids(&v, "a<|s|><|t|>b", TOKENIZE_SPECIAL, "0 7 1"); /* the longest special token */
    is_ids(&v, "<|s|>", TOKENIZE_SPECIAL, "6");
    is_ids(&v, "a<|u|>b", 0, "0 8 1"); /* user-defined: always */
    struct token_list ids = {0};
    ok(tokenizer_encode(v.tokenizer, "<|s|>", 5, 0, &ids, &err) && strstr(err.text, "byte 0x3c"),
       "a byte that the vocabulary lacks is an error");
    token_list_free(&ids);
    char piece[8];
    is_int(tokenizer_piece(v.tokenizer, 3, false, piece, sizeof piece), 1, "a byte token's length");
    ok(piece[0] == ' ', "a byte token's byte");
    is_int(tokenizer_piece(v.tokenizer, 6, false, NULL, 0), 0, "a control token is no text");
    is_int(tokenizer_piece(v.tokenizer, 6, true, piece, 2), 5, "unless asked for, length only");
    is_int(tokenizer_piece(v.tokenizer, -1, true, piece, 2), -1, "id -1 has no text");
    is_int(tokenizer_piece(v.tokenizer, 10, true, piece, 2), -1, "nor has one past the end");
    ok(tokenizer_is_end(v.tokenizer, 8) && !tokenizer_is_end(v.tokenizer, 6), "the end token");
    vocab_close(&v);

    put_bpe(&b, "llama-bpe", 1);
    put_key_u32(&b, "tokenizer.ggml.bos_token_id", 6);
    ok(!vocab_from(&v, &b, &err), "llama-bpe opens");
    is_ids(&v, "abc", TOKENIZE_ENDS, "6 5"); /* begins, and a word that is a token is that token */
    vocab_close(&v);
    free(b.p);
}

static void test_bpe_refusals(void)
{
    struct buf b = {0};
    put_bpe(&b, "tekken\n", 0);
    refuse(&b, "unknown pre-tokenizer \"tekken?\", known are default, gpt-2,",
           "unknown pre-tokenizer");
    put_bpe(&b, "qwen2", 1);
    put_key_u32(&b, "tokenizer.ggml.bos_token_id", 10);
    refuse(&b, "bos_token_id: token 10, the vocabulary has 10", "begin token outside");
    put_bpe(&b, "qwen2", 1);
    put_key_bool(&b, "tokenizer.ggml.add_bos_token", true);
    refuse(&b, "add_bos_token is true, but there is no begin token", "no begin token to add");
    put_head(&b, 3, 0, 3);
    put_key_str(&b, "tokenizer.ggml.model", "gpt2");
    put_strings(&b, "tokenizer.ggml.tokens", bpe_texts, 3);
    put_strings(&b, "tokenizer.ggml.merges", bpe_merges, 1);
    refuse(&b, "merges: number 0, \"a b\", is not two tokens that make a third",
           "merge of nothing");
    put_head(&b, 3, 0, 3);
    put_key_str(&b, "tokenizer.ggml.model", "gpt2");
    put_strings(&b, "tokenizer.ggml.tokens", bpe_texts, 3);
    put_numbers(&b, "tokenizer.ggml.token_type", GGUF_I32, bpe_types, 2);
    refuse(&b, "token_type: 2 of type i32, must be 3", "too few types");
    put_head(&b, 3, 0, 1);
    put_key_str(&b, "tokenizer.ggml.model", "bert");
    refuse(&b, "unknown tokenizer \"bert\", known are llama, gpt2", "unknown tokenizer");
    put_head(&b, 3, 0, 0);
    refuse(&b, "key tokenizer.ggml.model: missing", "no tokenizer");
    put_head(&b, 3, 0, 2);
    put_key_str(&b, "tokenizer.ggml.model", "gpt2");
    put_key_arr(&b, "tokenizer.ggml.tokens", GGUF_STR, 0);
    refuse(&b, "tokens: 0 of type str", "no tokens");
    free(b.p);
}

#define SP "\xe2\x96\x81" /* U+2581 */

static const char *const spm_texts[] = {"<unk>", "<s>",  "</s>", "<0x41>", "<0xC3>",   SP,
                                        "b",     SP "b", "bb",   SP "bb",  "\xc3\xa9", "s>"};
static const int32_t spm_types[] = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1};
static const float spm_scores[] = {0, 0, 0, 0, 0, -9, -8, -2, -1, -3, -7, -4};

static void put_spm(struct buf *b, size_t n_more)
{
    put_head(b, 3, 0, 4 + n_more);
    put_key_str(b, "tokenizer.ggml.model", "llama");
    put_strings(b, "tokenizer.ggml.tokens", spm_texts, COUNT(spm_texts));
    put_numbers(b, "tokenizer.ggml.token_type", GGUF_I32, spm_types, COUNT(spm_types));
    put_numbers(b, "tokenizer.ggml.scores", GGUF_F32, spm_scores, COUNT(spm_scores));
}

static void test_spm(void)
{
    struct buf b = {0};
    struct vocab v;
    struct err err;
    put_spm(&b, 2);
    put_key_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    put_key_u32(&b, "tokenizer.ggml.padding_token_id", 4294967295u);
    if (!ok(!vocab_from(&v, &b, &err), "SentencePiece opens"))
        return diag("%s", err.text);
    is_ids(&v, "", 0, "");
    is_ids(&v, "b", 0, "7");
    is_ids(&v, "bb", TOKENIZE_ENDS, "1 9"); /* bb first, then the space before it */
    is_ids(&v, "bbb", 0, "9 6");            /* of equal scores the left one first */
    is_ids(&v, "A\xc3\xa9", 0, "5 3 10");   /* byte fallback; a character that is a token */
    is_ids(&v, "\xc3", 0, "5 4");           /* not UTF-8 */
    is_ids(&v, "z", 0, "5 0");              /* neither character nor byte */
    is_ids(&v, "b</s>b", TOKENIZE_SPECIAL, "7 2 7");
    ok(round_trip(&v, "b b", 3, 0) && round_trip(&v, " b", 2, 0), "spaces come back");
    ok(round_trip(&v, "b</s> b", 7, TOKENIZE_SPECIAL), "special tokens come back");
    is_int(tokenizer_bos(v.tokenizer), 1, "the begin token that SentencePiece always has");
    vocab_close(&v);

    put_spm(&b, 2);
    put_key_bool(&b, "tokenizer.ggml.add_space_prefix", false);
    put_key_bool(&b, "tokenizer.ggml.add_bos_token", false);
    ok(!vocab_from(&v, &b, &err), "SentencePiece without prefix opens");
    is_ids(&v, "bb", TOKENIZE_ENDS, "8");
    vocab_close(&v);

    put_head(&b, 3, 0, 2);
    put_key_str(&b, "tokenizer.ggml.model", "llama");
    put_strings(&b, "tokenizer.ggml.tokens", spm_texts, 3);
    refuse(&b, "scores: missing", "no scores");
    free(b.p);
}

/* ---- this project's models ---- */

/* Text that would take hours if merging or cutting were quadratic; and any bytes come back. */
static void test_long(const struct vocab *v, const char *name)
{
    static char text[1 << 20];
    const size_t n = sizeof text;
    uint64_t state = 88172645463325252u;
    static const char *const fills[] = {"a", " ", "\n", "ab", " \n", "the ", "'s", "\xe2\x96", "1"};
    for (size_t k = 0; k < COUNT(fills); k++) {
        for (size_t i = 0; i < n; i++)
            text[i] = fills[k][i % strlen(fills[k])];
        ok(round_trip(v, text, n, 0), "%s: 1 MiB of case %zu comes back", name, k);
    }
    for (size_t i = 0; i < n; i++)
        text[i] = (char)noise(&state);
    ok(round_trip(v, text, n, TOKENIZE_SPECIAL), "%s: 1 MiB of noise comes back", name);
}

static void test_model(const char *name)
{
    char path[4096];
    struct vocab v;
    size_t n;
    const char *top = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", name);
    if (!ok(!vocab_open(&v, path), "%s opens", name))
        return;
    /* Ids of the prompt's first words, from the script that trained the model. */
    is_ids(&v, "e race that is set before us,\nLooking unto Jesus the author", 0,
           "69 845 335 305 338 763 527 526 361 44 2000 292 334 745 259 260 85 257 281");
    snprintf(path, sizeof path, "%s/tests/data/prompt.txt", top ? top : ".");
    char *text = read_file(path, &n);
    ok(text && round_trip(&v, text, n, TOKENIZE_ENDS), "%s: the prompt comes back", name);
    free(text);
    test_long(&v, name);
    vocab_close(&v);
}

int main(void)
{
    test_bpe();
    test_bpe_refusals();
    test_spm();
    test_model("tiny-qwen35-q8_0.gguf");
    test_shared();
    return tap_done();
}
