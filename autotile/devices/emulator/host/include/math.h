// The functions are declared already (cuda_math.h); the system's header would cost more than the kernel.
#pragma once
