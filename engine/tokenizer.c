#include "config.h"

#include "engine/mem.h"
#include "engine/tokenizer_int.h"
#include "err.h"

#include <limits.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const struct tokenizer_kind *const kinds[] = {&tokenizer_spm, &tokenizer_bpe};
#define N_KINDS (sizeof kinds / sizeof *kinds)

#define TEXT_MAX_BYTES ((size_t)INT32_MAX / 4) /* so that symbols can be counted in 31 bits */

/* ---- small things ---- */

void token_list_push(struct token_list *list, int32_t id)
{
    if (list->n == list->n_max) {
        list->n_max = list->n_max ? 2 * list->n_max : 256;
        list->ids = xreallocarray(list->ids, list->n_max, sizeof *list->ids);
    }
    list->ids[list->n++] = id;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

int utf8_length(const char *p, size_t left)
{
    const uint8_t *s = (const uint8_t *)p;
    if (!left)
        return 0;
    int n = s[0] < 0x80   ? 1
            : s[0] < 0xc2 ? 0
            : s[0] < 0xe0 ? 2
            : s[0] < 0xf0 ? 3
            : s[0] < 0xf5 ? 4
                          : 0;
    if ((size_t)n > left)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || /* long; surrogate */
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))   /* long; too large */
        return 0;
    return n;
}

int tokenizer_piece_add(char *buf, size_t size, int used, const char *p, size_t n)
{
    size_t room = (size_t)used < size ? size - (size_t)used : 0;
    if (room)
        memcpy(buf + used, p, n < room ? n : room);
    return used + (int)n;
}

int tokenizer_push_byte(const struct tokenizer *t, uint8_t byte, struct token_list *out,
                        struct err *err)
{
    int32_t id = t->byte_token[byte] >= 0 ? t->byte_token[byte] : t->unk;
    if (id < 0)
        return err_set(err,
                       "%s: the vocabulary has no token for the byte 0x%02x and no unknown "
                       "token",
                       gguf_path(t->gguf), byte);
    token_list_push(out, id);
    return 0;
}

/* ---- the vocabulary ---- */

/* The slot of a text: its token's, or the free one where it belongs. */
static int32_t *find_slot(const struct tokenizer *t, const char *p, size_t n)
{
    for (size_t i = XXH3_64bits(p, n);; i++) {
        int32_t *slot = &t->index[i & t->index_mask];
        if (!*slot)
            return slot;
        struct gguf_str s = t->text[*slot - 1];
        if (s.n == n && !memcmp(s.p, p, n))
            return slot;
    }
}

int32_t tokenizer_find(const struct tokenizer *t, const char *p, size_t n)
{
    return n && n <= t->text_max ? *find_slot(t, p, n) - 1 : -1;
}

/* Texts and their index. Of two tokens with one text the first is found. */
static int read_texts(struct tokenizer *t, struct err *err)
{
    struct gguf_arr texts;
    if (gguf_get_arr(t->gguf, "tokenizer.ggml.tokens", &texts, err))
        return -1;
    if (texts.type != GGUF_STR || texts.n < 1 || texts.n > INT_MAX / 4)
        return err_set(err,
                       "%s: key tokenizer.ggml.tokens: %llu of type %s, must be 1 to %d of str",
                       gguf_path(t->gguf), (unsigned long long)texts.n, gguf_type_name(texts.type),
                       INT_MAX / 4);
    t->n_vocab = (int32_t)texts.n;
    t->text = xcalloc(texts.n, sizeof *t->text);
    size_t slots = 8;
    while (slots < 2 * texts.n)
        slots *= 2;
    t->index = xcalloc(slots, sizeof *t->index);
    t->index_mask = slots - 1;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct gguf_str s = t->text[i] = gguf_arr_str(t->gguf, &texts, (uint64_t)i);
        if (s.n > INT16_MAX)
            return err_set(err,
                           "%s: key tokenizer.ggml.tokens: token %d has %zu bytes, must be "
                           "at most %d",
                           gguf_path(t->gguf), i, s.n, INT16_MAX);
        if (s.n > t->text_max)
            t->text_max = s.n;
        int32_t *slot = find_slot(t, s.p, s.n);
        if (s.n && !*slot)
            *slot = i + 1;
    }
    return 0;
}

