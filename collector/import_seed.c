/* Logs of argmax-margin-probe, the tool that the seed's rule comes from: two arms of one prompt,
 * of which it prints the best ids, the margins, and the largest difference at the contending ids.
 */
#include "config.h"

#include "collector/import.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 4096,
    /* The runners-up are not named. Each arm has an id of its own for them, beyond any vocabulary:
     * so what the other arm's logit is there is bounded and not known. */
    RUNNER_UP = INT32_MAX - 1
};

struct line {
    int64_t pos, best[2];
    float margin[2], delta;
};

struct log {
    struct line *lines;
    int n, size;
    int64_t n_tokens, window;
    char facts[LINE_BYTES], env[LINE_BYTES]; /* NAME=value, space between */
};

struct input {
    const struct import *import;
    struct log logs[IMPORT_FILES];
};

/* The file at hand. */
struct reader {
    const char *path;
    FILE *file;
    int number;
    char text[LINE_BYTES];
};

static int fail(const struct reader *r, struct err *err, const char *cause)
{
    return err_set(err, "%s: line %d: %s: %.70s", r->path, r->number, cause, r->text);
}

/* The next line that is not empty; 0 at the end. A line is whole if it ends with a newline. */
static int next_line(struct reader *r, struct err *err)
{
    do {
        r->number++;
        r->text[0] = '\0';
        if (!fgets(r->text, sizeof r->text, r->file))
            return ferror(r->file) ? fail(r, err, strerror(errno)) : 0;
        if (!strchr(r->text, '\n'))
            return fail(r, err, "cut off, or too long");
        r->text[strcspn(r->text, "\r\n")] = '\0';
    } while (!r->text[0]);
    return 1;
}

static bool starts(const struct reader *r, const char *with)
{
    return !strncmp(r->text, with, strlen(with));
}

/* ---- one log ---- */

static int read_head(struct reader *r, struct log *log, struct err *err)
{
    int n = 0, rc;
    while ((rc = next_line(r, err)) > 0 && !starts(r, "argmax-margin-probe: "))
        ; /* what loading the model said */
    if (rc <= 0)
        return rc ? rc : err_set(err, "%s: no log of argmax-margin-probe", r->path);
    if (sscanf(r->text, "argmax-margin-probe: T=%" SCNd64 " window=%" SCNd64 " %n", &log->n_tokens,
               &log->window, &n) != 2 ||
        log->n_tokens < 1 || log->n_tokens > INT32_MAX || log->window < 1 ||
        log->window > log->n_tokens)
        return fail(r, err, "not \"T=TOKENS window=POSITIONS\", at most as many positions");
    snprintf(log->facts, sizeof log->facts, "%s", r->text + n);
    rc = next_line(r, err);
    if (rc > 0 && starts(r, "env: ")) {
        snprintf(log->env, sizeof log->env, "%s", r->text + strlen("env: "));
        rc = next_line(r, err);
    }
    if (rc < 0)
        return -1;
    return rc && starts(r, "pos ") ? 0 : fail(r, err, "no heading of a table");
}

/* What two rows of logits can be: both ways of walking from one arm's best to the other's
 * runner-up, of which each step differs by delta at most; figures have four digits. */
static int check_line(const struct reader *r, const struct line *line, struct err *err)
{
    const float *m = line->margin;
    bool flip = line->best[0] != line->best[1];
    if (isnan(m[0]) || isnan(m[1]))
        return 0;
    if (!(m[0] >= 0 && m[1] >= 0 && line->delta >= 0 && isfinite(m[0]) && isfinite(m[1]) &&
          isfinite(line->delta)))
        return fail(r, err, "a margin or difference that is negative or infinite");
    if ((flip ? m[0] + m[1] : fabsf(m[0] - m[1])) > 2 * line->delta + 3e-4f)
        return fail(r, err, "no two rows have such margins and so small a difference");
    return 0;
}

