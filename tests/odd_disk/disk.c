/* A disk that refuses what a test tells it to refuse, for every process that is started with it (LD_PRELOAD).
 *
 * AICRUN_TEST_DISK names a folder. Its file `root` holds the folder whose files are meant; a file `errno` in it holds
 * the number that every change below that folder ends with while it is there (EROFS, EDQUOT, EIO, ...); into a file
 * `journal`, when it is there, one line is written for each change that was made: what, path, second path.
 * Nothing is changed outside of `root`, and reading always works: as on a disk that was remounted read-only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_write)(int, const void *, size_t);

static void bind(void) {
    if (real_open) return;
    real_read = dlsym(RTLD_NEXT, "read");
    real_write = dlsym(RTLD_NEXT, "write");
    real_open = dlsym(RTLD_NEXT, "open64");
}

static int slurp(const char *name, char *into, size_t size) {
    const char *folder = getenv("AICRUN_TEST_DISK");
    char path[PATH_MAX];
    if (!folder) return 0;
    bind();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int saved = errno, handle = real_open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0) { errno = saved; return 0; }
    ssize_t got = real_read(handle, into, size - 1);
    close(handle);
    errno = saved;
    into[got > 0 ? got : 0] = 0;
    into[strcspn(into, "\n")] = 0;
    return 1;
}

/* True for what lies below the root; the path of a descriptor comes from /proc. */
static int ours(const char *path) {
    char root[PATH_MAX];
    return path && slurp("root", root, sizeof root) && root[0] && !strncmp(path, root, strlen(root));
}

static const char *path_of(int handle, char *into, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    int saved = errno;
    ssize_t got = readlink(link, into, size - 1);
    errno = saved;
    if (got <= 0) return NULL;
    into[got] = 0;
    return into;
}

/* The number to fail with, 0 to go on. */
static int refused(const char *path) {
    char number[32];
    if (!ours(path) || !slurp("errno", number, sizeof number)) return 0;
    return atoi(number);
}

static void journal(const char *what, const char *one, const char *two) {
    const char *folder = getenv("AICRUN_TEST_DISK");
    char path[PATH_MAX], line[3 * PATH_MAX];
    if (!folder || !ours(one)) return;
    snprintf(path, sizeof path, "%s/journal", folder);
    int saved = errno, handle = real_open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (handle >= 0) {
        int size = snprintf(line, sizeof line, "%d\t%s\t%s\t%s\n", (int)getpid(), what, one, two ? two : "");
        if (real_write(handle, line, (size_t)size) < 0) { /* a test's own disk */ }
        close(handle);
    }
    errno = saved;
}

#define REFUSE(path) do { bind(); int no_ = refused(path); if (no_) { errno = no_; return -1; } } while (0)

static int opened(const char *path, int flags, mode_t mode) {
    if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) REFUSE(path);
    bind();
    return real_open(path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = (mode_t)va_arg(rest, int); va_end(rest); \
        return opened(path, flags, mode); }
OPEN(open)
OPEN(open64)

ssize_t write(int handle, const void *data, size_t size) {
    char buffer[PATH_MAX];
    const char *path = handle > 2 ? path_of(handle, buffer, sizeof buffer) : NULL;
    REFUSE(path);
    ssize_t done = real_write(handle, data, size);
    if (done >= 0 && path) journal("write", path, NULL);
    return done;
}

#define PWRITE(name, offset_type) \
    ssize_t name(int handle, const void *data, size_t size, offset_type at) { \
        static ssize_t (*real)(int, const void *, size_t, offset_type); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        char buffer[PATH_MAX]; const char *path = path_of(handle, buffer, sizeof buffer); \
        REFUSE(path); \
        ssize_t done = real(handle, data, size, at); \
        if (done >= 0) journal("write", path, NULL); \
        return done; }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define ON_HANDLE(name, what, proto, args) \
    int name proto { \
        static int (*real) proto; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        char buffer[PATH_MAX]; const char *path = path_of(handle, buffer, sizeof buffer); \
        REFUSE(path); \
        int done = real args; \
        if (!done) journal(what, path, NULL); \
        return done; }
ON_HANDLE(fsync, "fsync", (int handle), (handle))
ON_HANDLE(ftruncate, "truncate", (int handle, off_t size), (handle, size))
ON_HANDLE(ftruncate64, "truncate", (int handle, off64_t size), (handle, size))

/* posix_fallocate tells its number instead of setting errno. */
#define FALLOCATE(name, offset_type) \
    int name(int handle, offset_type from, offset_type size) { \
        static int (*real)(int, offset_type, offset_type); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        char buffer[PATH_MAX]; bind(); \
        int no = refused(path_of(handle, buffer, sizeof buffer)); \
        return no ? no : real(handle, from, size); }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

#define ON_PATHS(name, what, proto, args, one, two) \
    int name proto { \
        static int (*real) proto; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        REFUSE(one); \
        int done = real args; \
        if (!done) journal(what, one, two); \
        return done; }
ON_PATHS(rename, "rename", (const char *from, const char *to), (from, to), from, to)
ON_PATHS(link, "link", (const char *from, const char *to), (from, to), from, to)
ON_PATHS(unlink, "unlink", (const char *path), (path), path, NULL)
ON_PATHS(rmdir, "rmdir", (const char *path), (path), path, NULL)
ON_PATHS(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode), path, NULL)
