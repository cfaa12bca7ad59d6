// What it declares is in cuda_host.h already.
#pragma once
