#include "config.h"

#include "collector/render.h"
#include "collector/xalloc.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cell {
    char *text; /* as it is printed */
    int width;
    bool right; /* numbers stand to the right */
};

struct render {
    FILE *out;
    enum render_format format;
    int digits;
    int n_columns;
    char **names;       /* safe to print */
    int *widths;        /* of the names */
    int column;         /* of the next cell */
    int64_t n_rows;     /* whole rows so far */
    struct cell *cells; /* of a form with columns: (rows, n_columns) */
    size_t n_cells, cells_size;
    char *empty; /* what a table without a row is instead; safe to print */
};

static error_t parse_format(int key, char *arg, struct argp_state *state)
{
    static const char *const names[] = {"table", "csv", "json"};
    if (key != 'F')
        return ARGP_ERR_UNKNOWN;
    for (int i = 0; i < 3; i++)
        if (!strcmp(arg, names[i])) {
            *(enum render_format *)state->input = (enum render_format)i;
            return 0;
        }
    argp_error(state, "--format %s: not one of table, csv, json", arg);
    return EINVAL;
}

static const struct argp_option format_options[] = {
    {"format", 'F', "FORM", 0, "table (the default), csv or json", 1},
    {0},
};

const struct argp render_argp = {format_options, parse_format, NULL, NULL, NULL, NULL, NULL};

/* Decode one character of at most n bytes; returns its bytes, or 0 where they are no UTF-8. */
static int decode(const unsigned char *p, int n, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int len = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    if (!len || len > n)
        return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7f >> len);
    for (int i = 1; i < len; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *out = c;
    return len;
}

/* Characters that move the cursor, end the line or turn the direction of writing. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

static int escape(FILE *out, uint32_t c)
{
    static const char short_names[] = "\nn\tt\rr";
    const char *name = c && c < 0x20 ? strchr(short_names, (int)c) : NULL;
    if (name)
        return fprintf(out, "\\%c", name[1]);
    return c < 0x80 ? fprintf(out, "\\x%02x", c) : fprintf(out, "\\u{%" PRIx32 "}", c);
}

int render_safe(FILE *out, const char *text, int n_bytes)
{
    int width = 0;
    uint32_t c;
    for (int i = 0, len; i < n_bytes; i += len) {
        len = decode((const unsigned char *)text + i, n_bytes - i, &c);
        if (!len) {
            width += fprintf(out, "\\x%02x", (unsigned char)text[i]);
            len = 1;
        } else if (is_control(c)) {
            width += escape(out, c);
        } else {
            fwrite(text + i, 1, len, out);
            width++;
        }
    }
    return width;
}

/* The safe form of text, to be freed, and its columns. */
static char *safe_copy(const char *text, int n_bytes, int *width)
{
    char *safe = NULL;
    size_t size;
    FILE *out = open_memstream(&safe, &size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    *width = render_safe(out, text, n_bytes);
    fclose(out);
    return safe;
}

void render_html(FILE *out, const char *text, int n_bytes)
{
    int width;
    char *safe = safe_copy(text, n_bytes, &width);
    for (const char *p = safe; *p; p++)
        switch (*p) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            putc(*p, out);
        }
    free(safe);
}

/* CommonMark: a backslash before punctuation takes its meaning away. */
void render_markdown(FILE *out, const char *text, int n_bytes)
{
    int width;
    char *safe = safe_copy(text, n_bytes, &width);
    for (const char *p = safe; *p; p++) {
        if (strchr("\\`*_[]<>|#&!~$", *p))
            putc('\\', out);
        putc(*p, out);
    }
    free(safe);
}

void render_json_string(FILE *out, const char *text, int n_bytes)
{
    uint32_t c;
    putc('"', out);
    for (int i = 0, len; i < n_bytes; i += len) {
        len = decode((const unsigned char *)text + i, n_bytes - i, &c);
        if (!len) {
            fputs("\\ufffd", out);
            len = 1;
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", (char)c);
        } else if (is_control(c)) {
            fprintf(out, "\\u%04" PRIx32, c);
        } else {
            fwrite(text + i, 1, len, out);
        }
    }
    putc('"', out);
}

/* Nine digits tell any two floats apart; a number that is no float gets 15, or the 17 it needs. */
static void print_real(FILE *out, double value)
{
    char text[40];
    int digits = (double)(float)value == value ? 9 : 15;
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.17g", value);
    fputs(text, out);
}

void render_json_real(FILE *out, double value)
{
    if (isfinite(value))
        print_real(out, value);
    else
        fputs("null", out);
}

/* RFC 4180: quotes where a comma, a quote or a line end stands inside; other bytes as they are,
 * but for those that a terminal would act on. */
static void print_csv(FILE *out, const char *text, int n)
{
    bool quote = false;
    for (int i = 0; i < n; i++)
        quote |= strchr(",\"\n\r", text[i]) != NULL;
    if (!quote) {
        render_safe(out, text, n);
        return;
    }
    putc('"', out);
    for (int i = 0, from = 0; i <= n; i++)
        if (i == n || strchr("\"\n\r", text[i])) {
            render_safe(out, text + from, i - from);
            if (i < n)
                fputs(text[i] == '"' ? "\"\"" : text[i] == '\n' ? "\n" : "\r", out);
            from = i + 1;
        }
    putc('"', out);
}

