// PTD_API: marks the classes and functions that the shared library exports.
#pragma once

#if defined(__GNUC__)
#define PTD_API __attribute__((visibility("default")))
#else
#define PTD_API
#endif
