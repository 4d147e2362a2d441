#include "lockstep/engine/kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#ifndef LOCKSTEP_CUDA_EMULATION
#include <cuda_runtime_api.h>
#endif

#include <cstring>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::kernels::cuda {
namespace {

// NCCL's functions, looked up at run time.
struct Nccl {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;

  void check(ncclResult_t status, const char* what) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    const char* const more = last_error(nullptr);
    throw Error(std::string("[nccl] ") + what + ": " + error_string(status) +
                (more != nullptr && *more != 0 ? std::string(" (") + more + ")" : ""));
  }
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null if NCCL is not installed, or has no non-blocking mode (before 2.14).
const Nccl* nccl() {
  static const Nccl* const loaded = []() -> const Nccl* {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Nccl n;
    const bool all = find(library, "ncclGetErrorString", n.error_string) &&
                     find(library, "ncclGetLastError", n.last_error) &&
                     find(library, "ncclGetUniqueId", n.unique_id) &&
                     find(library, "ncclCommInitRankConfig", n.init) &&
                     find(library, "ncclCommGetAsyncError", n.async_error) &&
                     find(library, "ncclCommAbort", n.comm_abort) &&
                     find(library, "ncclGroupStart", n.group_start) &&
                     find(library, "ncclGroupEnd", n.group_end) &&
                     find(library, "ncclSend", n.send) && find(library, "ncclRecv", n.recv);
    return all ? &n : nullptr;
  }();
  return loaded;
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that a later call does not report it
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

// Never blocks: NCCL's functions return at once, and progress() queries their state later.
class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(int index, const ncclUniqueId& id, int rank, int size) : nccl_(*nccl()), index_(index) {
    check(cudaSetDevice(index_), "choosing the device");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t status = nccl_.init(&comm_, size, id, rank, &config);
    try {
      nccl_.check(status, "joining a group of GPUs");
    } catch (...) {
      NcclGroup::abort();  // NCCL may have made the communicator; the destructor does not run
      throw;
    }
  }
  ~NcclGroup() override { NcclGroup::abort(); }

  void exchange(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives,
                void* stream) override {
    check(cudaSetDevice(index_), "choosing the device");
    ncclComm_t const comm = this->comm();
    auto* const cuda_stream = static_cast<cudaStream_t>(stream);
    ncclResult_t status = ncclSuccess;
    const auto note = [&](ncclResult_t s) {
      if (status == ncclSuccess && s != ncclInProgress) status = s;
    };
    nccl_.check(nccl_.group_start(), "beginning an exchange");
    for (const DeviceTransfer& t : sends) {
      note(nccl_.send(t.data, t.bytes, ncclInt8, t.rank, comm, cuda_stream));
    }
    for (const DeviceTransfer& t : receives) {
      note(nccl_.recv(t.data, t.bytes, ncclInt8, t.rank, comm, cuda_stream));
    }
    // Every group_start() needs its group_end(), even after an error.
    note(nccl_.group_end());
    nccl_.check(status, "an exchange between GPUs");
  }

  Progress progress(void* stream) override {
    if (pending()) return Progress::pending;
    check(cudaSetDevice(index_), "choosing the device");
    const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // else the next launch of a kernel would report it
      return Progress::queued;
    }
    check(status, "an exchange between GPUs");
    return Progress::done;
  }

  void abort() noexcept override {
    if (comm_ == nullptr) return;
    cudaSetDevice(index_);
    nccl_.comm_abort(comm_);
    comm_ = nullptr;
  }

 private:
  ncclComm_t comm() const {
    if (comm_ == nullptr) throw Error("[nccl] this group of GPUs has ended");
    return comm_;
  }

  bool pending() const {
    ncclResult_t state = ncclSuccess;
    nccl_.check(nccl_.async_error(comm(), &state), "checking a group of GPUs");
    nccl_.check(state, "a group of GPUs");
    return state == ncclInProgress;
  }

  const Nccl& nccl_;
  const int index_;
  ncclComm_t comm_ = nullptr;
};

class NcclGroups final : public DeviceGroups {
 public:
  explicit NcclGroups(int index) : index_(index) {}

  std::string identity() override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index_), "asking for a device's name");
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
  }

  std::string make_key() override {
    ncclUniqueId id;
    nccl()->check(nccl()->unique_id(&id), "making the key of a group of GPUs");
    return {id.internal, sizeof id.internal};
  }

  std::unique_ptr<DeviceGroup> join(const std::string& key, int rank, int size) override {
    ncclUniqueId id;
    if (key.size() != sizeof id.internal)
      throw InvalidArgument("[nccl] the key of the group is invalid");
    std::memcpy(id.internal, key.data(), key.size());
    return std::make_unique<NcclGroup>(index_, id, rank, size);
  }

 private:
  const int index_;
};

}  // namespace

std::shared_ptr<DeviceGroups> nccl_groups(int index) {
  return nccl() == nullptr ? nullptr : std::make_shared<NcclGroups>(index);
}

}  // namespace lockstep::kernels::cuda
