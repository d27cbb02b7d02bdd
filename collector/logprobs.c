#include "config.h"

#include "collector/logprobs.h"
#include "collector/xalloc.h"
#include "sql/sql_text.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/stat.h>

enum { LINE_MAX_BYTES = 256 << 20 };

/* Columns of import_line and of import_tokens. */
enum {
    L_IS_OBJECT,
    L_IS_RESPONSE,
    L_BODY,
    L_CUSTOM_ID,
    L_ID,
    L_MODEL,
    L_IDS,
    L_PROMPT,
    L_SEVERAL,
    L_ODD,
    L_IS_CHUNK,
    L_N_PROMPT
};
enum { T_CHOICE, T_K, T_TYPE, T_CHOSEN, T_RANK = 7, T_ENTRY_TYPE, T_ENTRY, T_IS_PROB = 13 };

struct logprobs {
    const char *path;
    FILE *file;
    sqlite3 *db;
    sqlite3_stmt *valid, *line_st, *token_st;
    char *line;
    size_t n_line, line_size;
    int64_t number, n_responses; /* number of the line, from 1 */
    char *last_id;
    int32_t *ids;
    int ids_size;
    int rc;                             /* of the last step of token_st */
    struct logprob_entry chosen, *list; /* their texts are owned */
    int n_list, list_size;
};

