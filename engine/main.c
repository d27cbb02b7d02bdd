/* neartie-engine COMMAND: finds the command, runs it, prints its error. */
#include "config.h"

#include "engine/cmd.h"
#include "engine/gguf.h"
#include "err.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Output that did not reach its file is an error too, the help's as well. */
static void flush_output(int status, void *unused)
{
    (void)unused;
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return;
    if (!status)
        fprintf(stderr, "neartie-engine: standard output: %s\n",
                errno ? strerror(errno) : "cannot be written");
    _exit(status ? status : EXIT_FAILURE);
}

/* Messages quote names from files that nobody has vouched for. */
static void print_error(const char *text)
{
    fputs("neartie-engine: ", stderr);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            fprintf(stderr, "\\x%02x", (unsigned char)*p);
        else
            putc(*p, stderr);
    putc('\n', stderr);
}

static void put(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

/* A page of a mapped file that cannot be read any more. Other faults of the kind end the process as
 * they would. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const struct gguf *g = gguf_mapped_at(info->si_addr);
    (void)context;
    if (!g) {
        signal(number, SIG_DFL);
        return; /* to the access, which fails again */
    }
    put("neartie-engine: ");
    put(gguf_path(g));
    put(": cannot be read any more: it was truncated or replaced in place, or its disk fails\n");
    _exit(EXIT_FAILURE);
}

static void watch_mappings(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, now;
    if (!sigaction(SIGBUS, NULL, &now) && now.sa_handler == SIG_DFL)
        sigaction(SIGBUS, &action, NULL);
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
    on_exit(flush_output, NULL);
    watch_mappings();
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &line);
    snprintf(name, sizeof name, "neartie-engine %s", line.cmd->name);
    argv[line.first] = name;
    int rc = line.cmd->run(argc - line.first, argv + line.first, &err);
    if (rc)
        print_error(err.text);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