struct render *render_open(FILE *out, enum render_format format, int digits, int n_columns,
                           const char *const names[])
{
    struct render *r = xcalloc(1, sizeof *r);
    r->out = out;
    r->format = format;
    r->digits = digits;
    r->n_columns = n_columns;
    r->names = xcalloc(n_columns, sizeof *r->names);
    r->widths = xcalloc(n_columns, sizeof *r->widths);
    for (int i = 0; i < n_columns; i++)
        r->names[i] = safe_copy(names[i], (int)strlen(names[i]), r->widths + i);
    for (int i = 0; i < n_columns && format == RENDER_CSV; i++) {
        print_csv(out, r->names[i], (int)strlen(r->names[i]));
        putc(i + 1 < n_columns ? ',' : '\n', out);
    }
    if (format == RENDER_JSON)
        putc('[', out);
    return r;
}

/* Whether the form is written when all cells are known. */
static bool has_widths(const struct render *r)
{
    return r->format != RENDER_CSV && r->format != RENDER_JSON;
}

/* What stands before a cell in CSV and JSON. */
static void begin_cell(struct render *r)
{
    if (r->format == RENDER_CSV && r->column > 0)
        putc(',', r->out);
    if (r->format == RENDER_JSON) {
        fputs(r->column > 0 ? ", " : r->n_rows ? ",\n {" : "\n {", r->out);
        render_json_string(r->out, r->names[r->column], (int)strlen(r->names[r->column]));
        fputs(": ", r->out);
    }
}

static void end_cell(struct render *r)
{
    if (++r->column < r->n_columns)
        return;
    r->column = 0;
    r->n_rows++;
    if (r->format == RENDER_CSV)
        putc('\n', r->out);
    if (r->format == RENDER_JSON)
        putc('}', r->out);
}

static void add_cell(struct render *r, char *text, int width, bool right)
{
    if (r->n_cells == r->cells_size) {
        r->cells_size = r->cells_size ? 2 * r->cells_size : 64;
        r->cells = xrealloc(r->cells, r->cells_size, sizeof *r->cells);
    }
    r->cells[r->n_cells++] = (struct cell){text, width, right};
    end_cell(r);
}

void render_int(struct render *r, int64_t value)
{
    if (has_widths(r)) {
        char text[32];
        int width = snprintf(text, sizeof text, "%" PRId64, value);
        add_cell(r, xstrdup(text), width, true);
        return;
    }
    begin_cell(r);
    fprintf(r->out, "%" PRId64, value);
    end_cell(r);
}

void render_real(struct render *r, double value)
{
    if (isnan(value)) {
        render_null(r);
        return;
    }
    if (has_widths(r)) {
        char text[400];
        bool is_float = (double)(float)value == value;
        int width =
            snprintf(text, sizeof text, r->digits < 0 ? "%.*g" : "%.*f",
                     r->digits == RENDER_ALL_DIGITS ? (is_float ? 9 : 15) : abs(r->digits), value);
        add_cell(r, xstrdup(text), width, true);
        return;
    }
    begin_cell(r);
    if (r->format == RENDER_JSON)
        render_json_real(r->out, value);
    else
        print_real(r->out, value);
    end_cell(r);
}

void render_text(struct render *r, const char *text, int n_bytes)
{
    if (n_bytes < 0)
        n_bytes = (int)strlen(text);
    if (has_widths(r)) {
        int width;
        char *safe = safe_copy(text, n_bytes, &width);
        add_cell(r, safe, width, false);
        return;
    }
    begin_cell(r);
    if (r->format == RENDER_JSON)
        render_json_string(r->out, text, n_bytes);
    else
        print_csv(r->out, text, n_bytes);
    end_cell(r);
}

void render_null(struct render *r)
{
    if (has_widths(r)) {
        add_cell(r, xstrdup(""), 0, false);
        return;
    }
    begin_cell(r);
    if (r->format == RENDER_JSON)
        fputs("null", r->out);
    end_cell(r);
}

static void print_padded(FILE *out, const char *text, int pad, bool right, bool last)
{
    if (right)
        fprintf(out, "%*s%s", pad, "", text);
    else if (last)
        fputs(text, out);
    else
        fprintf(out, "%s%*s", text, pad, "");
    fputs(last ? "\n" : "  ", out);
}

static void print_columns(struct render *r, const bool *right)
{
    int *widths = xcalloc(r->n_columns, sizeof *widths);
    memcpy(widths, r->widths, r->n_columns * sizeof *widths);
    for (size_t i = 0; i < r->n_cells; i++) {
        int column = (int)(i % r->n_columns);
        if (r->cells[i].width > widths[column])
            widths[column] = r->cells[i].width;
    }
    for (int i = 0; i < r->n_columns; i++)
        print_padded(r->out, r->names[i], widths[i] - r->widths[i], right[i],
                     i + 1 == r->n_columns);
    for (size_t i = 0; i < r->n_cells; i++) {
        int column = (int)(i % r->n_columns);
        print_padded(r->out, r->cells[i].text, widths[column] - r->cells[i].width,
                     r->cells[i].right, column + 1 == r->n_columns);
    }
    free(widths);
}

