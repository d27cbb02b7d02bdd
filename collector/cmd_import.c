#include "config.h"

#include "collector/cmd.h"
#include "collector/import.h"

#include <argp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CLASS = 0x200, KEY_ARM, KEY_KEY, KEY_TOKENS, KEY_JOIN };

static const struct kind {
    const char *name;
    int (*run)(const struct import *import, struct err *err);
    int most_files;
    bool takes_tokens, takes_join;
} kinds[] = {
    {"npy", import_npy, IMPORT_FILES, true, false},
    {"logprobs", import_logprobs, IMPORT_FILES, false, true},
    {"kld", import_kld, IMPORT_FILES, false, false},
    {"seed-log", import_seed_log, IMPORT_FILES, false, false},
};

#define KINDS "npy, logprobs, kld, seed-log"

struct options {
    struct import import;
    const struct kind *kind;
};

static void parse_kind(struct options *o, const char *arg, struct argp_state *state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(arg, kinds[i].name))
            o->kind = kinds + i;
    if (!o->kind)
        argp_error(state, "%s: no such kind; " KINDS, arg);
    o->import.kind = arg;
}

static void parse_file(struct options *o, const char *arg, struct argp_state *state)
{
    if (o->import.n_files == o->kind->most_files)
        argp_error(state, "%s: more than %d files", arg, o->kind->most_files);
    o->import.files[o->import.n_files++] = arg;
}

static void check(const struct options *o, struct argp_state *state)
{
    const struct import *import = &o->import;
    if (!import->path)
        argp_error(state, "which file? -o FILE");
    if (!o->kind)
        argp_error(state, "which kind? " KINDS);
    if (!import->n_files)
        argp_error(state, "which files? %s FILE...", o->kind->name);
    if (import->tokens && !o->kind->takes_tokens)
        argp_error(state, "--tokens %s: %s takes none", import->tokens, o->kind->name);
    if (import->join && !o->kind->takes_join)
        argp_error(state, "--join %s: %s takes none", import->join, o->kind->name);
    if (o->kind->takes_tokens && import->n_files == 1 && !import->tokens && !import->key)
        argp_error(state, "one file whose rows can join nothing: give a second one, or --tokens");
    for (int i = 0; i < import->n_files; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(import->labels[i], import->labels[j]))
                argp_error(state, "--arm %s: two arms have this name", import->labels[i]);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o':
        o->import.path = arg;
        return 0;
    case KEY_CLASS:
        o->import.cls = arg;
        return 0;
    case KEY_ARM:
        if (o->import.n_labels == IMPORT_FILES)
            argp_error(state, "--arm %s: more than %d arms", arg, IMPORT_FILES);
        o->import.labels[o->import.n_labels++] = arg;
        return 0;
    case KEY_KEY:
        o->import.key = arg;
        return 0;
    case KEY_TOKENS:
        o->import.tokens = arg;
        return 0;
    case KEY_JOIN:
        o->import.join = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->kind)
            parse_file(o, arg, state);
        else
            parse_kind(o, arg, state);
        return 0;
    case ARGP_KEY_END:
        check(o, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "database to write; one that exists gets another run", 0},
    {"arm", KEY_ARM, "NAME", 0,
     "name of the first arm, given again of the next (default a, b, ...)", 0},
    {"class", KEY_CLASS, "CLASS", 0,
     "how the arms may differ: bitwise, reassoc, precision, weights, engine", 0},
    {"key", KEY_KEY, "TEXT", 0,
     "rows whose tokens are unknown join those that were imported with the same key; without it, "
     "only those of this import",
     0},
    {"tokens", KEY_TOKENS, "FILE.npy", 0,
     "npy: the token ids of the rows, so that they join any record of the same tokens", 0},
    {"join", KEY_JOIN, "WHAT", 0,
     "logprobs: how two responses are known to be of one prompt: tokens, prompt, id, order "
     "(default: the first of tokens, prompt and custom_id that every response states)",
     0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "npy A.npy [B.npy...]\nlogprobs A.jsonl [B.jsonl...]\nkld A.kld [B.kld...]\nseed-log LOG...",
    "Write a record from what another program left, an arm for each file. npy: whole logits, a row "
    "for each position, as [rows, vocabulary] of f32 or f16. Row N of one file is compared with "
    "row N of the other: all must come from the same tokens. With --tokens, ids as [tokens] or "
    "[sequences, tokens]: the rows are those of the last positions of each sequence. logprobs: "
    "responses of OpenAI-compatible servers, SGLang or llama-server with log-probabilities, one a "
    "line. kld: files of llama-perplexity --kl-divergence-base. seed-log: "
    "logs of argmax-margin-probe, a sequence each, of the two arms that it compares.",
    NULL,
    NULL,
    NULL,
};

int cmd_import(int argc, char **argv)
{
    static char letters[IMPORT_FILES][2];
    struct options o = {.import.cls = ""};
    struct err err;
    for (int i = 0; i < IMPORT_FILES; i++) {
        letters[i][0] = (char)('a' + i);
        o.import.labels[i] = letters[i];
    }
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return o.kind->run(&o.import, &err) ? cmd_fail(&err) : CMD_OK;
}
