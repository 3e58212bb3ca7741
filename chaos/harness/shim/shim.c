/* Disk and clock faults of one broker, preloaded into its process (LD_PRELOAD).
 *
 * CHAOS_FAULTS_BELOW     the data directory: only files below it are affected
 * CHAOS_FAULTS_CONTROL   a file of sizeof(struct control) bytes, mapped here and by shim.py, which
 *                          changes the faults while the process runs
 *
 * Without an active fault a call costs one load from that mapping. Every call that a fault changes adds one
 * to a counter of the mapping, so the harness can prove that the fault had an effect.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "the 64-bit names of calls are aliases here");

/* The layout is that of ``_FIELDS`` in shim.py: 64-bit words, then the pattern. */
struct control {
    volatile int64_t slow_ms;
    volatile int64_t full;
    volatile int64_t failing_sync; /* set after the pattern, cleared before it changes */
    volatile int64_t lying_sync;
    volatile int64_t failing_read; /* as failing_sync, with the same pattern */
    volatile int64_t clock_offset_ms;
    volatile int64_t read_only;
    uint64_t slowed;
    uint64_t refused_writes;
    uint64_t failed_syncs;
    uint64_t lied_syncs;
    uint64_t failed_reads;
    uint64_t refused_descriptors;
    uint64_t moved_clock_reads;
    uint64_t refused_changes;
    char pattern[512];
};

static struct control none; /* until the mapping is there, and in processes without one */
static struct control *faults = &none;
static char own_name[4096], below[4097]; /* the data directory, without and with a slash at its end */

__attribute__((constructor)) static void map_control(void)
{
    const char *directory = getenv("CHAOS_FAULTS_BELOW");
    const char *path = getenv("CHAOS_FAULTS_CONTROL");
    if (directory == NULL || path == NULL || strlen(directory) >= sizeof own_name)
        return;
    strcpy(own_name, directory);
    snprintf(below, sizeof below, "%s/", own_name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        faults = mapped;
}

#define COUNT(counter) __atomic_fetch_add(&faults->counter, 1, __ATOMIC_RELAXED)

/* The function that would have been called without this library. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (next == NULL)                                                                                                  \
        *(void **)&next = dlsym(RTLD_NEXT, #name)

/* Whether the path of this file or directory is the data directory or below it. */
static int path_is_affected(const char *path)
{
    size_t length = strlen(below); /* of "directory/" */
    return length > 0 && (strncmp(path, below, length) == 0 || strcmp(path, own_name) == 0);
}

static int is_affected(int file, char *path, size_t size)
{
    char link[64];
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, size - 1);
    errno = error;
    if (length <= 0)
        return 0;
    path[length] = 0;
    return path_is_affected(path);
}

static void wait_for_disk(void)
{
    int64_t ms = faults->slow_ms;
    if (ms <= 0)
        return;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    COUNT(slowed);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* A file system that the kernel has remounted read-only after an error. */
static int is_read_only(void)
{
    COUNT(refused_changes);
    errno = EROFS;
    return -1;
}

/* Called before a name is made, changed or removed; -1 = failure with errno. */
static int before_change(const char *path)
{
    return faults->read_only && path_is_affected(path) ? is_read_only() : 0;
}

/* What a sync does: 1 = the disk's own sync, 0 = nothing and success, -1 = failure with errno. */
static int sync_outcome(int file)
{
    char path[4096];
    int is_active = faults->slow_ms || faults->failing_sync || faults->lying_sync || faults->read_only;
    if (!is_active || !is_affected(file, path, sizeof path))
        return 1;
    wait_for_disk();
    if (faults->read_only)
        return is_read_only();
    if (faults->failing_sync && strstr(path, faults->pattern) != NULL) {
        COUNT(failed_syncs);
        errno = EIO;
        return -1;
    }
    if (faults->lying_sync) {
        COUNT(lied_syncs);
        return 0;
    }
    return 1;
}

#define SYNC(name)                                                                                                     \
    int name(int file)                                                                                                 \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        int outcome = sync_outcome(file);                                                                              \
        return outcome == 1 ? next(file) : outcome;                                                                    \
    }
