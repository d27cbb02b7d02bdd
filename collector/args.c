#include "config.h"

#include "collector/args.h"

#include <errno.h>
#include <stdlib.h>

error_t args_one(const char **out, const char *what, int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_ARG:
        if (*out)
            argp_error(state, "%s: more than one %s", arg, what);
        *out = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which %s?", what);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int64_t args_number(struct argp_state *state, const char *option, const char *arg, int64_t min,
                    int64_t max)
{
    char *end;
    errno = 0;
    long long value = strtoll(arg, &end, 10);
    if (errno || end == arg || *end || value < min || value > max)
        argp_error(state, "%s %s: not a number from %lld to %lld", option, arg, (long long)min,
                   (long long)max);
    return value;
}
