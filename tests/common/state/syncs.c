/* Loaded before a program's libraries: each fsync and fdatasync takes SYNC_TAKES_US more, and is written into the file
   SYNCS with the word "held" when its thread holds Python's global lock, "free" otherwise. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int note(const char *name, int file)
{
    int (*holds)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    const char *takes = getenv("SYNC_TAKES_US"), *into = getenv("SYNCS");
    char link[64], path[PATH_MAX] = "", line[PATH_MAX + 64];
    int (*call)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

    if (into) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length < 0 ? 0 : length] = 0;
        int size = snprintf(line, sizeof line, "%s %s\n", holds && holds() ? "held" : "free", path);
        int log = open(into, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (log < 0 || write(log, line, size) != size)
            abort();
        close(log);
    }
    if (takes)
        usleep(atoi(takes));
    return call(file);
}

int fsync(int file) { return note("fsync", file); }
int fdatasync(int file) { return note("fdatasync", file); }
