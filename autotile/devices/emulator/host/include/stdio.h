// printf is silent in the emulator (cuda_host.h).
#pragma once
