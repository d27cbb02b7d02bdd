#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/xalloc.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct options {
    char **paths; /* (n_paths), borrowed from argv */
    int n_paths;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case ARGP_KEY_ARGS:
        o->paths = state->argv + state->next;
        o->n_paths = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    NULL,
    parse,
    "FILE|FOLDER...",
    "List the runs of files, and of the *.db of folders: when and what was recorded, how much, and "
    "what was lost or pruned. "
    "state: closed, recovered (its process died), or recording.",
    children,
    NULL,
    NULL,
};

static const char *const names[] = {"file",       "run",    "state",  "started_utc",
                                    "seconds",    "engine", "model",  "n_arms",
                                    "n_forwards", "n_rows", "n_lost", "n_pruned"};

static void render_named(struct render *r, const struct query *query, const char *name)
{
    const char *text = query_text(query, name);
    if (text)
        render_text(r, text, -1);
    else
        render_null(r);
}

static int is_database(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 3 && !strcmp(entry->d_name + n - 3, ".db");
}

static int render_file(struct render *r, const char *path, struct err *err)
{
    struct db *db = NULL;
    struct query *query = NULL;
    int rc = -1;
    if (db_open(&db, path, err) || db_query(db, &query, "runs", err))
        goto out;
    while ((rc = query_step(query, err)) > 0) {
        render_text(r, path, -1);
        render_int(r, query_int(query, "run"));
        render_named(r, query, "state");
        render_named(r, query, "started_utc");
        render_real(r, query_real(query, "seconds"));
        render_named(r, query, "engine");
        render_named(r, query, "model");
        for (int i = 7; i < 12; i++)
            render_int(r, query_int(query, names[i]));
    }
out:
    query_free(query);
    db_close(db);
    return rc;
}

/* The databases of a folder, in order of name; one that cannot be read does not hide the others. */
static int render_folder(struct render *r, const char *path)
{
    struct dirent **entries;
    struct err err;
    int status = CMD_OK, n = scandir(path, &entries, is_database, alphasort);
    if (n < 0) {
        err_set(&err, "%s: %s", path, strerror(errno));
        return cmd_fail(&err);
    }
    if (!n)
        fprintf(stderr, "%s: no *.db in this folder\n", path);
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (render_file(r, name, &err))
            status = cmd_fail(&err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int render_path(struct render *r, const char *path)
{
    struct stat st;
    struct err err;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return render_folder(r, path);
    return render_file(r, path, &err) ? cmd_fail(&err) : CMD_OK;
}

int cmd_runs(int argc, char **argv)
{
    struct options o = {0};
    int status = CMD_OK;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct render *r = render_open(stdout, o.format, 1, sizeof names / sizeof *names, names);
    render_when_empty(r, "no runs");
    for (int i = 0; i < o.n_paths; i++)
        if (render_path(r, o.paths[i]) != CMD_OK)
            status = CMD_ERROR;
    render_close(r);
    return status;
}
