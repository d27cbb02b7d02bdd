#include "config.h"

#include "sql/cubin.h"

#include <dlfcn.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCTIONS = 256, EM_CUBIN = 190, ENTRY = 0x10 /* in st_other: a kernel */ };

/* Attributes in .nv.info: the number, and how its value is given. */
enum {
    ATTR_MAX_THREADS = 0x05,
    ATTR_REQUIRED_THREADS = 0x10,
    ATTR_FRAME_SIZE = 0x11,
    ATTR_REGISTERS = 0x2f,
    ATTR_CLUSTER = 0x3d,
    FORM_NONE = 1,
    FORM_BYTE = 2,
    FORM_HALF = 3,
    FORM_SIZED = 4
};

#define ELF_FUNCTIONS(X)                                                                           \
    X(elf_version)                                                                                 \
    X(elf_memory)                                                                                  \
    X(elf_end)                                                                                     \
    X(elf_errmsg)                                                                                  \
    X(elf_getshdrnum)                                                                              \
    X(elf_getshdrstrndx)                                                                           \
    X(elf_getscn)                                                                                  \
    X(elf_ndxscn)                                                                                  \
    X(elf_nextscn)                                                                                 \
    X(elf_strptr)                                                                                  \
    X(elf_rawdata)                                                                                 \
    X(gelf_getehdr)                                                                                \
    X(gelf_getshdr)                                                                                \
    X(gelf_getsym)                                                                                 \
    X(gelf_getrel)                                                                                 \
    X(gelf_getrela)

#define DECLARE(name) __typeof__(name) *name;
static struct {
    ELF_FUNCTIONS(DECLARE)
} lib;

