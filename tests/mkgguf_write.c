#include "config.h"

#include "tests/mkgguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "err.h"
#include "kernels/quant.h"
#include "tests/gguf_buf.h"
#include "tests/mkgguf_plan.h"
#include "tests/pack.h"

/* ---- Vocabulary: byte-level BPE over 256 bytes and all words of two to four of 27 letters ---- */

enum { N_BYTES = 256, N_LETTERS = 27, N_SPECIAL = 3 };

/* The letters in order of their frequency in English, after the space as byte-level BPE spells it.
 */
static const char letters[N_LETTERS][3] = {"\xc4\xa0", "e", "t", "a", "o", "i", "n", "s", "h",
                                           "r",        "d", "l", "c", "u", "m", "w", "f", "g",
                                           "y",        "p", "b", "v", "k", "j", "x", "q", "z"};
static const char *const special_tokens[N_SPECIAL] = {"<|endoftext|>", "<|im_start|>",
                                                      "<|im_end|>"};

int32_t vocab_max(void)
{
    int32_t words = 0;
    for (int n = 2, count = N_LETTERS; n <= 4; n++) {
        count *= N_LETTERS;
        words += count;
    }
    return N_BYTES + words + N_SPECIAL;
}

/* Bytes that byte-level BPE writes as the character of the same number; the others get the numbers
 * from 256 on, in order. */
