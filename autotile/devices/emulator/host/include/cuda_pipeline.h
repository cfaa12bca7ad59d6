// Asynchronous copies to shared memory. The runtime keeps each one back until a wait covers its group, so that a wait
// that is missing or too weak shows.
#pragma once

static AUTOTILE_INLINE void __pipeline_memcpy_async(void* target, const void* source, size_t bytes, size_t zfill = 0) {
    autotile_copy_async(target, source, bytes, zfill);
}
static AUTOTILE_INLINE void __pipeline_commit() { autotile_copy_commit(); }
static AUTOTILE_INLINE void __pipeline_wait_prior(size_t pending_groups) { autotile_copy_wait(pending_groups); }
