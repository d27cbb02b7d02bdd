#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "sql/sql_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETERS = 16 };

struct options {
    const char *path, *name;
    char *parameters[MAX_PARAMETERS]; /* "name=value" */
    int n_parameters;
    enum render_format format;
    bool text;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case 't':
        o->text = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            o->path = arg;
        else if (state->arg_num == 1)
            o->name = arg;
        else if (!strchr(arg, '=') || o->n_parameters == MAX_PARAMETERS)
            argp_error(state, "%s: not NAME=VALUE", arg);
        else
            o->parameters[o->n_parameters++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->path && !o->name)
            argp_error(state, "which query?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"text", 't', NULL, 0, "print the SQL of the query instead of running it", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "\nFILE NAME [PARAMETER=VALUE...]",
    "Without an argument, list the queries that the reports are made of, with their parameters. "
    "With a "
    "file and a name, run one; a parameter that is not given is NULL.",
    children,
    NULL,
    NULL,
};

/* The comment that begins the text, as one line; to be freed. */
static char *comment_of(const char *text)
{
    char *line = NULL;
    size_t size;
    FILE *out = open_memstream(&line, &size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    for (bool first = true; !strncmp(text, "-- ", 3); first = false) {
        size_t n = strcspn(text + 3, "\n");
        fprintf(out, "%s%.*s", first ? "" : " ", (int)n, text + 3);
        text += 3 + n + 1;
    }
    fclose(out);
    return line;
}

static void print_list(enum render_format format)
{
    static const char *const names[] = {"name", "what"};
    struct render *r = render_open(stdout, format, 0, 2, names);
    for (const struct sql_text *t = sql_texts; t->name; t++) {
        if (strncmp(t->name, "q_", 2))
            continue;
        char *what = comment_of(t->text);
        render_text(r, t->name + 2, -1);
        render_text(r, what, -1);
        free(what);
    }
    render_close(r);
}

static int print_text(const char *name, struct err *err)
{
    for (const struct sql_text *t = sql_texts; t->name; t++)
        if (!strncmp(t->name, "q_", 2) && !strcmp(t->name + 2, name)) {
            fputs(t->text, stdout);
            return 0;
        }
    return err_set(err, "%s: there is no query of that name", name);
}

/* Numbers are bound as such, anything else as text. */
static int bind(struct query *query, const char *name, const char *parameter, struct err *err)
{
    char full[64], *end;
    int n = (int)strcspn(parameter, "=");
    const char *value = parameter + n + 1;
    snprintf(full, sizeof full, ":%.*s", n, parameter);
    if (!query_has_parameter(query, full))
        return err_set(err, "%s: has no parameter %.*s", name, n, parameter);
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (*value && !*end && !errno)
        query_bind_int(query, full, number);
    else
        query_bind_text(query, full, value);
    return 0;
}

static int run(const struct options *o, struct err *err)
{
    struct db *db = NULL;
    struct query *query = NULL;
    int rc = db_open(&db, o->path, err);
    if (!rc)
        rc = db_query(db, &query, o->name, err);
    for (int i = 0; !rc && i < o->n_parameters; i++)
        rc = bind(query, o->name, o->parameters[i], err);
    if (!rc)
        rc = render_query(stdout, o->format, RENDER_ALL_DIGITS, query, err);
    query_free(query);
    db_close(db);
    return rc;
}

int cmd_queries(int argc, char **argv)
{
    struct options o = {0};
    struct err err;
    int rc = 0;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (!o.path)
        print_list(o.format);
    else if (o.text)
        rc = print_text(o.name, &err);
    else
        rc = run(&o, &err);
    return rc ? cmd_fail(&err) : CMD_OK;
}
