/* Write a model with random weights of realistic scale: any architecture, weight type and size that
 * the engine reads, the same bytes for the same options with any number of threads. */
#include "config.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "kernels/quant.h"
#include "tests/mkgguf_plan.h"
#include "tests/mkgguf_write.h"

const char *argp_program_version = "mkgguf " PACKAGE_VERSION;

/* Options that set one size each. */
static const struct size_option {
    const char *name;
    size_t field;
    const char *help;
} size_options[] = {
#define FIELD(name) offsetof(struct shape, name)
    {"layers", FIELD(n_layers), "layers"},
    {"embd", FIELD(n_embd), "width of the residual stream"},
    {"ffn", FIELD(n_ffn), "hidden width of the feed-forward layers"},
    {"heads", FIELD(n_heads), "query heads"},
    {"kv-heads", FIELD(n_kv_heads), "key and value heads"},
    {"head-dim", FIELD(head_dim), "width of a head"},
    {"vocab", FIELD(n_vocab), "tokens"},
    {"ctx", FIELD(n_ctx), "positions"},
    {"tied", FIELD(tied), "1: the output matrix is the token embedding"},
    {"key-heads", FIELD(n_key_heads), "delta net: key heads"},
    {"value-heads", FIELD(n_value_heads), "delta net: value heads"},
    {"state-dim", FIELD(state_dim), "delta net: width of a head"},
    {"conv", FIELD(conv_width), "delta net: taps of the convolution"},
    {"interval", FIELD(attention_interval), "hybrid: every Nth layer is attention"},
    {"experts", FIELD(n_experts), "experts"},
    {"experts-used", FIELD(n_experts_used), "experts per token"},
    {"expert-ffn", FIELD(n_ffn_expert), "hidden width of an expert"},
    {"shared-ffn", FIELD(n_ffn_shared), "hidden width of the shared expert"},
    {"predict", FIELD(n_predict), "layers of multi-token prediction"},
#undef FIELD
};
enum { N_SIZE_OPTIONS = sizeof size_options / sizeof *size_options, KEY_SIZE = 1000 };
enum { KEY_LIST = 900, KEY_PRESETS };

struct options {
    struct shape shape;
    const char *arch; /* asked for, or NULL */
    struct type_rule rules[MAX_TYPE_RULES];
    size_t n_rules;
    uint64_t seed;
    const char *path;
    bool list;
};

static uint32_t type_parse(struct argp_state *state, const char *text)
{
    for (uint32_t type = 0; type < QUANT_N_TYPES; type++)
        if (quant_find(type) && !strcasecmp(quant_find(type)->name, text))
            return type;
    argp_error(state, "%s: unknown weight type", text);
    return 0;
}

static long long number_parse(struct argp_state *state, const char *option, const char *text,
                              long long max)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || v < 0 || v > max)
        argp_error(state, "--%s=%s: must be a number from 0 to %lld", option, text, max);
    return v;
}

static void rule_parse(struct argp_state *state, struct options *o, char *arg)
{
    char *equals = strchr(arg, '=');
    if (!equals)
        argp_error(state, "--type-of=%s: must be PART=TYPE", arg);
    if (o->n_rules == MAX_TYPE_RULES)
        argp_error(state, "--type-of=%s: more than %d", arg, MAX_TYPE_RULES - 1);
    *equals = '\0';
    o->rules[o->n_rules++] = (struct type_rule){arg, type_parse(state, equals + 1)};
}

static void presets_print(void)
{
    for (const struct preset *p = presets; p->name; p++)
        printf("%-13s %s\n", p->name, p->help);
}

static void preset_parse(struct argp_state *state, struct options *o, const char *name)
{
    for (const struct preset *p = presets; p->name; p++)
        if (!strcmp(p->name, name)) {
            o->shape = p->shape;
            return;
        }
    argp_error(state, "--preset=%s: unknown; --presets lists them", name);
}

