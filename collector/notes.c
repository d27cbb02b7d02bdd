#include "config.h"

#include "collector/notes.h"
#include "collector/xalloc.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char owner[] = "neartie";

/* Descriptor: address (8 bytes), then two NUL-terminated strings. Broken ones are passed over. */
static void add_note(struct notes *out, const char *desc, size_t size, uint32_t abi)
{
    struct note note = {.abi = abi};
    const char *hook = desc + sizeof note.address;
    const char *hook_end = size > sizeof note.address ? memchr(hook, 0, size - 8) : NULL;
    const char *place = hook_end ? hook_end + 1 : NULL;
    if (!place || !memchr(place, 0, (size_t)(desc + size - place)))
        return;
    memcpy(&note.address, desc, sizeof note.address);
    note.hook = xstrdup(hook);
    note.place = xstrdup(place);
    out->list = xrealloc(out->list, out->n + 1, sizeof *out->list);
    out->list[out->n++] = note;
}

static void set_build_id(struct notes *out, const unsigned char *desc, size_t size)
{
    if (size > (sizeof out->build_id - 1) / 2)
        size = (sizeof out->build_id - 1) / 2;
    for (size_t i = 0; i < size; i++)
        snprintf(out->build_id + 2 * i, 3, "%02x", desc[i]);
}

static bool is_owner(const GElf_Nhdr *head, const char *name, const char *wanted)
{
    return head->n_namesz == strlen(wanted) + 1 && !memcmp(name, wanted, head->n_namesz);
}

static void read_notes(Elf_Data *data, struct notes *out)
{
    GElf_Nhdr head;
    size_t at = 0, next, name_at, desc_at;
    while ((next = gelf_getnote(data, at, &head, &name_at, &desc_at)) > 0) {
        const char *name = (const char *)data->d_buf + name_at;
        const char *desc = (const char *)data->d_buf + desc_at;
        if (is_owner(&head, name, owner))
            add_note(out, desc, head.n_descsz, head.n_type);
        if (is_owner(&head, name, ELF_NOTE_GNU) && head.n_type == NT_GNU_BUILD_ID)
            set_build_id(out, (const unsigned char *)desc, head.n_descsz);
        at = next;
    }
}

static int read_sections(Elf *elf, const char *path, struct notes *out, struct err *err)
{
    Elf_Scn *section = NULL;
    if (elf_kind(elf) != ELF_K_ELF)
        return err_set(err, "%s: not an ELF file", path);
    while ((section = elf_nextscn(elf, section))) {
        GElf_Shdr head;
        Elf_Data *data;
        if (!gelf_getshdr(section, &head) || head.sh_type != SHT_NOTE)
            continue;
        data = elf_getdata(section, NULL);
        if (!data)
            return err_set(err, "%s: %s", path, elf_errmsg(-1));
        read_notes(data, out);
    }
    return 0;
}

int notes_read(const char *path, struct notes *out, struct err *err)
{
    struct stat st;
    Elf *elf = NULL;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out = (struct notes){0};
    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    if (!fstat(fd, &st) && S_ISDIR(st.st_mode))
        err_set(err, "%s: is a directory", path);
    else if (elf_version(EV_CURRENT) == EV_NONE || !(elf = elf_begin(fd, ELF_C_READ, NULL)))
        err_set(err, "%s: %s", path, elf_errmsg(-1));
    else
        rc = read_sections(elf, path, out, err);
    elf_end(elf);
    close(fd);
    if (rc)
        notes_free(out);
    return rc;
}

void notes_free(struct notes *notes)
{
    for (int i = 0; i < notes->n; i++) {
        free(notes->list[i].hook);
        free(notes->list[i].place);
    }
    free(notes->list);
    *notes = (struct notes){0};
}
