// A stand-in for NVIDIA's management library: two GPUs, the second one without figures of its use.
// It can hang.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace {

struct Utilization {
  unsigned int gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};

constexpr int kOk = 0, kNotSupported = 3;
int gpus[2];
std::atomic<bool> hangs = false;

}  // namespace

extern "C" {

void stand_in_hangs(int yes) { hangs = yes != 0; }

int nvmlInit_v2() { return kOk; }

int nvmlDeviceGetCount_v2(unsigned int* count) {
  while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  *count = 2;
  return kOk;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  *handle = &gpus[index];
  return kOk;
}

int nvmlDeviceGetName(void* handle, char* name, unsigned int length) {
  std::snprintf(name, length, "Stand-in %d", handle == &gpus[0] ? 0 : 1);
  return kOk;
}

int nvmlDeviceGetUtilizationRates(void* handle, Utilization* use) {
  if (handle != &gpus[0]) return kNotSupported;
  *use = {75, 10};
  return kOk;
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  if (handle != &gpus[0]) return kNotSupported;
  *memory = {80ull << 30, 60ull << 30, 20ull << 30};
  return kOk;
}
}