static error_t option_parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    if (key >= KEY_SIZE && key < KEY_SIZE + N_SIZE_OPTIONS) {
        const struct size_option *s = &size_options[key - KEY_SIZE];
        int32_t v = (int32_t)number_parse(state, s->name, arg, 1 << 24);
        memcpy((char *)&o->shape + s->field, &v, sizeof v);
        return 0;
    }
    switch (key) {
    case 'p':
        preset_parse(state, o, arg);
        return 0;
    case 'a':
        o->arch = arg;
        return 0;
    case 't':
        o->rules[0].type = type_parse(state, arg);
        return 0;
    case 'T':
        rule_parse(state, o, arg);
        return 0;
    case 's':
        o->seed = (uint64_t)number_parse(state, "seed", arg, INT64_MAX);
        return 0;
    case KEY_LIST:
        o->list = true;
        return 0;
    case KEY_PRESETS:
        presets_print();
        exit(0);
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "%s: one OUTPUT only", arg);
        o->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->path && !o->list)
            argp_error(state, "no OUTPUT given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void plan_print(const struct plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        printf("%-36s %-6s %llu", t->name, quant_find(t->type)->name,
               (unsigned long long)t->dim[0]);
        for (int d = 1; d < t->n_dims; d++)
            printf(" x %llu", (unsigned long long)t->dim[d]);
        putchar('\n');
    }
}

static void progress_print(uint64_t done, uint64_t of)
{
    static unsigned shown = 101;
    unsigned percent = (unsigned)(of ? done * 100 / of : 100);
    if (percent != shown)
        fprintf(stderr, "\r%3u %%%s", percent, percent == 100 ? "\n" : "");
    shown = percent;
}

static int run(const struct options *o, struct err *err)
{
    struct plan plan;
    if (o->shape.n_vocab < 260 || o->shape.n_vocab > vocab_max())
        return err_set(err, "--vocab=%d: must be from 260 to %d", o->shape.n_vocab, vocab_max());
    if (plan_make(&o->shape, o->rules, o->n_rules, &plan, err))
        return -1;
    int rc = 0;
    if (o->list)
        plan_print(&plan);
    if (o->path)
        rc = model_write(o->path, &plan, o->seed, isatty(2) ? progress_print : NULL, err);
    if (!rc && o->path)
        fprintf(stderr, "mkgguf: %s: %s, %zu tensors, %.3f G parameters, %.3f GB", o->path,
                plan.arch->name, plan.n_tensors, (double)plan.n_params / 1e9,
                (double)plan.data_bytes / 1e9);
    if (!rc && o->path && plan.n_other_type)
        fprintf(stderr, "; %zu tensors have rows that are not whole blocks and another type",
                plan.n_other_type);
    if (!rc && o->path)
        fputc('\n', stderr);
    plan_free(&plan);
    return rc;
}

int main(int argc, char **argv)
{
    struct argp_option table[N_SIZE_OPTIONS + 9] = {
        {"preset", 'p', "NAME", 0, "sizes to start from; default tiny", 1},
        {"presets", KEY_PRESETS, NULL, 0, "list the presets", 1},
        {"arch", 'a', "NAME", 0, "llama, qwen2, qwen3, qwen3moe, qwen35, qwen35moe", 1},
        {"type", 't', "TYPE", 0, "weight type of the matrices; default F32", 1},
        {"type-of", 'T', "PART=TYPE", 0, "weight type of matrices with PART in their name", 1},
        {"seed", 's', "N", 0, "seed of the weights; default 1", 1},
        {"list", KEY_LIST, NULL, 0, "print the tensors", 1},
        {NULL, 0, NULL, 0, "Sizes:", 2},
    };
    for (int i = 0; i < N_SIZE_OPTIONS; i++)
        table[8 + i] = (struct argp_option){
            size_options[i].name, KEY_SIZE + i, "N", 0, size_options[i].help, 2};
    const struct argp argp = {table,
                              option_parse,
                              "OUTPUT",
                              "Write a GGUF model with random weights of realistic scale.\v"
                              "Options apply in order: --preset first, then changes to it. The "
                              "threads are OMP_NUM_THREADS; the bytes do not depend on them.",
                              NULL,
                              NULL,
                              NULL};
    struct options o = {.shape = presets[0].shape, .n_rules = 1, .seed = 1};
    struct err err = {""};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (o.arch)
        o.shape.arch = o.arch;
    if (run(&o, &err)) {
        fprintf(stderr, "mkgguf: %s\n", err.text);
        return 1;
    }
    return 0;
}
