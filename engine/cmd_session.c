#include "config.h"

#include "engine/backend.h"
#include "engine/cmd.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "err.h"

#include <stdlib.h>
#include <string.h>

int session_open(struct session *s, const char *path, bool with_model, struct err *err)
{
    s->path = path;
    if (gguf_open(path, &s->gguf, err))
        return -1;
    if (gguf_has(s->gguf, "tokenizer.ggml.model") && tokenizer_open(s->gguf, &s->tokenizer, err))
        return -1;
    if (!with_model)
        return 0;
    if (knobs_from_env(&s->knobs, err) || model_open(s->gguf, &s->model, err))
        return -1;
    const char *device = getenv("NEARTIE_DEVICE");
    return backend_open(device && *device ? device : "auto", &s->backend, err);
}

void session_close(struct session *s)
{
    backend_close(s->backend);
    model_close(s->model);
    tokenizer_close(s->tokenizer);
    gguf_close(s->gguf);
}

int session_forward(const struct session *s, const struct knobs *knobs, int32_t n_ctx,
                    int32_t n_seqs, struct forward **out, struct err *err)
{
    struct forward_params params = {.n_ctx = n_ctx, .n_seqs = n_seqs, .knobs = *knobs};
    return forward_new(s->model, s->backend, &params, out, err);
}

/* A paragraph, indented and at most 79 columns wide: argp would wrap longer lines to the margin. */
static void print_wrapped(FILE *f, int indent, const char *text)
{
    const int width = 79;
    int column = 0;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        bool is_first = column == 0;
        if (!is_first && column + 1 + n > width) {
            putc('\n', f);
            is_first = true;
        }
        column =
            is_first ? fprintf(f, "%*s%.*s", indent, "", n, p) : column + fprintf(f, " %.*s", n, p);
        p += n + strspn(p + n, " ");
    }
    putc('\n', f);
}

char *session_help_filter(int key, const char *text, void *input)
{
    (void)input;
    char *out = NULL;
    size_t n;
    if (key == ARGP_KEY_HELP_DUP_ARGS_NOTE)
        return NULL;
    FILE *f = key == ARGP_KEY_HELP_POST_DOC ? open_memstream(&out, &n) : NULL;
    if (!f)
        return (char *)text;
    fprintf(f, "Numeric knobs, read from the environment:\n");
    for (int i = 0; i < N_KNOBS; i++) {
        fprintf(f, "  %s: %s (%s)\n", knob_table[i].name, knob_table[i].allowed,
                knob_table[i].default_text);
        print_wrapped(f, 6, knob_table[i].help);
    }
    fclose(f);
    return out; /* argp frees it */
}
