/* Messages of the probe: one line each, to stderr, a file, or nowhere; never to stdout. Printed
 * only when something went wrong, or when asked for. The writer has no stderr of its own (files.h):
 * its lines wait until a thread of the host passes by. */
#ifndef NEARTIE_SHIM_LOG_H
#define NEARTIE_SHIM_LOG_H

#include <stdbool.h>

/* Set where messages go: "stderr", "off", or a file's path, which is appended to; asked: somebody
 * wants to read what is not trouble, too. */
void log_set(const char *target, bool asked);

/* The calling thread has no stderr: keep its lines for log_flush. */
void log_keep(void);

/* Write "libprobe: MESSAGE" and a line end in one write. */
__attribute__((format(printf, 1, 2))) void log_line(const char *fmt, ...);

/* The same for what is worth knowing but no trouble: only where it was asked for. */
__attribute__((format(printf, 1, 2))) void log_info(const char *fmt, ...);

/* Write the lines that wait; one atomic load where there are none. */
void log_flush(void);

#endif
