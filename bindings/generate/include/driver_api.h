/* What bindgen reads. Ours; names public headers and repeats none of their text. */
#include <cuda.h>
