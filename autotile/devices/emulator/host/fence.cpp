// Compiled three times: the linker lays the .bss of its inputs down in their order, so with one of these objects before
// and two after the kernel's, every static array of the kernel lies between two symbols, and the arena of the dynamic
// ones behind it. (A named section would be simpler, but compilers drop the section of statics inside templates.)
#include "abi.h"

extern "C" {
#if defined(AUTOTILE_FENCE_BEGIN)
// 1024 bytes, aligned likewise: shared memory starts at bank 0, whatever lies before it.
extern char autotile_shared_begin[1024];
alignas(1024) char autotile_shared_begin[1024];
#elif defined(AUTOTILE_FENCE_END)
// One byte without alignment: the end of the static arrays is exact.
extern char autotile_shared_end[1];
char autotile_shared_end[1];
#elif defined(AUTOTILE_FENCE_ARENA)
extern char autotile_dynamic_shared[AUTOTILE_ARENA_BYTES];
alignas(1024) char autotile_dynamic_shared[AUTOTILE_ARENA_BYTES];
#endif
}
