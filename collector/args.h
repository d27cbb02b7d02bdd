/* What the command lines of several commands have in common, for their argp parsers. */
#ifndef NEARTIE_COLLECTOR_ARGS_H
#define NEARTIE_COLLECTOR_ARGS_H

#include <argp.h>
#include <stdint.h>

/* The keys of a command that takes one argument, a "file" or a "program": none and a second one are
 * wrong usage. Other keys are not known here. */
error_t args_one(const char **out, const char *what, int key, char *arg, struct argp_state *state);

/* A whole number from min to max; anything else is wrong usage. */
int64_t args_number(struct argp_state *state, const char *option, const char *arg, int64_t min,
                    int64_t max);

#endif
