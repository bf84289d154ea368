/* Stand-in: the scalar type of EGL that the interop calls take. */
#include <stdint.h>
typedef int32_t EGLint;
