/* A fake: it has every function of a libllama that is needed, and decodes nothing. Its contexts are
 * freed at the worst moments, by a thread of its own as another part of a program would do it; it
 * tells whether one was used behind that. run(HOW) is the whole program. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { N_VOCAB = 8, MOMENT_US = 100000 };

struct llama_context {
    bool is_freed, is_read;
};

struct llama_batch {
    int32_t n_tokens;
    int32_t *token;
    void *embd, *pos, *n_seq_id, *seq_id;
    int8_t *logits;
};

EXPORT int32_t llama_decode(struct llama_context *c, struct llama_batch b);
EXPORT void llama_free(struct llama_context *c);
EXPORT bool llama_memory_seq_rm(void *m, int32_t seq, int32_t p0, int32_t p1);
EXPORT void llama_memory_seq_cp(void *m, int32_t from, int32_t to, int32_t p0, int32_t p1);
EXPORT void llama_memory_seq_keep(void *m, int32_t seq);
EXPORT void llama_memory_seq_add(void *m, int32_t seq, int32_t p0, int32_t p1, int32_t delta);
EXPORT void llama_memory_seq_div(void *m, int32_t seq, int32_t p0, int32_t p1, int d);
EXPORT void llama_memory_clear(void *m, bool data);
EXPORT float *llama_get_logits(struct llama_context *c);
EXPORT float *llama_get_logits_ith(struct llama_context *c, int32_t i);
EXPORT const void *llama_get_model(const struct llama_context *c);
EXPORT const void *llama_model_get_vocab(const void *model);
EXPORT int32_t llama_vocab_n_tokens(const void *vocab);
EXPORT void *llama_get_memory(const struct llama_context *c);
EXPORT int32_t llama_memory_seq_pos_max(void *m, int32_t seq);
EXPORT struct llama_batch llama_batch_get_one(int32_t *token, int32_t n);
EXPORT int run(const char *how);

static struct llama_context context;
static float logits[N_VOCAB] = {1, 2, 3};
static _Atomic bool is_decoding, is_read;
static const char *how;

static void check(const struct llama_context *c, const char *what)
{
    if (c->is_freed) {
        fprintf(stderr, "%s of a context that is freed\n", what);
        _exit(9);
    }
}

static void wait_for(_Atomic bool *flag)
{
    while (!*flag)
        usleep(1000);
}

static void *free_it(void *unused)
{
    bool while_decoding = !strcmp(how, "decoding");
    wait_for(while_decoding ? &is_decoding : &is_read);
    llama_free(&context);
    return unused;
}

int32_t llama_decode(struct llama_context *c, struct llama_batch b)
{
    (void)b;
    is_decoding = true;
    if (!strcmp(how, "decoding"))
        while (!c->is_freed)
            usleep(1000);
    return 0;
}

void llama_free(struct llama_context *c)
{
    if (c->is_read) {
        fprintf(stderr, "freed while it is read\n");
        _exit(9);
    }
    c->is_freed = true;
}

float *llama_get_logits(struct llama_context *c)
{
    check(c, "logits");
    return strcmp(how, "none") != 0 ? logits : NULL;
}

float *llama_get_logits_ith(struct llama_context *c, int32_t i)
{
    (void)i;
    check(c, "logits");
    c->is_read = true;
    is_read = true;
    usleep(MOMENT_US);
    c->is_read = false;
    return logits;
}

const void *llama_get_model(const struct llama_context *c)
{
    check(c, "model");
    return c;
}

const void *llama_model_get_vocab(const void *model)
{
    return model;
}

int32_t llama_vocab_n_tokens(const void *vocab)
{
    (void)vocab;
    return N_VOCAB;
}

void *llama_get_memory(const struct llama_context *c)
{
    check(c, "memory");
    return NULL;
}

int32_t llama_memory_seq_pos_max(void *m, int32_t seq)
{
    (void)m, (void)seq;
    return -1;
}

struct llama_batch llama_batch_get_one(int32_t *token, int32_t n)
{
    return (struct llama_batch){.n_tokens = n, .token = token};
}

bool llama_memory_seq_rm(void *m, int32_t seq, int32_t p0, int32_t p1)
{
    (void)m, (void)seq, (void)p0, (void)p1;
    return false;
}

void llama_memory_seq_cp(void *m, int32_t from, int32_t to, int32_t p0, int32_t p1)
{
    (void)m, (void)from, (void)to, (void)p0, (void)p1;
}

void llama_memory_seq_keep(void *m, int32_t seq)
{
    (void)m, (void)seq;
}

void llama_memory_seq_add(void *m, int32_t seq, int32_t p0, int32_t p1, int32_t delta)
{
    (void)m, (void)seq, (void)p0, (void)p1, (void)delta;
}

void llama_memory_seq_div(void *m, int32_t seq, int32_t p0, int32_t p1, int d)
{
    (void)m, (void)seq, (void)p0, (void)p1, (void)d;
}

void llama_memory_clear(void *m, bool data)
{
    (void)m, (void)data;
}

/* Decode two tokens in a context that a second thread frees. */
int run(const char *argument)
{
    int32_t tokens[2] = {3, 4};
    pthread_t thread;
    how = argument;
    bool is_alone = !strcmp(how, "none");
    if (!is_alone && pthread_create(&thread, NULL, free_it, NULL))
        return 1;
    volatile int32_t rc = llama_decode(&context, llama_batch_get_one(tokens, 2));
    is_read = true; /* where nobody records, nobody reads */
    if (!is_alone)
        pthread_join(thread, NULL);
    printf("%s: %d\n", how, rc);
    return 0;
}