static int read_row(const struct reader *r, struct log *log, struct err *err)
{
    struct line line;
    char agree[4];
    int n = 0;
    if (sscanf(r->text, "%" SCNd64 " %" SCNd64 " %f %" SCNd64 " %f %f %3s%n", &line.pos,
               &line.best[0], &line.margin[0], &line.best[1], &line.margin[1], &line.delta, agree,
               &n) != 7 ||
        (strcmp(r->text + n, "") != 0 && strcmp(r->text + n, " <-- FLIP") != 0))
        return fail(r, err, "not seven columns");
    if (line.best[0] < 0 || line.best[1] < 0 || line.best[0] >= RUNNER_UP ||
        line.best[1] >= RUNNER_UP)
        return fail(r, err, "no token id");
    if (strcmp(agree, line.best[0] == line.best[1] ? "yes" : "NO") != 0)
        return fail(r, err, "the best ids and the word behind them do not agree");
    if (line.pos < 0 || line.pos >= log->n_tokens ||
        (log->n && line.pos <= log->lines[log->n - 1].pos))
        return fail(r, err, "the position is not one behind the last");
    if (check_line(r, &line, err))
        return -1;
    if (log->n == log->size) {
        log->size = log->size ? 2 * log->size : 64;
        log->lines = xrealloc(log->lines, (size_t)log->size, sizeof *log->lines);
    }
    log->lines[log->n++] = line;
    return 0;
}

/* The tool counts too, at the end: so that a log that is cut off does not pass. */
static int check_end(struct reader *r, const struct log *log, struct err *err)
{
    int rc, agree, n, flips, seen = 0, end = 0;
    while (!starts(r, "agreement across sampled positions: "))
        if ((rc = next_line(r, err)) <= 0)
            return rc ? rc
                      : err_set(err, "%s: line %d: the log ends before its count of agreement",
                                r->path, r->number);
    for (int i = 0; i < log->n; i++)
        seen += log->lines[i].best[0] != log->lines[i].best[1];
    if (sscanf(r->text, "agreement across sampled positions: %d/%d (%d flip(s))%n", &agree, &n,
               &flips, &end) != 3 ||
        !end)
        return fail(r, err, "not the count of agreement");
    if (n != log->n || n != log->window || flips != seen || agree != n - flips)
        return err_set(err,
                       "%s: line %d: %d/%d agree, %d flips, window=%" PRId64
                       "; but the table has %d rows "
                       "and %d flips",
                       r->path, r->number, agree, n, flips, log->window, log->n, seen);
    return 0;
}

static int read_table(struct reader *r, struct log *log, struct err *err)
{
    int rc;
    while ((rc = next_line(r, err)) > 0 && strchr(" 0123456789-", r->text[0]))
        if (read_row(r, log, err))
            return -1;
    return rc < 0 ? -1 : check_end(r, log, err);
}

static int read_log(const char *path, struct log *log, struct err *err)
{
    struct reader *r = xcalloc(1, sizeof *r);
    r->path = path;
    r->file = fopen(path, "rb");
    int rc = r->file ? read_head(r, log, err) || read_table(r, log, err) ? -1 : 0
                     : err_set(err, "%s: %s", path, strerror(errno));
    if (r->file)
        fclose(r->file);
    free(r);
    return rc;
}

/* ---- the record ---- */

/* Where arm B's best logit stands if arm A's is at 0: so that the largest difference at the
 * contending ids is the one printed. Margins and contrasts do not depend on it. */
static float level_of(const struct line *line)
{
    if (isnan(line->margin[0]) || isnan(line->margin[1])) /* and so may the difference be */
        return 0;
    if (line->best[0] != line->best[1])
        return line->delta - line->margin[0];
    return line->margin[1] < line->margin[0] ? -line->delta : line->delta;
}