static int read_types(struct tokenizer *t, struct err *err)
{
    struct gguf_arr types;
    t->type = xreallocarray(NULL, (size_t)t->n_vocab, 1);
    memset(t->type, TOKEN_NORMAL, (size_t)t->n_vocab);
    if (!gguf_has(t->gguf, "tokenizer.ggml.token_type"))
        return 0;
    if (gguf_get_arr(t->gguf, "tokenizer.ggml.token_type", &types, err))
        return -1;
    bool is_int = types.type == GGUF_I32 || types.type == GGUF_U32;
    if (!is_int || types.n != (uint64_t)t->n_vocab)
        return err_set(err, "%s: key tokenizer.ggml.token_type: %llu of type %s, must be %d of i32",
                       gguf_path(t->gguf), (unsigned long long)types.n, gguf_type_name(types.type),
                       t->n_vocab);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        int64_t type = gguf_arr_int(&types, (uint64_t)i);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return err_set(err,
                           "%s: key tokenizer.ggml.token_type: token %d has type %lld, must "
                           "be 1 to 6",
                           gguf_path(t->gguf), i, (long long)type);
        t->type[i] = (uint8_t)type;
    }
    return 0;
}

/* A special token's id; absent and 2^32-1, which converters write for "none", give -1. */
static int read_id(const struct tokenizer *t, const char *key, int32_t *out, struct err *err)
{
    uint64_t id;
    *out = -1;
    if (!gguf_has(t->gguf, key))
        return 0;
    if (gguf_get_u64(t->gguf, key, &id, err))
        return -1;
    if (id == UINT32_MAX)
        return 0;
    if (id >= (uint64_t)t->n_vocab)
        return err_set(err, "%s: key %s: token %llu, the vocabulary has %d", gguf_path(t->gguf),
                       key, (unsigned long long)id, t->n_vocab);
    *out = (int32_t)id;
    return 0;
}

static int read_rule(const struct tokenizer *t, const char *key, bool *out, struct err *err)
{
    return gguf_has(t->gguf, key) ? gguf_get_bool(t->gguf, key, out, err) : 0;
}

/* The rules that the file states; each one kind's default otherwise. */
static int read_rules(struct tokenizer *t, struct err *err)
{
    if (read_rule(t, "tokenizer.ggml.add_bos_token", &t->adds_bos, err) ||
        read_rule(t, "tokenizer.ggml.add_eos_token", &t->adds_eos, err) ||
        read_rule(t, "tokenizer.ggml.add_space_prefix", &t->adds_space, err))
        return -1;
    if (t->adds_bos && t->bos < 0)
        return err_set(err,
                       "%s: key tokenizer.ggml.add_bos_token is true, but there is no begin "
                       "token",
                       gguf_path(t->gguf));
    if (t->adds_eos && t->eos < 0)
        return err_set(err,
                       "%s: key tokenizer.ggml.add_eos_token is true, but there is no end "
                       "token",
                       gguf_path(t->gguf));
    return 0;
}

static int choose_kind(struct tokenizer *t, struct err *err)
{
    struct gguf_str name;
    char known[64] = "", buf[GGUF_NAME_MAX_BYTES + 4];
    if (gguf_get_str(t->gguf, "tokenizer.ggml.model", &name, err))
        return -1;
    for (size_t i = 0; i < N_KINDS; i++) {
        if (strlen(kinds[i]->name) == name.n && !memcmp(kinds[i]->name, name.p, name.n)) {
            t->kind = kinds[i];
            return 0;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i]->name);
    }
    return err_set(err, "%s: unknown tokenizer \"%s\", known are %s", gguf_path(t->gguf),
                   gguf_printable(name, buf), known);
}

/* ---- special tokens ---- */

static int compare_texts(const void *a, const void *b, void *user)
{
    const struct tokenizer *t = user;
    struct gguf_str x = t->text[*(const int32_t *)a], y = t->text[*(const int32_t *)b];
    int order = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return order ? order : x.n < y.n ? -1 : x.n > y.n;
}

static void collect_special(struct tokenizer *t)
{
    t->special = xcalloc((size_t)t->n_vocab, sizeof *t->special);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        bool is_special =
            t->type[i] == TOKEN_USER || t->type[i] == TOKEN_CONTROL || t->type[i] == TOKEN_UNKNOWN;
        if (is_special && t->text[i].n)
            t->special[t->n_special++] = i;
    }
    qsort_r(t->special, t->n_special, sizeof *t->special, compare_texts, t);
}

/* Of specials[from, to), which share their first k bytes and are longer, the first whose byte k
 * is at least c. */
