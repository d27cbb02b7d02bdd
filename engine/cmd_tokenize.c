#include "config.h"

#include "engine/cmd.h"
#include "err.h"

#include <stdlib.h>

enum { OPT_FORMAT = 300 };
enum format { FORMAT_TABLE, FORMAT_IDS, FORMAT_JSON };
static const char *const formats[] = {"table", "ids", "json", NULL};

struct options {
    const char *model;
    struct prompts prompts;
    enum format format;
};

static const struct argp_option option_table[] = {
    {"format", OPT_FORMAT, "FORMAT", 0,
     "table: one line a token (the default); ids: the numbers on one line; json", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->prompts;
        return 0;
    case OPT_FORMAT:
        o->format = (enum format)option_word(state, "--format", arg, formats);
        return 0;
    case ARGP_KEY_ARG:
        if (o->model)
            return ARGP_ERR_UNKNOWN;
        o->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "no MODEL given");
        if (o->prompts.n != 1)
            argp_error(state, "give one of --prompt, --prompt-file and --token-ids");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The text of one token as a JSON string. */
static void print_piece(const struct tokenizer *t, int32_t id, char *buf)
{
    int n = tokenizer_piece(t, id, true, buf, tokenizer_piece_max(t));
    json_string(stdout, buf, n > 0 ? (size_t)n : 0);
}

static void print_table(const struct session *s, const struct token_list *ids, char *buf)
{
    printf("%-8s %-8s %s\n", "pos", "id", "text");
    for (size_t i = 0; i < ids->n; i++) {
        printf("%-8zu %-8d ", i, ids->ids[i]);
        print_piece(s->tokenizer, ids->ids[i], buf);
        putchar('\n');
    }
}

static void print_json(const struct session *s, const struct token_list *ids, char *buf)
{
    printf("{\"n\":%zu,\"ids\":", ids->n);
    json_ids(stdout, ids->ids, ids->n);
    printf(",\"texts\":[");
    for (size_t i = 0; i < ids->n; i++) {
        printf("%s", i ? "," : "");
        print_piece(s->tokenizer, ids->ids[i], buf);
    }
    printf("]}\n");
}

static int print_ids(const struct session *s, const struct token_list *ids, enum format format,
                     struct err *err)
{
    if (format == FORMAT_IDS) {
        for (size_t i = 0; i < ids->n; i++)
            printf("%s%d", i ? " " : "", ids->ids[i]);
        putchar('\n');
        return 0;
    }
    char *buf = malloc(tokenizer_piece_max(s->tokenizer) + 1);
    if (!buf)
        return err_set(err, "%s: out of memory", s->path);
    (format == FORMAT_JSON ? print_json : print_table)(s, ids, buf);
    free(buf);
    return 0;
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp_child children[] = {{&prompt_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        option_table, parse_option, "MODEL", "Print the token ids of a text.",
        children,     NULL,         NULL};
    struct options o = {0};
    struct session s = {0};
    struct token_list ids = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = session_open(&s, o.model, false, err);
    if (rc == 0 && !s.tokenizer)
        rc = err_set(err, "%s: has no tokenizer", o.model);
    if (rc == 0)
        rc = prompt_tokens(&o.prompts, 0, &s, &ids, err);
    if (rc == 0)
        rc = print_ids(&s, &ids, o.format, err);
    token_list_free(&ids);
    session_close(&s);
    prompts_free(&o.prompts);
    return rc;
}

const struct cmd cmd_tokenize = {"tokenize", "Print the token ids of a text", run};
