/* Reading device code: cubins that nvcc 13.0 made, the same torn in every way, fat binaries, packed
 * images, and SHA-256. */
#include "config.h"

#include "sql/cubin.h"
#include "sql/fatbin.h"
#include "tests/tap.h"

#include <stdint.h>

static unsigned char *read_file(const char *name, size_t *out_n)
{
    char path[4096];
    const char *top = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", name);
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 20);
    *out_n = f && bytes ? fread(bytes, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return bytes;
}

static void check_sha256(void)
{
    /* The examples of FIPS 180-2, and a length of every remainder in pieces. */
    static const struct {
        const char *text, *hash;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char hash[SHA256_HEX], pieces[SHA256_HEX], text[300];
    struct sha256 s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sha256_init(&s);
        sha256_add(&s, cases[i].text, strlen(cases[i].text));
        sha256_end_hex(&s, hash);
        is_str(hash, cases[i].hash, "SHA-256 of %zu bytes", strlen(cases[i].text));
    }
    int bad = 0;
    memset(text, 'x', sizeof text);
    for (size_t n = 0; n <= sizeof text; n++) {
        sha256_init(&s);
        sha256_add(&s, text, n);
        sha256_end_hex(&s, hash);
        sha256_init(&s);
        for (size_t at = 0; at < n; at += 7)
            sha256_add(&s, text + at, n - at < 7 ? n - at : 7);
        sha256_end_hex(&s, pieces);
        bad += strcmp(hash, pieces) != 0;
    }
    is_int(bad, 0, "pieces give what the whole gives");
}

static void check_facts(const unsigned char *image, size_t n)
{
    struct cubin c;
    struct err err;
    is_int(cubin_read(&c, "cases", image, n, &err), 0, "a cubin is read");
    is_int(c.arch, 90, "its architecture");
    is_int(c.n, 6, "its kernels");
    is_str(c.hash, "3ccfd742f4265c4fac7b253183fb59a334e8a6ef042c49ac3a645bb296c43727",
           "the hash of the image");
    const struct cubin_kernel *k = cubin_find(&c, "_Z6sharedPf");
    is_int(k ? k->registers : 0, 10, "registers");
    is_int(k ? k->static_smem : 0, 1024, "static shared memory, as the driver counts it");
    is_int(k ? k->stack : -1, 0, "stack");
    k = cubin_find(&c, "_Z9clusteredPf");
    is_int(k ? k->cluster[0] : 0, 2, "a cluster that is compiled in");
    ok(!cubin_find(&c, "_Z6shared"), "a name that is none");
    cubin_free(&c);
}

/* Two kernels that differ in one constant; and one byte of code, of a name, of nothing. */
static void check_hashes(unsigned char *image, size_t n)
{
    struct cubin a, b;
    struct err err;
    cubin_read(&a, "plain", image, n, &err);
    ok(a.n == 2 && strcmp(a.kernels[0].code_hash, a.kernels[1].code_hash) != 0,
       "kernels that differ in a constant have different hashes");
    /* The last instruction of one: .text sections are aligned, and the first holds `other`. */
    unsigned char *code = NULL;
    for (size_t i = 0; i + 16 < n && !code; i += 16)
        if (image[i] == 0x4d && image[i + 1] == 0x79) /* EXIT */
            code = image + i;
    if (!ok(code != NULL, "there is an EXIT instruction"))
        return;
    code[8] ^= 1;
    cubin_read(&b, "plain", image, n, &err);
    code[8] ^= 1;
    int changed = 0;
    for (int i = 0; i < 2 && b.n == 2; i++)
        changed += strcmp(a.kernels[i].code_hash, b.kernels[i].code_hash) != 0;
    is_int(changed, 1, "a changed instruction changes its kernel's hash, and no other");
    cubin_free(&a);
    cubin_free(&b);
}

