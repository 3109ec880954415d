/* Runs a program on a host that forbids some calls, as many containers do: `seccomp ERRNO WHAT PROGRAM ARGS...`.
 * WHAT: `all` (subreaper, pidfd_open, pidfd_send_signal), `send` (pidfd_send_signal alone) or `lock` (flock alone). */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_SEND 424
#define SYS_OPEN 434

int main(int count, char **args) {
    if (count < 4) return 64;
    unsigned int no = SECCOMP_RET_ERRNO | (unsigned int)atoi(args[1]);
    unsigned int open_no = strcmp(args[2], "all") ? SECCOMP_RET_ALLOW : no;
    unsigned int lock_no = strcmp(args[2], "lock") ? SECCOMP_RET_ALLOW : no;
    unsigned int send_no = lock_no == no ? SECCOMP_RET_ALLOW : no;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_SEND, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, send_no),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, lock_no),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_OPEN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, open_no),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_CHILD_SUBREAPER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, open_no),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 65;
    execv(args[3], args + 3);
    return 66;
}
