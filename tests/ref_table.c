/* Agreement with llama.cpp's logits, one line per model and phase of a reference folder:
 *   ref_table NEARTIE_SHARED
 * The exit status is 1 when a figure is beyond its bound; such a figure ends in `!`.
 *
 * `plain` is llama.cpp's scalar code: f32 sums and an f32 cache, but activations rounded to the
 * partner of the weight type (8 bits for quantised weights, f16 and bf16 for those). `default` is
 * what it runs. Three statements, each with its bound:
 *
 * FAST=0 differs from REF=1 by the rounding of f32 sums alone. A sum of n terms in lanes of n/8
 * is off by about sqrt(n/8) * 2^-24 of its terms' norm: 5e-7 relative for n = 512; two dozen
 * matrix products in a row and logits of up to 30 make that 1e-4, so the bound is 1e-3 for every
 * weight type: once dequantised, all are multiplied alike.
 *
 * Where the weights are f32, plain rounds nothing else either: FAST=0 is within 1e-3 of it too.
 * For the other types plain's distance from FAST=0 is its activations' rounding: it may exceed
 * its distance from REF=1 by the first bound. That REF=1 is the right centre shows beside it: F64
 * is plain's distance from another program's float64 pass (F64.txt), which must be the same
 * figure to three digits.
 *
 * FAST=1 is no further from REF=1 than 1.5 times as far as default is: largest and RMS. */
#include "config.h"

#include <glob.h>

#include "tests/logits.h"

#define SUM_BOUND  1e-3
#define FAST_RATIO 1.5

struct distance {
    double max, rms;
};

static struct distance distance(const float *a, const float *b, size_t n)
{
    struct distance d = {max_difference(a, b, n), 0};
    for (size_t i = 0; i < n; i++)
        d.rms += pow((double)a[i] - b[i], 2);
    d.rms = sqrt(d.rms / (double)n);
    return d;
}

/* One model of the folder. */
struct entry {
    const char *shared, *name;
    struct subject subject;
    int32_t ids[256], n_ids;
    size_t n_values;
    bool is_f32;
};

static int n_broken;

/* A figure, marked when beyond its bound. */
static void cell(double value, double bound)
{
    bool is_broken = !(value <= bound);
    n_broken += is_broken;
    printf(" %9.3g%c", value, is_broken ? '!' : ' ');
}

static const float *reference(const struct entry *e, const char *what)
{
    char path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/ref/%s.%s.f32", e->shared, e->name, what);
    const float *data = file_read(path, &size);
    if (!data || size != e->n_values * sizeof *data) {
        err_set(&err, "%s: not there, or not %zu values", path, e->n_values);
        die();
    }
    return data;
}

/* Plain's distance from the other program's float64 pass, as F64.txt has it. */
static struct distance distance_f64(const struct entry *e, const char *phase)
{
    char path[512], start[128];
    size_t size;
    struct distance d = {NAN, NAN};
    snprintf(path, sizeof path, "%s/ref/F64.txt", e->shared);
    snprintf(start, sizeof start, "%s.plain ", e->name);
    char *text = file_read(path, &size);
    for (const char *p = text ? strstr(text, start) : NULL; p; p = strstr(p + 1, start)) {
        const char *end = strchr(p, '\n'), *at = strstr(p, phase);
        if (at && at < end) {
            sscanf(strstr(p, "max|d|"), "max|d| %lf rms %lf", &d.max, &d.rms);
            break;
        }
    }
    free(text);
    return d;
}

/* Equal to three digits, as F64.txt prints. An f32 model's plain is nothing but f32 sums, and of
 * those the last digits differ. */
static double f64_bound(double mine)
{
    return mine * 1.01 + SUM_BOUND / 10;
}