static bool is_own_character(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Token i below 256: the own characters first, then the others. */
static void byte_token(int i, char out[4])
{
    int n_own = 0, n_other = 0, character = 0;
    for (int b = 0; b < 256; b++)
        n_own += is_own_character(b);
    for (int b = 0, own = 0; b < 256; b++) {
        if (is_own_character(b) ? own++ == i : n_own + n_other++ == i)
            character = is_own_character(b) ? b : 256 + n_other - 1;
    }
    if (character < 128)
        snprintf(out, 4, "%c", character);
    else
        snprintf(out, 4, "%c%c", 0xc0 | character >> 6, 0x80 | (character & 63));
}

/* Word k of the list of all words of two letters, then three, then four: its letters' numbers. */
static int word_letters(int k, int out[4])
{
    int n = 2;
    for (int count = N_LETTERS * N_LETTERS; k >= count; count *= N_LETTERS, n++)
        k -= count;
    for (int i = n; i-- > 0; k /= N_LETTERS)
        out[i] = k % N_LETTERS;
    return n;
}

static void word_text(const int *letter, int n, char *out)
{
    *out = '\0';
    for (int i = 0; i < n; i++)
        strcat(out, letters[letter[i]]);
}

static void put_vocab(struct buf *b, int32_t n_vocab)
{
    char text[16], merge[24];
    int letter[4];
    int32_t n_words = n_vocab - N_BYTES - N_SPECIAL;
    put_key_arr(b, "tokenizer.ggml.tokens", GGUF_STR, (uint64_t)n_vocab);
    for (int i = 0; i < N_BYTES; i++) {
        byte_token(i, text);
        put_str(b, text);
    }
    for (int k = 0; k < n_words; k++) {
        word_text(letter, word_letters(k, letter), text);
        put_str(b, text);
    }
    for (int i = 0; i < N_SPECIAL; i++)
        put_str(b, special_tokens[i]);
    put_key_arr(b, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n_vocab);
    for (int32_t i = 0; i < n_vocab; i++)
        put_u32(b, i < n_vocab - N_SPECIAL ? 1 : 3); /* normal, control */
    put_key_arr(b, "tokenizer.ggml.merges", GGUF_STR, (uint64_t)n_words);
    for (int k = 0; k < n_words; k++) { /* all but the last letter, and that */
        int n = word_letters(k, letter);
        word_text(letter, n - 1, text);
        snprintf(merge, sizeof merge, "%s %s", text, letters[letter[n - 1]]);
        put_str(b, merge);
    }
}

/* ---- Keys ---- */

static void put_key_f32(struct buf *b, const char *name, float v)
{
    put_str(b, name);
    put_u32(b, GGUF_F32);
    put(b, &v, sizeof v);
}

/* The number that files give a whole model of one type. */
static uint32_t file_type(uint32_t type)
{
    static const uint8_t numbers[QUANT_N_TYPES] = {
        [QUANT_F16] = 1,     [QUANT_Q4_0] = 2,  [QUANT_Q4_1] = 3,   [QUANT_Q8_0] = 7,
        [QUANT_Q5_0] = 8,    [QUANT_Q5_1] = 9,  [QUANT_Q2_K] = 10,  [QUANT_Q3_K] = 11,
        [QUANT_Q4_K] = 14,   [QUANT_Q5_K] = 16, [QUANT_Q6_K] = 18,  [QUANT_IQ4_NL] = 25,
        [QUANT_IQ4_XS] = 30, [QUANT_BF16] = 32, [QUANT_TQ1_0] = 36, [QUANT_TQ2_0] = 37,
        [QUANT_MXFP4] = 38,
    };
    return numbers[type];
}

static void put_arch_u32(struct buf *b, const struct plan *plan, const char *key, int32_t v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", plan->arch->name, key);
    put_key_u32(b, name, (uint32_t)v);
}

static void put_arch_f32(struct buf *b, const struct plan *plan, const char *key, double v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", plan->arch->name, key);
    put_key_f32(b, name, (float)v);
}

/* Pairs of the three rotary sections, as even as can be. */
static void put_sections(struct buf *b, const struct plan *plan, int32_t n_pairs)
{
    char name[96];
    snprintf(name, sizeof name, "%s.rope.dimension_sections", plan->arch->name);
    put_key_arr(b, name, GGUF_I32, 4);
    for (int32_t i = 0; i < 3; i++)
        put_u32(b, (uint32_t)((n_pairs + 2 - i) / 3));
    put_u32(b, 0);
}

/* Each key counts itself: put_keys runs once for the number and once for the bytes. */
static uint64_t put_keys(struct buf *b, const struct plan *plan)
{
    const struct shape *s = &plan->shape;
    const int parts = plan->arch->parts;
    const struct {
        const char *key;
        int32_t value;
        int parts; /* 0 = for all */
    } numbers[] = {
        {"context_length", s->n_ctx, 0},
        {"embedding_length", s->n_embd, 0},
        {"block_count", s->n_layers + s->n_predict, 0},
        {"feed_forward_length", s->n_ffn, 0},
        {"attention.head_count", s->n_heads, 0},
        {"attention.head_count_kv", s->n_kv_heads, 0},
        {"attention.key_length", s->head_dim, 0},
        {"attention.value_length", s->head_dim, 0},
        {"vocab_size", s->n_vocab, 0},
        {"rope.dimension_count", shape_n_rot(s, plan->arch), PART_ROPE_FREQS | PART_GATED},
        {"ssm.conv_kernel", s->conv_width, PART_HYBRID},
        {"ssm.state_size", s->state_dim, PART_HYBRID},
        {"ssm.group_count", s->n_key_heads, PART_HYBRID},
        {"ssm.time_step_rank", s->n_value_heads, PART_HYBRID},
        {"ssm.inner_size", s->n_value_heads * s->state_dim, PART_HYBRID},
        {"full_attention_interval", s->attention_interval, PART_HYBRID},
        {"expert_count", s->n_experts, PART_EXPERTS},
        {"expert_used_count", s->n_experts_used, PART_EXPERTS},
        {"expert_feed_forward_length", s->n_ffn_expert, PART_EXPERTS},
        {"expert_shared_feed_forward_length", s->n_ffn_shared, PART_SHARED_EXPERT},
    };
    uint64_t n = 0;
    put_key_str(b, "general.architecture", plan->arch->name), n++;
    put_key_str(b, "general.name", "random"), n++;
    put_key_str(b, "general.description", "random weights, written by neartie's mkgguf"), n++;
    put_key_u32(b, "general.file_type", file_type(plan->tensors[0].type)), n++;
    put_key_u32(b, "general.quantization_version", 2), n++;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!numbers[i].parts || (parts & numbers[i].parts))
            put_arch_u32(b, plan, numbers[i].key, numbers[i].value), n++;
    if (s->n_predict)
        put_arch_u32(b, plan, "nextn_predict_layers", s->n_predict), n++;
    put_arch_f32(b, plan, "attention.layer_norm_rms_epsilon", plan->arch->rms_eps), n++;
    put_arch_f32(b, plan, "rope.freq_base", plan->arch->rope_base), n++;
    if (parts & PART_GATED)
        put_sections(b, plan, shape_n_rot(s, plan->arch) / 2), n++;
    put_key_str(b, "tokenizer.ggml.model", "gpt2"), n++;
    put_key_str(b, "tokenizer.ggml.pre", plan->arch->pre), n++;
    put_vocab(b, s->n_vocab), n += 3;
    put_key_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)s->n_vocab - 3), n++;
    put_key_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)s->n_vocab - 1), n++;
    put_key_u32(b, "tokenizer.ggml.padding_token_id", (uint32_t)s->n_vocab - 3), n++;
    put_key_bool(b, "tokenizer.ggml.add_bos_token", parts & PART_ROPE_FREQS), n++;
    return n;
}

