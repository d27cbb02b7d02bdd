#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/images.h"
#include "collector/notes.h"
#include "collector/render.h"

#include <inttypes.h>
#include <string.h>

enum { KEY_KERNELS = 0x100 };

struct options {
    const char *path;
    bool kernels;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case KEY_KERNELS:
        o->kernels = true;
        return 0;
    default:
        return args_one(&o->path, "program", key, arg, state);
    }
}

static const struct argp_option options_table[] = {
    {"kernels", KEY_KERNELS, NULL, 0, "list the kernels of its device code instead", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "BINARY",
    "List the probe's hooks that a program, library or object file was built with, its build id "
    "and "
    "its "
    "device code, without running it. Of a cubin: its kernels.",
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

static void known(struct render *r, int32_t value)
{
    if (value < 0)
        render_null(r);
    else
        render_int(r, value);
}

static void print_kernels(const struct images *images, enum render_format format)
{
    static const char *const names[] = {
        "kernel",      "sm",          "registers", "static_smem_bytes",
        "stack_bytes", "max_threads", "code_hash"};
    struct render *r = render_open(stdout, format, 0, 7, names);
    for (int i = 0; i < images->n; i++)
        for (int k = 0; k < images->list[i].n; k++) {
            const struct cubin_kernel *c = &images->list[i].kernels[k];
            render_text(r, c->name, -1);
            known(r, images->list[i].arch);
            known(r, c->registers);
            known(r, c->static_smem);
            known(r, c->stack);
            known(r, c->max_threads);
            render_text(r, c->code_hash, -1);
        }
    render_close(r);
}

static void print_code(const struct images *images)
{
    int n = 0;
    for (int i = 0; i < images->n; i++)
        n += images->list[i].n;
    if (images->n || images->n_other)
        printf("device code: %d kernel%s in %d image%s%s\n", n, n == 1 ? "" : "s", images->n,
               images->n == 1 ? "" : "s",
               images->n_other ? ", and others that hold none to read" : "");
}

/* A cubin has kernels, and nothing that hooks could be in. */
static int inspect(const struct options *o, const struct images *images)
{
    struct notes notes;
    struct err err;
    if (notes_read(o->path, &notes, &err))
        return cmd_fail(&err);
    bool hooks = !o->kernels && !images->is_cubin;
    if (!hooks)
        print_kernels(images, o->format);
    else if (o->format == RENDER_TABLE)
        print_text(o->path, &notes);
    else
        print_notes(&notes, o->format);
    if (hooks && o->format == RENDER_TABLE)
        print_code(images);
    notes_free(&notes);
    return CMD_OK;
}

int cmd_inspect(int argc, char **argv)
{
    struct options o = {0};
    struct images images;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (images_read(o.path, &images, &err))
        return cmd_fail(&err);
    int rc = inspect(&o, &images);
    if (images.n_other && images.why.text[0])
        fprintf(stderr, "neartie: %s\n", images.why.text);
    images_free(&images);
    return rc;
}
