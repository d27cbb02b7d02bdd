#include "config.h"

#include "collector/stat_group.h"
#include "collector/xalloc.h"

/* What a group looks at. The first ones come from the place and are the same for all rows of it;
 * the last two are the row's own. */
enum figure {
    FIG_PHASE,
    FIG_BATCH_ROW,
    FIG_N_TOKENS,
    FIG_N_SEQS,
    FIG_UBATCH_INDEX,
    FIG_N_UBATCH,
    FIG_KERNEL_LIST,
    FIG_TAG, /* FIG_TAG + t: tag t of the caller's */
    FIG_PLACE_END = FIG_TAG + PAIR_MAX_TAGS,
    FIG_OFFSET = FIG_PLACE_END, /* of the row in its forward */
    FIG_POS
};

static const char *const figure_names[] = {
    [FIG_PHASE] = "phase",
    [FIG_BATCH_ROW] = "batch_row",
    [FIG_N_TOKENS] = "n_tokens",
    [FIG_N_SEQS] = "n_seqs",
    [FIG_UBATCH_INDEX] = "ubatch_index",
    [FIG_N_UBATCH] = "n_ubatch",
    [FIG_KERNEL_LIST] = "kernel_list",
};

enum {
    MOST_VALUES = 48,   /* distinct values of a figure that each become a group */
    MOST_CONFIGS = 4096 /* launch configurations that each become a group */
};

struct groups {
    int n, cap;
    struct group *groups;
    int n_place; /* the first groups, which depend on the place alone */

    const struct pairs *bound;
    struct pair_kernel *kernels; /* the bound set's, by list and configuration */
    int *place_list;             /* groups of each place, one after the other */
    size_t *place_start;         /* (n_wheres + 1) */
    int *found;                  /* (n) the answer of groups_of_row */

    int n_residues;
    struct residue {
        int modulus, first; /* group of residue 0, or -1: no residues of this modulus */
        int window, n_windows;
    } residues[5];
};

static int32_t place_figure(const struct pair_where *where, int side, int figure)
{
    const struct pair_place *place = side == 0 ? &where->a : &where->b;
    switch (figure) {
    case FIG_PHASE:
        return place->phase;
    case FIG_BATCH_ROW:
        return place->batch_row;
    case FIG_N_TOKENS:
        return place->n_tokens;
    case FIG_N_SEQS:
        return place->n_seqs;
    case FIG_UBATCH_INDEX:
        return place->ubatch_index;
    case FIG_N_UBATCH:
        return place->n_ubatch;
    case FIG_KERNEL_LIST:
        return place->kernel_list;
    default:
        return where->tags[figure - FIG_TAG];
    }
}

static void add_group(struct groups *groups, struct group group)
{
    if (groups->n == groups->cap) {
        groups->cap = groups->cap ? 2 * groups->cap : 256;
        groups->groups = xrealloc(groups->groups, (size_t)groups->cap, sizeof *groups->groups);
    }
    groups->groups[groups->n++] = group;
}

static int compare_int32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Distinct values of a figure over the places, ascending; the caller frees. */
static int32_t *distinct_values(const struct pairs *pairs, int side, int figure, size_t *out_n)
{
    int32_t *values = xcalloc(pairs->n_wheres, sizeof *values);
    size_t n = 0;
    for (size_t w = 0; w < pairs->n_wheres; w++)
        values[w] = place_figure(&pairs->wheres[w], side, figure);
    qsort(values, pairs->n_wheres, sizeof *values, compare_int32);
    for (size_t w = 0; w < pairs->n_wheres; w++)
        if (!n || values[n - 1] != values[w])
            values[n++] = values[w];
    *out_n = n;
    return values;
}

/* One group a value, and one above each value, as far as they split the rows. */
static void add_figure(struct groups *groups, const struct pairs *pairs, int side, int figure,
                       const char *field, bool ordered)
{
    size_t n;
    int32_t *values = distinct_values(pairs, side, figure, &n);
    struct group group = {field, figure, side, GROUP_EQUAL, 0, 0};
    size_t step = n / MOST_VALUES + 1;
    for (size_t i = 0; n > 1 && i + 1 < n; i += step) {
        group.test = GROUP_ABOVE;
        group.value = values[i];
        if (ordered && values[i] != PAIR_UNKNOWN)
            add_group(groups, group);
    }
    for (size_t i = 0; n > 1 && n <= MOST_VALUES && i < n; i++) {
        group.test = GROUP_EQUAL;
        group.value = values[i];
        if (values[i] != PAIR_UNKNOWN)
            add_group(groups, group);
    }
    free(values);
}

static int compare_config(const void *a, const void *b)
{
    return compare_int32(&((const struct pair_kernel *)a)->config,
                         &((const struct pair_kernel *)b)->config);
}

static int compare_kernel(const void *a, const void *b)
{
    int order = compare_int32(&((const struct pair_kernel *)a)->kernel_list,
                              &((const struct pair_kernel *)b)->kernel_list);
    return order ? order : compare_config(a, b);
}

