/* The commands of neartie-engine: one table row and one file each, over the shared parts that
 * this header names. A command parses its own options with argp, which ends the process with 2 on
 * wrong usage; everything else that fails comes back through err and ends with 1. */
#ifndef NEARTIE_ENGINE_CMD_H
#define NEARTIE_ENGINE_CMD_H

#include "engine/knobs.h"
#include "engine/tokenizer.h"

#include <argp.h>
#include <stdio.h>

struct backend;
struct err;
struct forward;
struct gguf;
struct model;
struct record;

struct cmd {
    const char *name;                                   /* as typed */
    const char *summary;                                /* one line, for help */
    int (*run)(int argc, char **argv, struct err *err); /* argv[0] names program and command */
};
extern const struct cmd cmd_info, cmd_tokenize, cmd_generate, cmd_gate, cmd_score, cmd_bench;

/* ---- cmd_session.c: a model in use ---- */

/* Everything that is opened for one model file; starts zeroed. */
struct session {
    const char *path; /* borrowed */
    struct gguf *gguf;
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: the file has none */
    struct backend *backend;
    struct knobs knobs; /* defaults and environment */
};

/* Open the file and its tokenizer; with_model: and the weights, the knobs and the device. What was
 * opened stays for session_close, also after a failure. */
int session_open(struct session *s, const char *path, bool with_model, struct err *err);
void session_close(struct session *s);

/* A context under some knobs. */
int session_forward(const struct session *s, const struct knobs *knobs, int32_t n_ctx,
                    int32_t n_seqs, struct forward **out, struct err *err);

/* A help_filter for argp: the knobs, from their table, go behind the options. */
char *session_help_filter(int key, const char *text, void *input);

/* ---- cmd_prompt.c: input text and ids ---- */

enum prompt_kind { PROMPT_TEXT, PROMPT_FILE, PROMPT_IDS };

struct prompt {
    enum prompt_kind kind;
    const char *value; /* as given on the command line */
};

/* The prompts of one command line, in order; starts zeroed. */
struct prompts {
    struct prompt *list; /* (n) */
    size_t n;
    bool no_special; /* <|im_end|> and the like are plain text */
    bool no_ends;    /* no begin and end tokens */
};
extern const struct argp prompt_argp; /* a child; its input is a struct prompts */

void prompts_add(struct prompts *p, enum prompt_kind kind, const char *value);
void prompts_free(struct prompts *p);

/* The ids of prompt i, appended; at least one, each in the vocabulary. */
int prompt_tokens(const struct prompts *p, size_t i, const struct session *s,
                  struct token_list *out, struct err *err);

/* A whole file, or standard input for "-", owned by the caller. */
char *read_input(const char *path, size_t *out_n, struct err *err);

/* Ids in decimal, apart by commas, white space or brackets; what names the source in messages. */
int parse_ids(const char *text, size_t n, const char *what, struct token_list *out,
              struct err *err);

/* ---- cmd_output.c: what commands print, and option values ---- */

/* Bytes as a JSON string; what is not UTF-8 becomes U+FFFD. */
void json_string(FILE *out, const char *p, size_t n);
void json_ids(FILE *out, const int32_t *ids, size_t n); /* [1,2,3] */

/* Rows under one list of columns. */
enum table_format { TABLE_TEXT, TABLE_CSV, TABLE_JSON };
extern const char *const table_formats[]; /* their words, for option_word */
struct column {
    const char *name; /* NULL after the last */
    int width;        /* of TABLE_TEXT */
    bool is_text;     /* quoted in JSON, left-aligned */
};
struct table {
    FILE *out;
    enum table_format format;
    const struct column *columns; /* borrowed */
    int64_t n_rows;
};
void table_start(struct table *t, FILE *out, enum table_format format,
                 const struct column *columns);

/* One row: the cells, apart by tabs, formatted as by printf. */
__attribute__((format(printf, 2, 3))) void table_row(struct table *t, const char *fmt, ...);
void table_end(struct table *t);

/* A whole number or any number of an option; ends with a usage error otherwise. */
int64_t option_int(struct argp_state *state, const char *option, const char *text);
double option_double(struct argp_state *state, const char *option, const char *text);

/* The index of an option's word in a NULL-terminated list; a usage error otherwise. */
int option_word(struct argp_state *state, const char *option, const char *text,
                const char *const *words);

/* Nanoseconds of a clock that only goes forward. */
int64_t now_ns(void);

/* A progress bar on stderr; nothing where that is no terminal. */
struct progress {
    const char *label;
    int64_t n, n_done;
    int64_t shown_ns; /* when it was last drawn; 0 = never */
};
void progress_start(struct progress *p, const char *label, int64_t n);
void progress_add(struct progress *p, int64_t n_more);
void progress_end(struct progress *p); /* takes the bar away */

#endif
