// GPUs as devices: memory, streams, recordings (CUDA graphs), and the shared library's exported
// function. Host code only.
#include "lockstep/engine/kernels/backends/backend.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/nccl.h"

namespace lockstep::kernels::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that a later call does not report it
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

cudaStream_t cuda_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

// Streams are non-blocking: they do not synchronize with CUDA's own default stream.
class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int index) : index_(index) {
    activate();
    default_stream_ = new_stream();
  }

  void activate() override { check(cudaSetDevice(index_), "choosing the device"); }

  void* allocate(size_t bytes) override {
    activate();
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "allocating memory");
    return data;
  }
  void release(void* data) noexcept override {
    cudaSetDevice(index_);
    cudaFree(data);
  }
  DeviceMemoryFigures figures() override {
    activate();
    DeviceMemoryFigures figures;
    check(cudaMemGetInfo(&figures.free, &figures.total), "asking for the free memory");
    return figures;
  }

  void* allocate_pinned(size_t bytes) override {
    activate();
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "pinning host memory");
    return data;
  }
  void release_pinned(void* data) noexcept override { cudaFreeHost(data); }

  void* default_stream() override { return default_stream_; }
  // Streams are kept for reuse, because libraries may cache objects for each stream.
  void* make_stream() override {
    {
      const MutexLock lock(mutex_);
      if (!spare_streams_.empty()) {
        void* const stream = spare_streams_.back();
        spare_streams_.pop_back();
        return stream;
      }
    }
    activate();
    return new_stream();
  }
  void release_stream(void* stream) noexcept override {
    const MutexLock lock(mutex_);
    spare_streams_.push_back(stream);
  }

  void synchronize(void* stream) override {
    activate();
    check(stream ? cudaStreamSynchronize(cuda_stream(stream)) : cudaDeviceSynchronize(),
          "waiting for the device");
  }

  void follow(void* stream, void* other) override {
    activate();
    // CUDA releases a destroyed event when no work waits for it any more.
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    cudaError_t status = cudaEventRecord(event, cuda_stream(other));
    if (status == cudaSuccess) status = cudaStreamWaitEvent(cuda_stream(stream), event, 0);
    cudaEventDestroy(event);
    check(status, "ordering two streams");
  }

  void* make_mark() override {
    activate();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return event;
  }
  void set_mark(void* mark, void* stream) override {
    activate();
    check(cudaEventRecord(static_cast<cudaEvent_t>(mark), cuda_stream(stream)), "marking a stream");
  }
  void wait_for(void* mark) override {
    activate();
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(mark)), "waiting for the device");
  }
  void release_mark(void* mark) noexcept override {
    cudaEventDestroy(static_cast<cudaEvent_t>(mark));
  }

  void copy_from_host(void* to, const void* host, size_t bytes, void* stream) override {
    copy(to, host, bytes, cudaMemcpyHostToDevice, stream);
  }
  void copy_to_host(void* host, const void* from, size_t bytes, void* stream) override {
    copy(host, from, bytes, cudaMemcpyDeviceToHost, stream);
  }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  void zero(void* data, size_t bytes, void* stream) override {
    activate();
    check(cudaMemsetAsync(data, 0, bytes, cuda_stream(stream)), "filling memory with zeros");
  }

  bool records() const override { return true; }
  void begin_recording(void* stream) override {
    activate();
    // Calls by other threads must not affect the capture.
    check(cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeThreadLocal),
          "beginning to record");
  }
  void* end_recording(void* stream, std::string& reason) noexcept override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t recording = nullptr;
    cudaError_t status = cudaStreamEndCapture(cuda_stream(stream), &graph);
    reason = "recording work: ";
    if (status == cudaSuccess && graph) {
      status = cudaGraphInstantiate(&recording, graph, 0);
      reason = "making a recording ready: ";
    }
    if (status != cudaSuccess || !graph) {
      recording = nullptr;
      reason += status == cudaSuccess ? "nothing was recorded" : cudaGetErrorString(status);
      cudaGetLastError();
    }
    if (graph) cudaGraphDestroy(graph);
    return recording;
  }
  void replay(void* recording, void* stream) override {
    activate();
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), cuda_stream(stream)),
          "repeating a recording");
  }
  void release_recording(void* recording) noexcept override {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording));
  }

 private:
  static void* new_stream() {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
    return made;
  }
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, void* stream) {
    activate();
    check(cudaMemcpyAsync(to, from, bytes, kind, cuda_stream(stream)), "copying memory");
  }

  int index_;
  void* default_stream_;
  Mutex mutex_;
  std::vector<void*> spare_streams_ LOCKSTEP_GUARDED_BY(mutex_);
};

