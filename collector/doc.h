/* A report as a document: a verdict, sections, facts, tables, charts and queries, in one of three
 * forms. Whoever writes a report says what it holds; how a section or a fact looks on a terminal,
 * in Markdown and as a page is said here, once. Text may come from an untrusted file and is escaped
 * for the form. The page is one file that loads nothing. */
#ifndef NEARTIE_COLLECTOR_DOC_H
#define NEARTIE_COLLECTOR_DOC_H

#include "collector/render.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum doc_form { DOC_TEXT, DOC_MARKDOWN, DOC_HTML };

struct doc {
    FILE *out;
    enum doc_form form;
    bool colour;   /* DOC_TEXT: a terminal that wants it */
    bool utf8;     /* DOC_TEXT: block characters are known to the terminal */
    bool in_facts; /* a list of facts is open */
    bool any;      /* something was written: a section is set off from it */
};

/* Begin and end. A document of text on stdout takes colour and characters from the terminal. */
void doc_begin(struct doc *doc, FILE *out, enum doc_form form, const char *title);
void doc_end(struct doc *doc);

/* How a verdict looks: nothing wrong, something to know, a defect, no answer. */
enum doc_tone { DOC_GOOD, DOC_NOTE, DOC_BAD, DOC_NONE };

/* The first line: the class, why, and a sentence on what it means. */
void doc_verdict(struct doc *doc, enum doc_tone tone, const char *word, const char *why,
                 const char *sentence);

void doc_section(struct doc *doc, const char *title);
void doc_text(struct doc *doc, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A name and its value; lines of the same list follow each other. */
void doc_fact(struct doc *doc, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A table: what to give to render_open or to whatever prints one. */
enum render_format doc_table(struct doc *doc);

/* Lines as they are, in a fixed pitch, folded away on the page under this title. */
void doc_lines(struct doc *doc, const char *title, const char *text);

/* A query or a command, with what it answers. */
void doc_query(struct doc *doc, const char *answers, const char *query);

/* A row of bars for n values from 0 up: on a terminal and in Markdown; a page has plots instead.
 * NAN is a space. from, to: what stands before and behind it. */
void doc_bars(struct doc *doc, const char *name, const double *values, size_t n, const char *from,
              const char *to);

/* A plot that gnuplot drew, one svg element with a text for those who cannot see it. */
void doc_plot(struct doc *doc, const char *svg, const char *caption);

#endif
