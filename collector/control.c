#include "config.h"

#include "collector/control.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a stored calibration ---- */

/* [[p,value],...], as calibrate writes it. */
static int parse_points(const char *text, struct floor_point out[FLOOR_N_POINTS])
{
    int n = 0;
    for (char *end; text && n < FLOOR_N_POINTS && (text = strpbrk(text, "-.0123456789")); n++) {
        out[n].p = strtod(text, &end);
        text = strpbrk(end, "-.0123456789");
        if (!text)
            break;
        out[n].value = strtod(text, &end);
        text = end;
    }
    return n;
}

/* The control's sentence begins with its phases: "prefill against decode, ...". */
static bool words_are_of(const char *words, const struct arm_facts *a, const struct arm_facts *b)
{
    char straight[48], crossed[48];
    snprintf(straight, sizeof straight, "%.15s against %.15s,", a->phase, b->phase);
    snprintf(crossed, sizeof crossed, "%.15s against %.15s,", b->phase, a->phase);
    return strcmp(a->phase, b->phase) && (!strncmp(words, straight, strlen(straight)) ||
                                          !strncmp(words, crossed, strlen(crossed)));
}

/* Its sequences: "..., 20 sequences, PAIR"; 0: it does not say. */
static size_t words_n_seqs(const char *words)
{
    static const char unit[] = " sequences, ";
    const char *at = NULL;
    for (const char *p = words; (p = strstr(p, unit)); p++)
        at = p;
    while (at && at > words && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at ? strtoul(at, NULL, 10) : 0;
}

/* It ends with the pair that was measured: "..., 1f6c0e2a:prefill and 1f6c0e2a:decode". */
static bool words_end_with(const char *words, const char *pair)
{
    size_t n_words = strlen(words), n_pair = strlen(pair);
    return n_words >= n_pair && !strcmp(words + n_words - n_pair, pair);
}

struct wanted {
    const char *label; /* NULL: any of the class */
    enum control_kind kind;
    enum floor_class cls;
    double ulp;
    const struct arm_facts *a, *b;
    const struct load_side *side_a, *side_b;
};

/* Whether the calibration was measured on the very pair that is judged. */
static bool is_of_the_pair(const char *words, const struct wanted *wanted)
{
    char straight[INFER_PAIR_SIZE], crossed[INFER_PAIR_SIZE];
    infer_name_pair(wanted->side_a, wanted->a, wanted->side_b, wanted->b, straight);
    infer_name_pair(wanted->side_b, wanted->b, wanted->side_a, wanted->a, crossed);
    return words_end_with(words, straight) || words_end_with(words, crossed);
}

static int take_calibration(struct control *out, const struct query *query,
                            const struct wanted *wanted, struct err *err)
{
    struct floor_point points[FLOOR_N_POINTS];
    const char *words = query_text(query, "control"), *label = query_text(query, "label");
    bool same = wanted->kind == CONTROL_SAME ||
                (wanted->kind == CONTROL_INFER && words_are_of(words, wanted->a, wanted->b));
    enum floor_kind kind = same ? FLOOR_SAME : FLOOR_OTHER;
    int n = parse_points(query_text(query, "quantiles"), points);
    snprintf(out->words, sizeof out->words, "calibration %s: %s", label, words);
    return floor_from_points(&out->floor, kind, wanted->cls, query_real(query, "scale"),
                             (size_t)query_int(query, "n"), words_n_seqs(words), points, n,
                             wanted->ulp, err);
}

/* Returns 1 when one was found. A calibration of the pair itself is refused where it was named, and
 * otherwise passed over, which out->words then says. */
static int find_calibration(struct control *out, struct db *db, const struct wanted *wanted,
                            struct err *err)
{
    struct query *query;
    int rc, found = 0;
    if (db_query(db, &query, "calibrations", err))
        return -1;
    if (wanted->label)
        query_bind_text(query, ":label", wanted->label);
    while (!found && (rc = query_step(query, err)) > 0) {
        const char *cls = query_text(query, "class");
        if (!wanted->label && (!cls || strcmp(cls, floor_priors[wanted->cls].name)))
            continue;
        if (!is_of_the_pair(query_text(query, "control"), wanted))
            found = take_calibration(out, query, wanted, err) ? -1 : 1;
        else if (wanted->label)
            found = err_set(err,
                            "--control %s: was measured on the pair itself, which cannot vouch "
                            "for itself",
                            wanted->label);
        else
            snprintf(out->words, sizeof out->words, "none: calibration %s is of the pair itself",
                     query_text(query, "label"));
    }
    query_free(query);
    return found ? found : rc;
}

/* ---- a pair of arms ---- */

static int take_pair(struct control *out, const struct load_side *c, const struct load_side *d,
                     const struct wanted *wanted, struct err *err)
{
    struct arm_facts facts_c, facts_d;
    struct load load = {0};
    if (infer_facts(c, &facts_c, err) || infer_facts(d, &facts_d, err) ||
        load_pairs(c, d, &load, err))
        return -1;
    out->pairs = load.pairs; /* ours from here */
    free(load.flips);
    if (load.n_b == load.n_alone)
        return err_set(err, "control %s and %s: no position of the same context", c->arm->label,
                       d->arm->label);
    bool same =
        wanted->kind == CONTROL_SAME || (wanted->kind == CONTROL_INFER &&
                                         infer_same_kind(wanted->a, wanted->b, &facts_c, &facts_d));
    floor_from_pairs(&out->floor, out->pairs, same ? FLOOR_SAME : FLOOR_OTHER, wanted->cls,
                     wanted->ulp);
    snprintf(out->words, sizeof out->words, "%.80s against %.80s of run %lld", c->arm->label,
             d->arm->label, (long long)d->arm->run_id);
    return 0;
}

/* "ARM,ARM", or "ARM:ARM" where neither has a colon of its own. */
static bool split_arms(const char *name, char *first, char **second)
{
    char *at = strchr(first, ',');
    if (!at && (at = strchr(first, ':')) && strchr(at + 1, ':'))
        at = NULL;
    if (!at)
        return false;
    *second = first + (at - first) + 1;
    *at = '\0';
    return at > first && name[at - first + 1];
}

static bool is_the_pair(const struct wanted *wanted, const struct arm *c, const struct arm *d,
                        const struct db *db)
{
    int64_t a = wanted->side_a->arm->arm_id, b = wanted->side_b->arm->arm_id;
    return wanted->side_a->db == db && wanted->side_b->db == db &&
           ((c->arm_id == a && d->arm_id == b) || (c->arm_id == b && d->arm_id == a));
}

static int take_arms(struct control *out, struct db *db, const char *name,
                     const struct wanted *wanted, struct err *err)
{
    char first[512], *second;
    struct arm c, d;
    snprintf(first, sizeof first, "%s", name);
    if (!split_arms(name, first, &second))
        return err_set(err, "--control %s: no calibration of that label, no file, and not ARM:ARM",
                       name);
    if (select_arm(db, first, &c, err) || select_arm(db, second, &d, err))
        return -1;
    if (is_the_pair(wanted, &c, &d, db))
        return err_set(err, "--control %s: is the pair itself, which cannot vouch for itself",
                       name);
    struct load_side side_c = {db, &c}, side_d = {db, &d};
    return take_pair(out, &side_c, &side_d, wanted, err);
}

static int take_file(struct control *out, const char *path, const struct wanted *wanted,
                     struct err *err)
{
    struct db *db = NULL;
    struct selection sel;
    int rc = db_open(&db, path, err);
    if (!rc)
        rc = select_resolve(db, &(struct select_options){0}, &sel, err);
    if (!rc) {
        struct load_side c = {db, &sel.a}, d = {db, &sel.b};
        rc = take_pair(out, &c, &d, wanted, err);
    }
    if (!rc) {
        size_t used = strlen(out->words);
        snprintf(out->words + used, sizeof out->words - used, " of %s", path);
    }
    db_close(db);
    return rc ? -1 : 0;
}

static int open_named(struct control *out, struct db *db, const char *name,
                      const struct wanted *wanted, struct err *err)
{
    int rc = 0;
    if (!name || strcmp(name, "none"))
        rc = find_calibration(out, db, wanted, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (!name || !strcmp(name, "none")) {
        floor_from_prior(&out->floor, wanted->cls, wanted->ulp);
        if (!*out->words)
            snprintf(out->words, sizeof out->words, "none");
        return 0;
    }
    return access(name, F_OK) ? take_arms(out, db, name, wanted, err)
                              : take_file(out, name, wanted, err);
}

int control_open(struct control *out, const char *name, enum control_kind kind,
                 enum floor_class cls, double ulp, const struct load_side *a,
                 const struct load_side *b, struct err *err)
{
    struct arm_facts facts_a, facts_b;
    struct wanted wanted = {name, kind, cls, ulp, &facts_a, &facts_b, a, b};
    *out = (struct control){0};
    if (infer_facts(a, &facts_a, err) || infer_facts(b, &facts_b, err))
        return -1;
    if (open_named(out, b->db, name, &wanted, err)) {
        control_close(out);
        return -1;
    }
    return 0;
}

void control_close(struct control *control)
{
    floor_fini(&control->floor);
    pairs_free(control->pairs);
    control->pairs = NULL;
}
