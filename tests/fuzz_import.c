/* Any bytes as a file to import, of the kind that the first byte names: a record, or the
 * reason and no file. */
#include "config.h"

#include "collector/import.h"
#include "err.h"
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(const struct import *import, struct err *err);
} kinds[] = {
    {"npy", import_npy},           {"npy", import_npy},           {"kld", import_kld},
    {"logprobs", import_logprobs}, {"seed-log", import_seed_log},
};

enum { NPY, TOKENS, KLD, LOGPROBS, N_KINDS = sizeof kinds / sizeof *kinds };

/* A file in memory with a name. */
static int memory_file(const void *data, size_t n, char path[40])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, 40, "/proc/self/fd/%d", fd);
    return fd;
}

static void put_npy(struct buf *b, const char *type, const char *shape, const void *data, size_t n)
{
    char text[120];
    int size = snprintf(text, sizeof text,
                        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", type, shape);
    put(b, "\x93NUMPY\x01\0", 8);
    put(b, &(uint16_t){(uint16_t)size}, 2);
    put(b, text, (size_t)size);
    put(b, data, n);
}

static void put_logits(struct buf *b)
{
    static const float logits[3][5] = {{1, 2, 3, 4, 5}, {5, 1, 0, -1, 2}, {0.5f, 0, 9, 8, 7}};
    put_npy(b, "<f4", "(3, 5)", logits, sizeof logits);
}

static void put_kld(struct buf *b)
{
    static const int32_t head[] = {6, 3, 1, /* tokens */ 0, 1, 2, 0, 1, 2};
    static const float row[] = {1e-4f, -9};
    static const uint16_t values[] = {0, 0, 65535, 1, 500, 0};
    put(b, "_logits_", 8);
    put(b, head, sizeof head);
    for (int i = 0; i < 2; i++) {
        put(b, row, sizeof row);
        put(b, values + i, 2 * 4);
    }
}

static const char responses[] =
    "{\"custom_id\":\"1\",\"response\":{\"status_code\":200,\"body\":{\"id\":\"c\",\"choices\":[{"
    "\"index"
    "\":0,\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_"
    "logprobs\":"
    "[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"b\",\"logprob\":-1}]}]}}]}}}\n"
    "{\"custom_id\":\"2\",\"choices\":[{\"logprobs\":{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":["
    "null,"
    "-1],\"top_logprobs\":[null,{\"b\":-1,\"c\":-2}],\"text_offset\":[0,1]}}]}\n"
    "{\"custom_id\":\"3\",\"meta_info\":{\"output_token_logprobs\":[[-1,5,\"x\"]],\"output_top_"
    "logprobs\""
    ":[[[-1,5,\"x\"],[-2,6,\"y\"]]]},\"prompt_token_ids\":[1,2]}\n"
    "{\"custom_id\":\"4\",\"prompt\":\"p\",\"completion_probabilities\":[{\"id\":3,\"token\":\"q\","
    "\"prob\""
    ":0.9,\"top_probs\":[{\"id\":3,\"token\":\"q\",\"prob\":0.9},{\"id\":4,\"token\":\"r\","
    "\"prob\":0.1}]}]}\n";

static const char log_text[] =
    "argmax-margin-probe: T=4 window=2 sm_count=1 model=m\nenv: A=1\n\npos x\n"
    "2        3    0.5    3    0.25    0.2    yes\n3        4    0.1    5    0.2    0.3    NO <-- "
    "FLIP\n"
    "\nagreement across sampled positions: 1/2 (1 flip(s))\n";

static void seed(int i, struct buf *out)
{
    put(out, &(uint8_t){(uint8_t)i}, 1);
    switch (i) {
    case NPY:
        put_logits(out);
        break;
    case TOKENS:
        put_npy(out, "<i4", "(4,)", (const int32_t[]){1, 2, 3, 4}, 16);
        break;
    case KLD:
        put_kld(out);
        break;
    case LOGPROBS:
        put(out, responses, sizeof responses - 1);
        break;
    default:
        put(out, log_text, sizeof log_text - 1);
    }
}

static void run(const uint8_t *data, size_t n)
{
    char input[40], logits[40], out[60];
    struct buf b = {0};
    struct err err = {""};
    if (n < 1)
        return;
    int kind = data[0] % N_KINDS, fd = memory_file(data + 1, n - 1, input), other = -1;
    struct import import = {.path = out,
                            .kind = kinds[kind].name,
                            .cls = "",
                            .key = "k",
                            .files = {input},
                            .labels = {"a"},
                            .n_files = 1};
    snprintf(out, sizeof out, "/dev/shm/neartie-fuzz-%d.db", (int)getpid());
    if (kind == TOKENS) {
        put_logits(&b);
        other = memory_file(b.p, b.n, logits);
        import.tokens = input;
        import.files[0] = logits;
    }
    if (kind == LOGPROBS && n % 2)
        import.join = "order";
    if (kinds[kind].run(&import, &err)) {
        FUZZ_CHECK(err.text[0] && access(out, F_OK));
    } else {
        FUZZ_CHECK(!unlink(out));
    }
    free(b.p);
    close(fd);
    if (other >= 0)
        close(other);
}

const struct fuzz_target fuzz_import = {"import", run, N_KINDS, seed};
