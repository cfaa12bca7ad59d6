// assert stops the launch with a diagnostic (cuda_host.h).
#pragma once