/* Whatever is torn: no crash, and a message where it is refused. */
static void check_torn(const unsigned char *image, size_t n)
{
    unsigned char *copy = malloc(n);
    struct cubin c;
    struct err err;
    uint32_t random = 1;
    int silent = 0;
    for (size_t cut = 0; cut < n; cut += 13) {
        memcpy(copy, image, cut);
        unsigned char *exact = malloc(cut + 1); /* so that a sanitizer sees reads beyond */
        memcpy(exact, image, cut);
        err.text[0] = 0;
        silent += cubin_read(&c, "cut", exact, cut, &err) && !err.text[0];
        cubin_free(&c);
        free(exact);
    }
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, image, n);
        for (int k = 0; k < 4; k++) {
            random = random * 1664525 + 1013904223;
            copy[(random >> 8) % (k ? n : 64)] = (unsigned char)(random >> 3);
        }
        err.text[0] = 0;
        silent += cubin_read(&c, "torn", copy, n, &err) && !err.text[0];
        cubin_free(&c);
    }
    is_int(silent, 0, "torn images are read as far as they go, or refused with a reason");
    free(copy);
}

static void put(unsigned char *at, uint64_t value, size_t n)
{
    memcpy(at, &value, n);
}

/* A container with one image, packed or not; returns its size. */
static size_t make_fatbin(unsigned char *out, int arch, uint64_t flags, const void *bytes, size_t n,
                          size_t unpacked)
{
    size_t payload = (n + 7) & ~(size_t)7;
    memset(out, 0, 80 + payload);
    put(out, 0xba55ed50, 4);
    put(out + 4, 1, 2);
    put(out + 6, 16, 2);
    put(out + 8, 64 + payload, 8);
    put(out + 16, FATBIN_CUBIN, 2);
    put(out + 20, 64, 4);
    put(out + 24, payload, 8);
    put(out + 32, unpacked ? n : 0, 4);
    put(out + 44, (uint64_t)arch, 4);
    put(out + 56, flags, 8);
    put(out + 72, unpacked, 8);
    memcpy(out + 80, bytes, n);
    return 80 + payload;
}

static void check_fatbin(const unsigned char *image, size_t n)
{
    /* "abcabcabcabc......x": a run of three literals, a copy of 9 that overlaps itself, literals.
     */
    static const unsigned char lz4[] = {0x35, 'a', 'b', 'c', 3, 0, 0x10, 'x'};
    unsigned char *fat = malloc(2 * n + 400), *plain;
    struct fatbin_image i;
    struct err err;
    size_t size = make_fatbin(fat, 80, 0, image, n, 0), at = 0, n_plain;
    size += make_fatbin(fat + size, 90, 0x2000, lz4, sizeof lz4, 13);
    is_int(fatbin_next(fat, size, &at, &i) && i.arch == 80 && i.n_bytes >= n, 1, "the first image");
    is_int(fatbin_unpack(&i, &plain, &n_plain, &err) || memcmp(plain, image, n), 0, "its bytes");
    free(plain);
    is_int(fatbin_next(fat, size, &at, &i) && i.arch == 90, 1, "an image of the next container");
    int rc = fatbin_unpack(&i, &plain, &n_plain, &err);
    ok(!rc && n_plain == 13 && !memcmp(plain, "abcabcabcabcx", 13), "unpacked from LZ4");
    if (!rc)
        free(plain);
    is_int(fatbin_next(fat, size, &at, &i), 0, "and no more");
    i.n_unpacked = 12;
    is_int(fatbin_unpack(&i, &plain, &n_plain, &err), -1, "a size that is not right is refused");
    is_int(fatbin_of_pointer(fat, &n_plain) == fat && n_plain,
           (long)(80 + ((n + 7) & ~(size_t)7)) > 0, "a pointer to a container");
    fatbin_of_pointer(image, &n_plain);
    is_int((long)n_plain, (long)n, "a pointer to a cubin stands for all of it");
    fatbin_of_pointer(".version 8.0\n.target sm_90", &n_plain);
    is_int((long)n_plain, 0, "text is none");
    free(fat);
}

int main(void)
{
    size_t n, n_plain;
    unsigned char *cases = read_file("cases.cubin", &n),
                  *plain = read_file("plain.cubin", &n_plain);
    check_sha256();
    check_facts(cases, n);
    check_hashes(plain, n_plain);
    check_torn(plain, n_plain);
    check_torn(cases, n);
    check_fatbin(plain, n_plain);
    free(cases);
    free(plain);
    return tap_done();
}
