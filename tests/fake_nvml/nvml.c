/* A driver library for tests: as much of NVML as the agent asks, told by a text file that is read at every call.
 *
 * The file is `nvml.state` in the folder of this library, so that loading the library is all that a test sets up and
 * a card can change while somebody looks. Lines, in MiB, percent, degrees and watts:
 *
 *   driver 570.124.06      cuda 12080         what the driver calls itself
 *   init 18                                   nvmlInit answers this code (9: not loaded, 18: versions differ)
 *   hang 3000                                 every call takes this many milliseconds
 *   answer FUNCTION 3                         this function answers this code for every card
 *   card GPU-uuid Some Model                  begins a card; the following lines are about it
 *     total 24564   used 120   reserved 300   utilization 7   temperature 41   power 90
 *     utilization 0 97 5                      the first, second and every later answer to one process
 *     mode 0   display 1   mig 0   capability 8 9   bus 00000000:01:00.0
 *     fails 15                                every question about this card answers this code (15: lost)
 *     holder PID compute 900                  a process on the card while it lives; its memory counts as used
 *   onto GPU-uuid PID compute 900             a holder of a card named before
 *     process PID graphics 40                 a row of the process table, whether or not that pid lives
 *
 * Without the file the driver is not loaded. Without `mig` the card does not know MIG, as consumer cards do not.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, MISSING = 6, TOO_SMALL = 7, NOT_LOADED = 9 };
enum { CARDS = 16, ROWS = 64, LOOKS = 8, TEXT = 96, VERSION_MISMATCH = 25 };

typedef unsigned long long bytes;
static const bytes mib = 1ULL << 20;

struct row { unsigned pid; int graphics; bytes mib; };
struct card {
    char uuid[TEXT], model[TEXT], bus[TEXT];
    bytes total, used, reserved;
    unsigned utilization[LOOKS], looks, temperature, power, mode, display;
    int mig, major, minor, fails, rows;
    struct row row[ROWS];
};
struct host { char driver[TEXT]; int cuda, init, refusal, cards; struct card card[CARDS]; };

static __thread struct host now;
static int users;
/* How often this process has asked for the utilization of each card. */
static unsigned looked[CARDS];

static void row_of(struct card *card, const char *words, int must_live) {
    struct row row = {0};
    char kind[16];
    if (card->rows == ROWS || sscanf(words, "%u %15s %llu", &row.pid, kind, &row.mib) != 3) return;
    if (must_live && kill((pid_t)row.pid, 0) != 0 && errno != EPERM) return;
    row.graphics = strcmp(kind, "graphics") == 0;
    if (must_live) card->used += row.mib;
    card->row[card->rows++] = row;
}

static void looks_of(struct card *card, const char *words) {
    char *rest = (char *)words;
    for (card->looks = 0; card->looks < LOOKS && *rest; card->looks++)
        card->utilization[card->looks] = (unsigned)strtoull(rest, &rest, 10);
}

static void about_card(struct card *card, const char *key, const char *words) {
    unsigned long long number = strtoull(words, 0, 10);
    if (!strcmp(key, "total")) card->total = number;
    else if (!strcmp(key, "used")) card->used += number;
    else if (!strcmp(key, "reserved")) card->reserved = number;
    else if (!strcmp(key, "utilization")) looks_of(card, words);
    else if (!strcmp(key, "temperature")) card->temperature = (unsigned)number;
    else if (!strcmp(key, "power")) card->power = (unsigned)number;
    else if (!strcmp(key, "mode")) card->mode = (unsigned)number;
    else if (!strcmp(key, "display")) card->display = (unsigned)number;
    else if (!strcmp(key, "mig")) card->mig = (int)number;
    else if (!strcmp(key, "fails")) card->fails = (int)number;
    else if (!strcmp(key, "bus")) snprintf(card->bus, TEXT, "%.95s", words);
    else if (!strcmp(key, "capability")) sscanf(words, "%d %d", &card->major, &card->minor);
    else if (!strcmp(key, "holder")) row_of(card, words, 1);
    else if (!strcmp(key, "process")) row_of(card, words, 0);
}

static void onto(const char *words) {
    for (int at = 0; at < now.cards; at++) {
        size_t length = strlen(now.card[at].uuid);
        if (!strncmp(words, now.card[at].uuid, length) && words[length] == ' ') row_of(&now.card[at], words + length, 1);
    }
}

static void pause_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) { }
}

static int look(const char *asked) {
    Dl_info self;
    char path[4096], line[512];
    memset(&now, 0, sizeof now);
    if (!dladdr((void *)&users, &self)) return NOT_LOADED;
    snprintf(path, sizeof path, "%s", self.dli_fname);
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 16, "nvml.state");
    FILE *file = fopen(path, "re");
    if (!file) return NOT_LOADED;
    struct card *card = 0;
    long hang = 0;
    while (fgets(line, sizeof line, file)) {
        char key[TEXT] = "", words[256] = "", function[TEXT];
        int code;
        if (sscanf(line, " %95s %255[^\n]", key, words) < 1 || key[0] == '#') continue;
        if (!strcmp(key, "driver")) snprintf(now.driver, TEXT, "%.95s", words);
        else if (!strcmp(key, "cuda")) now.cuda = atoi(words);
        else if (!strcmp(key, "init")) now.init = atoi(words);
        else if (!strcmp(key, "hang")) hang = atol(words);
        else if (!strcmp(key, "answer")) {
            if (sscanf(words, "%95s %d", function, &code) == 2 && !strcmp(function, asked)) now.refusal = code;
        } else if (!strcmp(key, "card") && now.cards < CARDS) {
            card = &now.card[now.cards++];
            card->mig = -1;
            card->major = 8;
            card->minor = 6;
            sscanf(words, "%95s %95[^\n]", card->uuid, card->model);
        } else if (!strcmp(key, "onto")) onto(words);
        else if (card) about_card(card, key, words);
    }
    fclose(file);
    if (hang) pause_ms(hang);
    return now.refusal;
}

