/* A program that loads a libllama for itself alone, as plug-ins do, and decodes with it. It prints,
 * for every row that it asked for, what the probe should have: position, token, best id, its logit,
 * the id that was sampled, and the context hash; - where there is none, or a memory operation left
 * it unknown.
 *   llama_host LIBRARY MODEL linked|dlsym   the way in which it finds the functions
 *   llama_host LIBRARY MODEL threads        four threads that make and free contexts
 *   llama_host LIBRARY old                  three calls, with a batch that has more members
 *   llama_host LIBRARY run HOW              a library that is the whole program
 * A second library may follow the way; it is called in between. */
#include "config.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/context_hash.h"
#include "shim/llama_abi.h"

enum { N_PROMPT = 7, TOKENS_MAX = 64 };

/* Parameters, larger than those of any version; of the context's, four numbers are known. */
struct params {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max;
    char rest[1008];
};

static struct params (*model_default)(void), (*context_default)(void);
static void *(*load_model)(const char *, struct params);
static struct llama_context *(*new_context)(void *, struct params);
static void (*log_set)(void (*)(int, const char *, void *), void *);
static void (*backend_init)(void), (*load_all)(const char *), (*free_model)(void *);
static const void *(*get_vocab)(const void *);
static int32_t (*n_tokens)(const void *);
static void *(*get_memory)(struct llama_context *);
static float *(*logits_ith)(struct llama_context *, int32_t);
static size_t (*state_size)(struct llama_context *),
    (*state_get)(struct llama_context *, void *, size_t),
    (*state_set)(struct llama_context *, const void *, size_t);
static size_t (*seq_size)(struct llama_context *, int32_t),
    (*seq_get)(struct llama_context *, void *, size_t, int32_t),
    (*seq_set)(struct llama_context *, const void *, size_t, int32_t),
    (*seq_save)(struct llama_context *, const char *, int32_t, const int32_t *, size_t),
    (*seq_load)(struct llama_context *, const char *, int32_t, int32_t *, size_t, size_t *);
static int32_t (*decode)(struct llama_context *, struct llama_batch);
static void (*free_context)(struct llama_context *);
static void (*set_threads)(struct llama_context *, int32_t, int32_t);
static bool (*seq_rm)(void *, int32_t, int32_t, int32_t);
static void (*seq_cp)(void *, int32_t, int32_t, int32_t, int32_t);
static void (*seq_add)(void *, int32_t, int32_t, int32_t, int32_t);
static void (*clear)(void *, bool);
static bool (*set_sampler)(struct llama_context *, int32_t, void *);
static void *(*greedy)(void), *(*chain_init)(bool);
static void (*chain_add)(void *, void *);
static int32_t (*sample)(void *, struct llama_context *, int32_t);
static void (*apply)(void *, void *), (*accept)(void *, int32_t);
static void (*warm_up)(struct llama_context *, bool);

static const struct {
    const char *name;
    void *at;
    bool optional;
} functions[] = {
    {"llama_model_default_params", &model_default, false},
    {"llama_context_default_params", &context_default, false},
    {"llama_model_load_from_file", &load_model, false},
    {"llama_init_from_model", &new_context, false},
    {"llama_log_set", &log_set, false},
    {"llama_backend_init", &backend_init, false},
    {"ggml_backend_load_all_from_path", &load_all, false},
    {"llama_model_free", &free_model, false},
    {"llama_model_get_vocab", &get_vocab, false},
    {"llama_vocab_n_tokens", &n_tokens, false},
    {"llama_get_memory", &get_memory, false},
    {"llama_get_logits_ith", &logits_ith, false},
    {"llama_state_get_size", &state_size, false},
    {"llama_state_get_data", &state_get, false},
    {"llama_state_set_data", &state_set, false},
    {"llama_state_seq_get_size", &seq_size, false},
    {"llama_state_seq_get_data", &seq_get, false},
    {"llama_state_seq_set_data", &seq_set, false},
    {"llama_state_seq_save_file", &seq_save, false},
    {"llama_state_seq_load_file", &seq_load, false},
    {"llama_decode", &decode, false},
    {"llama_free", &free_context, false},
    {"llama_set_n_threads", &set_threads, false},
    {"llama_memory_seq_rm", &seq_rm, false},
    {"llama_memory_seq_cp", &seq_cp, false},
    {"llama_memory_seq_add", &seq_add, false},
    {"llama_memory_clear", &clear, false},
    {"llama_set_sampler", &set_sampler, true},
    {"llama_sampler_init_greedy", &greedy, false},
    {"llama_sampler_chain_init", &chain_init, false},
    {"llama_sampler_chain_add", &chain_add, false},
    {"llama_sampler_sample", &sample, false},
    {"llama_sampler_apply", &apply, false},
    {"llama_sampler_accept", &accept, false},
    {"llama_set_warmup", &warm_up, false},
};

