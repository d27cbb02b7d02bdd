#include "config.h"

#include "collector/pdf.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Returns the exit status, or -1 where the program does not exist. */
static int run(char *const argv[])
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status == 127 ? -1 : status;
}

int pdf_convert(const char *html, const char *pdf, struct err *err)
{
    static const char *const browsers[] = {"chromium", "chromium-browser", "google-chrome"};
    static const char *const others[] = {"weasyprint", "wkhtmltopdf"};
    char *print = NULL;
    int status = -1;
    if (asprintf(&print, "--print-to-pdf=%s", pdf) < 0)
        return err_set(err, "%s: %s", pdf, strerror(errno));
    for (size_t i = 0; i < sizeof browsers / sizeof *browsers && status < 0; i++) {
        char *argv[] = {(char *)browsers[i],
                        "--headless",
                        "--disable-gpu",
                        "--no-pdf-header-footer",
                        print,
                        (char *)html,
                        geteuid() ? NULL : "--no-sandbox",
                        NULL};
        status = run(argv);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others && status < 0; i++)
        status = run((char *[]){(char *)others[i], (char *)html, (char *)pdf, NULL});
    free(print);
    if (status < 0)
        return err_set(err, "%s: no converter: install chromium, weasyprint or wkhtmltopdf", pdf);
    if (status)
        return err_set(err, "%s: the converter ended with status %d", pdf, status);
    return access(pdf, R_OK) ? err_set(err, "%s: the converter wrote nothing", pdf) : 0;
}
