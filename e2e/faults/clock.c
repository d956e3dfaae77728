/* A wrong clock for one process: preloaded into it, this shifts the time of day.
 *
 * E2E_CLOCK names a file of eight bytes: the seconds to add, which may change at any time. Only the
 * time of day is shifted, as when someone sets a machine's clock; the monotonic clock goes on. The
 * kernel waits by its own clock, so the absolute times of waits are shifted back. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* A time of a wait above this (the year 2001) is a time of day: no machine is up for so long. */
#define TIME_OF_DAY 1000000000

static const volatile int64_t *seconds;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("E2E_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) seconds = page;
    close(file);
}

static int64_t shift(void) { return seconds ? *seconds : 0; }

static int shifted(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

static struct timespec back(const struct timespec *until) {
    struct timespec real = *until;
    if (real.tv_sec > TIME_OF_DAY) real.tv_sec -= shift();
    return real;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && shifted(clock)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int failed = real(now, zone);
    if (!failed) now->tv_sec += shift();
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return clock_gettime(CLOCK_REALTIME, now) ? 0 : base;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static __typeof__(pthread_cond_timedwait) *real;
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* x86-64 has two */
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec by_kernel = back(until);
    return real(condition, mutex, &by_kernel);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
    REAL(cnd_timedwait);
    struct timespec by_kernel = back(until);
    return real(condition, mutex, &by_kernel);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    REAL(pthread_cond_clockwait);
    struct timespec by_kernel = back(until);
    return real(condition, mutex, clock, &by_kernel);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    REAL(sem_timedwait);
    struct timespec by_kernel = back(until);
    return real(semaphore, &by_kernel);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock,
                  const struct timespec *restrict until) {
    REAL(sem_clockwait);
    struct timespec by_kernel = back(until);
    return real(semaphore, clock, &by_kernel);
}
