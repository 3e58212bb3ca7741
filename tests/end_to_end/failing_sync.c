/* fsync and fdatasync that fail with EIO for files whose path contains a pattern.
 *
 * Preloaded into every broker of a test. FAILING_SYNC_TRIGGER names a file; once it exists, its
 * content is the pattern. Paths without the pattern are synced as ever.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file)
{
    const char *trigger = getenv("FAILING_SYNC_TRIGGER");
    char pattern[512], link[64], path[4096];
    int descriptor = trigger == NULL ? -1 : open(trigger, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    ssize_t length = read(descriptor, pattern, sizeof pattern - 1);
    close(descriptor);
    if (length <= 0)
        return 0;
    pattern[length] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return strstr(path, pattern) != NULL;
}

int fdatasync(int file)
{
    static int (*next)(int);
    if (next == NULL)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (fails(file)) {
        errno = EIO;
        return -1;
    }
    return next(file);
}

int fsync(int file)
{
    static int (*next)(int);
    if (next == NULL)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (fails(file)) {
        errno = EIO;
        return -1;
    }
    return next(file);
}