static size_t lower_bound(const struct tokenizer *t, size_t from, size_t to, size_t k, int c)
{
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if ((uint8_t)t->text[t->special[mid]].p[k] < c)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The longest special token that the text begins with, or -1. Narrows a range of the sorted list
 * byte by byte. */
static int32_t special_at(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    int32_t found = -1;
    size_t from = 0, to = t->n_special;
    for (size_t k = 0; k < n && from < to; k++) {
        int c = (uint8_t)text[k];
        from = lower_bound(t, from, to, k, c);
        to = lower_bound(t, from, to, k, c + 1);
        while (from < to && t->text[t->special[from]].n == k + 1) {
            int32_t id = t->special[from++]; /* sorts before the longer ones */
            if (t->type[id] == TOKEN_USER || flags & TOKENIZE_SPECIAL)
                found = id;
        }
    }
    return found;
}

/* ---- encode ---- */

/* Text and special tokens in turn. */
static int encode_all(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                      struct token_list *out, struct err *err)
{
    size_t from = 0; /* end of the last special token */
    for (size_t i = 0; i < n;) {
        int32_t id = special_at(t, text + i, n - i, flags);
        if (id < 0) {
            i++;
            continue;
        }
        if (i > from && t->kind->encode(t, text + from, i - from, true, out, err))
            return -1;
        token_list_push(out, id);
        from = i += t->text[id].n;
    }
    return n > from ? t->kind->encode(t, text + from, n - from, true, out, err) : 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                     struct token_list *out, struct err *err)
{
    if (n > TEXT_MAX_BYTES)
        return err_set(err, "text of %zu bytes, must be at most %zu", n, TEXT_MAX_BYTES);
    if (flags & TOKENIZE_ENDS && t->adds_bos)
        token_list_push(out, t->bos);
    if (encode_all(t, text, n, flags, out, err))
        return -1;
    if (flags & TOKENIZE_ENDS && t->adds_eos)
        token_list_push(out, t->eos);
    return 0;
}

/* ---- decode ---- */

static bool is_text(const struct tokenizer *t, int32_t id)
{
    return t->type[id] != TOKEN_CONTROL && t->type[id] != TOKEN_UNKNOWN;
}

int tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_special, char *buf,
                    size_t size)
{
    if (id < 0 || id >= t->n_vocab)
        return -1;
    if (is_text(t, id))
        return t->kind->piece(t, id, buf, size);
    return with_special ? tokenizer_piece_add(buf, size, 0, t->text[id].p, t->text[id].n) : 0;
}

size_t tokenizer_piece_max(const struct tokenizer *t)
{
    return t->text_max;
}

char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool with_special,
                       size_t *out_n)
{
    size_t used = 0, room = 0;
    char *out = NULL;
    bool at_start = true;
    for (size_t i = 0; i < n; i++) {
        if (used + t->text_max > room) {
            room = 2 * (used + t->text_max);
            out = xreallocarray(out, room, 1);
        }
        int length = tokenizer_piece(t, ids[i], with_special, out + used, t->text_max);
        if (length < 0)
            continue;
        bool was_added = at_start && t->adds_space && length && out[used] == ' ';
        if (was_added)
            memmove(out + used, out + used + 1, (size_t)--length);
        at_start = !is_text(t, ids[i]) || t->type[ids[i]] == TOKEN_USER;
        used += (size_t)length;
    }
    *out_n = used;
    return out ? out : xcalloc(1, 1);
}

/* ---- open and close ---- */

static int open_all(struct tokenizer *t, struct err *err)
{
    if (choose_kind(t, err) || read_texts(t, err) || read_types(t, err))
        return -1;
    if (read_id(t, "tokenizer.ggml.bos_token_id", &t->bos, err) ||
        read_id(t, "tokenizer.ggml.eos_token_id", &t->eos, err) ||
        read_id(t, "tokenizer.ggml.unknown_token_id", &t->unk, err))
        return -1;
    collect_special(t);
    return t->kind->open(t, err) || read_rules(t, err) ? -1 : 0;
}

int tokenizer_open(const struct gguf *g, struct tokenizer **out, struct err *err)
{
    struct tokenizer *t = xcalloc(1, sizeof *t);
    t->gguf = g;
    memset(t->byte_token, 0xff, sizeof t->byte_token); /* all -1 */
    if (open_all(t, err)) {
        tokenizer_close(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    if (t->kind)
        t->kind->close(t);
    free(t->special);
    free(t->index);
    free(t->type);
    free(t->text);
    free(t);
}

/* ---- facts ---- */

int32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->n_vocab;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->adds_eos;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    /* Texts that end a turn in the chat formats of the supported models. */
    static const char *const ends[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>",
                                       "<|end_of_text|>"};
    if (id < 0 || id >= t->n_vocab)
        return false;
    if (id == t->eos)
        return true;
    for (size_t i = 0; t->type[id] == TOKEN_CONTROL && i < sizeof ends / sizeof *ends; i++)
        if (t->text[id].n == strlen(ends[i]) && !memcmp(t->text[id].p, ends[i], t->text[id].n))
            return true;
    return false;
}

const char *tokenizer_describe(const struct tokenizer *t)
{
    return t->description;
}
