/* A wall clock of its own, in front of the C library: the file that AICRUN_TEST_CLOCK names holds how many seconds it
 * is ahead, and may change at any time. The kernel's own times (files, processes, the boot) stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = {0};
    const char *path = getenv("AICRUN_TEST_CLOCK");
    int handle = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (handle < 0) return 0;
    if (read(handle, text, sizeof text - 1) < 0) text[0] = 0;
    close(handle);
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, found);
    if (!code && which == CLOCK_REALTIME) found->tv_sec += ahead();
    return code;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}
