#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/libraries.h"

namespace lockstep::kernels::cuda {
namespace {

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

// Handles that no thread uses, by device. Never destroyed, because the driver may be unloaded
// before static objects are destroyed.
struct SpareHandles {
  Mutex mutex;
  std::map<int, std::vector<cudnnHandle_t>> by_device LOCKSTEP_GUARDED_BY(mutex);
};
SpareHandles& spare_handles() {
  static auto* instance = new SpareHandles;
  return *instance;
}

// A thread's handles by device and stream. They become spare when the thread ends.
struct ThreadHandles {
  std::map<std::pair<int, void*>, cudnnHandle_t> handles;
  ~ThreadHandles() {
    SpareHandles& spare = spare_handles();
    const MutexLock lock(spare.mutex);
    for (const auto& [where, handle] : handles) spare.by_device[where.first].push_back(handle);
  }
};

cudnnHandle_t spare_or_new(int device) {
  SpareHandles& spare = spare_handles();
  {
    const MutexLock lock(spare.mutex);
    auto& handles = spare.by_device[device];
    if (!handles.empty()) {
      cudnnHandle_t handle = handles.back();
      handles.pop_back();
      return handle;
    }
  }
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "starting cuDNN");
  return handle;
}

std::atomic<Choice (*)()> chooser{nullptr};

}  // namespace

std::string cudnn_details() {
  char text[512] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return text[0] == 0 ? "" : std::string(" (") + text + ")";
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string message =
      std::string("[cuda] cuDNN, ") + what + ": " + cudnnGetErrorString(status) + cudnn_details();
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) throw Unsupported(message);
  throw Error(message);
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message =
      std::string("[cuda] cuBLASLt, ") + what + ": " + cublasLtGetStatusString(status);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) throw Unsupported(message);
  throw Error(message);
}

cudnnHandle_t cudnn_handle(void* stream) {
  thread_local ThreadHandles mine;
  const int device = current_device();
  const auto found = mine.handles.find({device, stream});
  if (found != mine.handles.end()) return found->second;
  cudnnHandle_t handle = spare_or_new(device);
  const cudnnStatus_t status = cudnnSetStream(handle, static_cast<cudaStream_t>(stream));
  if (status != CUDNN_STATUS_SUCCESS) {
    // Not kept for this stream: it belongs to another one, or to none.
    SpareHandles& spare = spare_handles();
    const MutexLock lock(spare.mutex);
    spare.by_device[device].push_back(handle);
  }
  check(status, "choosing the stream");
  mine.handles[{device, stream}] = handle;
  return handle;
}

Pass with_cudnn(Pass pass) {
  pass.bind = [bind = std::move(pass.bind)](const PassMemory& where) {
    cudnn_handle(where.stream);
    return bind(where);
  };
  return pass;
}

cublasLtHandle_t cublas_handle() {
  static Mutex mutex;
  // Never destroyed, like SpareHandles.
  static auto* handles LOCKSTEP_GUARDED_BY(mutex) = new std::map<int, cublasLtHandle_t>;
  const int device = current_device();
  const MutexLock lock(mutex);
  cublasLtHandle_t& handle = (*handles)[device];
  if (!handle) check(cublasLtCreate(&handle), "starting cuBLASLt");
  return handle;
}

void follow(Choice (*choice)()) { chooser = choice; }

Choice choice() {
  auto* const ask = chooser.load();
  return ask ? ask() : Choice{};
}

}  // namespace lockstep::kernels::cuda