SYNC(fsync)
SYNC(fdatasync)

/* While syncs have a fault the kernel takes none: brokers then call fdatasync, which has it. */
long syscall(long number, ...)
{
    NEXT(syscall);
    long argument[6];
    va_list given;
    va_start(given, number);
    for (int place = 0; place < 6; place++)
        argument[place] = va_arg(given, long);
    va_end(given);
    if (number == SYS_io_submit
        && (faults->slow_ms || faults->failing_sync || faults->lying_sync || faults->read_only)) {
        errno = EAGAIN;
        return -1;
    }
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

/* Called before bytes up to ``end`` are written (-1: from the current position); -1 = failure with errno. */
static int before_write(int file, off_t end, size_t length)
{
    char path[4096];
    struct stat found;
    if ((!faults->slow_ms && !faults->full && !faults->read_only) || !is_affected(file, path, sizeof path))
        return 0;
    wait_for_disk();
    if (faults->read_only)
        return is_read_only();
    if (!faults->full || fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        return 0;
    if (end < 0) {
        int appends = fcntl(file, F_GETFL) & O_APPEND;
        end = (appends ? found.st_size : lseek(file, 0, SEEK_CUR)) + (off_t)length;
    }
    if (end <= found.st_size)
        return 0;
    COUNT(refused_writes);
    errno = ENOSPC;
    return -1;
}

static size_t total(const struct iovec *parts, int how_many)
{
    size_t sum = 0;
    for (int part = 0; part < how_many; part++)
        sum += parts[part].iov_len;
    return sum;
}

ssize_t write(int file, const void *data, size_t length)
{
    NEXT(write);
    return before_write(file, -1, length) ? -1 : next(file, data, length);
}

ssize_t writev(int file, const struct iovec *parts, int how_many)
{
    NEXT(writev);
    return before_write(file, -1, total(parts, how_many)) ? -1 : next(file, parts, how_many);
}

#define POSITIONED_WRITE(name)                                                                                         \
    ssize_t name(int file, const void *data, size_t length, off_t at)                                                  \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_write(file, at + (off_t)length, length) ? -1 : next(file, data, length, at);                     \
    }
POSITIONED_WRITE(pwrite)
POSITIONED_WRITE(pwrite64)

#define POSITIONED_WRITEV(name)                                                                                        \
    ssize_t name(int file, const struct iovec *parts, int how_many, off_t at)                                          \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_write(file, at + (off_t)total(parts, how_many), 0) ? -1 : next(file, parts, how_many, at);       \
    }
POSITIONED_WRITEV(pwritev)
POSITIONED_WRITEV(pwritev64)

#define POSITIONED_WRITEV2(name)                                                                                       \
    ssize_t name(int file, const struct iovec *parts, int how_many, off_t at, int flags)                               \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        off_t end = at < 0 ? -1 : at + (off_t)total(parts, how_many);                                                  \
        return before_write(file, end, total(parts, how_many)) ? -1 : next(file, parts, how_many, at, flags);          \
    }
POSITIONED_WRITEV2(pwritev2)
POSITIONED_WRITEV2(pwritev64v2) /* what os.pwritev of CPython calls */

/* Called before bytes are read; -1 = failure with errno. What is mapped into memory is not read by a call. */
static int before_read(int file)
{
    char path[4096];
    struct stat found;
    if (!faults->failing_read || !is_affected(file, path, sizeof path) || strstr(path, faults->pattern) == NULL)
        return 0;
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        return 0;
    COUNT(failed_reads);
    errno = EIO;
    return -1;
}

ssize_t read(int file, void *data, size_t length)
{
    NEXT(read);
    return before_read(file) ? -1 : next(file, data, length);
}

