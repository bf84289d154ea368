__device__ int counter = 7;
__device__ int untouched[5];
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void __launch_bounds__(256) scale(char odd, const float *from, float *to, int count) {
    __shared__ float piece[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    piece[threadIdx.x % 64] = odd;
    __syncthreads();
    if (i < count) to[i] = from[i] * table[i % 4] + counter + 0 * piece[1] + untouched[1];
}
extern "C" __global__ void nothing(void) {}
