/* Hook sites of an ELF file, from the notes that shim/probe.h leaves (section .note.neartie, owner
 * "neartie"): what a program was built with, without running it. */
#ifndef NEARTIE_COLLECTOR_NOTES_H
#define NEARTIE_COLLECTOR_NOTES_H

#include "err.h"

#include <stdint.h>

struct note {
    char *hook;       /* member of the hook table, "logits" */
    char *place;      /* "file:line" */
    uint64_t address; /* of the site, as linked */
    uint32_t abi;     /* version of the hook ABI */
};

struct notes {
    struct note *list; /* (n) in file order */
    int n;
    char build_id[129]; /* lower-case hex, "" where there is none */
};

/* Read the notes of the ELF file at path. */
int notes_read(const char *path, struct notes *out, struct err *err);
void notes_free(struct notes *notes);

#endif