static void put_tensor_info(struct buf *b, const struct plan_tensor *t)
{
    put_str(b, t->name);
    put_u32(b, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++)
        put_u64(b, t->dim[i]);
    put_u32(b, t->type);
    put_u64(b, t->offset);
}

static void put_header(struct buf *b, const struct plan *plan)
{
    put_head(b, 3, plan->n_tensors, 0);
    uint64_t n_keys = put_keys(b, plan);
    memcpy(b->p + 16, &n_keys, sizeof n_keys);
    for (size_t i = 0; i < plan->n_tensors; i++)
        put_tensor_info(b, &plan->tensors[i]);
    put_padding(b, 0);
}

/* ---- Weights ---- */

/* Element i of a stream of random bits: any order of threads gives the same ones (splitmix64). */
static uint64_t bits_at(uint64_t key, uint64_t i)
{
    uint64_t z = key + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Nearly normal, from four 16-bit uniform numbers: mean 0, deviation 1, at most 3.46. */
static float normal_at(uint64_t key, uint64_t i)
{
    uint64_t z = bits_at(key, i);
    int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return (float)(sum - 131070) * (1 / 37837.0f);
}

static float uniform_at(uint64_t key, uint64_t i)
{
    return (float)(bits_at(key, i) >> 40) * 0x1p-24f;
}

/* Llama 3's rule for long contexts: wavelengths below 2,048 stay, those above 8,192 are stretched
 * by 8, the ones between in part. */
static float rope_freq_at(const struct plan *plan, uint64_t pair)
{
    double n_rot = shape_n_rot(&plan->shape, plan->arch);
    double wavelength = 2 * M_PI * pow(plan->arch->rope_base, 2 * (double)pair / n_rot);
    if (wavelength < 8192.0 / 4)
        return 1;
    if (wavelength > 8192.0)
        return 8;
    double kept = (8192.0 / wavelength - 1) / (4 - 1);
    return (float)(1 / ((1 - kept) / 8 + kept));
}

static float value_at(const struct plan *plan, const struct plan_tensor *t, uint64_t key,
                      uint64_t i)
{
    switch (t->fill) {
    case FILL_NORMAL:
        break;
    case FILL_NORM:
        return t->mean * expf(t->sd * normal_at(key, i));
    case FILL_CONV:
        return t->sd * normal_at(key, i) + (i % t->dim[0] == t->dim[0] - 1 ? t->mean : 0);
    case FILL_DECAY:
        return -expf(uniform_at(key, i) * logf(16));
    case FILL_DT_BIAS: {
        float dt = expf(logf(0.001f) + uniform_at(key, i) * logf(100));
        return dt + logf(-expm1f(-dt)); /* the inverse of softplus */
    }
    case FILL_ROPE_FREQS:
        return rope_freq_at(plan, i);
    }
    return t->mean + t->sd * normal_at(key, i);
}

static void fill_values(const struct plan *plan, const struct plan_tensor *t, uint64_t key,
                        uint64_t first, uint64_t n, float *out)
{
    if (t->fill == FILL_NORMAL)
        for (uint64_t i = 0; i < n; i++)
            out[i] = t->mean + t->sd * normal_at(key, first + i);
    else
        for (uint64_t i = 0; i < n; i++)
            out[i] = value_at(plan, t, key, first + i);
}

static int write_all(int fd, const void *p, size_t n, uint64_t at)
{
    while (n) {
        ssize_t done = pwrite(fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        p = (const char *)p + done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

/* One file being written by several threads. */
struct writer {
    int fd;
    uint64_t data_at; /* of the data part in the file */
    const struct plan *plan;
    uint64_t seed;
    void (*progress)(uint64_t done, uint64_t of);
    uint64_t done;
    int error; /* the first errno */
};

enum { CHUNK = 1 << 18 }; /* elements that a thread makes and writes at once, about */

/* Rows first ... of a tensor that is as wide as its row and as tall as all its planes. */
static int write_rows(const struct writer *w, size_t tensor, uint64_t first, uint64_t n,
                      float *values, void *packed)
{
    const struct plan_tensor *t = &w->plan->tensors[tensor];
    uint64_t n_cols = t->dim[0], row_bytes = (uint64_t)quant_row_bytes(t->type, (int64_t)n_cols);
    uint64_t key = bits_at(w->seed, tensor);
    fill_values(w->plan, t, key, first * n_cols, n * n_cols, values);
    pack_row(t->type, values, packed, (int64_t)(n * n_cols));
    return write_all(w->fd, packed, n * row_bytes, w->data_at + t->offset + first * row_bytes);
}

static void write_tensor(struct writer *w, size_t tensor)
{
    const struct plan_tensor *t = &w->plan->tensors[tensor];
    uint64_t n_rows = t->n_dims > 1 ? t->dim[1] * (t->n_dims > 2 ? t->dim[2] : 1) : 1;
    uint64_t step = t->dim[0] < CHUNK ? CHUNK / t->dim[0] : 1;
#pragma omp parallel
    {
        float *values = malloc(step * t->dim[0] * sizeof *values);
        void *packed = malloc(step * t->dim[0] * sizeof *values);
#pragma omp for schedule(dynamic)
        for (uint64_t row = 0; row < n_rows; row += step) {
            uint64_t n = n_rows - row < step ? n_rows - row : step;
            int failed = !values || !packed || write_rows(w, tensor, row, n, values, packed);
            int error = errno;
#pragma omp critical
            {
                if (failed && !w->error)
                    w->error = error ? error : ENOMEM;
                w->done += n * (t->size_bytes / n_rows);
                if (w->progress)
                    w->progress(w->done, w->plan->data_bytes);
            }
        }
        free(values);
        free(packed);
    }
}

int model_write(const char *path, const struct plan *plan, uint64_t seed,
                void (*progress)(uint64_t done, uint64_t of), struct err *err)
{
    struct buf header = {0};
    int rc = -1, fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    put_header(&header, plan);
    struct writer w = {
        .fd = fd, .data_at = header.n, .plan = plan, .seed = seed, .progress = progress};
    if (write_all(fd, header.p, header.n, 0) ||
        ftruncate(fd, (off_t)(header.n + plan->data_bytes))) {
        err_set(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    for (size_t i = 0; i < plan->n_tensors && !w.error; i++)
        write_tensor(&w, i);
    if (w.error) {
        err_set(err, "%s: %s", path, strerror(w.error));
        goto out;
    }
    rc = 0;
out:
    if (close(fd) && !rc)
        rc = err_set(err, "%s: %s", path, strerror(errno));
    if (rc)
        unlink(path);
    free(header.p);
    return rc;
}