static int lib_open(struct err *err)
{
    static bool open;
    if (open)
        return 0;
    void *so = dlopen("libelf.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return err_set(err, "libelf.so.1: not found");
#define RESOLVE(name)                                                                              \
    if (!(*(void **)&lib.name = dlsym(so, #name)))                                                 \
        return err_set(err, "libelf.so.1 has no " #name);
    ELF_FUNCTIONS(RESOLVE)
    lib.elf_version(EV_CURRENT);
    open = true;
    return 0;
}

/* While an image is read. */
struct reader {
    const char *name;
    Elf *elf;
    size_t n_sections, strings; /* of section names */
    Elf_Scn *symbols;
    GElf_Shdr symbols_header;
    size_t n_symbols;
    int32_t *of_section; /* kernel of a .text section, by section; -1 = none */
    size_t *text_of;     /* (kernels) */
};

static const char *section_name(const struct reader *r, const GElf_Shdr *h)
{
    const char *name = lib.elf_strptr(r->elf, r->strings, h->sh_name);
    return name ? name : "";
}

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* The bytes of a section that has some in the file. */
static const void *section_bytes(Elf_Scn *scn, size_t *out_n)
{
    Elf_Data *data = scn ? lib.elf_rawdata(scn, NULL) : NULL;
    *out_n = data && data->d_buf ? data->d_size : 0;
    return *out_n ? data->d_buf : NULL;
}

static bool get_symbol(const struct reader *r, size_t i, GElf_Sym *out)
{
    Elf_Data *data = r->symbols ? lib.elf_rawdata(r->symbols, NULL) : NULL;
    return data && i < r->n_symbols && lib.gelf_getsym(data, (int)i, out);
}

static const char *symbol_name(const struct reader *r, const GElf_Sym *s)
{
    const char *name = lib.elf_strptr(r->elf, r->symbols_header.sh_link, s->st_name);
    return name ? name : "";
}

static bool is_kernel(const struct reader *r, const GElf_Sym *s)
{
    return GELF_ST_TYPE(s->st_info) == STT_FUNC && s->st_other & ENTRY && s->st_shndx &&
           s->st_shndx < r->n_sections;
}

static int open_image(struct reader *r, const void *image, size_t size, struct err *err)
{
    r->elf = lib.elf_memory((char *)(uintptr_t)image, size);
    GElf_Ehdr header;
    if (!r->elf || !lib.gelf_getehdr(r->elf, &header))
        return err_set(err, "%s: %s", r->name, lib.elf_errmsg(-1));
    if (header.e_machine != EM_CUBIN)
        return err_set(err, "%s: an ELF file of machine %d, a cubin is %d", r->name,
                       header.e_machine, EM_CUBIN);
    if (lib.elf_getshdrnum(r->elf, &r->n_sections) || lib.elf_getshdrstrndx(r->elf, &r->strings) ||
        !r->n_sections || r->n_sections > size / sizeof(Elf64_Shdr))
        return err_set(err, "%s: no sections, or more than the file has room for", r->name);
    for (Elf_Scn *scn = NULL; (scn = lib.elf_nextscn(r->elf, scn)) != NULL;)
        if (lib.gelf_getshdr(scn, &r->symbols_header) && r->symbols_header.sh_type == SHT_SYMTAB) {
            r->symbols = scn;
            break;
        }
    if (!r->symbols || r->symbols_header.sh_entsize != sizeof(Elf64_Sym))
        return err_set(err, "%s: no symbol table", r->name);
    size_t n_bytes;
    section_bytes(r->symbols, &n_bytes);
    r->n_symbols = n_bytes / sizeof(Elf64_Sym);
    return n_bytes <= size ? 0 : err_set(err, "%s: a symbol table larger than the file", r->name);
}

static int32_t read_arch(const struct reader *r)
{
    GElf_Ehdr header;
    lib.gelf_getehdr(r->elf, &header);
    /* The low byte up to CUDA 12's files, the next one since. */
    return header.e_ident[EI_ABIVERSION] >= 8 ? header.e_flags >> 8 & 255 : header.e_flags & 255;
}

/* Make an entry for every kernel. */
static int list_kernels(struct reader *r, struct cubin *out, struct err *err)
{
    GElf_Sym s;
    size_t n = 0;
    for (size_t i = 0; i < r->n_symbols; i++)
        n += get_symbol(r, i, &s) && is_kernel(r, &s);
    out->kernels = calloc(n + 1, sizeof *out->kernels);
    r->of_section = malloc(r->n_sections * sizeof *r->of_section);
    r->text_of = calloc(n + 1, sizeof *r->text_of);
    if (!out->kernels || !r->of_section || !r->text_of)
        return err_set(err, "%s: out of memory for %zu kernels", r->name, n);
    for (size_t i = 0; i < r->n_sections; i++)
        r->of_section[i] = -1;
    for (size_t i = 0; i < r->n_symbols && out->n < (int32_t)n; i++) {
        if (!get_symbol(r, i, &s) || !is_kernel(r, &s))
            continue;
        struct cubin_kernel *k = &out->kernels[out->n];
        k->registers = k->stack = k->max_threads = CUBIN_UNKNOWN;
        k->name = strdup(symbol_name(r, &s));
        if (!k->name)
            return err_set(err, "%s: out of memory for %zu kernels", r->name, n);
        r->text_of[out->n] = s.st_shndx;
        r->of_section[s.st_shndx] = out->n++;
    }
    return 0;
}

static uint32_t word(const unsigned char *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* One attribute; k is the kernel whose section it stands in, NULL for the image's own, where the
 * value names a symbol. */
static void take_attribute(const struct reader *r, struct cubin *out, struct cubin_kernel *k,
                           int number, const unsigned char *value, size_t n)
{
    GElf_Sym s;
    if (!k && n >= 8 && get_symbol(r, word(value), &s) && is_kernel(r, &s)) {
        struct cubin_kernel *of = &out->kernels[r->of_section[s.st_shndx]];
        if (number == ATTR_REGISTERS)
            of->registers = (int32_t)word(value + 4);
        if (number == ATTR_FRAME_SIZE)
            of->stack = (int32_t)word(value + 4);
    }
    if (!k || n < 12)
        return;
    if (number == ATTR_MAX_THREADS || number == ATTR_REQUIRED_THREADS)
        k->max_threads = (int32_t)(word(value) * word(value + 4) * word(value + 8));
    for (int i = 0; i < 3 && number == ATTR_CLUSTER; i++)
        k->cluster[i] = (int32_t)word(value + 4 * i);
}

static void read_attributes(const struct reader *r, struct cubin *out, struct cubin_kernel *k,
                            Elf_Scn *scn)
{
    size_t n, at = 0;
    const unsigned char *p = section_bytes(scn, &n);
    while (p && at + 4 <= n) {
        size_t bytes = p[at] == FORM_SIZED ? (size_t)(p[at + 2] | p[at + 3] << 8) : 0;
        if (p[at] < FORM_NONE || p[at] > FORM_SIZED || bytes > n - at - 4)
            return;
        take_attribute(r, out, k, p[at + 1], p + at + 4, bytes);
        at += 4 + bytes;
    }
}

/* The kernel that a section belongs to: its sh_info names the code. */
static struct cubin_kernel *kernel_of(const struct reader *r, struct cubin *out, const GElf_Shdr *h)
{
    int32_t i = h->sh_info < r->n_sections ? r->of_section[h->sh_info] : -1;
    return i < 0 ? NULL : &out->kernels[i];
}

static void read_sections(const struct reader *r, struct cubin *out)
{
    struct sha256 constants;
    GElf_Shdr h;
    bool any = false;
    sha256_init(&constants);
    for (Elf_Scn *scn = NULL; (scn = lib.elf_nextscn(r->elf, scn)) != NULL;) {
        if (!lib.gelf_getshdr(scn, &h))
            continue;
        const char *name = section_name(r, &h);
        struct cubin_kernel *k = kernel_of(r, out, &h);
        if (!strcmp(name, ".nv.info"))
            read_attributes(r, out, NULL, scn);
        else if (starts_with(name, ".nv.info.") && k)
            read_attributes(r, out, k, scn);
        else if (starts_with(name, ".nv.shared.") && k) {
            /* From Hopper on the section has 1,024 bytes more, which the system keeps. */
            int64_t reserved = out->arch >= 90 ? 1024 : 0;
            k->static_smem =
                (int32_t)((int64_t)h.sh_size > reserved ? (int64_t)h.sh_size - reserved : 0);
        } else if (starts_with(name, ".nv.constant3") || starts_with(name, ".nv.global.init")) {
            size_t n;
            const void *bytes = section_bytes(scn, &n);
            sha256_add(&constants, name, strlen(name) + 1);
            if (bytes)
                sha256_add(&constants, bytes, n);
            any = true;
        }
    }
    if (any)
        sha256_end_hex(&constants, out->const_hash);
}

static void add_number(struct sha256 *s, int64_t number)
{
    sha256_add(s, &number, sizeof number);
}

/* The sections whose code a kernel's hash covers: its own, and those it refers to. */
struct covered {
    int n;
    size_t section[MAX_FUNCTIONS];
};

static void cover(struct covered *c, size_t section)
{
    for (int i = 0; i < c->n; i++)
        if (c->section[i] == section)
            return;
    if (c->n < MAX_FUNCTIONS)
        c->section[c->n++] = section;
}

static void add_relocation(const struct reader *r, struct sha256 *s, struct covered *c,
                           const GElf_Rela *rel)
{
    GElf_Sym symbol;
    add_number(s, (int64_t)rel->r_offset);
    add_number(s, (int64_t)GELF_R_TYPE(rel->r_info));
    add_number(s, rel->r_addend);
    if (!get_symbol(r, GELF_R_SYM(rel->r_info), &symbol))
        return;
    const char *name = symbol_name(r, &symbol);
    sha256_add(s, name, strlen(name) + 1);
    if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx &&
        symbol.st_shndx < r->n_sections)
        cover(c, symbol.st_shndx);
}

static void add_relocations(const struct reader *r, struct sha256 *s, struct covered *c,
                            Elf_Scn *scn, const GElf_Shdr *h)
{
    Elf_Data *data = lib.elf_rawdata(scn, NULL);
    bool full = h->sh_type == SHT_RELA;
    size_t n = data && data->d_buf && h->sh_entsize ? data->d_size / h->sh_entsize : 0;
    for (size_t i = 0; i < n; i++) {
        GElf_Rela rela = {0};
        GElf_Rel rel;
        if (full && !lib.gelf_getrela(data, (int)i, &rela))
            return;
        if (!full && !lib.gelf_getrel(data, (int)i, &rel))
            return;
        if (!full)
            rela = (GElf_Rela){rel.r_offset, rel.r_info, 0};
        add_relocation(r, s, c, &rela);
    }
}

/* By section: the section of its relocations, or 0. */
static size_t *find_relocations(const struct reader *r)
{
    size_t *list = calloc(r->n_sections, sizeof *list);
    GElf_Shdr h;
    for (Elf_Scn *scn = NULL; list && (scn = lib.elf_nextscn(r->elf, scn)) != NULL;)
        if (lib.gelf_getshdr(scn, &h) && (h.sh_type == SHT_RELA || h.sh_type == SHT_REL) &&
            h.sh_info < r->n_sections && lib.elf_ndxscn(scn) < r->n_sections)
            list[h.sh_info] = lib.elf_ndxscn(scn);
    return list;
}

static void hash_kernel(const struct reader *r, const size_t *relocations, const struct cubin *c,
                        size_t text, struct cubin_kernel *k)
{
    struct covered covered = {1, {text}};
    struct sha256 s;
    GElf_Shdr h;
    sha256_init(&s);
    add_number(&s, c->arch);
    sha256_add(&s, k->name, strlen(k->name) + 1);
    for (int i = 0; i < covered.n; i++) {
        size_t n, section = covered.section[i];
        const void *code = section_bytes(lib.elf_getscn(r->elf, section), &n);
        add_number(&s, (int64_t)n);
        if (code)
            sha256_add(&s, code, n);
        Elf_Scn *rel = relocations[section] ? lib.elf_getscn(r->elf, relocations[section]) : NULL;
        if (rel && lib.gelf_getshdr(rel, &h))
            add_relocations(r, &s, &covered, rel, &h);
    }
    add_number(&s, k->registers);
    add_number(&s, k->stack);
    add_number(&s, k->static_smem);
    for (int i = 0; i < 3; i++)
        add_number(&s, k->cluster[i]);
    sha256_end_hex(&s, k->code_hash);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct cubin_kernel *)a)->name, ((const struct cubin_kernel *)b)->name);
}

int cubin_read(struct cubin *out, const char *name, const void *image, size_t size, struct err *err)
{
    struct reader r = {.name = name};
    struct sha256 whole;
    size_t *relocations = NULL;
    int rc = -1;
    *out = (struct cubin){.arch = CUBIN_UNKNOWN};
    sha256_init(&whole);
    sha256_add(&whole, image, size);
    sha256_end_hex(&whole, out->hash);
    if (lib_open(err) || open_image(&r, image, size, err))
        goto out;
    out->arch = read_arch(&r);
    if (list_kernels(&r, out, err))
        goto out;
    read_sections(&r, out);
    relocations = find_relocations(&r);
    if (!relocations) {
        err_set(err, "%s: out of memory for %zu sections", name, r.n_sections);
        goto out;
    }
    for (int32_t i = 0; i < out->n; i++)
        hash_kernel(&r, relocations, out, r.text_of[i], &out->kernels[i]);
    qsort(out->kernels, (size_t)out->n, sizeof *out->kernels, by_name);
    rc = 0;
out:
    free(relocations);
    free(r.of_section);
    free(r.text_of);
    if (r.elf)
        lib.elf_end(r.elf);
    return rc;
}

void cubin_free(struct cubin *c)
{
    for (int32_t i = 0; i < c->n; i++)
        free(c->kernels[i].name);
    free(c->kernels);
    c->kernels = NULL;
    c->n = 0;
}

const struct cubin_kernel *cubin_find(const struct cubin *c, const char *name)
{
    struct cubin_kernel key = {.name = (char *)(uintptr_t)name};
    return c->n ? bsearch(&key, c->kernels, (size_t)c->n, sizeof key, by_name) : NULL;
}
