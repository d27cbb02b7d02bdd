#include "config.h"

#include "collector/plot.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

bool plot_available(void)
{
    const char *path = getenv("PATH");
    char *list = xstrdup(path ? path : ""), *save = NULL;
    bool found = false;
    for (char *dir = strtok_r(list, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save)) {
        char *program = NULL;
        if (asprintf(&program, "%s/gnuplot", dir) < 0)
            break;
        found = !access(program, X_OK);
        free(program);
    }
    free(list);
    return found;
}

int plot_begin(struct plot *plot, const char *name, struct err *err)
{
    plot->name = name;
    plot->script = tmpfile();
    if (!plot->script)
        return err_set(err, "a plot's script: %s", strerror(errno));
    fputs("set term svg size 560,290 dynamic enhanced font 'sans-serif,13'\n"
          "set border 3\nset tics nomirror out\nset key top right reverse Left samplen 1.5\n"
          "set style fill solid 0.6 noborder\n",
          plot->script);
    return 0;
}

/* Run gnuplot on the script, with its output into a file. */
static int run_gnuplot(FILE *script, FILE *out, FILE *messages, int *status, struct err *err)
{
    static char *const argv[] = {"gnuplot", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(messages), STDERR_FILENO);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return err_set(err, "gnuplot: %s", strerror(rc));
    while (waitpid(pid, status, 0) < 0)
        if (errno != EINTR)
            return err_set(err, "gnuplot: %s", strerror(errno));
    return 0;
}

/* A file's text, to be freed. */
static char *read_all(FILE *in)
{
    char *text = NULL;
    size_t size = 0, n = 0, got;
    rewind(in);
    do {
        size += 65536;
        text = xrealloc(text, size + 1, 1);
        n += got = fread(text + n, 1, size - n, in);
    } while (n == size);
    text[n] = '\0';
    (void)got;
    return text;
}

/* The svg element alone, without gnuplot's title, and with the plot's name before each name inside,
 * so that a page can hold several. */
static char *own_names(const char *svg, const char *name)
{
    static const char *const places[] = {"id=\"", "id='", "href=\"#", "href='#", "url(#"};
    char *text = NULL;
    size_t size;
    const char *p = strstr(svg, "<svg");
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    while (p && *p) {
        size_t n = 1;
        bool place = false;
        if (!strncmp(p, "<title>", 7) && strstr(p, "</title>"))
            p = strstr(p, "</title>") + 8;
        for (size_t i = 0; i < sizeof places / sizeof *places && !place; i++)
            if (!strncmp(p, places[i], strlen(places[i]))) {
                n = strlen(places[i]);
                place = true;
            }
        fwrite(p, 1, n, out);
        if (place)
            fprintf(out, "%s-", name);
        p += n;
    }
    fclose(out);
    return text;
}

int plot_end(struct plot *plot, char **svg, struct err *err)
{
    FILE *out = tmpfile(), *messages = tmpfile();
    int status = 0, rc = -1;
    *svg = NULL;
    if (!out || !messages || fflush(plot->script)) {
        err_set(err, "a plot's files: %s", strerror(errno));
        goto done;
    }
    rewind(plot->script);
    if (run_gnuplot(plot->script, out, messages, &status, err))
        goto done;
    char *text = read_all(out), *words = read_all(messages);
    if (status == 0 && strstr(text, "</svg>")) {
        *svg = own_names(text, plot->name);
        rc = 0;
    } else {
        words[strcspn(words, "\n")] = '\0';
        err_set(err, "gnuplot: plot %s: exit status %d: %.200s", plot->name,
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), words);
    }
    free(text);
    free(words);
done:
    if (out)
        fclose(out);
    if (messages)
        fclose(messages);
    fclose(plot->script);
    return rc;
}