int logprobs_fail(const struct logprobs *lines, struct err *err, const char *fmt, ...)
{
    char cause[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
    return err_set(err, "%.100s: line %" PRId64 ": %s", lines->path, lines->number, cause);
}

static int sql_fail(const struct logprobs *lines, struct err *err)
{
    return logprobs_fail(lines, err, "%s", sqlite3_errmsg(lines->db));
}

int logprobs_open(struct logprobs **out, sqlite3 *db, const char *path, struct err *err)
{
    struct logprobs *lines = xcalloc(1, sizeof *lines);
    struct stat st;
    *out = lines;
    *lines = (struct logprobs){.path = path, .db = db, .file = fopen(path, "rb")};
    if (!lines->file || fstat(fileno(lines->file), &st))
        return err_set(err, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* it is read twice */
        return err_set(err, "%s: not a regular file", path);
    if (sqlite3_prepare_v2(db, "SELECT json_valid(?)", -1, &lines->valid, NULL) ||
        sqlite3_prepare_v2(db, sql_import_line, -1, &lines->line_st, NULL) ||
        sqlite3_prepare_v2(db, sql_import_tokens, -1, &lines->token_st, NULL))
        return sql_fail(lines, err);
    return 0;
}

static void free_entries(struct logprobs *lines)
{
    free((char *)lines->chosen.text);
    for (int i = 0; i < lines->n_list; i++)
        free((char *)lines->list[i].text);
    lines->chosen.text = NULL;
    lines->n_list = 0;
}

void logprobs_close(struct logprobs *lines)
{
    if (!lines)
        return;
    sqlite3_finalize(lines->valid);
    sqlite3_finalize(lines->line_st);
    sqlite3_finalize(lines->token_st);
    if (lines->file)
        fclose(lines->file);
    free(lines->line);
    free(lines->last_id);
    free(lines->ids);
    free_entries(lines);
    free(lines->list);
    free(lines);
}

/* ---- lines ---- */

/* One line into lines->line; 0 at the end of the file. */
static int read_line(struct logprobs *lines, struct err *err)
{
    int c;
    lines->n_line = 0;
    lines->number++;
    while ((c = getc_unlocked(lines->file)) != EOF && c != '\n') {
        if (lines->n_line + 1 >= lines->line_size) {
            lines->line_size = lines->line_size ? 2 * lines->line_size : 65536;
            lines->line = xrealloc(lines->line, lines->line_size, 1);
        }
        if (lines->n_line == LINE_MAX_BYTES)
            return logprobs_fail(lines, err, "more than %d bytes", LINE_MAX_BYTES);
        lines->line[lines->n_line++] = (char)c;
    }
    if (ferror(lines->file))
        return logprobs_fail(lines, err, "%s", strerror(errno));
    return c != EOF || lines->n_line > 0;
}

/* The JSON in a line: all of it, or what stands behind "data:" in a stream of events. Returns its
 * place, or NULL for a line without any. */
static const char *json_of(const struct logprobs *lines, int *n)
{
    static const char *const others[] = {":", "event:", "id:", "retry:", "[DONE]"};
    const char *at = lines->line, *end = at + lines->n_line;
    if (lines->n_line >= 5 && !memcmp(at, "data:", 5))
        at += 5;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t size = strlen(others[i]);
        if ((size_t)(end - at) >= size && !memcmp(at, others[i], size))
            return NULL;
    }
    *n = (int)(end - at);
    return at < end ? at : NULL;
}

static int check_json(struct logprobs *lines, const char *json, int n, struct err *err)
{
    sqlite3_bind_text(lines->valid, 1, json, n, SQLITE_STATIC);
    int rc = sqlite3_step(lines->valid);
    int is_valid = rc == SQLITE_ROW && sqlite3_column_int(lines->valid, 0);
    sqlite3_reset(lines->valid);
    if (rc != SQLITE_ROW)
        return sql_fail(lines, err);
    if (!is_valid || memchr(json, 0, (size_t)n))
        return logprobs_fail(lines, err, "not JSON, or not whole: %.60s", json);
    return 0;
}

/* ---- what a line says ---- */

static const char *text_at(sqlite3_stmt *st, int column)
{
    return (const char *)sqlite3_column_text(st, column);
}

/* A JSON array of whole numbers, already known to be one. */
static int read_ids(struct logprobs *lines, const char *json, struct logprob_response *out,
                    struct err *err)
{
    int n = 0;
    char *end;
    for (const char *p = json; p && (p = strpbrk(p, "-0123456789")); p = end) {
        errno = 0;
        long long id = strtoll(p, &end, 10);
        if (errno || id < 0 || id > INT32_MAX)
            return logprobs_fail(lines, err, "prompt token %d: id %.20s is no token id", n, p);
        if (n == lines->ids_size) {
            lines->ids_size = n ? 2 * n : 1024;
            lines->ids = xrealloc(lines->ids, (size_t)lines->ids_size, sizeof *lines->ids);
        }
        lines->ids[n++] = (int32_t)id;
    }
    out->prompt_ids = lines->ids;
    out->n_prompt_ids = n;
    return 0;
}

static int read_response(struct logprobs *lines, struct logprob_response *out, struct err *err)
{
    sqlite3_stmt *st = lines->line_st;
    if (!sqlite3_column_int(st, L_IS_OBJECT))
        return logprobs_fail(lines, err, "no object: %.60s", lines->line);
    *out = (struct logprob_response){
        .is_failed = !sqlite3_column_int(st, L_IS_RESPONSE),
        .custom_id = text_at(st, L_CUSTOM_ID),
        .n_custom_id = sqlite3_column_bytes(st, L_CUSTOM_ID),
        .id = text_at(st, L_ID),
        .n_id = sqlite3_column_bytes(st, L_ID),
        .model = text_at(st, L_MODEL),
        .prompt = text_at(st, L_PROMPT),
        .n_prompt = sqlite3_column_bytes(st, L_PROMPT),
        .n_prompt_tokens = sqlite3_column_int(st, L_N_PROMPT),
    };
    if (out->is_failed)
        return 0;
    if (sqlite3_column_int(st, L_SEVERAL))
        return logprobs_fail(lines, err, "a request of several prompts: one a request is read");
    if (text_at(st, L_ODD))
        return logprobs_fail(lines, err, "choices holds %.60s: an object is read",
                             text_at(st, L_ODD));
    if (read_ids(lines, text_at(st, L_IDS), out, err))
        return -1;
    sqlite3_bind_text(lines->token_st, 1, text_at(st, L_BODY), -1, SQLITE_STATIC);
    lines->rc = sqlite3_step(lines->token_st);
    return 0;
}

/* Whether this line is a piece of a stream and has the id of the one before. */
static bool goes_on(struct logprobs *lines, const char *id)
{
    bool is_piece =
        !memcmp(lines->line, "data:", 5) || sqlite3_column_int(lines->line_st, L_IS_CHUNK);
    bool same = is_piece && id && lines->last_id && !strcmp(id, lines->last_id);
    if (!same) {
        free(lines->last_id);
        lines->last_id = id ? xstrdup(id) : NULL;
    }
    return same;
}

int logprobs_next(struct logprobs *lines, struct logprob_response *out, struct err *err)
{
    const char *json;
    int n, rc;
    sqlite3_reset(lines->token_st);
    sqlite3_reset(lines->line_st);
    lines->rc = SQLITE_DONE;
    do {
        rc = read_line(lines, err);
        if (rc <= 0)
            return rc;
        lines->line[lines->n_line] = '\0';
    } while (!(json = json_of(lines, &n)));
    if (check_json(lines, json, n, err))
        return -1;
    sqlite3_bind_text(lines->line_st, 1, json, n, SQLITE_STATIC);
    if (sqlite3_step(lines->line_st) != SQLITE_ROW)
        return sql_fail(lines, err);
    if (read_response(lines, out, err))
        return -1;
    out->goes_on = goes_on(lines, out->id);
    lines->n_responses += !out->goes_on;
    out->number = lines->n_responses - 1;
    return 1;
}

/* ---- tokens ---- */

static char *copy_of(const void *text, int n)
{
    return memcpy(xcalloc((size_t)n + 1, 1), text, (size_t)n);
}

/* [226,130,172] as bytes. */
static int read_bytes(struct logprobs *lines, const char *json, struct logprob_entry *out,
                      struct err *err)
{
    char *text = xcalloc(strlen(json), 1), *end;
    int n = 0;
    for (const char *p = json; (p = strpbrk(p, "-0123456789")); p = end) {
        long byte = strtol(p, &end, 10);
        if (byte < 0 || byte > 255 || !strchr(",]", *end)) {
            free(text);
            return logprobs_fail(lines, err, "%.20s is no byte of a token", p);
        }
        text[n++] = (char)byte;
    }
    if (n) {
        free((char *)out->text);
        out->text = text;
        out->n_text = n;
    } else {
        free(text);
    }
    return 0;
}

/* The token itself: its text, or as "token_id:N"; bytes, where given, say it better. */
static int read_text(struct logprobs *lines, int column, struct logprob_entry *out, struct err *err)
{
    static const char prefix[] = "token_id:";
    sqlite3_stmt *st = lines->token_st;
    const char *text = text_at(st, column), *bytes = text_at(st, column + 1);
    int n = sqlite3_column_bytes(st, column), type = sqlite3_column_type(st, column);
    if (type != SQLITE_TEXT && type != SQLITE_NULL)
        return logprobs_fail(lines, err, "token %.40s is no text", text);
    if (bytes && bytes[0] != '[' && strcmp(bytes, "null") != 0)
        return logprobs_fail(lines, err, "bytes of a token: %.40s is no list", bytes);
    if (text) {
        out->text = copy_of(text, n);
        out->n_text = n;
    }
    if (bytes && bytes[0] == '[' && read_bytes(lines, bytes, out, err))
        return -1;
    if (!text || strncmp(text, prefix, sizeof prefix - 1) != 0)
        return 0;
    char *end;
    long long id = strtoll(text + sizeof prefix - 1, &end, 10);
    if (*end || end == text + sizeof prefix - 1)
        return 0;
    out->id = id;
    if (out->n_text == n && !memcmp(out->text, text, (size_t)n)) {
        free((char *)out->text);
        out->text = NULL;
    }
    return 0;
}

static int read_id(struct logprobs *lines, const char *json, struct logprob_entry *out,
                   struct err *err)
{
    char *end = NULL;
    if (json && strcmp(json, "null") != 0) {
        errno = 0;
        out->id = strtoll(json, &end, 10);
    }
    if ((end && (*end || errno || out->id < 0)) || out->id > INT32_MAX || out->id < -1)
        return logprobs_fail(lines, err, "id %.40s is no token id", json ? json : "of a token");
    return 0;
}

/* A value, of a log-probability, a logit or a probability. */
static int read_value(struct logprobs *lines, const char *json, bool is_prob,
                      struct logprob_entry *out, struct err *err)
{
    /* vLLM and OpenAI write -9999 for -inf or for out of reach, llama-server the lowest float. */
    static const double lowest = -9999;
    char *end;
    out->state = !json ? LOGPROB_ABSENT : LOGPROB_NULL;
    if (!json || !strcmp(json, "null"))
        return 0;
    double value = strtod(json, &end);
    if (*end || end == json)
        return logprobs_fail(lines, err, "value %.40s is no number", json);
    if (is_prob && (value < 0 || value > 1.001))
        return logprobs_fail(lines, err, "value %.40s is no probability", json);
    if (is_prob)
        value = value > 0 ? log(value) : lowest;
    if (!(fabs(value) <= FLT_MAX))
        return logprobs_fail(lines, err, "value %.40s is beyond a float", json);
    out->state = value > lowest ? LOGPROB_NUMBER : LOGPROB_MASKED;
    out->value = (float)value;
    return 0;
}

/* The four columns of an entry. */
static int read_entry(struct logprobs *lines, int column, struct logprob_entry *out,
                      struct err *err)
{
    sqlite3_stmt *st = lines->token_st;
    *out = (struct logprob_entry){.id = -1};
    return read_text(lines, column + 1, out, err) ||
                   read_id(lines, text_at(st, column), out, err) ||
                   read_value(lines, text_at(st, column + 3), sqlite3_column_int(st, T_IS_PROB),
                              out, err)
               ? -1
               : 0;
}

/* Pass over null where a list could be; anything else that is no list is an error. */
static int find_token(struct logprobs *lines, struct err *err)
{
    sqlite3_stmt *st = lines->token_st;
    while (lines->rc == SQLITE_ROW && sqlite3_column_type(st, T_K) != SQLITE_INTEGER) {
        if (strcmp(text_at(st, T_TYPE), "null") != 0)
            return logprobs_fail(lines, err, "log-probabilities: %s is no list",
                                 text_at(st, T_TYPE));
        lines->rc = sqlite3_step(st);
    }
    if (lines->rc == SQLITE_DONE)
        return 0;
    if (lines->rc != SQLITE_ROW)
        return sql_fail(lines, err);
    if (strcmp(text_at(st, T_TYPE), "object") != 0)
        return logprobs_fail(lines, err, "token %d is %s", sqlite3_column_int(st, T_K),
                             text_at(st, T_TYPE));
    if (sqlite3_column_type(st, T_CHOICE) != SQLITE_INTEGER ||
        (sqlite3_uint64)sqlite3_column_int64(st, T_CHOICE) >= LOGPROBS_CHOICES)
        return logprobs_fail(lines, err, "choice %.20s: 0 to %d are read", text_at(st, T_CHOICE),
                             LOGPROBS_CHOICES - 1);
    return 1;
}

/* The entry of this row, if it has one. */
static int add_entry(struct logprobs *lines, struct err *err)
{
    sqlite3_stmt *st = lines->token_st;
    const char *type = text_at(st, T_ENTRY_TYPE);
    if (!*type)
        return 0;
    if (strcmp(type, "object") != 0)
        return logprobs_fail(lines, err, "token %d: an entry of its list is %s",
                             sqlite3_column_int(st, T_K), type);
    if (lines->n_list == lines->list_size) {
        lines->list_size = lines->list_size ? 2 * lines->list_size : 32;
        lines->list = xrealloc(lines->list, (size_t)lines->list_size, sizeof *lines->list);
    }
    return read_entry(lines, T_ENTRY, lines->list + lines->n_list++, err);
}

int logprobs_token(struct logprobs *lines, struct logprob_token *out, struct err *err)
{
    sqlite3_stmt *st = lines->token_st;
    free_entries(lines);
    int rc = find_token(lines, err);
    if (rc <= 0)
        return rc;
    int choice = sqlite3_column_int(st, T_CHOICE), k = sqlite3_column_int(st, T_K);
    if (read_entry(lines, T_CHOSEN, &lines->chosen, err))
        return -1;
    do {
        if (add_entry(lines, err))
            return -1;
        lines->rc = sqlite3_step(st);
    } while (lines->rc == SQLITE_ROW && sqlite3_column_type(st, T_K) == SQLITE_INTEGER &&
             sqlite3_column_int(st, T_CHOICE) == choice && sqlite3_column_int(st, T_K) == k);
    *out = (struct logprob_token){choice, lines->chosen, lines->list, lines->n_list};
    return 1;
}
