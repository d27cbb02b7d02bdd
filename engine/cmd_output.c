#include "config.h"

#include "engine/cmd.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH     30
#define BAR_PERIOD_NS 100000000 /* ten times a second */

void json_string(FILE *out, const char *p, size_t n)
{
    putc('"', out);
    for (size_t i = 0; i < n;) {
        int length = utf8_length(p + i, n - i);
        unsigned char c = (unsigned char)p[i];
        if (!length)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < ' ')
            fprintf(out, "\\u%04x", c);
        else
            fwrite(p + i, 1, (size_t)length, out);
        i += length ? (size_t)length : 1;
    }
    putc('"', out);
}

void json_ids(FILE *out, const int32_t *ids, size_t n)
{
    putc('[', out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%d", i ? "," : "", ids[i]);
    putc(']', out);
}

const char *const table_formats[] = {
    [TABLE_TEXT] = "table", [TABLE_CSV] = "csv", [TABLE_JSON] = "json", NULL};

/* A CSV field (RFC 4180): quoted where it must be. */
static void csv_field(FILE *out, const char *p, size_t n)
{
    if (!memchr(p, ',', n) && !memchr(p, '"', n)) {
        fwrite(p, 1, n, out);
        return;
    }
    putc('"', out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, p[i] == '"' ? "\"\"" : "%c", p[i]);
    putc('"', out);
}

static void print_cell(const struct table *t, int i, const char *p, size_t n)
{
    const struct column *c = &t->columns[i];
    bool is_last = !t->columns[i + 1].name;
    switch (t->format) {
    case TABLE_TEXT:
        fprintf(t->out, c->is_text ? "%s%-*.*s" : "%s%*.*s", i ? " " : "",
                c->is_text && is_last ? 0 : c->width, (int)n, p);
        break;
    case TABLE_CSV:
        fputs(i ? "," : "", t->out);
        csv_field(t->out, p, n);
        break;
    case TABLE_JSON:
        fprintf(t->out, "%s\"%s\":", i ? "," : "", c->name);
        if (c->is_text)
            json_string(t->out, p, n);
        else if (memchr(p, 'n', n)) /* nan, inf */
            fputs("null", t->out);
        else
            fwrite(p, 1, n, t->out);
        break;
    }
}

void table_start(struct table *t, FILE *out, enum table_format format, const struct column *columns)
{
    *t = (struct table){out, format, columns, 0};
    if (format == TABLE_JSON) {
        putc('[', out);
        return;
    }
    for (int i = 0; columns[i].name; i++)
        print_cell(t, i, columns[i].name, strlen(columns[i].name));
    putc('\n', out);
}

void table_row(struct table *t, const char *fmt, ...)
{
    char cells[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cells, sizeof cells, fmt, ap);
    va_end(ap);
    if (t->format == TABLE_JSON)
        fputs(t->n_rows ? ",\n {" : "{", t->out);
    const char *p = cells;
    for (int i = 0; t->columns[i].name; i++) {
        size_t n = strcspn(p, "\t");
        print_cell(t, i, p, n);
        p += n + (p[n] == '\t');
    }
    fputs(t->format == TABLE_JSON ? "}" : "\n", t->out);
    t->n_rows++;
}

void table_end(struct table *t)
{
    if (t->format == TABLE_JSON)
        fputs("]\n", t->out);
}

int64_t option_int(struct argp_state *state, const char *option, const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        argp_error(state, "%s %s: not a whole number", option, text);
    return v;
}

double option_double(struct argp_state *state, const char *option, const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        argp_error(state, "%s %s: not a number", option, text);
    return v;
}

int option_word(struct argp_state *state, const char *option, const char *text,
                const char *const *words)
{
    char known[128] = "";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(text, words[i]))
            return i;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", words[i]);
    }
    argp_error(state, "%s %s: must be one of %s", option, text, known);
    return -1;
}

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void progress_start(struct progress *p, const char *label, int64_t n)
{
    *p = (struct progress){.label = label, .n = n};
    progress_add(p, 0);
}

void progress_add(struct progress *p, int64_t n_more)
{
    p->n_done += n_more;
    if (!isatty(STDERR_FILENO))
        return;
    int64_t now = now_ns();
    if (p->shown_ns && now - p->shown_ns < BAR_PERIOD_NS)
        return;
    p->shown_ns = now;
    int filled = p->n > 0 ? (int)(BAR_WIDTH * p->n_done / p->n) : 0;
    fprintf(stderr, "\r%-10s [%.*s%*s] %lld/%lld\x1b[K", p->label, filled,
            "##############################", BAR_WIDTH - filled, "", (long long)p->n_done,
            (long long)p->n);
}

void progress_end(struct progress *p)
{
    if (p->shown_ns)
        fputs("\r\x1b[K", stderr);
    p->shown_ns = 0;
}
