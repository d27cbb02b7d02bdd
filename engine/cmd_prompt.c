#include "config.h"

#include "engine/cmd.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "err.h"

#include <errno.h>
#include <string.h>

enum { OPT_TOKEN_IDS = 256, OPT_NO_SPECIAL, OPT_NO_ENDS };

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Input:", 1},
    {"prompt", 'p', "TEXT", 0, "Text to start from", 0},
    {"prompt-file", 'f', "FILE", 0, "The same from a file, byte for byte; - is standard input", 0},
    {"token-ids", OPT_TOKEN_IDS, "IDS", 0, "The same as token ids, for instance 1,2,3", 0},
    {"no-special", OPT_NO_SPECIAL, NULL, 0, "Read <|im_end|> and the like as plain text", 0},
    {"no-ends", OPT_NO_ENDS, NULL, 0, "Leave out the begin and end tokens that the model asks for",
     0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct prompts *p = state->input;
    switch (key) {
    case 'p':
        prompts_add(p, PROMPT_TEXT, arg);
        return 0;
    case 'f':
        prompts_add(p, PROMPT_FILE, arg);
        return 0;
    case OPT_TOKEN_IDS:
        prompts_add(p, PROMPT_IDS, arg);
        return 0;
    case OPT_NO_SPECIAL:
        p->no_special = true;
        return 0;
    case OPT_NO_ENDS:
        p->no_ends = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp prompt_argp = {.options = options, .parser = parse_option};

void prompts_add(struct prompts *p, enum prompt_kind kind, const char *value)
{
    p->list = xreallocarray(p->list, p->n + 1, sizeof *p->list);
    p->list[p->n++] = (struct prompt){kind, value};
}

void prompts_free(struct prompts *p)
{
    free(p->list);
    *p = (struct prompts){0};
}

char *read_input(const char *path, size_t *out_n, struct err *err)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, n_max = 0, got;
    if (!f) {
        err_set(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    do {
        if (n == n_max) {
            n_max = n_max ? 2 * n_max : 65536;
            text = xreallocarray(text, n_max, 1);
        }
        got = fread(text + n, 1, n_max - n, f);
        n += got;
    } while (got);
    if (ferror(f)) {
        err_set(err, "%s: %s", is_stdin ? "standard input" : path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (!is_stdin)
        fclose(f);
    *out_n = n;
    return text;
}

int parse_ids(const char *text, size_t n, const char *what, struct token_list *out, struct err *err)
{
    for (size_t i = 0; i < n;) {
        if (text[i] && strchr(", \t\r\n[]", text[i])) {
            i++;
            continue;
        }
        size_t from = i;
        int64_t id = 0;
        for (; i < n && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX; i++)
            id = 10 * id + (text[i] - '0');
        if (i == from || id > INT32_MAX)
            return err_set(err, "%s: \"%.*s\" at byte %zu is not a token id", what,
                           (int)strcspn(text + from, ", \t\r\n[]"), text + from, from);
        token_list_push(out, (int32_t)id);
    }
    return 0;
}

/* A name for messages. */
static const char *prompt_name(const struct prompt *p)
{
    if (p->kind == PROMPT_FILE)
        return strcmp(p->value, "-") ? p->value : "standard input";
    return p->kind == PROMPT_IDS ? "token ids" : "prompt";
}

static int append_tokens(const struct prompts *p, const struct prompt *prompt,
                         const struct session *s, struct token_list *out, struct err *err)
{
    if (prompt->kind == PROMPT_IDS)
        return parse_ids(prompt->value, strlen(prompt->value), "token ids", out, err);
    if (!s->tokenizer)
        return err_set(err, "%s: has no tokenizer, give token ids", s->path);
    char *file = NULL;
    const char *text = prompt->value;
    size_t n = strlen(text);
    if (prompt->kind == PROMPT_FILE) {
        text = file = read_input(prompt->value, &n, err);
        if (!file)
            return -1;
    }
    unsigned flags = (p->no_special ? 0 : TOKENIZE_SPECIAL) | (p->no_ends ? 0 : TOKENIZE_ENDS);
    int rc = n ? tokenizer_encode(s->tokenizer, text, n, flags, out, err)
               : err_set(err, "%s: is empty", prompt_name(prompt));
    free(file);
    return rc;
}

int prompt_tokens(const struct prompts *p, size_t i, const struct session *s,
                  struct token_list *out, struct err *err)
{
    const struct prompt *prompt = &p->list[i];
    size_t before = out->n;
    if (append_tokens(p, prompt, s, out, err))
        return -1;
    if (out->n == before)
        return err_set(err, "%s: is empty", prompt_name(prompt));
    if (out->n > INT32_MAX / 2)
        return err_set(err, "%s: %zu tokens, must be at most %d", prompt_name(prompt), out->n,
                       INT32_MAX / 2);
    int32_t n_vocab = s->model ? s->model->hp.n_vocab : tokenizer_n_vocab(s->tokenizer);
    for (size_t k = before; k < out->n; k++)
        if (out->ids[k] >= n_vocab)
            return err_set(err, "%s: token id %d, the vocabulary of %s has %d", prompt_name(prompt),
                           out->ids[k], s->path, n_vocab);
    return 0;
}
