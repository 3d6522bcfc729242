#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

// As much of CUDA's runtime as nccl-tests asks for, for a "device" that is the host: memory is memory, and whatever is put on a
// stream is done when the call returns. CUDA graphs and events, which its options -G and -I use, are not there.

#define CUDART_VERSION 11000  // bfloat16 is known from here on, graphs from 11.3 on
#define __host__
#define __device__

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorNotSupported = 801
};
enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2, cudaMemcpyDefault = 4 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };

using cudaStream_t = struct HostStream*;
using cudaEvent_t = struct HostEvent*;
#define cudaStreamDefault 0x00
constexpr unsigned int cudaStreamNonBlocking = 1, cudaHostAllocMapped = 2;

struct cudaDeviceProp {
  char name[256] = "host memory";
  std::size_t totalGlobalMem = std::size_t{64} << 30;  // bytes; a bound for what the tests allocate
  int pciDomainID = 0, pciBusID = 0, pciDeviceID = 0;
};

using std::max;
using std::min;

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "not possible in host memory";
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1024;  // as many ranks as anybody asks for
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = *total_bytes = cudaDeviceProp{}.totalGlobalMem;
  return cudaSuccess;
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(std::malloc(std::max<std::size_t>(bytes, 1)));
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaErrorNotSupported; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaErrorNotSupported; }