/* The set's kernels in the given order; the caller frees. */
static struct pair_kernel *sort_kernels(const struct pairs *pairs,
                                        int (*compare)(const void *, const void *))
{
    struct pair_kernel *kernels = xcalloc(pairs->n_kernels, sizeof *kernels);
    if (pairs->n_kernels)
        memcpy(kernels, pairs->kernels, pairs->n_kernels * sizeof *kernels);
    qsort(kernels, pairs->n_kernels, sizeof *kernels, compare);
    return kernels;
}

/* One group for every launch configuration that any kernel list uses. */
static void add_configs(struct groups *groups, const struct pairs *pairs)
{
    struct pair_kernel *kernels = sort_kernels(pairs, compare_config);
    int n = 0;
    for (size_t i = 0; i < pairs->n_kernels && n < MOST_CONFIGS; i++) {
        if (i > 0 && kernels[i].config == kernels[i - 1].config)
            continue;
        n++;
        for (int side = 1; side >= 0; side--)
            add_group(groups, (struct group){"kernel", FIG_KERNEL_LIST, side, GROUP_CONTAINS,
                                             kernels[i].config, 0});
    }
    free(kernels);
}

static void add_places(struct groups *groups, const struct pairs *pairs)
{
    static const bool ordered[] = {
        [FIG_BATCH_ROW] = true,    [FIG_N_TOKENS] = true, [FIG_N_SEQS] = true,
        [FIG_UBATCH_INDEX] = true, [FIG_N_UBATCH] = true, [FIG_KERNEL_LIST] = false,
    };
    for (int t = 0; t < pairs->n_tags; t++)
        add_figure(groups, pairs, PAIR_UNKNOWN, FIG_TAG + t, pairs->tag_names[t], true);
    for (int side = 1; side >= 0; side--)
        for (int figure = FIG_PHASE; figure < FIG_TAG; figure++)
            add_figure(groups, pairs, side, figure, figure_names[figure], ordered[figure]);
    add_configs(groups, pairs);
    groups->n_place = groups->n;
}

/* Rows just after the start of a forward that is not the first, and the last rows of a forward: for
 * a side that runs several tokens in one forward. */
static void add_offsets(struct groups *groups, const struct pairs *pairs, int side)
{
    bool several = false;
    for (size_t i = 0; i < pairs->n && !several; i++)
        several = pairs->offset[side][i] > 0;
    for (int value = 1; several && value <= 8; value++)
        if (value <= 4 || value == 8) {
            add_group(groups, (struct group){"rows after a boundary", FIG_OFFSET, side, GROUP_BELOW,
                                             value, 0});
            add_group(groups, (struct group){"rows before a boundary", FIG_OFFSET, side, GROUP_TAIL,
                                             value, 0});
        }
}

static void add_residues(struct groups *groups, int modulus, bool each)
{
    static const int windows[] = {2, 3, 4, 8};
    struct residue *residue = &groups->residues[groups->n_residues++];
    *residue = (struct residue){.modulus = modulus, .first = each ? groups->n : -1};
    struct group group = {"pos", FIG_POS, PAIR_UNKNOWN, GROUP_RESIDUE, 0, modulus};
    for (int r = 0; each && r < modulus; r++) {
        group.value = r;
        add_group(groups, group);
    }
    residue->window = groups->n;
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        group.value = windows[w];
        group.test = GROUP_WINDOW;
        add_group(groups, group);
        group.test = GROUP_TAIL;
        add_group(groups, group);
    }
    residue->n_windows = groups->n - residue->window;
}

static void add_positions(struct groups *groups, const struct pairs *pairs, int chunk)
{
    static const int moduli[] = {16, 32, 64};
    int32_t last = 0;
    for (size_t i = 0; i < pairs->n; i++)
        last = pairs->pos[i] > last ? pairs->pos[i] : last;
    for (int side = 1; side >= 0; side--)
        add_offsets(groups, pairs, side);
    for (size_t m = 0; m < sizeof moduli / sizeof *moduli && moduli[m] <= last; m++)
        add_residues(groups, moduli[m], true);
    if (chunk > 1 && chunk != 16 && chunk != 32 && chunk != 64 && chunk <= last)
        add_residues(groups, chunk, chunk < 64);
    for (int32_t bound = 1; bound < last && bound < 1 << 30; bound *= 2)
        add_group(groups, (struct group){"pos", FIG_POS, PAIR_UNKNOWN, GROUP_ABOVE, bound - 1, 0});
}

struct groups *groups_new(const struct pairs *pairs, int chunk)
{
    struct groups *groups = xcalloc(1, sizeof *groups);
    add_places(groups, pairs);
    add_positions(groups, pairs, chunk);
    groups->found = xcalloc((size_t)groups->n, sizeof *groups->found);
    return groups;
}

