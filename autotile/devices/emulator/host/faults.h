// Faults of the kernel that the processor raises, and loops that never end: both become diagnostics, and the process
// lives.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <ucontext.h>

#include "memory.h"

static constexpr int kFaultSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static constexpr size_t kFaultCount = sizeof kFaultSignals / sizeof kFaultSignals[0];
static struct sigaction old_actions[kFaultCount];
static pthread_t launch_thread;

static uint32_t interrupted_pc(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return relative((void*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP]) + 1;  // + 1: as if a return address
#elif defined(__linux__) && defined(__aarch64__)
    return relative((void*)((ucontext_t*)context)->uc_mcontext.pc) + 1;
#else
    (void)context;
    return 0;
#endif
}

static void pass_on(int signal_number, siginfo_t* info, void* context) {
    for (size_t i = 0; i < kFaultCount; i++) {
        if (kFaultSignals[i] != signal_number) continue;
        const struct sigaction& old = old_actions[i];
        if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal_number, info, context);
        if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal_number);
    }
    signal(signal_number, SIG_DFL);  // comes again at once, and ends the process as it would have without us
}

// Runs on a stack of its own (the fiber's may be full) and leaves it through the scheduler; SA_NODEFER keeps the signal
// mask as it was.
static void on_fault(int signal_number, siginfo_t* info, void* context) {
    if (!launch.fiber || !pthread_equal(pthread_self(), launch_thread)) return pass_on(signal_number, info, context);
    DiagnosticKind kind = kOutOfBounds;
    if (stacks.in_guard((const char*)info->si_addr)) kind = kStackOverflow;
    if (signal_number == SIGFPE) kind = kDivisionByZero;
    if (signal_number == SIGILL || signal_number == SIGTRAP) kind = kTrap;
    fault(kind, kRead, interrupted_pc(context), (const char*)info->si_addr, 0);
}

#ifdef __linux__
static constexpr uint32_t kPatienceTicks = 4;
static constexpr long kTickNs = 25 * 1000 * 1000;
static timer_t timer;
static bool timer_armed;
static struct sigaction old_timer_action;

static int timer_signal() { return SIGRTMIN + 11; }

// The accesses poll the flag. Who has not seen it after some ticks computes without any access, and can be left there:
// such a thread is not inside the runtime.
static void on_timer(int, siginfo_t*, void* context) {
    if (!pthread_equal(pthread_self(), launch_thread)) return;
    launch.overdue_ticks = launch.overdue_ticks + 1;
    if (launch.overdue_ticks < kPatienceTicks || !launch.fiber || launch.busy) return;
    report(kTimeout, kLoad, interrupted_pc(context));
    stop_launch();
}

static void arm_timer(double limit_s) {
    struct sigaction action {};
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigaction(timer_signal(), &action, &old_timer_action);
    struct sigevent event {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = timer_signal();
#ifdef sigev_notify_thread_id
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
#else
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
#endif
    timer_armed = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    struct itimerspec when {};
    when.it_value.tv_sec = (time_t)limit_s;
    when.it_value.tv_nsec = (long)((limit_s - (double)when.it_value.tv_sec) * 1e9) + 1;
    when.it_interval.tv_nsec = kTickNs;
    if (timer_armed) timer_settime(timer, 0, &when, nullptr);
}

static void disarm_timer() {
    if (timer_armed) timer_delete(timer);
    timer_armed = false;
    sigaction(timer_signal(), &old_timer_action, nullptr);
}
#else
static void arm_timer(double) {}
static void disarm_timer() {}
#endif

static constexpr size_t kSignalStackBytes = 64 * 1024;
static char signal_stack[kSignalStackBytes];
static stack_t old_signal_stack;

static void catch_faults(double limit_s) {
    launch_thread = pthread_self();
    stack_t own{};
    own.ss_sp = signal_stack, own.ss_size = kSignalStackBytes;
    sigaltstack(&own, &old_signal_stack);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < kFaultCount; i++) sigaction(kFaultSignals[i], &action, &old_actions[i]);
    arm_timer(limit_s);
}

static void release_faults() {
    disarm_timer();
    for (size_t i = 0; i < kFaultCount; i++) sigaction(kFaultSignals[i], &old_actions[i], nullptr);
    sigaltstack(&old_signal_stack, nullptr);
}
