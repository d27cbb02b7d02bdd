/* Any bytes as a model file: read it, touch all that it gives, build what it describes, and take
 * one step with it. */
#include "config.h"

#include "engine/backend.h"
#include "engine/forward.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "err.h"
#include "fuzz.h"

#include <stdio.h>

/* ---- good files ---- */

#define SP "\xe2\x96\x81"

static const char *const pieces[] = {"<unk>", "<s>", "</s>", SP, "a", "b", SP "a", "ab", SP "ab"};
enum { N_PIECES = sizeof pieces / sizeof *pieces, WIDTH = 32, N_TENSORS = 12 };

/* The character that byte-level BPE writes for a byte. */
static void byte_text(int byte, char out[3])
{
    bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    int c = printable ? byte : byte <= 32 ? 256 + byte : byte <= 160 ? 256 + 33 + byte - 127 : 323;
    int n = 0;
    if (c >= 0x80)
        out[n++] = (char)(0xc0 | c >> 6);
    out[n++] = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
    out[n] = 0;
}

static void put_bytes_vocab(struct buf *b, const char *pre)
{
    static const char *const merges[] = {"a b", "\xc4\xa0 a", "\xc4\xa0 \xc4\xa0", "' s", "a a"};
    static const char *const merged[] = {"ab",
                                         "\xc4\xa0"
                                         "a",
                                         "\xc4\xa0\xc4\xa0", "'s", "aa"};
    const uint32_t n = 256 + 5 + 3;
    char text[3];
    put_key_str(b, "tokenizer.ggml.model", "gpt2");
    put_key_str(b, "tokenizer.ggml.pre", pre);
    put_key_arr(b, "tokenizer.ggml.tokens", GGUF_STR, n);
    for (int i = 0; i < 256; i++) {
        byte_text(i, text);
        put_str(b, text);
    }
    for (int i = 0; i < 5; i++)
        put_str(b, merged[i]);
    put_str(b, "<|end|>"), put_str(b, "<|end|><"), put_str(b, "<user>");
    put_key_arr(b, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++)
        put_u32(b, i < n - 3 ? 1 : i < n - 1 ? 3 : 4);
    put_key_arr(b, "tokenizer.ggml.merges", GGUF_STR, 5);
    for (int i = 0; i < 5; i++)
        put_str(b, merges[i]);
    put_key_u32(b, "tokenizer.ggml.eos_token_id", n - 3);
}

static void put_scores_vocab(struct buf *b)
{
    const uint32_t n = N_PIECES + 256;
    char text[8];
    put_key_str(b, "tokenizer.ggml.model", "llama");
    put_key_arr(b, "tokenizer.ggml.tokens", GGUF_STR, n);
    for (int i = 0; i < N_PIECES; i++)
        put_str(b, pieces[i]);
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        put_str(b, text);
    }
    put_key_arr(b, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++)
        put_u32(b, i == 0 ? 2 : i < 3 ? 3 : i < N_PIECES ? 1 : 6);
    put_key_arr(b, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint32_t i = 0; i < n; i++)
        put(b, &(float){-(float)i}, 4);
    put_key_u32(b, "tokenizer.ggml.bos_token_id", 1);
    put_key_u32(b, "tokenizer.ggml.eos_token_id", 2);
    put_key_u32(b, "tokenizer.ggml.unknown_token_id", 0);
}

/* A tensor of Q8_0 rows of one block, or of one row of F32; its data follow those before it. */
static void put_weight(struct buf *b, const char *name, uint32_t rows, uint64_t *offset)
{
    put_str(b, name);
    put_u32(b, rows ? 2 : 1);
    put_u64(b, WIDTH);
    if (rows)
        put_u64(b, rows);
    put_u32(b, rows ? 8 : 0);
    put_u64(b, *offset);
    *offset = (*offset + (rows ? 34 * rows : 4 * WIDTH) + 31) / 32 * 32;
}

