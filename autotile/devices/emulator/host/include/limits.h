// The constants that kernels use are in cuda_math.h.
#pragma once
