/* Running a program under the probe: finding what is installed or built beside this program, the
 * environment, and passing signals and the exit status on. */
#ifndef NEARTIE_COLLECTOR_LAUNCH_H
#define NEARTIE_COLLECTOR_LAUNCH_H

#include "err.h"

#include <stdbool.h>

/* Path of libprobe.so or of neartie-engine, to be freed: in the build tree that this program stands
 * in, else beside the place where it is installed. */
char *launch_find_probe(struct err *err);
char *launch_find_engine(struct err *err);

struct launch {
    const char *db;    /* where to record; made absolute for the program */
    bool quiet;        /* send the program's standard output nowhere */
    char *const *argv; /* the program and its arguments, NULL-terminated */
};

/* Run it and wait. *status becomes the exit status that a shell would report; a program that a
 * signal ended ends this one in the same way, unless keep is set. 127 and 126 with a message where
 * it could not be started. */
int launch_run(const struct launch *launch, bool keep, int *status, struct err *err);

#endif
