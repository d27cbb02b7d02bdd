/* The commands of neartie: one file each, one row each of the table in main.c. A command parses its
 * own line with argp, prints its results to stdout and returns the exit status. */
#ifndef NEARTIE_COLLECTOR_CMD_H
#define NEARTIE_COLLECTOR_CMD_H

#include "err.h"

/* Exit statuses. */
enum {
    CMD_OK = 0,
    CMD_ERROR = 1,          /* a message on stderr says why */
    CMD_USAGE = 2,          /* the command line is wrong */
    CMD_DEFECT = 3,         /* verdict: a class that names a defect */
    CMD_NOT_COMPARABLE = 4, /* verdict: the rows cannot be compared */
    CMD_NOT_RUN = 127       /* record: the program could not be started */
};

int cmd_blame(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_flips(int argc, char **argv);
int cmd_gate(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_percentiles(int argc, char **argv);
int cmd_prune(int argc, char **argv);
int cmd_queries(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_runs(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_sql(int argc, char **argv);
int cmd_verdict(int argc, char **argv);

/* Print "neartie: MESSAGE" to stderr, safely, and return CMD_ERROR. */
int cmd_fail(const struct err *err);

#endif
