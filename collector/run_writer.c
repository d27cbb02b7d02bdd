#include "config.h"

#include "collector/run_writer.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void *run_next_body(struct run_writer *w)
{
    return w->slots[w->n_records % RUN_BATCH].head.body;
}

int run_put(struct run_writer *w, enum record_kind kind, size_t n_bytes, struct err *err)
{
    struct record *r = &w->slots[w->n_records % RUN_BATCH].head;
    r->kind = (uint16_t)kind;
    r->n_bytes = (uint16_t)n_bytes;
    w->n_records++;
    if (store_put(w->store, r, err))
        return -1;
    if (w->n_records % RUN_BATCH)
        return 0;
    return store_commit(w->store, w->n_records, err) || store_begin(w->store, err) ? -1 : 0;
}

int run_put_arm(struct run_writer *w, int arm, const char *label, uint32_t phase, const char *cls,
                struct err *err)
{
    struct record_arm *body = run_next_body(w);
    *body = (struct record_arm){.arm = arm, .phase = phase};
    snprintf(body->label, sizeof body->label, "%s", label);
    snprintf(body->cls, sizeof body->cls, "%s", cls);
    return run_put(w, RECORD_ARM, sizeof *body, err);
}

int run_put_setting(struct run_writer *w, const char *name, const char *value, struct err *err)
{
    struct record_setting *body = run_next_body(w);
    size_t n = strnlen(value, 4096);
    *body = (struct record_setting){.source = "api"};
    snprintf(body->name, sizeof body->name, "%s", name);
    memcpy(body->text, value, n);
    return run_put(w, RECORD_SETTING, offsetof(struct record_setting, text) + n, err);
}

int run_put_forward(struct run_writer *w, const struct record_forward *forward, struct err *err)
{
    struct record_forward *body = run_next_body(w);
    *body = *forward;
    body->forward_id = ++w->n_forwards;
    body->started_ns = w->now_ns += 1000;
    body->thread = 1;
    return run_put(w, RECORD_FORWARD, sizeof *body, err);
}

int run_put_gap(struct run_writer *w, const char *kind, uint64_t count, const char *detail,
                struct err *err)
{
    struct record_gap *body = run_next_body(w);
    *body = (struct record_gap){.count = count};
    snprintf(body->kind, sizeof body->kind, "%s", kind);
    snprintf(body->detail, sizeof body->detail, "%s", detail);
    return run_put(w, RECORD_GAP, sizeof *body, err);
}

static void fill_identity(struct run_identity *run, int64_t now_ns)
{
    unsigned char random[16] = {0};
    *run = (struct run_identity){.probe_version = PACKAGE_VERSION, .pid = getpid()};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memcpy(random, &now_ns, sizeof now_ns);
    for (int i = 0; i < 16; i++)
        snprintf(run->uuid + 2 * i, 3, "%02x", random[i]);
    run->started_ns = now_ns;
}

static int write_run(const char *path, run_write_fn fn, void *input, struct err *err)
{
    struct run_identity run;
    struct timespec now;
    uint64_t n_done;
    int rc = -1;
    struct run_writer *w = xcalloc(1, sizeof *w);
    clock_gettime(CLOCK_REALTIME, &now);
    w->now_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    fill_identity(&run, w->now_ns);
    if (store_open(&w->store, path, err) || store_run_begin(w->store, &run, &n_done, err) ||
        store_begin(w->store, err))
        goto out;
    if (fn(w, input, err) || store_commit(w->store, w->n_records, err)) {
        store_rollback(w->store);
        goto out;
    }
    rc = store_run_end(w->store, "closed", w->now_ns, err);
out:
    store_close(w->store, !rc);
    free(w);
    return rc;
}

static void remove_parts(const char *path)
{
    static const char *const parts[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *part = NULL;
        if (asprintf(&part, "%s%s", path, parts[i]) < 0)
            return;
        unlink(part);
        free(part);
    }
}

/* A part of a new file would read as a run that died. */
static int write_new_file(const char *path, run_write_fn fn, void *input, struct err *err)
{
    char *part = NULL;
    if (asprintf(&part, "%s.part", path) < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    int rc = write_run(part, fn, input, err);
    if (!rc && rename(part, path))
        rc = err_set(err, "%s: %s", path, strerror(errno));
    if (rc)
        remove_parts(part);
    free(part);
    return rc;
}

int run_write_file(const char *path, run_write_fn fn, void *input, struct err *err)
{
    return access(path, F_OK) ? write_new_file(path, fn, input, err)
                              : write_run(path, fn, input, err);
}
