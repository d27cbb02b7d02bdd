#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_OLDER = 0x100, KEY_SIZE, KEY_FLIPS, KEY_DRY };

struct options {
    struct prune_options prune;
    const char *path;
    enum render_format format;
    bool dry_run;
};

struct unit {
    char letter;
    double size;
};

/* A number and a unit's letter, as in 30d. */
static double parse_amount(struct argp_state *state, const char *option, const char *arg,
                           const struct unit *units, int n_units, const char *like)
{
    char *end;
    double value = strtod(arg, &end);
    for (int i = 0; i < n_units; i++)
        if (end > arg && *end == units[i].letter && !end[1] && isfinite(value) && value >= 0 &&
            value * units[i].size < 9e18)
            return value * units[i].size;
    argp_error(state, "%s %s: not an amount like %s", option, arg, like);
    return 0;
}

static int64_t parse_age(struct argp_state *state, const char *arg)
{
    static const struct unit units[] = {
        {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    struct timespec now;
    double age = parse_amount(state, "--older-than", arg, units, 5, "90s, 12h, 30d, 8w");
    clock_gettime(CLOCK_REALTIME, &now);
    double before = (double)now.tv_sec - age;
    return before < 1 ? 1 : (int64_t)before * 1000000000 + now.tv_nsec;
}

static int64_t parse_size(struct argp_state *state, const char *arg)
{
    static const struct unit units[] = {
        {'K', 1024}, {'M', 1048576}, {'G', 1073741824}, {'T', 1099511627776}};
    double size = parse_amount(state, "--max-size", arg, units, 4, "500K, 100M, 2G");
    return size < 1 ? 1 : (int64_t)size;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case KEY_OLDER:
        o->prune.before_ns = parse_age(state, arg);
        return 0;
    case KEY_SIZE:
        o->prune.max_bytes = parse_size(state, arg);
        return 0;
    case KEY_FLIPS:
        o->prune.keep_flips = true;
        return 0;
    case KEY_DRY:
        o->dry_run = true;
        return 0;
    case ARGP_KEY_SUCCESS:
        if (!o->prune.before_ns && !o->prune.max_bytes)
            argp_error(state, "which rows? --older-than AGE, --max-size SIZE or both");
        return 0;
    default:
        return args_one(&o->path, "file", key, arg, state);
    }
}

static const struct argp_option options_table[] = {
    {"older-than", KEY_OLDER, "AGE", 0, "rows recorded longer ago go: 90s, 30m, 12h, 30d, 8w", 0},
    {"max-size", KEY_SIZE, "SIZE", 0,
     "the oldest go until the file has at most that: 500K, 100M, 2G", 0},
    {"keep-flips", KEY_FLIPS, NULL, 0, "keep rows about a flip, with the 7 positions before it", 0},
    {"dry-run", KEY_DRY, NULL, 0, "print what would go, run by run, and change nothing", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "Remove old rows from a file, and write it anew so that it shrinks. Runs, settings, arms, "
    "kernels "
    "and texts stay; `gaps` says how many rows went.\vRows that are kept for a flip get arms of "
    "their "
    "own, \"LABEL (flips)\": they are no sample, and no verdict is made of them. A file that a run "
    "records into is refused.",
    children,
    NULL,
    NULL,
};

static void print_pruned(const char *path, const struct options *o, const struct pruned *done)
{
    printf("%s: pruned %lld of %lld rows", path, (long long)done->n_pruned,
           (long long)done->n_rows);
    if (o->prune.keep_flips)
        printf(", kept %lld about flips", (long long)done->n_kept);
    printf("; %.1f MB, was %.1f MB\n", (double)done->bytes_now / 1048576,
           (double)done->bytes_before / 1048576);
    if (o->prune.max_bytes && done->bytes_now > o->prune.max_bytes)
        fprintf(stderr, "%s: %lld bytes stay, more than %lld: what is left is kept or is no row\n",
                path, (long long)done->bytes_now, (long long)o->prune.max_bytes);
}

int cmd_prune(int argc, char **argv)
{
    struct options o = {0};
    struct pruned done;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (o.dry_run)
        return prune_print(stdout, o.format, o.path, &o.prune, &err) ? cmd_fail(&err) : CMD_OK;
    if (prune_file(o.path, &o.prune, &done, &err))
        return cmd_fail(&err);
    print_pruned(o.path, &o, &done);
    return CMD_OK;
}
