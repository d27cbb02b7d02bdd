/* Any bytes as text, in every kind of vocabulary: the ids are in range and the text comes back.
 * The first byte chooses the vocabulary and whether special tokens are read. */
#include "config.h"

#include "engine/tokenizer.h"
#include "err.h"
#include "fuzz.h"

#include <stdio.h>

static const char *const pres[] = {NULL, "default", "gpt-2", "llama-bpe", "qwen2", "qwen35"};
enum { N_VOCABS = sizeof pres / sizeof *pres };

static const struct tokenizer *vocab(int i)
{
    static struct tokenizer *opened[N_VOCABS];
    struct gguf *g;
    struct buf b = {0};
    struct err err = {""};
    if (opened[i])
        return opened[i];
    fuzz_put_model(&b, pres[i]);
    if (gguf_open_bytes(b.p, b.n, "fuzz", &g, &err) || tokenizer_open(g, &opened[i], &err))
        fprintf(stderr, "%s\n", err.text);
    FUZZ_CHECK(opened[i]);
    return opened[i];
}

/* SentencePiece writes a space as U+2581, so that text with that character does not come back. */
static bool has_space_sign(const char *text, size_t n)
{
    return memmem(text, n, "\xe2\x96\x81", 3) != NULL;
}

static void run(const uint8_t *data, size_t n)
{
    struct token_list ids = {0};
    struct err err = {""};
    size_t n_back;
    if (n < 1)
        return;
    int i = data[0] % N_VOCABS;
    unsigned flags = data[0] & 0x80 ? TOKENIZE_SPECIAL : 0;
    const struct tokenizer *t = vocab(i);
    const char *text = (const char *)data + 1;
    n--;
    FUZZ_CHECK(!tokenizer_encode(t, text, n, flags, &ids, &err));
    for (size_t k = 0; k < ids.n; k++)
        FUZZ_CHECK(ids.ids[k] >= 0 && ids.ids[k] < tokenizer_n_vocab(t));
    char *back = tokenizer_decode(t, ids.ids, ids.n, flags != 0, &n_back);
    FUZZ_CHECK((n == n_back && !memcmp(text, back, n)) || (i == 0 && has_space_sign(text, n)));
    free(back);
    token_list_free(&ids);
}

static void seed(int i, struct buf *out)
{
    static const char text[] = " ab  a\n<|end|><user>'s 123 \xc3\xa9\xe2\x80\x83\xff</s>\r\n\r\n ";
    put(out, &(uint8_t){(uint8_t)(i | 0x80)}, 1);
    put(out, text, sizeof text);
}

const struct fuzz_target fuzz_tokenizer = {"tokenizer", run, N_VOCABS, seed};