void fuzz_put_model(struct buf *b, const char *pre)
{
    const char *arch = "llama"; /* has every tensor that the list below names, and no other */
    const uint32_t n_vocab = pre ? 256 + 8 : N_PIECES + 256;
    uint64_t offset = 0;
    char key[64];
    static const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"context_length", 64},      {"embedding_length", WIDTH},
                   {"block_count", 1},          {"feed_forward_length", WIDTH},
                   {"attention.head_count", 2}, {"attention.head_count_kv", 1},
                   {"rope.dimension_count", 16}};
    put_head(b, 3, N_TENSORS, 1 + 7 + 1 + (pre ? 6 : 7));
    put_key_str(b, "general.architecture", arch);
    for (int i = 0; i < 7; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].name);
        put_key_u32(b, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    put_str(b, key), put_u32(b, GGUF_F32), put(b, &(float){1e-5f}, 4);
    if (pre)
        put_bytes_vocab(b, pre);
    else
        put_scores_vocab(b);
    put_weight(b, "token_embd.weight", n_vocab, &offset);
    put_weight(b, "output_norm.weight", 0, &offset);
    put_weight(b, "output.weight", n_vocab, &offset);
    put_weight(b, "blk.0.attn_norm.weight", 0, &offset);
    put_weight(b, "blk.0.ffn_norm.weight", 0, &offset);
    put_weight(b, "blk.0.attn_q.weight", WIDTH, &offset);
    put_weight(b, "blk.0.attn_k.weight", WIDTH / 2, &offset);
    put_weight(b, "blk.0.attn_v.weight", WIDTH / 2, &offset);
    put_weight(b, "blk.0.attn_output.weight", WIDTH, &offset);
    put_weight(b, "blk.0.ffn_gate.weight", WIDTH, &offset);
    put_weight(b, "blk.0.ffn_up.weight", WIDTH, &offset);
    put_weight(b, "blk.0.ffn_down.weight", WIDTH, &offset);
    put_padding(b, offset);
}

static void seed(int i, struct buf *out)
{
    static const char *const pres[] = {"default", "qwen2", "llama-bpe"};
    fuzz_put_model(out, i ? pres[i - 1] : NULL);
}

/* ---- the target ---- */

/* Read the first and the last byte of everything that the file holds. */
static void touch(const struct gguf *g)
{
    static volatile unsigned sum;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *p = t->data;
        char name[GGUF_NAME_MAX_BYTES + 4], text[GGUF_NAME_MAX_BYTES + 4];
        sum += p[0] + p[t->size_bytes - 1];
        gguf_printable(t->name, text);
        memcpy(name, t->name.p, t->name.n);
        name[t->name.n] = 0;
        FUZZ_CHECK(strlen(name) < t->name.n || gguf_tensor_find(g, name) == t);
    }
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str key = gguf_key_at(g, i), s;
        struct gguf_arr a;
        uint64_t u;
        double d;
        bool flag;
        char *name = strndup(key.p, key.n);
        if (!gguf_get_str(g, name, &s, NULL) && s.n)
            sum += (unsigned char)s.p[s.n - 1];
        if (!gguf_get_arr(g, name, &a, NULL) && a.n) {
            if (a.type == GGUF_STR)
                sum += (unsigned)gguf_arr_str(g, &a, a.n - 1).n;
            else if (a.type != GGUF_F32 && a.type != GGUF_F64)
                sum += (unsigned)gguf_arr_int(&a, a.n - 1);
        }
        sum += !gguf_get_u64(g, name, &u, NULL) + !gguf_get_f64(g, name, &d, NULL) +
               !gguf_get_bool(g, name, &flag, NULL);
        free(name);
    }
}

static void use_tokenizer(const struct gguf *g)
{
    struct tokenizer *t;
    struct token_list ids = {0};
    struct err err = {""};
    static const char text[] = "ab a<|end|>  it's \xff\xe2\x96\x81 12345\n\n a";
    if (tokenizer_open(g, &t, &err)) {
        FUZZ_CHECK(err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    if (!tokenizer_encode(t, text, sizeof text, TOKENIZE_ENDS | TOKENIZE_SPECIAL, &ids, &err)) {
        size_t n;
        for (size_t i = 0; i < ids.n; i++)
            FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t));
        free(tokenizer_decode(t, ids.ids, ids.n, true, &n));
    }
    token_list_free(&ids);
    tokenizer_close(t);
}

/* Build a context for the model and compute one token, unless it is large. */
static void use_model(const struct gguf *g)
{
    static struct backend *backend;
    struct model *m;
    struct forward *f;
    struct err err = {""};
    struct forward_logits logits;
    if (model_open(g, &m, &err)) {
        FUZZ_CHECK(err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    struct forward_params params = {.n_ctx = 2, .n_seqs = 1};
    knobs_init(&params.knobs);
    if (!backend)
        FUZZ_CHECK(!backend_open("cpu", &backend, &err));
    if (m->n_params < 1 << 20 && !forward_new(m, backend, &params, &f, &err)) {
        struct forward_batch prefill = {FORWARD_PREFILL, 1, &(int32_t){0}, NULL, NULL};
        struct forward_batch decode = {FORWARD_DECODE, 1, &(int32_t){0}, NULL, NULL};
        FUZZ_CHECK(!forward_run(f, &prefill, &logits, &err));
        FUZZ_CHECK(!forward_run(f, &decode, &logits, &err));
        forward_free(f);
    }
    model_close(m);
}

static void run(const uint8_t *data, size_t n)
{
    struct gguf *g;
    struct err err = {""};
    if (gguf_open_bytes(data, n, "fuzz", &g, &err)) {
        FUZZ_CHECK(err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    touch(g);
    use_tokenizer(g);
    use_model(g);
    gguf_close(g);
}

const struct fuzz_target fuzz_gguf = {"gguf", run, 4, seed};
