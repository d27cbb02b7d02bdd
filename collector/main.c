#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"record", "run a program under the probe", cmd_record},
    {"gate", "prefill and decode a prompt, and print the verdict", cmd_gate},
    {"report", "positions, margins, flips and the verdict of a file", cmd_report},
    {"verdict", "near-tie or defect; the exit status says which", cmd_verdict},
    {"blame", "what goes with large differences", cmd_blame},
    {"calibrate", "store the noise floor of a known-good pair", cmd_calibrate},
    {"compare", "which settings and kernels differ, and whether the rows do", cmd_compare},
    {"percentiles", "the margins of an arm", cmd_percentiles},
    {"flips", "positions at which two arms chose different tokens", cmd_flips},
    {"kernels", "the kernel configurations that each arm launched", cmd_kernels},
    {"runs", "the runs in files and folders", cmd_runs},
    {"import", "write a record from the logits of another program", cmd_import},
    {"merge", "several files into one", cmd_merge},
    {"prune", "remove old rows from a file", cmd_prune},
    {"inspect", "the hooks that a program was built with", cmd_inspect},
    {"replay", "run the recorded contexts again under other settings", cmd_replay},
    {"simulate", "write a synthetic record, clean or with a defect", cmd_simulate},
    {"queries", "the named queries, and running one", cmd_queries},
    {"sql", "run a query, read-only", cmd_sql},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

int cmd_fail(const struct err *err)
{
    fflush(stdout);
    fputs("neartie: ", stderr);
    render_safe(stderr, err->text, (int)strlen(err->text));
    putc('\n', stderr);
    return CMD_ERROR;
}

static const struct command *command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return commands + i;
    return NULL;
}

/* Put the table of commands into the help text. */
static char *help_filter(int key, const char *text, void *input)
{
    char *out = NULL;
    size_t size;
    (void)input;
    if (key != ARGP_KEY_HELP_PRE_DOC)
        return (char *)text;
    FILE *to = open_memstream(&out, &size);
    if (!to)
        return (char *)text;
    fprintf(to, "%s\n\nCommands:\n", text);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fclose(to);
    return out;
}

/* The first argument that is no option is the command, and what follows belongs to it. */
static error_t parse(int key, char *arg, struct argp_state *state)
{
    int *first = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (!command_find(arg))
            argp_error(state, "%s: no such command", arg);
        *first = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    NULL,
    parse,
    "COMMAND [ARGUMENT...]",
    "Tell a near-tie from a numeric defect, from a record.\v"
    "neartie COMMAND --help describes a command. Exit status: 0 done, 1 failed, 2 wrong usage; "
    "verdict, report and gate: 3 a defect class, 4 nothing to compare.",
    NULL,
    help_filter,
    NULL,
};

static void print_version(FILE *out, struct argp_state *state)
{
    (void)state;
    fprintf(out, "neartie %s\n", PACKAGE_VERSION);
}

/* Output that did not reach its file is an error too, the help's as well. */
static void flush_output(int status, void *unused)
{
    (void)unused;
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return;
    if (status == CMD_OK)
        fprintf(stderr, "neartie: standard output: %s\n",
                errno ? strerror(errno) : "cannot be written");
    _exit(status == CMD_OK ? CMD_ERROR : status);
}

int main(int argc, char **argv)
{
    char name[64];
    int first = 0;
    argp_program_version_hook = print_version;
    argp_err_exit_status = CMD_USAGE;
    on_exit(flush_output, NULL);
    argv[0] = "neartie";
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &first);
    const struct command *command = command_find(argv[first]);
    snprintf(name, sizeof name, "neartie %s", command->name);
    argv[first] = name;
    return command->run(argc - first, argv + first);
}
