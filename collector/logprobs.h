/* Responses with log-probabilities, one JSON object a line, as OpenAI-compatible servers, SGLang
 * and llama-server give them: read one line at a time, by SQLite's JSON functions. Knows nothing of
 * contexts; import_logprobs.c makes rows of what it reads. */
#ifndef NEARTIE_COLLECTOR_LOGPROBS_H
#define NEARTIE_COLLECTOR_LOGPROBS_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct sqlite3;
struct logprobs; /* an open file */

enum { LOGPROBS_CHOICES = 128 }; /* most choices of a response */

enum logprob_state {
    LOGPROB_ABSENT, /* no value is given */
    LOGPROB_NULL,   /* null: NaN or infinity, which JSON does not have */
    LOGPROB_MASKED, /* what servers write for -inf or for out of reach */
    LOGPROB_NUMBER
};

/* A token with its value; the text is borrowed, NULL where none is given. */
struct logprob_entry {
    int64_t id; /* -1 = none is given */
    const char *text;
    int n_text;
    float value;
    enum logprob_state state;
};

struct logprob_token {
    int choice;
    struct logprob_entry chosen;
    const struct logprob_entry *list; /* (n_list) as it stands in the line; borrowed */
    int n_list;
};

/* One line; texts are borrowed until the next and NULL where not given. */
struct logprob_response {
    int64_t number; /* of the response in its file, from 0; pieces of a stream count as one */
    bool is_failed; /* an error instead of a response: it has no tokens */
    bool goes_on;   /* with the response of the line before: a stream */
    const char *custom_id, *id, *model, *prompt;
    int n_custom_id, n_id, n_prompt; /* bytes: a text may hold NUL */
    const int32_t *prompt_ids;       /* (n_prompt_ids) */
    int n_prompt_ids;
    int n_prompt_tokens; /* as the response counts them; below 1: not given */
};

/* db: any connection, for its JSON functions; borrowed. */
int logprobs_open(struct logprobs **out, struct sqlite3 *db, const char *path, struct err *err);
void logprobs_close(struct logprobs *lines);

/* Go to the next response, and to the next of its tokens; 1: there is one, 0: no more. */
int logprobs_next(struct logprobs *lines, struct logprob_response *out, struct err *err);
int logprobs_token(struct logprobs *lines, struct logprob_token *out, struct err *err);

/* An error about the line at hand. */
__attribute__((format(printf, 3, 4))) int logprobs_fail(const struct logprobs *lines,
                                                        struct err *err, const char *fmt, ...);

#endif