static void die(const char *what)
{
    fprintf(stderr, "llama_host: %s\n", what);
    exit(1);
}

static void find_functions(void *lib, bool linked)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        /* What the loader would bind a plug-in's reference to. */
        void *fn = linked ? dlsym(RTLD_DEFAULT, functions[i].name) : NULL;
        if (!fn)
            fn = dlsym(lib, functions[i].name);
        if (!fn && !functions[i].optional)
            die(functions[i].name);
        memcpy(functions[i].at, &fn, sizeof fn);
    }
}

static void be_silent(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

static __thread struct llama_context *ctx;
static __thread void *sampler;
static uint64_t start; /* the hash before the first token */
static int32_t n_vocab;

/* The tokens that a sequence should hold. */
struct text {
    int32_t tokens[TOKENS_MAX];
    int32_t n;
    bool unknown;
};

/* Print row i; sampled: what was chosen after it, or -1. Returns the best id. */
static int32_t show(int32_t i, int32_t pos, int32_t token, const struct text *t, int32_t sampled)
{
    const float *row = logits_ith(ctx, i);
    char hash[20] = "-", emitted[12] = "-";
    int32_t best = 0;
    if (!row)
        die("no logits");
    for (int32_t k = 1; k < n_vocab; k++)
        best = row[k] > row[best] ? k : best;
    if (!t->unknown)
        snprintf(hash, sizeof hash, "%016" PRIx64, context_hash(start, t->tokens, (size_t)pos + 1));
    if (sampled >= 0)
        snprintf(emitted, sizeof emitted, "%d", sampled);
    printf("%d %d %d %.4f %s %s\n", pos, token, best, (double)row[best], emitted, hash);
    return best;
}

static void run(struct llama_batch b)
{
    int32_t rc = decode(ctx, b);
    if (rc) {
        fprintf(stderr, "llama_host: llama_decode: %d\n", rc);
        exit(1);
    }
}

/* As programs sample that look at the candidates themselves. */
static int32_t sample_by_parts(int32_t i)
{
    struct candidate {
        int32_t id;
        float logit, p;
    } *list = calloc((size_t)n_vocab, sizeof *list);
    struct {
        struct candidate *list;
        size_t n;
        int64_t selected;
        bool sorted;
    } array = {list, (size_t)n_vocab, -1, false};
    const float *row = logits_ith(ctx, i);
    if (!list || !row)
        die("no logits");
    for (int32_t k = 0; k < n_vocab; k++)
        list[k] = (struct candidate){.id = k, .logit = row[k]};
    apply(sampler, &array);
    int32_t token = array.list[array.selected].id;
    accept(sampler, token);
    free(list);
    return token;
}

/* Decode behind sequence 0, everything left to libllama; returns the token that it samples. */
static int32_t continue_first(struct text *t, const int32_t *tokens, int32_t n)
{
    memcpy(t->tokens + t->n, tokens, (size_t)n * sizeof *tokens);
    t->n += n;
    run((struct llama_batch){.n_tokens = n, .token = t->tokens + t->n - n});
    int32_t token = sample(sampler, ctx, -1);
    accept(sampler, 1); /* of another text: nobody read a row for it */
    show(-1, t->n - 1, tokens[n - 1], t, token);
    return token;
}

/* One token each for sequences 0 and 1, in one batch. */
static void step_both(struct text t[2], const int32_t tokens[2])
{
    int32_t token[2], pos[2], n_ids[2] = {1, 1}, ids[2] = {0, 1};
    int32_t *id[2] = {&ids[0], &ids[1]};
    int8_t flags[2] = {1, 1};
    for (int i = 0; i < 2; i++) {
        token[i] = t[i].tokens[t[i].n] = tokens[i];
        pos[i] = t[i].n++;
    }
    run((struct llama_batch){2, token, NULL, pos, n_ids, id, flags});
    for (int i = 0; i < 2; i++)
        show(i, pos[i], token[i], &t[i], sample_by_parts(i));
}

/* Decode n tokens of a sequence with every member given, an output for every stride-th. */
static void prefill(struct text *t, int32_t seq, const int32_t *tokens, int32_t n, int32_t stride)
{
    int32_t token[TOKENS_MAX], pos[TOKENS_MAX], n_ids[TOKENS_MAX], *id[TOKENS_MAX], first = t->n;
    int8_t flags[TOKENS_MAX];
    for (int32_t i = 0; i < n; i++) {
        token[i] = t->tokens[t->n] = tokens[i];
        pos[i] = t->n++;
        n_ids[i] = 1;
        id[i] = &seq;
        flags[i] = stride && i % stride == 0;
    }
    run((struct llama_batch){n, token, NULL, pos, n_ids, id, flags});
    for (int32_t i = 0; i < n; i++)
        if (flags[i])
            show(i, first + i, token[i], t, -1);
}

static const int32_t prompt[N_PROMPT] = {40, 7, 93, 12, 55, 12, 81};

static void generate(struct text t[2])
{
    int32_t next = continue_first(&t[0], prompt, N_PROMPT);
    for (int i = 0; i < 4; i++)
        next = continue_first(&t[0], &next, 1);
}

/* Back by three tokens, another way from there, and a second sequence that starts with the same. */
static void fork_second(struct text t[2])
{
    void *memory = get_memory(ctx);
    seq_rm(memory, 0, t[0].n - 3, -1);
    t[0].n -= 3;
    continue_first(&t[0], (int32_t[]){21, 22}, 2);
    seq_cp(memory, 0, 1, -1, -1);
    t[1] = t[0];
    step_both(t, (int32_t[]){30, 31});
    step_both(t, (int32_t[]){32, 33});
}

/* Tokens moved and tokens removed from the middle; the other sequence stays known. */
static void spoil(struct text t[2])
{
    void *memory = get_memory(ctx);
    seq_rm(memory, 1, 2, 4);
    t[1].unknown = true;
    step_both(t, (int32_t[]){34, 35});
    seq_rm(memory, 1, 2, -1); /* what is left is known again */
    t[1].n = 2;
    t[1].unknown = false;
    prefill(&t[1], 1, prompt, 3, 1);
    seq_rm(memory, 0, 2, 4); /* as a server shifts a full context */
    seq_add(memory, 0, 4, -1, -2);
    t[0].n -= 2;
    t[0].unknown = true;
    continue_first(&t[0], (int32_t[]){36}, 1);
    seq_rm(memory, 0, 2, -1);
    t[0].n = 2;
    t[0].unknown = false;
    continue_first(&t[0], (int32_t[]){38}, 1);
}

/* The cold run of the same prompt in two pieces, then a state that came from elsewhere. */
static void start_again(struct text t[2])
{
    clear(get_memory(ctx), true);
    t[0] = t[1] = (struct text){0};
    prefill(&t[0], 0, prompt, 3, 0);
    prefill(&t[0], 0, prompt + 3, N_PROMPT - 3, 2);
    size_t size = state_size(ctx);
    void *state = malloc(size);
    if (!state || state_set(ctx, state, state_get(ctx, state, size)) == 0)
        die("no state");
    free(state);
    t[0].unknown = true;
    continue_first(&t[0], (int32_t[]){37}, 1);
}

/* A sequence that makes room and comes back, from memory and from a file. */
static void come_back(void)
{
    struct text kept = {{0}, 0, false}, t = {{0}, 0, false};
    void *memory = get_memory(ctx);
    clear(memory, true);
    continue_first(&kept, prompt, N_PROMPT);
    size_t size = seq_size(ctx, 0), n;
    void *state = malloc(size);
    if (!state || seq_get(ctx, state, size, 0) == 0 ||
        seq_save(ctx, "sequence.state", 0, kept.tokens, (size_t)kept.n) == 0)
        die("no state");
    clear(memory, true);
    continue_first(&t, prompt + 1, 3);
    if (seq_set(ctx, state, size, 0) == 0)
        die("the state cannot be read");
    t = kept;
    continue_first(&t, (int32_t[]){60}, 1);
    clear(memory, true);
    if (seq_load(ctx, "sequence.state", 0, kept.tokens, TOKENS_MAX, &n) == 0)
        die("the state's file cannot be read");
    continue_first(&kept, (int32_t[]){61}, 1);
    free(state);
}

static void make_context(void *model, struct params params)
{
    ctx = new_context(model, params);
    if (!ctx)
        die("no context");
    set_threads(ctx, 1, 1);
}

/* Another model, as one that drafts: its contexts are its own. */
static void draft(const char *path, struct params params)
{
    struct text t = {{0}, 0, false};
    void *model = load_model(path, model_default());
    if (!model)
        die("no second model");
    make_context(model, params);
    start = context_hash(0, (int32_t[]){2, 0, 0, 0, 0}, 5);
    prefill(&t, 0, prompt, N_PROMPT, N_PROMPT - 1);
    free_context(ctx);
    free_model(model);
}

/* A sampler in the context's graph: the logits stay there. */
static void sample_inside(void *model, struct params params)
{
    if (!set_sampler)
        return;
    make_context(model, params);
    if (set_sampler(ctx, 0, sampler)) {
        int32_t tokens[2] = {50, 51};
        run((struct llama_batch){.n_tokens = 2, .token = tokens});
        fprintf(stderr, "sampled inside\n");
    }
    free_context(ctx);
}

static struct {
    void *model;
    struct params params;
} shared;

/* The same text in one context after the other. */
static void *work(void *unused)
{
    sampler = chain_init(true);
    chain_add(sampler, greedy());
    for (int i = 0; i < 6; i++) {
        struct text t = {{0}, 0, false};
        make_context(shared.model, shared.params);
        int32_t next = continue_first(&t, prompt, N_PROMPT);
        for (int k = 0; k < 10; k++)
            next = continue_first(&t, &next, 1);
        clear(get_memory(ctx), true);
        t.n = 0;
        continue_first(&t, prompt, N_PROMPT);
        free_context(ctx);
    }
    return unused;
}

static void work_in_threads(void *model, struct params params)
{
    pthread_t threads[4];
    shared.model = model;
    shared.params = params;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            die("no thread");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* Call a function whose batch has more members; it returns their sum. */
static int32_t call_fake(void *fn)
{
    struct {
        struct llama_batch known;
        int32_t more[3];
    } batch = {{.n_tokens = 1}, {10, 200, 3000}};
    int32_t (*fake)(void *, __typeof__(batch));
    if (!fn)
        die("the fake has no such function");
    memcpy(&fake, &fn, sizeof fn);
    return fake(NULL, batch);
}

static int be_old(void *lib)
{
    void *fn = dlsym(RTLD_DEFAULT, "llama_decode");
    printf("%d\n", call_fake(fn ? fn : dlsym(lib, "llama_decode")));
    printf("%d\n", call_fake(dlsym(lib, "fake_run")));
    printf("%d\n", call_fake(dlsym(lib, "fake_pass")));
    return 0;
}

/* Another library of the same functions, loaded for itself: what it calls is its own. */
static void meet_another(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        die(dlerror());
    if (call_fake(dlsym(lib, "fake_run")) != 3211 || call_fake(dlsym(lib, "llama_decode")) != 3211)
        die("the other library's functions are not its own");
}

int main(int argc, char **argv)
{
    char folder[4096];
    void *lib = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib)
        die(argc > 2 ? dlerror() : "usage: llama_host LIBRARY MODEL linked|dlsym");
    int (*run_all)(const char *) = NULL;
    if (argc == 4 && !strcmp(argv[2], "run"))
        memcpy(&run_all, &(void *){dlsym(lib, "run")}, sizeof run_all);
    if (run_all)
        return run_all(argv[3]);
    if (argc < 4)
        return be_old(lib);
    find_functions(lib, strcmp(argv[3], "dlsym") != 0);
    log_set(be_silent, NULL);
    snprintf(folder, sizeof folder, "%s", argv[1]);
    *strrchr(folder, '/') = '\0';
    load_all(folder);
    backend_init();
    void *model = load_model(argv[2], model_default());
    if (!model)
        die("the model cannot be loaded");
    n_vocab = n_tokens(get_vocab(model));
    struct params params = context_default();
    params.n_ctx = 256;
    params.n_seq_max = 2;
    if (!strcmp(argv[3], "threads")) {
        work_in_threads(model, params);
        return 0;
    }
    make_context(model, params);
    sampler = chain_init(true);
    chain_add(sampler, greedy());
    warm_up(ctx, true);
    run((struct llama_batch){.n_tokens = 2, .token = (int32_t[]){1, 2}});
    warm_up(ctx, false);
    clear(get_memory(ctx), true);
    struct text t[2] = {{{0}, 0, false}, {{0}, 0, false}};
    generate(t);
    if (argc > 4)
        meet_another(argv[4]);
    fork_second(t);
    spoil(t);
    start_again(t);
    come_back();
    free_context(ctx);
    sample_inside(model, params);
    free_model(model);
    draft(argv[2], params);
    return 0;
}
