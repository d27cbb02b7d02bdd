#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/pdf.h"
#include "collector/report.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_HTML = 0x100, KEY_PDF, KEY_MD, KEY_JSON };

struct options {
    struct select_options select;
    enum render_format format;
    bool markdown;
    const char *html, *pdf; /* files to write, NULL = none */
    const char *path;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->select;
        state->child_inputs[1] = &o->format;
        return 0;
    case KEY_HTML:
        o->html = arg;
        return 0;
    case KEY_PDF:
        o->pdf = arg;
        return 0;
    case KEY_MD:
        o->markdown = true;
        return 0;
    case KEY_JSON:
        o->format = RENDER_JSON;
        return 0;
    case ARGP_KEY_END:
        if (o->markdown && o->format != RENDER_TABLE)
            argp_error(state, "--md and another format: choose one");
        return 0;
    default:
        return args_one(&o->path, "file", key, arg, state);
    }
}

static const struct argp_option options_table[] = {
    {"html", KEY_HTML, "FILE", 0, "Write one self-contained page", 0},
    {"pdf", KEY_PDF, "FILE", 0, "The same as PDF, where a converter is installed", 0},
    {"md", KEY_MD, NULL, 0, "Print Markdown", 0},
    {"json", KEY_JSON, NULL, 0, "The same as --format json", 0},
    {0},
};

static const struct argp_child children[] = {
    {&select_argp, 0, NULL, 0},
    {&render_argp, 0, NULL, 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "Show what a recorded file says of two arms: the verdict in words and its reason; what was "
    "compared and what differs in settings and kernels; agreement, noise and margins; the flips "
    "with the text before them; where the differences lie; what could not be recorded; and the "
    "queries that look further. With --html or --pdf nothing is printed.",
    children,
    NULL,
    NULL,
};

/* What there is to report on; a reason instead of a judgement where nothing can be compared. */
struct subject {
    struct selection sel;
    struct window window;
    struct judgement judgement;
    bool comparable;
    struct err why;
};

static int subject_open(struct subject *out, struct db *db, const struct options *o,
                        struct err *err)
{
    static const struct judge_options by_default = {.cls = FLOOR_N_CLASSES, .seed = 1};
    *out = (struct subject){0};
    int rc = select_resolve(db, &o->select, &out->sel, &out->why);
    if (rc < 0)
        *err = out->why;
    if (rc)
        return rc < 0 ? -1 : 0;
    struct load_side a = {db, &out->sel.a}, b = {db, &out->sel.b};
    if (window_load(db, &out->sel, &out->window, err) ||
        judge(&out->judgement, &a, &b, &by_default, err))
        return -1;
    out->comparable = true;
    return 0;
}

static void subject_close(struct subject *subject)
{
    if (subject->comparable)
        judge_free(&subject->judgement);
    window_free(&subject->window);
}

static int write_document(FILE *out, enum doc_form form, struct db *db,
                          const struct subject *subject, struct err *err)
{
    struct doc doc;
    char *title = NULL;
    if (asprintf(&title, "neartie report: %s", db_path(db)) < 0)
        return err_set(err, "%s: %s", db_path(db), strerror(errno));
    doc_begin(&doc, out, form, title);
    free(title);
    int rc =
        subject->comparable
            ? report_write(
                  &doc, &(struct report){db, &subject->sel, &subject->window, &subject->judgement},
                  err)
            : report_write_contents(&doc, db, subject->why.text, err);
    doc_end(&doc);
    return rc;
}

/* Write a page beside its place and move it there when it is whole. */
static int write_page(const char *path, struct db *db, const struct subject *subject,
                      struct err *err)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    int fd = mkstemp(temporary), rc = -1;
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) {
        err_set(err, "%s: %s", path, strerror(errno));
        goto done;
    }
    rc = write_document(out, DOC_HTML, db, subject, err);
    bool failed = fflush(out) || ferror(out);
    if ((fclose(out) || failed) && !rc)
        rc = err_set(err, "%s: %s", path, strerror(errno));
    if (!rc && rename(temporary, path))
        rc = err_set(err, "%s: %s", path, strerror(errno));
    if (rc)
        unlink(temporary);
done:
    free(temporary);
    return rc;
}

static int write_pdf(const char *path, struct db *db, const struct subject *subject,
                     struct err *err)
{
    char *page = NULL;
    if (asprintf(&page, "%s.html", path) < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    int rc = write_page(page, db, subject, err);
    char *absolute = rc ? NULL : realpath(page, NULL);
    if (!rc)
        rc = absolute ? pdf_convert(absolute, path, err)
                      : err_set(err, "%s: %s", page, strerror(errno));
    unlink(page);
    free(absolute);
    free(page);
    return rc;
}

static int print(struct db *db, const struct options *o, const struct subject *subject,
                 struct err *err)
{
    const struct report report = {db, &subject->sel, &subject->window, &subject->judgement};
    if (o->html || o->pdf)
        return (o->html && write_page(o->html, db, subject, err)) ||
                       (o->pdf && write_pdf(o->pdf, db, subject, err))
                   ? -1
                   : 0;
    if (o->format == RENDER_TABLE)
        return write_document(stdout, o->markdown ? DOC_MARKDOWN : DOC_TEXT, db, subject, err);
    if (!subject->comparable)
        return 0;
    if (o->format == RENDER_JSON)
        return report_print_json(stdout, &report, err);
    report_print_rows(stdout, o->format, &subject->window);
    return 0;
}

int cmd_report(int argc, char **argv)
{
    struct options o = {0};
    struct subject subject = {0};
    struct db *db = NULL;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = db_open(&db, o.path, &err);
    if (!rc)
        rc = subject_open(&subject, db, &o, &err);
    if (!rc)
        rc = print(db, &o, &subject, &err);
    if (rc)
        cmd_fail(&err);
    else if (!subject.comparable)
        cmd_fail(&subject.why);
    bool comparable = subject.comparable;
    subject_close(&subject);
    db_close(db);
    return rc ? CMD_ERROR : comparable ? CMD_OK : CMD_NOT_COMPARABLE;
}
