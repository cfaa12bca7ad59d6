// The older name.
#pragma once
#include "cuda_pipeline.h"