static int put_line(struct run_writer *w, uint64_t seed, int log, const struct line *line,
                    struct err *err)
{
    const int64_t key[2] = {log, line->pos};
    for (int arm = 0; arm < 2; arm++) {
        float best = arm ? level_of(line) : 0, margin = line->margin[arm];
        struct record_forward forward = {
            .n_past = line->pos, .arm = arm + 1, .n_tokens = 1, .n_seqs = 1, .n_ubatch = 1};
        if (run_put_forward(w, &forward, err))
            return -1;
        struct record_row *row = run_next_body(w);
        *row = (struct record_row){
            .row_id = ++w->n_rows,
            .forward_id = w->n_forwards,
            .context_hash = XXH3_64bits_withSeed(key, sizeof key, seed) | 1,
            .seq = log,
            .pos = line->pos,
            .lse = NAN,
            .input_token = -1,
            .n_nan = isnan(margin),
            .first_bad = isnan(margin) ? (int32_t)line->best[arm] : -1,
            .n_top = isnan(margin) ? 0 : 2,
        };
        if (row->n_top) {
            row->top[0] = (struct record_top){(int32_t)line->best[arm], best};
            row->top[1] = (struct record_top){RUNNER_UP + arm, best - margin};
        }
        if (run_put(w, RECORD_ROW, record_row_bytes(row->n_top, 0), err))
            return -1;
    }
    return 0;
}

/* NAME=value of a line, space between; what was not set is left out. */
static int put_settings(struct run_writer *w, char *text, struct err *err)
{
    for (char *rest, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        if (!value || value == word || !strcmp(value, "=<unset>"))
            continue;
        *value++ = '\0';
        if (run_put_setting(w, strcmp(word, "model") ? word : "model_path", value, err))
            return -1;
    }
    return 0;
}

static int put_all(struct run_writer *w, void *input, struct err *err)
{
    static const char detail[] = "seed-log: best ids and margins to four digits, and the largest "
                                 "difference; runners-up have ids of no token; logits, tokens and "
                                 "kernels are unknown";
    struct input *in = input;
    const struct import *import = in->import;
    uint64_t n = 0, seed = import_seed(import);
    const char *a = import->n_labels > 0 ? import->labels[0] : "prefill";
    const char *b = import->n_labels > 1 ? import->labels[1] : "decode";
    if (import_put_source(w, import, err) || run_put_arm(w, 1, a, 0, import->cls, err) ||
        run_put_arm(w, 2, b, 1, import->cls, err))
        return -1;
    for (int i = 0; i < import->n_files; i++) {
        struct log *log = in->logs + i;
        n += 2 * (uint64_t)log->n;
        if (put_settings(w, log->facts, err) || put_settings(w, log->env, err))
            return -1;
        for (int at = 0; at < log->n; at++)
            if (put_line(w, seed, i, log->lines + at, err))
                return -1;
    }
    return run_put_gap(w, "import", n, detail, err);
}

/* Settings are of the run, so logs with different ones are not one run. */
static int check_equal(const struct input *in, struct err *err)
{
    for (int i = 1; i < in->import->n_files; i++)
        if (strcmp(in->logs[0].facts, in->logs[i].facts) != 0 ||
            strcmp(in->logs[0].env, in->logs[i].env) != 0)
            return err_set(err, "%s and %s: \"%.80s %.60s\" and \"%.80s %.60s\": not one setting",
                           in->import->files[0], in->import->files[i], in->logs[0].facts,
                           in->logs[0].env, in->logs[i].facts, in->logs[i].env);
    return 0;
}

int import_seed_log(const struct import *import, struct err *err)
{
    struct input *in = xcalloc(1, sizeof *in);
    int rc = 0;
    in->import = import;
    for (int i = 0; i < import->n_files && rc == 0; i++)
        rc = read_log(import->files[i], in->logs + i, err);
    if (rc == 0)
        rc = check_equal(in, err);
    if (rc == 0)
        rc = run_write_file(import->path, put_all, in, err);
    for (int i = 0; i < import->n_files; i++)
        free(in->logs[i].lines);
    free(in);
    return rc;
}