static void line(struct entry *e, enum forward_phase phase)
{
    const char *name = phase == FORWARD_PREFILL ? "prefill" : "decode";
    char what[32];
    float *ref = logits_of(&e->subject, "REF=1", phase, e->ids, e->n_ids);
    float *exact = logits_of(&e->subject, "FAST=0", phase, e->ids, e->n_ids);
    float *fast = logits_of(&e->subject, "FAST=1", phase, e->ids, e->n_ids);
    const float *plain = reference(e, "plain.prefill"); /* its decode is bit-equal */
    snprintf(what, sizeof what, "default.%s", name);
    const float *usual = reference(e, what);

    struct distance sums = distance(exact, ref, e->n_values);
    struct distance plain_exact = distance(plain, exact, e->n_values);
    struct distance plain_ref = distance(plain, ref, e->n_values);
    struct distance f64 = distance_f64(e, name), fast_ref = distance(fast, ref, e->n_values);
    struct distance usual_ref = distance(usual, ref, e->n_values);
    printf("%-20s %-7s", e->name, name);
    cell(sums.max, SUM_BOUND);
    cell(plain_exact.max, e->is_f32 ? SUM_BOUND : plain_ref.max + SUM_BOUND);
    cell(plain_ref.max, f64_bound(f64.max));
    cell(f64.max, f64_bound(plain_ref.max));
    cell(plain_ref.rms, f64_bound(f64.rms));
    cell(f64.rms, f64_bound(plain_ref.rms));
    cell(usual_ref.max, INFINITY);
    cell(fast_ref.max, FAST_RATIO * usual_ref.max);
    cell(usual_ref.rms, INFINITY);
    cell(fast_ref.rms, FAST_RATIO * usual_ref.rms);
    putchar('\n');
    fflush(stdout);
    free(ref), free(exact), free(fast), free((void *)plain), free((void *)usual);
}

/* The model's file stands in one of the folders of models/. */
static struct subject find_model(const char *shared, const char *name)
{
    static const char *const folders[] = {"public", "random", "trained"};
    char path[512];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/models/%s/%s.gguf", shared, folders[i], name);
        FILE *file = fopen(path, "rb");
        if (file) {
            fclose(file);
            return subject_open(path);
        }
    }
    err_set(&err, "%s: no such model in %s/models", name, shared);
    die();
    return (struct subject){0};
}

static void model_lines(const char *shared, const char *json_path)
{
    char name[128];
    size_t size;
    const char *base = strrchr(json_path, '/') + 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
    struct entry e = {.shared = shared, .name = name, .subject = find_model(shared, name)};
    char *json = file_read(json_path, &size);
    e.n_ids = json_ints(json, "\"tokens\"", e.ids, 256);
    e.n_values = (size_t)e.n_ids * (size_t)e.subject.m->hp.n_vocab;
    e.is_f32 = strstr(name, "-f32") != NULL;
    line(&e, FORWARD_PREFILL);
    line(&e, FORWARD_DECODE);
    free(json);
    subject_close(&e.subject);
}

int main(int argc, char **argv)
{
    char pattern[512];
    glob_t found;
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const char *device = getenv("NEARTIE_DEVICE");
    if (backend_open(device ? device : "cpu", &backend, &err) < 0)
        die();
    snprintf(pattern, sizeof pattern, "%s/ref/*.plain.json", argv[1]);
    if (glob(pattern, 0, NULL, &found)) {
        fprintf(stderr, "%s: %s: nothing there\n", argv[0], pattern);
        return 1;
    }
    printf("%-20s %-7s %10s %10s %10s %10s %10s %10s %10s %10s %10s %10s\n", "", "", "FAST=0",
           "FAST=0", "plain", "plain", "plain", "plain", "default", "FAST=1", "default", "FAST=1");
    printf("%-20s %-7s %10s %10s %10s %10s %10s %10s %10s %10s %10s %10s\n", "model", "phase",
           "-REF max", "-plain max", "-REF max", "-F64 max", "-REF rms", "-F64 rms", "-REF max",
           "-REF max", "-REF rms", "-REF rms");
    for (size_t i = 0; i < found.gl_pathc; i++)
        model_lines(argv[1], found.gl_pathv[i]);
    printf("%zu models, %d figures beyond their bound\n", found.gl_pathc, n_broken);
    globfree(&found);
    backend_close(backend);
    return n_broken != 0;
}
