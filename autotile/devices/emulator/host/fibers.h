// One CUDA thread is one fiber: a stack of its own and a saved stack pointer. Fibers switch only where the kernel
// waits.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(AUTOTILE_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define AUTOTILE_UCONTEXT
#endif

#ifdef __APPLE__
#define AUTOTILE_SYMBOL "_autotile_switch"
#define AUTOTILE_HIDDEN ".private_extern "
#else
#define AUTOTILE_SYMBOL "autotile_switch"
#define AUTOTILE_HIDDEN ".hidden "
#endif

#ifdef AUTOTILE_UCONTEXT
#include <ucontext.h>
struct Context {
    ucontext_t saved;
};

static void switch_context(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

static void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
    getcontext(&context.saved);
    context.saved.uc_stack.ss_sp = stack;
    context.saved.uc_stack.ss_size = bytes;
    context.saved.uc_link = nullptr;
    makecontext(&context.saved, entry, 0);
}
#else
// swapcontext makes a system call for the signal mask, six times the cost of these few moves.
struct Context {
    void* stack_pointer;
};

extern "C" void autotile_switch(void** save, void* load);

#ifdef __x86_64__
asm(".text\n.p2align 4\n" AUTOTILE_HIDDEN AUTOTILE_SYMBOL "\n.globl " AUTOTILE_SYMBOL "\n" AUTOTILE_SYMBOL
    ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
static constexpr size_t kReturnSlot = 6;
static constexpr size_t kFrameWords =
    8;  // the last word is a return address of zero, which also sets the ABI's alignment
#else
asm(".text\n.p2align 4\n" AUTOTILE_HIDDEN AUTOTILE_SYMBOL "\n.globl " AUTOTILE_SYMBOL "\n" AUTOTILE_SYMBOL
    ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x2, sp\n  str x2, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n");
static constexpr size_t kReturnSlot = 11;  // x30, the link register
static constexpr size_t kFrameWords = 20;
#endif

static void switch_context(Context& from, Context& to) { autotile_switch(&from.stack_pointer, to.stack_pointer); }

static void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    uintptr_t* frame = (uintptr_t*)top - kFrameWords;
    for (size_t i = 0; i < kFrameWords; i++) frame[i] = 0;
    frame[kReturnSlot] = (uintptr_t)entry;
    context.stack_pointer = frame;
}
#endif

// Stacks are reserved once and touched page by page; below each lies a page that faults, so that a kernel with too much
// local memory is reported and does not run over its neighbour.
struct Stacks {
    static constexpr size_t kStride = 256 * 1024;
    char* memory = nullptr;
    unsigned count = 0;
    size_t guard = 0;

    char* low(unsigned fiber) const { return memory + kStride * fiber + guard; }
    size_t bytes() const { return kStride - guard; }
    bool in_guard(const char* p) const {
        size_t offset = (size_t)(p - memory);
        return memory && offset < kStride * count && offset % kStride < guard;
    }

    bool reserve(unsigned fibers) {
        if (fibers <= count) return true;
        release();
        guard = (size_t)sysconf(_SC_PAGESIZE);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
        flags |= MAP_NORESERVE;
#endif
        void* mapped = mmap(nullptr, kStride * fibers, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (mapped == MAP_FAILED) return false;
        memory = (char*)mapped;
        count = fibers;
        for (unsigned i = 0; i < fibers; i++) mprotect(memory + kStride * i, guard, PROT_NONE);
        return true;
    }

    void release() {
        if (memory) munmap(memory, kStride * count);
        memory = nullptr;
        count = 0;
    }
};
