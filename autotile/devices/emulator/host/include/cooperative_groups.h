// The group of a thread block cluster. Other groups are refused (unsupported.py).
#pragma once

namespace cooperative_groups {

class cluster_group {
   public:
    struct arrival_token {};

    static AUTOTILE_INLINE void sync(unsigned line = __builtin_LINE()) { autotile_cluster_barrier(kClusterSync, line); }
    static AUTOTILE_INLINE arrival_token barrier_arrive(unsigned line = __builtin_LINE()) {
        autotile_cluster_barrier(kClusterArrive, line);
        return arrival_token();
    }
    static AUTOTILE_INLINE void barrier_wait(unsigned line = __builtin_LINE()) {
        autotile_cluster_barrier(kClusterWait, line);
    }
    static AUTOTILE_INLINE void barrier_wait(arrival_token&&, unsigned line = __builtin_LINE()) {
        autotile_cluster_barrier(kClusterWait, line);
    }

    static AUTOTILE_INLINE unsigned num_blocks() { return autotile_builtins.cluster_blocks; }
    static AUTOTILE_INLINE unsigned block_rank() { return blockIdx.x % num_blocks(); }
    static AUTOTILE_INLINE unsigned num_threads() { return num_blocks() * block_threads(); }
    static AUTOTILE_INLINE unsigned size() { return num_threads(); }
    static AUTOTILE_INLINE unsigned thread_rank() {
        unsigned in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        return block_rank() * block_threads() + in_block;
    }
    static AUTOTILE_INLINE dim3 dim_blocks() { return dim3(num_blocks(), 1, 1); }
    static AUTOTILE_INLINE dim3 block_index() { return dim3(block_rank(), 0, 0); }

    template <class T>
    static AUTOTILE_INLINE T* map_shared_rank(T* p, int rank) {
        return (T*)autotile_map_shared((const void*)p, (uint32_t)rank);
    }
    static AUTOTILE_INLINE unsigned query_shared_rank(const void* p) { return autotile_shared_rank(p); }

   private:
    static AUTOTILE_INLINE unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
};

static AUTOTILE_INLINE cluster_group this_cluster() { return cluster_group(); }

}  // namespace cooperative_groups