ssize_t readv(int file, const struct iovec *parts, int how_many)
{
    NEXT(readv);
    return before_read(file) ? -1 : next(file, parts, how_many);
}

#define POSITIONED_READ(name)                                                                                          \
    ssize_t name(int file, void *data, size_t length, off_t at)                                                        \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_read(file) ? -1 : next(file, data, length, at);                                                  \
    }
POSITIONED_READ(pread)
POSITIONED_READ(pread64)

#define POSITIONED_READV(name)                                                                                         \
    ssize_t name(int file, const struct iovec *parts, int how_many, off_t at)                                          \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_read(file) ? -1 : next(file, parts, how_many, at);                                               \
    }
POSITIONED_READV(preadv)
POSITIONED_READV(preadv64)

#define POSITIONED_READV2(name)                                                                                        \
    ssize_t name(int file, const struct iovec *parts, int how_many, off_t at, int flags)                               \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_read(file) ? -1 : next(file, parts, how_many, at, flags);                                        \
    }
POSITIONED_READV2(preadv2)
POSITIONED_READV2(preadv64v2) /* what os.preadv of CPython calls */

/* The limit of open descriptors is that of the kernel; the calls that it refuses are counted. */
static int counted(int outcome)
{
    if (outcome < 0 && errno == EMFILE)
        COUNT(refused_descriptors);
    return outcome;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = va_arg(rest, mode_t); /* meant only where a file may be made */                                  \
        va_end(rest);                                                                                                  \
        if (((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC)) && before_change(path))                   \
            return -1;                                                                                                 \
        return counted(next(path, flags, mode));                                                                       \
    }
OPEN(open)
OPEN(open64)

int accept4(int file, struct sockaddr *restrict address, socklen_t *restrict length, int flags)
{
    NEXT(accept4);
    return counted(next(file, address, length, flags));
}

int socket(int domain, int type, int protocol)
{
    NEXT(socket);
    return counted(next(domain, type, protocol));
}

#define CHANGE(name, path, parameters, ...)                                                                            \
    int name parameters                                                                                                \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return before_change(path) ? -1 : next(__VA_ARGS__);                                                           \
    }
CHANGE(mkdir, path, (const char *path, mode_t mode), path, mode)
CHANGE(unlink, path, (const char *path), path)
CHANGE(rmdir, path, (const char *path), path)
CHANGE(rename, to, (const char *from, const char *to), from, to)
CHANGE(link, to, (const char *from, const char *to), from, to)

#define TRUNCATE(name)                                                                                                 \
    int name(int file, off_t length)                                                                                   \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        char path[4096];                                                                                               \
        if (faults->read_only && is_affected(file, path, sizeof path))                                                 \
            return is_read_only();                                                                                     \
        return next(file, length);                                                                                     \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

/* A full disk says so when it is asked, too. */
#define STATVFS(name)                                                                                                  \
    int name(const char *path, struct name *found)                                                                     \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        char real[4096];                                                                                               \
        int outcome = next(path, found);                                                                               \
        if (outcome == 0 && faults->full && realpath(path, real) != NULL && path_is_affected(real))                    \
            found->f_bavail = found->f_bfree = 0;                                                                      \
        return outcome;                                                                                                \
    }
STATVFS(statvfs)
STATVFS(statvfs64)

/* The wall clock: time.time() calls clock_gettime, C libraries also gettimeofday and time. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    NEXT(clock_gettime);
    int outcome = next(clock, now);
    int64_t ms = faults->clock_offset_ms;
    if (ms == 0 || outcome != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return outcome;
    int64_t ns = now->tv_nsec + ms % 1000 * 1000000; /* between -1 and 2 seconds */
    int64_t carry = ns < 0 ? -1 : ns / 1000000000;
    now->tv_sec += ms / 1000 + carry;
    now->tv_nsec = ns - carry * 1000000000;
    COUNT(moved_clock_reads);
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now != NULL)
        *now = found.tv_sec;
    return found.tv_sec;
}
