/* Why no library can be preloaded into a program: what the loader does not say. */
#ifndef NEARTIE_COLLECTOR_OBSTACLE_H
#define NEARTIE_COLLECTOR_OBSTACLE_H

/* The reason for a command, looked for in PATH as a shell would; NULL: none is known. */
const char *obstacle_of(const char *command);

#endif
