#include "config.h"

#include "collector/doc.h"
#include "collector/xalloc.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Colours are said once, for light and dark; the plots use them by currentColor and by these
 * names. Nothing is loaded: no font, no script. */
static const char style[] =
    ":root{--fg:#1d2430;--bg:#fff;--soft:#5d6778;--line:#d9dee6;--box:#f4f6f9;--good:#18794e;"
    "--note:#8a5a00;--bad:#b3261e;--none:#5d6778;color-scheme:light dark}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e4e8ef;--bg:#14181f;--soft:#9aa5b5;"
    "--line:#343c49;--box:#1d232c;--good:#5cc993;--note:#e0b050;--bad:#ff8a80;--none:#9aa5b5}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:70rem;padding:1.5rem 1rem 4rem;background:var(--bg);"
    "color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1rem;font-weight:600;color:var(--soft);margin:0 0 .5rem}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);"
    "padding-bottom:.25rem}\n"
    ".verdict{border-left:.4rem solid;padding:.6rem 1rem;background:var(--box);margin:0 0 1rem}"
    ".verdict b{font-size:1.5rem;display:block}.verdict p{margin:.2rem 0 0;color:var(--fg)}\n"
    ".good{color:var(--good)}.note{color:var(--note)}.bad{color:var(--bad)}"
    ".none{color:var(--none)}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.5rem 0}"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto;margin:.6rem 0}"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2rem .7rem .2rem 0;text-align:left;white-space:pre;"
    "border-bottom:1px solid var(--line)}"
    "th{color:var(--soft);font-weight:600}.n{text-align:right}\n"
    "pre{overflow-x:auto;background:var(--box);padding:.7rem;font-size:12.5px;margin:.4rem 0}"
    "details{margin:.6rem 0}summary{cursor:pointer;color:var(--soft)}\n"
    "figure{margin:1rem 0}figure svg{width:100%;max-width:40rem;height:auto;display:block}"
    "figcaption{color:var(--soft);font-size:13px}\n"
    "svg [color=black]{color:var(--fg)}svg [stroke=black]{stroke:var(--fg)}"
    "svg text{fill:var(--fg)}\n"
    "@media print{body{max-width:none;padding:0}h2{break-after:avoid}"
    "figure,tr{break-inside:avoid}}\n";

/* ---- text in each form ---- */

static void put_text(struct doc *doc, const char *text)
{
    int n = (int)strlen(text);
    if (doc->form == DOC_HTML)
        render_html(doc->out, text, n);
    else if (doc->form == DOC_MARKDOWN)
        render_markdown(doc->out, text, n);
    else
        render_safe(doc->out, text, n);
}

static void put_format(struct doc *doc, const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) {
        perror("neartie: memory");
        exit(1);
    }
    put_text(doc, text);
    free(text);
}

static void close_facts(struct doc *doc)
{
    if (doc->in_facts && doc->form == DOC_HTML)
        fputs("</dl>\n", doc->out);
    else if (doc->in_facts && doc->form == DOC_MARKDOWN)
        putc('\n', doc->out);
    doc->in_facts = false;
}

/* ---- the parts ---- */

void doc_begin(struct doc *doc, FILE *out, enum doc_form form, const char *title)
{
    *doc = (struct doc){.out = out, .form = form};
    if (form == DOC_TEXT) {
        const char *no_colour = getenv("NO_COLOR");
        setlocale(LC_CTYPE, "");
        doc->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
        doc->colour = isatty(fileno(out)) && !(no_colour && *no_colour);
    } else if (form == DOC_HTML) {
        fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
              "style-src 'unsafe-inline'; img-src data:\">\n"
              "<link rel=\"icon\" href=\"data:,\">\n<title>",
              out);
        put_text(doc, title);
        fprintf(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>", style);
        put_text(doc, title);
        fputs("</h1>\n", out);
    } else {
        fputs("# ", out);
        put_text(doc, title);
        fputs("\n\n", out);
    }
}

void doc_end(struct doc *doc)
{
    close_facts(doc);
    if (doc->form == DOC_HTML)
        fputs("</body></html>\n", doc->out);
}

void doc_verdict(struct doc *doc, enum doc_tone tone, const char *word, const char *why,
                 const char *sentence)
{
    static const char *const classes[] = {"good", "note", "bad", "none"};
    static const char *const colours[] = {"32", "33", "31", "2"};
    const char *const before[] = {"", "**", "<b>"};
    const char *const behind[] = {"", "**", "</b>"};
    if (doc->form == DOC_HTML)
        fprintf(doc->out, "<div class=\"verdict %s\">", classes[tone]);
    if (doc->colour)
        fprintf(doc->out, "\033[1;%sm", colours[tone]);
    fputs(before[doc->form], doc->out);
    put_text(doc, word);
    fputs(behind[doc->form], doc->out);
    if (doc->colour)
        fputs("\033[0m", doc->out);
    if (why[0]) {
        fputs(doc->form == DOC_HTML ? "" : ": ", doc->out);
        put_text(doc, why);
    }
    fputs(doc->form == DOC_HTML ? "<p>" : doc->form == DOC_MARKDOWN ? "\n\n" : "\n", doc->out);
    put_text(doc, sentence);
    fputs(doc->form == DOC_HTML ? "</p></div>\n" : "\n", doc->out);
    if (doc->form == DOC_MARKDOWN)
        putc('\n', doc->out);
    doc->any = true;
}

