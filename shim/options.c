#include "config.h"

#include "shim/options.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { TEXT, SECRET, NUMBER, SHARE, CHOICE };

static const struct option {
    const char *name;
    enum kind kind;
    size_t at;            /* offset in struct options: char[4096], int, or double for a SHARE */
    const char *standard; /* the default, as it would be written */
    int min, max;         /* NUMBER */
    const char *choices;  /* CHOICE: "first|second", stored by index */
    const char *help;
} table[] = {
    {"PROBE_DB", TEXT, offsetof(struct options, db), "run.db", 0, 0, NULL,
     "database to record into; one that exists gets another run"},
    {"PROBE_TOPK", NUMBER, offsetof(struct options, topk), "20", 1, 64, NULL,
     "entries of a row's top list"},
    {"PROBE_SAMPLE", SHARE, offsetof(struct options, sample), "1", 1, 1000000000, NULL,
     "record every n-th forward, or, below 1, that share of them"},
    {"PROBE_RETAIN_ROWS", NUMBER, offsetof(struct options, retain_rows), "32768", 0, 1 << 22, NULL,
     "rows kept in memory for deltas between arms"},
    {"PROBE_BASELINE", TEXT, offsetof(struct options, baseline), "", 0, 0, NULL,
     "database whose newest run the rows are compared with, instead of the other arms"},
    {"PROBE_TOKENS", CHOICE, offsetof(struct options, tokens), "ids", 0, 0, "ids|hash",
     "token ids and texts as they are, or neither: ids and contexts under a key"},
    {"PROBE_TOKENS_KEY", SECRET, offsetof(struct options, tokens_key), "", 0, 0, NULL,
     "secret that makes the key; runs with the same one compare; none: a random key"},
    {"PROBE_CUPTI", CHOICE, offsetof(struct options, cupti), "auto", 0, 0,
     "auto|cupti|interpose|off",
     "see which kernels run: wrap the driver's functions, or, where not preloaded, through CUPTI"},
    {"PROBE_SAVE_CUBINS", TEXT, offsetof(struct options, save_cubins), "", 0, 0, NULL,
     "folder to keep a copy of every loaded code image in, by its hash"},
    {"PROBE_ON_FULL", CHOICE, offsetof(struct options, on_full), "drop", 0, 0, "drop|block",
     "a full ring drops rows and counts them, or holds the engine up"},
    {"PROBE_MAX_MB", NUMBER, offsetof(struct options, max_mb), "0", 0, 1 << 30, NULL,
     "at half of so many MiB a database becomes NAME-old.db and a fresh one begins; 0: no limit"},
    {"PROBE_SPOOL_MB", NUMBER, offsetof(struct options, spool_mb), "32", 1, 4096, NULL,
     "MiB of the ring file beside the database"},
    {"PROBE_LOG", TEXT, offsetof(struct options, log), "stderr", 0, 0, NULL,
     "where failures are told: stderr, off, or a file"},
};
enum { N_OPTIONS = sizeof table / sizeof *table };
static_assert((int)N_OPTIONS <= (int)OPTIONS_MAX,
              "struct options has no room to note where each came from");

static const char *value_text(const struct options *o, const struct option *t, char *buf,
                              size_t size)
{
    const char *at = (const char *)o + t->at, *name = t->choices;
    int value = 0;
    double share;
    switch (t->kind) {
    case TEXT:
        return at;
    case SECRET:
        return *at ? "(set)" : "";
    case SHARE:
        memcpy(&share, at, sizeof share);
        snprintf(buf, size, "%.9g", share);
        return buf;
    case NUMBER:
        memcpy(&value, at, sizeof value);
        snprintf(buf, size, "%d", value);
        return buf;
    case CHOICE:
        memcpy(&value, at, sizeof value);
        for (; value > 0; value--)
            name = strchr(name, '|') + 1;
        snprintf(buf, size, "%.*s", (int)strcspn(name, "|"), name);
    }
    return buf;
}

/* Index of value among the choices, or -1. */
static int find_choice(const char *choices, const char *value)
{
    for (int i = 0;; i++) {
        size_t n = strcspn(choices, "|");
        if (strlen(value) == n && !strncmp(choices, value, n))
            return i;
        if (!choices[n])
            return -1;
        choices += n + 1;
    }
}

/* A whole number, or a fraction below 1 in decimal digits; not by strtod, which asks the host's
 * locale what a point is. Returns whether it is one. */
static bool parse_share(const char *text, int max, double *out)
{
    double value = 0, unit = 1;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && value <= max; p++)
        value = value * 10 + (*p - '0');
    bool whole = p > text && !*p;
    if (*p == '.' && value == 0)
        for (p++; *p >= '0' && *p <= '9'; p++)
            value += (*p - '0') * (unit /= 10);
    *out = value;
    return !*p && value > 0 && value <= max && (whole || value < 1);
}

/* Store the value, or return -1 with the reason in why. */
static int set(struct options *o, const struct option *t, const char *value, char *why, size_t size)
{
    char *at = (char *)o + t->at, *end;
    int number = 0;
    double share;
    long v;
    switch (t->kind) {
    case TEXT:
    case SECRET:
        if (strlen(value) >= sizeof o->db)
            return snprintf(why, size, "longer than %zu bytes", sizeof o->db - 1), -1;
        strcpy(at, value);
        return 0;
    case SHARE:
        if (!parse_share(value, t->max, &share))
            return snprintf(why, size, "neither a whole number nor a share below 1"), -1;
        memcpy(at, &share, sizeof share);
        return 0;
    case NUMBER:
        errno = 0;
        v = strtol(value, &end, 10);
        if (end == value || *end || errno || v < t->min || v > t->max)
            return snprintf(why, size, "not a number from %d to %d", t->min, t->max), -1;
        number = (int)v;
        break;
    case CHOICE:
        number = find_choice(t->choices, value);
        if (number < 0)
            return snprintf(why, size, "not one of %s", t->choices), -1;
    }
    memcpy(at, &number, sizeof number);
    return 0;
}

/* The variable's value, or NULL where it is not set or empty. */
static const char *from_env(const struct option *t)
{
    const char *value = getenv(t->name);
    return value && *value ? value : NULL;
}

void options_load(struct options *o, void (*bad)(const char *message))
{
    char why[80], message[200];
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *value = from_env(&table[i]);
        set(o, &table[i], table[i].standard, why, sizeof why);
        o->from_env[i] = value && !set(o, &table[i], value, why, sizeof why);
        if (value && !o->from_env[i]) {
            snprintf(message, sizeof message, "%s=%.60s: %s; %s is used", table[i].name, value, why,
                     table[i].standard);
            bad(message);
        }
    }
}

void options_each(const struct options *o,
                  void (*fn)(const char *name, const char *value, const char *source))
{
    char buf[32];
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *value = value_text(o, &table[i], buf, sizeof buf);
        fn(table[i].name, value, o->from_env[i] ? "env" : "default");
    }
}

void options_help(void)
{
    dprintf(STDERR_FILENO, "libprobe.so " PACKAGE_VERSION ": settings, from the environment\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option *t = &table[i];
        char range[48] = "";
        if (t->kind == NUMBER)
            snprintf(range, sizeof range, ", %d to %d", t->min, t->max);
        if (t->kind == SHARE)
            snprintf(range, sizeof range, ": all of them");
        if (t->kind == CHOICE)
            snprintf(range, sizeof range, ", %s", t->choices);
        dprintf(STDERR_FILENO, "  %-18s %s (default %s%s)\n", t->name, t->help,
                *t->standard ? t->standard : "none", range);
    }
}