static void print_markdown(struct render *r, const bool *right)
{
    for (int i = 0; i < r->n_columns; i++) {
        fputs(i ? " | " : "| ", r->out);
        render_markdown(r->out, r->names[i], (int)strlen(r->names[i]));
    }
    fputs(" |\n", r->out);
    for (int i = 0; i < r->n_columns; i++)
        fputs(right[i] ? "| ---: " : "| --- ", r->out);
    fputs("|\n", r->out);
    for (size_t i = 0; i < r->n_cells; i++) {
        bool last = (i + 1) % r->n_columns == 0;
        fputs(i % r->n_columns ? " | " : "| ", r->out);
        render_markdown(r->out, r->cells[i].text, (int)strlen(r->cells[i].text));
        if (last)
            fputs(" |\n", r->out);
    }
    putc('\n', r->out);
}

static void print_html(struct render *r, const bool *right)
{
    fputs("<div class=\"wide\"><table>\n<thead><tr>", r->out);
    for (int i = 0; i < r->n_columns; i++) {
        fputs(right[i] ? "<th class=\"n\">" : "<th>", r->out);
        render_html(r->out, r->names[i], (int)strlen(r->names[i]));
        fputs("</th>", r->out);
    }
    fputs("</tr></thead>\n<tbody>", r->out);
    for (size_t i = 0; i < r->n_cells; i++) {
        int column = (int)(i % r->n_columns);
        fprintf(r->out, "%s<td%s>", column ? "" : "\n<tr>", right[column] ? " class=\"n\"" : "");
        render_html(r->out, r->cells[i].text, (int)strlen(r->cells[i].text));
        fputs(column + 1 < r->n_columns ? "</td>" : "</td></tr>", r->out);
    }
    fputs("\n</tbody></table></div>\n", r->out);
}

static void print_cells(struct render *r)
{
    bool *right = xcalloc(r->n_columns, sizeof *right);
    for (size_t i = 0; i < r->n_cells; i++)
        right[i % r->n_columns] |= r->cells[i].right;
    if (r->format == RENDER_MARKDOWN)
        print_markdown(r, right);
    else if (r->format == RENDER_HTML)
        print_html(r, right);
    else
        print_columns(r, right);
    free(right);
}

/* Names of columns alone would look like a fault. */
static void print_empty(const struct render *r)
{
    const char *note = r->empty ? r->empty : "no rows";
    if (r->format == RENDER_HTML) {
        fputs("<p>", r->out);
        render_html(r->out, note, (int)strlen(note));
        fputs("</p>\n", r->out);
        return;
    }
    if (r->format == RENDER_MARKDOWN)
        render_markdown(r->out, note, (int)strlen(note));
    else
        fputs(note, r->out);
    fputs(r->format == RENDER_MARKDOWN ? "\n\n" : "\n", r->out);
}

void render_when_empty(struct render *r, const char *note)
{
    int width;
    free(r->empty);
    r->empty = safe_copy(note, (int)strlen(note), &width);
}

void render_close(struct render *r)
{
    assert(r->column == 0);
    if (has_widths(r) && !r->n_cells)
        print_empty(r);
    else if (has_widths(r))
        print_cells(r);
    if (r->format == RENDER_JSON)
        fputs(r->n_rows ? "\n]\n" : "]\n", r->out);
    for (size_t i = 0; i < r->n_cells; i++)
        free(r->cells[i].text);
    free(r->cells);
    for (int i = 0; i < r->n_columns; i++)
        free(r->names[i]);
    free(r->names);
    free(r->widths);
    free(r->empty);
    free(r);
}

static void render_cell(struct render *r, const struct query *query, int i)
{
    int n_bytes;
    const char *text;
    switch (query_column_type(query, i)) {
    case QUERY_NULL:
        render_null(r);
        break;
    case QUERY_INT:
        render_int(r, query_column_int(query, i));
        break;
    case QUERY_REAL:
        render_real(r, query_column_real(query, i));
        break;
    case QUERY_TEXT:
        text = query_column_text(query, i, &n_bytes);
        render_text(r, text, n_bytes);
        break;
    }
}

int render_query_or(FILE *out, enum render_format format, int digits, struct query *query,
                    const char *empty, struct err *err)
{
    int n = query_n_columns(query), rc;
    const char **names = xcalloc(n, sizeof *names);
    for (int i = 0; i < n; i++)
        names[i] = query_column_name(query, i);
    struct render *r = render_open(out, format, digits, n, names);
    free(names);
    if (empty)
        render_when_empty(r, empty);
    while ((rc = query_step(query, err)) > 0)
        for (int i = 0; i < n; i++)
            render_cell(r, query, i);
    render_close(r);
    return rc;
}

int render_query(FILE *out, enum render_format format, int digits, struct query *query,
                 struct err *err)
{
    return render_query_or(out, format, digits, query, NULL, err);
}
