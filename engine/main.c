/* neartie-engine COMMAND: finds the command, runs it, prints its error. */
#include "config.h"

#include "engine/cmd.h"
#include "err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *argp_program_version = "neartie-engine " PACKAGE_VERSION;

static const struct cmd *const cmds[] = {&cmd_info, &cmd_tokenize, &cmd_generate,
                                         &cmd_gate, &cmd_score,    &cmd_bench};
#define N_CMDS (sizeof cmds / sizeof *cmds)

/* What stands before the command, and where the command itself stands. */
struct command_line {
    const struct cmd *cmd;
    int first; /* index of the command's name in argv */
};

static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    if (!f)
        return (char *)text;
    fprintf(f, "Commands:\n");
    for (size_t i = 0; i < N_CMDS; i++)
        fprintf(f, "  %-12s%s\n", cmds[i]->name, cmds[i]->summary);
    fprintf(f, "\n`neartie-engine COMMAND --help' explains a command.");
    fclose(f);
    return out;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct command_line *line = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < N_CMDS; i++)
            if (!strcmp(arg, cmds[i]->name))
                line->cmd = cmds[i];
        if (!line->cmd)
            argp_error(state, "%s: no such command", arg);
        line->first = state->next - 1;
        state->next = state->argc; /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Output that did not reach its file is an error too. */
static int flush_output(struct err *err)
{
    errno = 0;
    if (fflush(stdout) || ferror(stdout))
        return err_set(err, "standard output: %s", errno ? strerror(errno) : "cannot be written");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_option,
        .args_doc = "COMMAND [ARG...]",
        .doc = "Run GGUF language models, and compare the two ways to compute them.\v",
        .help_filter = help_filter,
    };
    struct command_line line = {0};
    struct err err = {""};
    char name[64];
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &line);
    snprintf(name, sizeof name, "neartie-engine %s", line.cmd->name);
    argv[line.first] = name;
    int rc = line.cmd->run(argc - line.first, argv + line.first, &err);
    if (rc == 0)
        rc = flush_output(&err);
    if (rc)
        fprintf(stderr, "neartie-engine: %s\n", err.text);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
