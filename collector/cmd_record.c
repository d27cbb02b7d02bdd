#include "config.h"

#include "collector/cmd.h"
#include "collector/launch.h"
#include "collector/obstacle.h"
#include "collector/run_writer.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *db;
    char **command;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o':
        o->db = arg;
        return 0;
    case ARGP_KEY_ARG: /* the program's own options are not ours */
        o->command = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which program?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0,
     "database to record into (default run.db); one that exists gets another run", 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "[--] COMMAND [ARGUMENT...]",
    "Run a program under the probe. Its output, signals and exit status are its own; what it "
    "computes "
    "is recorded.\vThe same by hand: PROBE_DB=FILE LD_PRELOAD=libprobe.so COMMAND. The probe's "
    "other "
    "settings are environment variables, PROBE_*. Exit status: the program's; 126 or 127 where it "
    "could not be started.",
    NULL,
    NULL,
    NULL,
};

static int put_obstacle(struct run_writer *w, void *input, struct err *err)
{
    return run_put_gap(w, "probe_not_loaded", 1, input, err);
}

/* Why there is no file after a program that ran to its end. A program that no probe can be loaded
 * into gets a run that says so. */
static void print_nothing(const struct options *o)
{
    const char *why = obstacle_of(o->command[0]);
    struct err err;
    if (why && !run_write_file(o->db, put_obstacle, (void *)why, &err)) {
        fprintf(stderr, "neartie: %s: nothing was recorded of %s: %s\n", o->db, o->command[0], why);
        return;
    }
    int fd = open(o->db, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        fprintf(stderr, "neartie: %s: nothing was recorded: %s\n", o->db, strerror(errno));
        return;
    }
    close(fd);
    unlink(o->db);
    fprintf(stderr, "neartie: %s: nothing was recorded: %s has no hook of neartie\n", o->db,
            o->command[0]);
}

int cmd_record(int argc, char **argv)
{
    struct options o = {.db = "run.db"};
    struct err err;
    int status = CMD_ERROR;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
    struct launch launch = {.db = o.db, .argv = o.command};
    if (launch_run(&launch, false, &status, &err))
        cmd_fail(&err);
    else if (access(o.db, F_OK))
        print_nothing(&o);
    return status;
}
