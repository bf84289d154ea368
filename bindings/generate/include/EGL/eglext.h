/* Stand-in: the handles of EGL that the interop calls take. All are pointers. */
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
