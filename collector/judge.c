#include "config.h"

#include "collector/judge.h"
#include "collector/cmd.h"
#include "collector/window.h"

#include <stdlib.h>
#include <string.h>

static int find_reference(struct judgement *j, const char *name, struct err *err)
{
    struct arm arm;
    struct load a = {0}, b = {0};
    struct load_side reference = {j->b.db, &arm};
    if (select_arm(j->b.db, name, &arm, err))
        return -1;
    int rc = load_pairs(&reference, &j->a, &a, err);
    if (!rc)
        rc = load_pairs(&reference, &j->b, &b, err);
    if (!rc) {
        verdict_triangulate(&j->reference, a.pairs, b.pairs);
        j->has_reference = true;
    }
    load_free(&a);
    load_free(&b);
    return rc;
}

/* The recorded chunk, where the arms do not contradict each other. */
static int chunk_of(const struct arm_facts *a, const struct arm_facts *b)
{
    if (a->chunk > 0 && b->chunk > 0 && a->chunk != b->chunk)
        return 0;
    return a->chunk > 0 ? a->chunk : b->chunk;
}

/* "a.db 1:decode" where the sides are of two files. */
static void name_side(const struct load_side *side, bool with_file, bool with_run, char *out,
                      size_t size)
{
    if (with_file) {
        const char *path = db_path(side->db), *slash = strrchr(path, '/');
        FILE *to = fmemopen(out, size / 2, "w");
        if (to) {
            const char *name = slash ? slash + 1 : path;
            render_safe(to, name, (int)strlen(name));
            putc(' ', to);
            fclose(to);
            out[size / 2 - 1] = '\0';
            size -= strlen(out);
            out += strlen(out);
        }
    }
    window_name_arm(side->arm, with_run, out, size);
}

static int count_missing(const struct load_side *side, int64_t *n_lost, int64_t *n_pruned,
                         struct err *err)
{
    struct query *query;
    if (db_query(side->db, &query, "missing", err))
        return -1;
    query_bind_int(query, ":run_id", side->arm->run_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        *n_lost = query_int(query, "n_lost");
        *n_pruned = query_int(query, "n_pruned");
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

/* Rows that prune kept because of their flips show what happened, and not how often. */
static void refuse_choice(struct verdict *v, const struct arm_facts *a, const struct arm_facts *b)
{
    if (strcmp(a->cls, "flips") && strcmp(b->cls, "flips"))
        return;
    v->cls = VERDICT_NOT_COMPARABLE;
    snprintf(v->reason, sizeof v->reason, "rows that were kept for their flips are no sample");
    v->beside[0] = '\0';
}

int judge(struct judgement *out, const struct load_side *a, const struct load_side *b,
          const struct judge_options *options, struct err *err)
{
    struct arm_facts facts_a, facts_b;
    *out = (struct judgement){.a = *a, .b = *b, .cls = options->cls};
    bool runs = a->db != b->db || a->arm->run_id != b->arm->run_id;
    name_side(a, a->db != b->db, runs, out->name_a, sizeof out->name_a);
    name_side(b, a->db != b->db, runs, out->name_b, sizeof out->name_b);
    if (infer_facts(a, &facts_a, err) || infer_facts(b, &facts_b, err) ||
        load_pairs(a, b, &out->load, err) ||
        count_missing(a, &out->n_lost[0], &out->n_pruned[0], err) ||
        count_missing(b, &out->n_lost[1], &out->n_pruned[1], err))
        goto fail;
    snprintf(out->why, sizeof out->why, "as given");
    if (out->cls == FLOOR_N_CLASSES)
        out->cls = infer_class(&facts_a, &facts_b, out->why, sizeof out->why);
    if (control_open(&out->control, options->control, options->kind, out->cls,
                     verdict_grid(out->load.pairs), a, b, err))
        goto fail;
    struct verdict_options judge_by = {
        .cls = out->cls,
        .floor = &out->control.floor,
        .control = out->control.pairs,
        .greedy = options->greedy ? 1 : PAIR_UNKNOWN,
        .chunk = options->chunk ? options->chunk : chunk_of(&facts_a, &facts_b),
        .seed = options->seed,
    };
    if (verdict_judge(&out->verdict, out->load.pairs, &judge_by, err) ||
        (options->reference && find_reference(out, options->reference, err)))
        goto fail;
    refuse_choice(&out->verdict, &facts_a, &facts_b);
    return 0;
fail:
    judge_free(out);
    return -1;
}

int judge_status(const struct judgement *j)
{
    enum verdict_class cls = j->verdict.cls;
    if (cls == VERDICT_NOT_COMPARABLE || cls == VERDICT_NOT_ENGAGED)
        return CMD_NOT_COMPARABLE;
    return verdict_is_defect(cls) ? CMD_DEFECT : CMD_OK;
}

void judge_free(struct judgement *j)
{
    verdict_fini(&j->verdict);
    control_close(&j->control);
    load_free(&j->load);
}
