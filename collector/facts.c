#include "config.h"

#include "collector/facts.h"
#include "collector/xalloc.h"

#include <stdlib.h>
#include <string.h>

static struct fact *fact_named(struct facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->n; i++)
        if (!strcmp(facts->list[i].name, name))
            return facts->list + i;
    if (facts->n == facts->size) {
        facts->size = facts->size ? 2 * facts->size : 32;
        facts->list = xrealloc(facts->list, facts->size, sizeof *facts->list);
    }
    facts->list[facts->n] = (struct fact){xstrdup(name), {NULL, NULL}};
    return facts->list + facts->n++;
}

/* The first value of a name stays. */
static void fact_set(struct facts *facts, int side, const char *name, const char *value)
{
    struct fact *fact = fact_named(facts, name);
    if (!fact->value[side] && value)
        fact->value[side] = xstrdup(value);
}

static struct query *open_query(const struct load_side *from, const char *name, const char *param,
                                int64_t value, struct err *err)
{
    struct query *query;
    if (db_query(from->db, &query, name, err))
        return NULL;
    query_bind_int(query, param, value);
    return query;
}

int facts_add_run(struct facts *facts, int side, const struct load_side *from, struct err *err)
{
    static const char *const names[] = {"engine", "model", "model_hash", "n_vocab",
                                        "gpu",    "host",  "exe",        "probe_version"};
    struct query *query = open_query(from, "run", ":run_id", from->arm->run_id, err);
    if (!query)
        return -1;
    int rc = query_step(query, err);
    for (size_t i = 0; rc > 0 && i < sizeof names / sizeof *names; i++)
        fact_set(facts, side, names[i], query_text(query, names[i]));
    query_free(query);
    return rc < 0 ? -1 : 0;
}

/* An arm's own knobs, in force over the run's: "decode:FA_SPLIT=16:KV=f32" names NEARTIE_FA_SPLIT
 * and NEARTIE_KV, as neartie-engine gate labels its arms. */
static void add_label_knobs(struct facts *facts, int side, const char *label)
{
    char *copy = xstrdup(label), *save = NULL, name[64];
    char *part = strtok_r(copy, ":", &save);
    while ((part = strtok_r(NULL, ":", &save))) {
        char *equals = strchr(part, '=');
        if (!equals ||
            strspn(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") < (size_t)(equals - part))
            continue;
        snprintf(name, sizeof name, "NEARTIE_%.*s", (int)(equals - part), part);
        fact_set(facts, side, name, equals + 1);
    }
    free(copy);
}

int facts_add_settings(struct facts *facts, int side, const struct load_side *from, struct err *err)
{
    struct query *query = open_query(from, "settings", ":run_id", from->arm->run_id, err);
    int rc;
    if (!query)
        return -1;
    add_label_knobs(facts, side, from->arm->label);
    while ((rc = query_step(query, err)) > 0) {
        const char *name = query_text(query, "name");
        if (name && strcmp(name, "PROBE_DB")) /* which differs between any two files */
            fact_set(facts, side, name, query_text(query, "value"));
    }
    query_free(query);
    return rc;
}

static const char *text_or(const struct query *query, const char *name)
{
    const char *text = query_text(query, name);
    return text ? text : "?";
}

/* What few configurations have. */
static const struct {
    const char *column, *word;
    int width;
} some[] = {
    {"const_hash", "constants", 12}, {"cluster", "cluster", 32}, {"attributes", "with", 120}};

int facts_add_kernels(struct facts *facts, int side, const struct load_side *from, struct err *err)
{
    struct query *query = open_query(from, "arm_kernels", ":arm_id", from->arm->arm_id, err);
    char name[2048], value[32];
    int rc;
    if (!query)
        return -1;
    while ((rc = query_step(query, err)) > 0) {
        int n =
            snprintf(name, sizeof name, "%.1500s grid %s block %s smem %s+%s regs %s code %.12s",
                     text_or(query, "kernel"), text_or(query, "grid"), text_or(query, "block"),
                     text_or(query, "static_smem_bytes"), text_or(query, "dynamic_smem_bytes"),
                     text_or(query, "registers"), text_or(query, "code_hash"));
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            if (query_text(query, some[i].column))
                n += snprintf(name + n, sizeof name - (size_t)n, " %s %.*s", some[i].word,
                              some[i].width, query_text(query, some[i].column));
        snprintf(value, sizeof value, "%.9g", query_real(query, "per_forward"));
        fact_set(facts, side, name, value);
    }
    query_free(query);
    return rc;
}

static void fact_free(struct fact *fact)
{
    free(fact->name);
    free(fact->value[0]);
    free(fact->value[1]);
}

void facts_free(struct facts *facts)
{
    for (size_t i = 0; i < facts->n; i++)
        fact_free(facts->list + i);
    free(facts->list);
    *facts = (struct facts){0};
}

static bool is_same(const struct fact *fact)
{
    const char *a = fact->value[0], *b = fact->value[1];
    return a == b || (a && b && !strcmp(a, b));
}

static int by_name(const void *x, const void *y)
{
    const struct fact *a = x, *b = y;
    return strcmp(a->name, b->name);
}

void facts_keep_different(struct facts *facts)
{
    size_t n = 0;
    for (size_t i = 0; i < facts->n; i++) {
        if (is_same(facts->list + i))
            fact_free(facts->list + i);
        else
            facts->list[n++] = facts->list[i];
    }
    facts->n = n;
    if (n)
        qsort(facts->list, n, sizeof *facts->list, by_name);
}

void facts_render(struct render *r, const char *kind, const struct facts *facts)
{
    for (size_t i = 0; i < facts->n; i++) {
        render_text(r, kind, -1);
        render_text(r, facts->list[i].name, -1);
        for (int side = 0; side < 2; side++) {
            if (facts->list[i].value[side])
                render_text(r, facts->list[i].value[side], -1);
            else
                render_null(r);
        }
    }
}
