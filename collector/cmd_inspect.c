#include "config.h"

#include "collector/cmd.h"
#include "collector/notes.h"
#include "collector/render.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct options {
    const char *path;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "%s: more than one file", arg);
        o->path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which program?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    NULL,
    parse,
    "BINARY",
    "List the probe's hooks that a program, library or object file was built with, and its build "
    "id, "
    "without running it.",
    children,
    NULL,
    NULL,
};

static void print_notes(const struct notes *notes, enum render_format format)
{
    static const char *const names[] = {"hook", "place", "address", "abi"};
    struct render *r = render_open(stdout, format, 0, 4, names);
    for (int i = 0; i < notes->n; i++) {
        char address[32];
        snprintf(address, sizeof address, "0x%" PRIx64, notes->list[i].address);
        render_text(r, notes->list[i].hook, -1);
        render_text(r, notes->list[i].place, -1);
        render_text(r, address, -1);
        render_int(r, notes->list[i].abi);
    }
    render_close(r);
}

static void print_text(const char *path, const struct notes *notes)
{
    render_safe(stdout, path, (int)strlen(path));
    printf(": build id %s, ", notes->build_id[0] ? notes->build_id : "none");
    if (notes->n == 0) {
        printf("no hook of neartie: it was built without, and a probe sees no logits of it\n");
        return;
    }
    printf("%d hook site%s\n", notes->n, notes->n == 1 ? "" : "s");
    print_notes(notes, RENDER_TABLE);
}

int cmd_inspect(int argc, char **argv)
{
    struct options o = {0};
    struct notes notes;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (notes_read(o.path, &notes, &err))
        return cmd_fail(&err);
    if (o.format == RENDER_TABLE)
        print_text(o.path, &notes);
    else
        print_notes(&notes, o.format);
    notes_free(&notes);
    return CMD_OK;
}