// As nvidia-smi prints it.
std::string uuid_text(const char* bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || (i >= 4 && i <= 10 && i % 2 == 0)) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

// Whether only one process at a time can have a context on a GPU. Choosing the GPU makes one, and
// then the child process of the self-test could not.
bool for_one_process(int index) {
  int mode = cudaComputeModeDefault;
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index) != cudaSuccess) {
    cudaGetLastError();
  }
  return mode == cudaComputeModeExclusiveProcess;
}

std::vector<DeviceInfo> devices(std::string& reason) {
  int count = 0;  // stays 0 if there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
    reason = driver_problem(cudaGetErrorString(status), driver, runtime);
    return {};
  }
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; ++i) {
    DeviceInfo info;
    info.device = {Device::Kind::cuda, i};
    cudaDeviceProp properties{};
    cudaError_t known = cudaGetDeviceProperties(&properties, i);
    if (known == cudaSuccess) {
      info.name = properties.name;
      info.uuid = uuid_text(properties.uuid.bytes);
      info.capability_major = properties.major;
      info.capability_minor = properties.minor;
      info.memory_total = properties.totalGlobalMem;
      info.has_code = has_code_for(LOCKSTEP_CUDA_ARCHITECTURES, properties.major, properties.minor);
      if (!for_one_process(i)) {
        known = cudaSetDevice(i);
        if (known == cudaSuccess) known = cudaMemGetInfo(&info.memory_free, &info.memory_total);
      }
    }
    if (known != cudaSuccess) {
      cudaGetLastError();
      info.problem = cudaGetErrorString(known);
    } else if (!info.has_code) {
      info.problem = "this build has no code for " + info.name + " (compute capability " +
                     std::to_string(info.capability_major) + "." +
                     std::to_string(info.capability_minor) +
                     "), only for " LOCKSTEP_CUDA_ARCHITECTURES;
    }
    found.push_back(std::move(info));
  }
  if (!for_one_process(0)) cudaSetDevice(0);
  return found;
}

std::shared_ptr<DeviceMemory> memory(int index) { return std::make_shared<CudaMemory>(index); }

std::string version_text(size_t version, size_t major, size_t minor) {
  return std::to_string(version / major) + "." + std::to_string(version % major / minor) + "." +
         std::to_string(version % minor);
}

// The first line of the driver's version file. The driver's release matters for results, because
// the driver compiles intermediate code for newer GPUs.
std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::pair<std::string, std::string>> versions() {
  std::vector<std::pair<std::string, std::string>> all{
      {"CUDA", version_text(CUDART_VERSION, 1000, 10)},
      {"cuDNN", version_text(cudnnGetVersion(), 10000, 100)},
      {"cuBLASLt", version_text(cublasLtGetVersion(), 10000, 100)},
      {"GPU kernels' build", build_id_of(reinterpret_cast<const void*>(&driver_release))}};
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    all.emplace_back("driver's CUDA", version_text(static_cast<size_t>(driver), 1000, 10));
  }
  if (const std::string release = driver_release(); !release.empty()) {
    all.emplace_back("GPU driver", release);
  }
  return all;
}

}  // namespace
}  // namespace lockstep::kernels::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::kernels::Backend*
lockstep_cuda_backend() {
  using namespace lockstep::kernels;
  static const Backend backend{.version = Table::kVersion,
                               .project_version = LOCKSTEP_VERSION,
                               .table = &cuda::table(),
                               .devices = cuda::devices,
                               .memory = cuda::memory,
                               .groups = cuda::nccl_groups,
                               .versions = cuda::versions,
                               .follow = cuda::follow};
  return &backend;
}