void groups_free(struct groups *groups)
{
    if (!groups)
        return;
    free(groups->groups);
    free(groups->kernels);
    free(groups->place_list);
    free(groups->place_start);
    free(groups->found);
    free(groups);
}

int groups_count(const struct groups *groups)
{
    return groups->n;
}

const struct group *groups_at(const struct groups *groups, int g)
{
    return &groups->groups[g];
}

void group_name(const struct group *group, char *buf, size_t size)
{
    const char *side = group->side == 0 ? "a." : "";
    switch (group->test) {
    case GROUP_EQUAL:
        snprintf(buf, size, "%s%s = %d", side, group->field, group->value);
        return;
    case GROUP_ABOVE:
        snprintf(buf, size, "%s%s > %d", side, group->field, group->value);
        return;
    case GROUP_BELOW:
        snprintf(buf, size, "%sfirst %d %s", side, group->value, group->field);
        return;
    case GROUP_RESIDUE:
        snprintf(buf, size, "%s mod %d = %d", group->field, group->modulus, group->value);
        return;
    case GROUP_WINDOW:
        snprintf(buf, size, "%s mod %d < %d", group->field, group->modulus, group->value);
        return;
    case GROUP_TAIL:
        if (group->modulus)
            snprintf(buf, size, "%s mod %d >= %d", group->field, group->modulus,
                     group->modulus - group->value);
        else
            snprintf(buf, size, "%slast %d %s", side, group->value, group->field);
        return;
    case GROUP_CONTAINS:
        snprintf(buf, size, "%s%s %d", side, group->field, group->value);
        return;
    }
}

static bool place_in_group(const struct groups *groups, const struct pair_where *where,
                           const struct group *group)
{
    int32_t figure = place_figure(where, group->side, group->figure);
    if (figure == PAIR_UNKNOWN)
        return false;
    switch (group->test) {
    case GROUP_EQUAL:
        return figure == group->value;
    case GROUP_ABOVE:
        return figure > group->value;
    default:
        return bsearch(&(struct pair_kernel){figure, group->value}, groups->kernels,
                       groups->bound->n_kernels, sizeof *groups->kernels, compare_kernel) != NULL;
    }
}

void groups_bind(struct groups *groups, const struct pairs *pairs)
{
    size_t n = 0, cap = 0;
    groups->bound = pairs;
    free(groups->kernels);
    free(groups->place_list);
    free(groups->place_start);
    groups->kernels = sort_kernels(pairs, compare_kernel);
    groups->place_list = NULL;
    groups->place_start = xcalloc(pairs->n_wheres + 1, sizeof *groups->place_start);
    for (size_t w = 0; w < pairs->n_wheres; w++) {
        for (int g = 0; g < groups->n_place; g++) {
            if (!place_in_group(groups, &pairs->wheres[w], &groups->groups[g]))
                continue;
            if (n == cap) {
                cap = cap ? 2 * cap : 1024;
                groups->place_list = xrealloc(groups->place_list, cap, sizeof(int));
            }
            groups->place_list[n++] = g;
        }
        groups->place_start[w + 1] = n;
    }
}

static bool offset_in_group(const struct pairs *pairs, size_t i, const struct group *group)
{
    int32_t offset = pairs->offset[group->side][i];
    const struct pair_where *where = &pairs->wheres[pairs->where[i]];
    int32_t n_tokens = group->side == 0 ? where->a.n_tokens : where->b.n_tokens;
    if (offset == PAIR_UNKNOWN || n_tokens < 2)
        return false;
    if (group->test == GROUP_BELOW)
        return offset < group->value && pairs->pos[i] > offset;
    return n_tokens - offset <= group->value;
}

static bool window_in_group(int32_t pos, int32_t r, const struct group *group)
{
    if (group->test == GROUP_WINDOW)
        return r < group->value && pos >= group->modulus;
    return r >= group->modulus - group->value;
}

int groups_of_row(struct groups *groups, size_t i, const int **out)
{
    const struct pairs *pairs = groups->bound;
    uint32_t w = pairs->where[i];
    int32_t pos = pairs->pos[i];
    int n = 0, g = groups->n_place;
    for (size_t k = groups->place_start[w]; k < groups->place_start[w + 1]; k++)
        groups->found[n++] = groups->place_list[k];
    for (; g < groups->n && groups->groups[g].figure == FIG_OFFSET; g++)
        if (offset_in_group(pairs, i, &groups->groups[g]))
            groups->found[n++] = g;
    for (int m = 0; m < groups->n_residues; m++) {
        const struct residue *residue = &groups->residues[m];
        int32_t r = pos % residue->modulus;
        if (residue->first >= 0)
            groups->found[n++] = residue->first + r;
        for (int k = 0; k < residue->n_windows; k++)
            if (window_in_group(pos, r, &groups->groups[residue->window + k]))
                groups->found[n++] = residue->window + k;
        g = residue->window + residue->n_windows;
    }
    for (; g < groups->n && pos > groups->groups[g].value; g++)
        groups->found[n++] = g;
    *out = groups->found;
    return n;
}
