/* The libllama of a call that was wrapped. Several may be loaded, each for a part of the program
 * alone: whose context it is tells, else the code that calls, else there is one only. Any thread.
 */
#ifndef NEARTIE_SHIM_LLAMA_LIB_H
#define NEARTIE_SHIM_LLAMA_LIB_H

#include <stdatomic.h>

#include "shim/llama_abi.h"

struct llama_lib {
#define LLAMA_MEMBER(needed, type, name, parameters) type(*name) parameters;
    LLAMA_WRAPPED(LLAMA_MEMBER)
    LLAMA_CALLED(LLAMA_MEMBER) /* NULL: it has none of this name */
#undef LLAMA_MEMBER
    char refused[96];   /* why it is not recorded; "" = it is one that we know */
    _Atomic bool noted; /* that it was refused */
    _Atomic int choice; /* whether samplers say what they chose: 0 not tried, 1 no, 2 yes */
};

/* The library that the code at an address would call without us, with an object of the library's or
 * NULL; NULL: there is none. */
struct llama_lib *llama_lib_of(const void *caller, const void *object);

/* The library of the function that the macro stands in. */
#define LLAMA_LIB(object) llama_lib_of(__builtin_return_address(0), object)

/* A context, memory or model was made by a library, or is gone. */
void llama_lib_own(struct llama_lib *lib, const void *object);
void llama_lib_disown(const void *object);

/* Whether a library besides the first was asked for by dlsym, since this was asked last. */
bool llama_lib_missed(void);

/* What dlsym shall give in place of a function of a libllama; NULL: what it gives by itself. */
void *llama_lib_wrapper(void *handle, const char *name);

/* The wrappers, which are the process's own functions of these names. */
#define LLAMA_DECLARE(needed, type, name, parameters)                                              \
    __attribute__((visibility("default"))) type name parameters;
LLAMA_WRAPPED(LLAMA_DECLARE)
#undef LLAMA_DECLARE

#endif
