/* What the parts of the tokenizer share: tokenizer.c holds the vocabulary and the special tokens,
 * tokenizer_spm.c and tokenizer_bpe.c the two algorithms, tokenizer_merge.c the merging that both
 * run on. Nobody else includes this. */
#ifndef NEARTIE_ENGINE_TOKENIZER_INT_H
#define NEARTIE_ENGINE_TOKENIZER_INT_H

#include "engine/gguf.h"
#include "engine/tokenizer.h"

/* Token types as the file numbers them. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4, /* matched in any text, before the algorithm runs */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6, /* "<0x0A>" */
};

/* One tokenizer model. */
struct tokenizer_kind {
    const char *name; /* of tokenizer.ggml.model */
    /* Read what only this model needs; sets the default rules first, keys override them later. */
    int (*open)(struct tokenizer *t, struct err *err);
    void (*close)(struct tokenizer *t);
    /* Append the ids of text that holds no special token; at_start: nothing or a special token
     * stands before it. */
    int (*encode)(const struct tokenizer *t, const char *text, size_t n, bool at_start,
                  struct token_list *out, struct err *err);
    /* The bytes of a token of type normal, user, unused or byte: as tokenizer_piece. */
    int (*piece)(const struct tokenizer *t, int32_t id, char *buf, size_t size);
};
extern const struct tokenizer_kind tokenizer_spm, tokenizer_bpe;

struct bpe;

struct tokenizer {
    const struct gguf *gguf; /* borrowed */
    const struct tokenizer_kind *kind;
    int32_t n_vocab;
    struct gguf_str *text; /* (n_vocab), bytes borrowed from gguf */
    uint8_t *type;         /* (n_vocab), enum token_type */
    size_t text_max;       /* bytes of the longest text */

    size_t index_mask; /* text to id: open addressing */
    int32_t *index;    /* id + 1, 0 = free */

    int32_t *special; /* (n_special) ids that are matched as a whole, in order of their bytes */
    size_t n_special;

    int32_t bos, eos, unk; /* -1 = none */
    bool adds_bos, adds_eos;
    bool adds_space; /* a space goes before text at the start (SentencePiece) */

    float *score;            /* (n_vocab), SentencePiece: larger merges first */
    int32_t byte_token[256]; /* the token of each single byte, -1 = none */
    struct bpe *bpe;
    char description[128];
};

/* The token of a text, of whatever type, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *p, size_t n);

/* Append the token of one byte, or the unknown token. */
int tokenizer_push_byte(const struct tokenizer *t, uint8_t byte, struct token_list *out,
                        struct err *err);

/* Append the bytes to a piece of which `used` bytes exist; returns the new length. */
int tokenizer_piece_add(char *buf, size_t size, int used, const char *p, size_t n);

/* A piece of text on its way to a token. */
struct symbol {
    uint32_t start, n;  /* bytes of the text; n = 0: merged into the one before */
    int32_t id;         /* token, -1 = none yet */
    int32_t prev, next; /* neighbours, -1 = none */
};

/* May these two become one? Then its token and its cost: the lowest is merged first. */
typedef bool (*merge_fn)(const struct tokenizer *t, const char *text, const struct symbol *left,
                         const struct symbol *right, int32_t *out_id, float *out_cost);

/* Merge neighbours, lowest cost first, ties to the left, until none may merge: n log n. The
 * symbols lie in order; prev and next are set here. */
void tokenizer_merge(const struct tokenizer *t, const char *text, struct symbol *symbols,
                     int32_t n_symbols, merge_fn may_merge);

#endif