static int of_host(const char *asked) { return users ? look(asked) : UNINITIALIZED; }

/* A handle is a card's number plus one, so that no handle is null. */
static int of_card(const char *asked, void *handle, struct card **found) {
    int code = of_host(asked);
    size_t number = (size_t)handle;
    if (code) return code;
    if (!number || number > (size_t)now.cards) return INVALID;
    *found = &now.card[number - 1];
    return (*found)->fails;
}

static int give(char *to, unsigned room, const char *words) {
    if (strlen(words) >= room) return TOO_SMALL;
    strcpy(to, words);
    return SUCCESS;
}

#define HOST int code = of_host(__func__); if (code) return code
#define CARD struct card *card; int code = of_card(__func__, handle, &card); if (code) return code

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = look(__func__);
    if (code || now.init) return code ? code : now.init;
    users++;
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return users ? (users--, SUCCESS) : UNINITIALIZED; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_LOADED: return "Driver Not Loaded";
    case UNSUPPORTED: return "Not Supported";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    case 999: return "Unknown Error";
    default: return "Some Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) { HOST; return give(to, room, now.driver); }
int nvmlSystemGetCudaDriverVersion(int *to) { HOST; *to = now.cuda; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { HOST; *to = now.cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *to) { HOST; *to = (unsigned)now.cards; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
    HOST;
    if (index >= (unsigned)now.cards) return INVALID;
    *to = (void *)(size_t)(index + 1);
    return now.card[index].fails;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) {
    HOST;
    for (int at = 0; at < now.cards; at++)
        if (!strcmp(now.card[at].uuid, uuid)) {
            *to = (void *)(size_t)(at + 1);
            return now.card[at].fails;
        }
    return MISSING;
}

int nvmlDeviceGetIndex(void *handle, unsigned *to) { CARD; *to = (unsigned)(card - now.card); return SUCCESS; }
int nvmlDeviceGetUUID(void *handle, char *to, unsigned room) { CARD; return give(to, room, card->uuid); }
int nvmlDeviceGetName(void *handle, char *to, unsigned room) { CARD; return give(to, room, card->model); }
int nvmlDeviceGetComputeMode(void *handle, unsigned *to) { CARD; *to = card->mode; return SUCCESS; }
int nvmlDeviceGetDisplayActive(void *handle, unsigned *to) { CARD; *to = card->display; return SUCCESS; }
int nvmlDeviceGetDisplayMode(void *handle, unsigned *to) { CARD; *to = card->display; return SUCCESS; }
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *to) {
    (void)sensor; CARD; *to = card->temperature; return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *to) { CARD; *to = card->power * 1000; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    CARD; *major = card->major; *minor = card->minor; return SUCCESS;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    CARD;
    if (card->mig < 0) return UNSUPPORTED;
    *current = *pending = (unsigned)card->mig;
    return SUCCESS;
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *to) {
    CARD;
    unsigned at = looked[card - now.card]++;
    to->gpu = card->looks ? card->utilization[at < card->looks ? at : card->looks - 1] : 0;
    to->memory = 0;
    return SUCCESS;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *to) {
    CARD;
    memset(to, 0, sizeof *to);
    snprintf(to->name, sizeof to->name, "%.31s", card->bus);
    sscanf(card->bus, "%x:%x:%x", &to->domain, &to->bus, &to->device);
    return SUCCESS;
}

/* Version 1 counts the driver's reserve as used; version 2 tells it apart. */
struct memory { bytes total, free, used; };
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *to) {
    CARD;
    bytes used = card->used + card->reserved;
    to->total = card->total * mib;
    to->used = used * mib;
    to->free = card->total > used ? (card->total - used) * mib : 0;
    return SUCCESS;
}
struct memory2 { unsigned version; bytes total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory2 *to) {
    CARD;
    bytes gone = card->used + card->reserved;
    if (to->version != (sizeof *to | 2u << 24)) return VERSION_MISMATCH;
    to->total = card->total * mib;
    to->reserved = card->reserved * mib;
    to->used = card->used * mib;
    to->free = card->total > gone ? (card->total - gone) * mib : 0;
    return SUCCESS;
}

/* Asked twice: with no room it answers how many there are. */
struct process { unsigned pid; bytes used; unsigned instance, compute_instance; };
static int table(struct card *card, int graphics, unsigned *count, struct process *to) {
    unsigned room = *count, found = 0;
    for (int at = 0; at < card->rows; at++) found += card->row[at].graphics == graphics;
    *count = found;
    if (!found) return SUCCESS;
    if (!to || room < found) return TOO_SMALL;
    for (int at = 0; at < card->rows; at++)
        if (card->row[at].graphics == graphics)
            *to++ = (struct process){card->row[at].pid, card->row[at].mib * mib, ~0u, ~0u};
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *to) {
    CARD; return table(card, 0, count, to);
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, struct process *to) {
    CARD; return table(card, 0, count, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, struct process *to) {
    CARD; return table(card, 1, count, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *count, struct process *to) {
    CARD; return table(card, 1, count, to);
}