void doc_section(struct doc *doc, const char *title)
{
    close_facts(doc);
    if (doc->form == DOC_TEXT) {
        fprintf(doc->out, doc->any ? "\n" : "");
        if (doc->colour)
            fprintf(doc->out, "\033[1m%s\033[0m\n", title);
        else
            fprintf(doc->out, "%s\n", title);
    } else if (doc->form == DOC_MARKDOWN) {
        fprintf(doc->out, "## %s\n\n", title);
    } else {
        fprintf(doc->out, "<h2>%s</h2>\n", title);
    }
    doc->any = true;
}

void doc_text(struct doc *doc, const char *format, ...)
{
    va_list args;
    close_facts(doc);
    if (doc->form == DOC_HTML)
        fputs("<p>", doc->out);
    va_start(args, format);
    put_format(doc, format, args);
    va_end(args);
    fputs(doc->form == DOC_HTML ? "</p>\n" : doc->form == DOC_MARKDOWN ? "\n\n" : "\n", doc->out);
}

void doc_fact(struct doc *doc, const char *name, const char *format, ...)
{
    va_list args;
    if (doc->form == DOC_HTML)
        fprintf(doc->out, "%s<dt>%s</dt><dd>", doc->in_facts ? "" : "<dl>\n", name);
    else if (doc->form == DOC_MARKDOWN)
        fprintf(doc->out, "- **%s** ", name);
    else
        fprintf(doc->out, "%-10s", name);
    va_start(args, format);
    put_format(doc, format, args);
    va_end(args);
    fputs(doc->form == DOC_HTML ? "</dd>\n" : "\n", doc->out);
    doc->in_facts = doc->any = true;
}

enum render_format doc_table(struct doc *doc)
{
    static const enum render_format formats[] = {RENDER_TABLE, RENDER_MARKDOWN, RENDER_HTML};
    close_facts(doc);
    doc->any = true;
    return formats[doc->form];
}

/* Lines whose ends count; the caller's text has no control characters but those. */
static void put_lines(struct doc *doc, const char *text)
{
    if (doc->form == DOC_HTML) {
        for (const char *p = text, *end; *p; p = *end ? end + 1 : end) {
            end = p + strcspn(p, "\n");
            render_html(doc->out, p, (int)(end - p));
            putc('\n', doc->out);
        }
        return;
    }
    const char *indent = doc->form == DOC_MARKDOWN ? "    " : "";
    for (const char *p = text, *end; *p; p = *end ? end + 1 : end) {
        end = p + strcspn(p, "\n");
        fputs(indent, doc->out);
        render_safe(doc->out, p, (int)(end - p));
        putc('\n', doc->out);
    }
}

void doc_lines(struct doc *doc, const char *title, const char *text)
{
    close_facts(doc);
    if (doc->form == DOC_HTML)
        fprintf(doc->out, "<details><summary>%s</summary><pre>", title);
    put_lines(doc, text);
    fputs(doc->form == DOC_HTML       ? "</pre></details>\n"
          : doc->form == DOC_MARKDOWN ? "\n"
                                      : "",
          doc->out);
}

void doc_query(struct doc *doc, const char *answers, const char *query)
{
    close_facts(doc);
    if (doc->form == DOC_TEXT) {
        fprintf(doc->out, "  %s\n      %s\n", answers, query);
        return;
    }
    fprintf(doc->out, doc->form == DOC_HTML ? "<p>%s:</p><pre>" : "%s:\n\n", answers);
    put_lines(doc, query);
    fputs(doc->form == DOC_HTML ? "</pre>\n" : "\n", doc->out);
}

void doc_bars(struct doc *doc, const char *name, const double *values, size_t n, const char *from,
              const char *to)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    double most = 0;
    if (doc->form == DOC_HTML)
        return;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, values[i]);
    char *bars = xcalloc(4 * n + 1, 1), *end = bars;
    for (size_t i = 0; i < n; i++) {
        int level = most > 0 && !isnan(values[i]) ? (int)(values[i] / most * 7.999) : 0;
        const char *bar = isnan(values[i]) || values[i] == 0    ? " "
                          : doc->form == DOC_TEXT && !doc->utf8 ? ascii[level]
                                                                : blocks[level];
        end = stpcpy(end, bar);
    }
    doc_fact(doc, name, "%s |%s| %s", from, bars, to);
    free(bars);
}

void doc_plot(struct doc *doc, const char *svg, const char *caption)
{
    close_facts(doc);
    fprintf(doc->out, "<figure>\n%s<figcaption>%s</figcaption></figure>\n", svg, caption);
}
