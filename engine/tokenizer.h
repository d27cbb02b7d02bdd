/* Text to token ids and back, from the vocabulary in a GGUF file: SentencePiece-style merging by
 * score ("llama") and byte-level BPE ("gpt2") behind a pre-tokenizer. Any bytes are legal text; a
 * tokenizer is never changed after it was opened, so threads may share one.
 *
 * Ownership: a tokenizer borrows its gguf, which must stay open until tokenizer_close. */
#ifndef NEARTIE_ENGINE_TOKENIZER_H
#define NEARTIE_ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct gguf;
struct tokenizer;

/* A growing list of token ids, owned by whoever declares it; starts zeroed. */
struct token_list {
    int32_t *ids;    /* (n) */
    size_t n, n_max; /* used, allocated */
};
void token_list_push(struct token_list *list, int32_t id);
void token_list_free(struct token_list *list); /* leaves it zeroed */

enum {
    TOKENIZE_ENDS = 1,    /* add the begin and end tokens that the model asks for */
    TOKENIZE_SPECIAL = 2, /* text such as <|im_end|> becomes that control token */
};

/* Read the vocabulary. Fails, with one line that names the file and the key: no vocabulary; an
 * unknown tokenizer or pre-tokenizer; arrays of different lengths; a merge of tokens that do not
 * exist; a begin or end token outside the vocabulary. */
int tokenizer_open(const struct gguf *g, struct tokenizer **out, struct err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

/* Append the ids of n bytes of text. Time is n log n at worst. Fails where the vocabulary has
 * neither a token for a byte nor an unknown token; *out then holds part of the text. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                     struct token_list *out, struct err *err);

/* The bytes of one token as they stand in running text, at most size of them; control tokens are
 * empty unless with_special. Returns the whole length, at most tokenizer_piece_max, or -1 for an
 * id outside the vocabulary. */
int tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_special, char *buf,
                    size_t size);
size_t tokenizer_piece_max(const struct tokenizer *t);

/* The text of n ids, owned by the caller, not terminated; ids outside the vocabulary are skipped.
 * What encode added is taken away again: decode(encode(text)) == text, with TOKENIZE_ENDS in
 * neither or both, and with_special where encode had TOKENIZE_SPECIAL. */
char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool with_special,
                       size_t *out_n);

/* What the vocabulary says. Ids are -1 where there is none. */
int32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
bool tokenizer_is_end(const struct tokenizer *t, int32_t id); /* ends a text or a turn */

/* One line for reports: "gpt2, pre-tokenizer qwen2, 151387 merges". Borrowed. */
const char *tokenizer_describe(const struct tokenizer *t);

/* Bytes of the UTF-8 character at p, 0 where it is not one. left: bytes from p to the end. */
int utf8_length(const char *p, size_t left);

#endif
