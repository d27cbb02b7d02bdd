/* Any bytes as a prompt on the command line: text or token ids, and the JSON that shows them. */
#include "config.h"

#include "engine/cmd.h"
#include "err.h"
#include "fuzz.h"

#include <stdio.h>

static struct session *session(void)
{
    static struct session s;
    struct gguf *g;
    struct buf b = {0};
    struct err err = {""};
    if (s.tokenizer)
        return &s;
    fuzz_put_model(&b, "qwen2");
    FUZZ_CHECK(!gguf_open_bytes(b.p, b.n, "fuzz", &g, &err));
    FUZZ_CHECK(!tokenizer_open(g, &s.tokenizer, &err));
    s.path = "fuzz";
    return &s;
}

/* A JSON string without a control byte, a bare quote or a byte that is not UTF-8. */
static void check_json(const char *json, size_t n)
{
    FUZZ_CHECK(n >= 2 && json[0] == '"' && json[n - 1] == '"');
    for (size_t i = 1; i < n - 1;) {
        int length = utf8_length(json + i, n - 1 - i);
        FUZZ_CHECK(length && (unsigned char)json[i] >= ' ' && json[i] != '"');
        i += json[i] == '\\' ? 2 : (size_t)length;
    }
}

static void run(const uint8_t *data, size_t n)
{
    struct prompts prompts = {0};
    struct token_list ids = {0};
    struct err err = {""};
    char *json = NULL;
    size_t n_json;
    if (n < 1)
        return;
    char *text = strndup((const char *)data + 1, n - 1);
    prompts_add(&prompts, data[0] & 1 ? PROMPT_IDS : PROMPT_TEXT, text);
    prompts.no_special = data[0] & 2;
    if (prompt_tokens(&prompts, 0, session(), &ids, &err))
        FUZZ_CHECK(err.text[0] && !strchr(err.text, '\n'));
    else
        FUZZ_CHECK(ids.n && ids.ids[0] >= 0 &&
                   ids.ids[ids.n - 1] < tokenizer_n_vocab(session()->tokenizer));
    FILE *f = open_memstream(&json, &n_json);
    json_string(f, (const char *)data, n);
    fclose(f);
    check_json(json, n_json);
    free(json);
    token_list_free(&ids);
    prompts_free(&prompts);
    free(text);
}

static void seed(int i, struct buf *out)
{
    put(out, &(uint8_t){(uint8_t)i}, 1);
    if (i)
        put(out, "[1, 2,3]\n263", 12);
    else
        put(out, "ab\"<|end|>\\ \t\xff", 14);
}

const struct fuzz_target fuzz_prompt = {"prompt", run, 2, seed};
