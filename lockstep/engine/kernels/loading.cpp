#include "lockstep/engine/kernels/loading.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/backends/support.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/kernels/self_test/self_test.h"

namespace lockstep::kernels {
namespace {

constexpr const char* kLibraryVariable = "LOCKSTEP_CUDA_LIBRARY";
constexpr const char* kNcclVariable = "LOCKSTEP_NCCL";

// Turns a message of dlerror() into a reason.
Reason explain(const std::string& path, std::string said) {
  if (said.starts_with(path + ": ")) said.erase(0, path.size() + 2);
  const std::string text = path + " cannot be loaded: " + said;
  const size_t end = said.find(": cannot open shared object file");
  if (end == said.npos) return {text, ""};
  const std::string missing = said.substr(0, end);
  const std::string of = missing.starts_with("libcudnn") ? "cuDNN" : "the CUDA toolkit";
  return {text, "install " + of + ", or add the folder of " + missing + " to LD_LIBRARY_PATH"};
}

BackendLibrary refused(const std::string& path, const std::string& text, const std::string& hint) {
  return {nullptr, path, {text, hint}};
}

BackendLibrary find_backend() {
  if (const std::string named = variable(kLibraryVariable); !named.empty()) {
    BackendLibrary opened = open_backend(named);
    if (!opened.backend) opened.reason.text += std::string(" (named by ") + kLibraryVariable + ")";
    return opened;
  }
  const std::string executable = own_executable();
  std::string folders;
  if (!executable.empty()) {
    if (const std::string path = cuda_library_of(executable); !path.empty()) {
      return open_backend(path);
    }
    for (const std::string& folder : library_folders_of(executable)) folders += folder + ", ";
  }
  BackendLibrary opened = open_backend(cuda_library_name);  // on the system's search path
  const std::string missing = std::string(cuda_library_name) + " cannot be loaded: cannot open";
  if (opened.backend || !opened.reason.text.starts_with(missing)) return opened;
#ifdef LOCKSTEP_WITH_CUDA
  return refused(cuda_library_name,
                 std::string(cuda_library_name) + " was not found in " + folders +
                     "or the system's library folders",
                 std::string("set its path in ") + kLibraryVariable);
#else
  return refused(cuda_library_name,
                 std::string("this build has no ") + cuda_library_name +
                     ", and none was found in " + folders + "or the system's library folders",
                 "build with -DLOCKSTEP_CUDA=ON on a machine with nvcc and cuDNN");
#endif
}

// The GPUs, found at first use.
struct Gpus {
  std::vector<DeviceInfo> devices;
  Reason reason;  // why no GPU can be used
};

// The library, opened at first use.
const BackendLibrary& backend_library() {
  static const BackendLibrary instance = find_backend();
  return instance;
}

// The library and its dependencies take 190 MiB, so it is not opened without a driver.
bool driver_is_there() {
  static const bool there = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return there || !variable(kLibraryVariable).empty();
}

const Gpus& gpus() {
  static const Gpus instance = [] {
    Gpus found;
    if (!driver_is_there()) {
      found.reason = {"there is no NVIDIA driver", ""};
      return found;
    }
    const Backend* const backend = backend_library().backend;
    if (!backend) {
      found.reason = backend_library().reason;
      return found;
    }
    if (backend->follow) backend->follow(choice);
    found.devices = backend->devices(found.reason.text);
    bool any = false;
    for (const auto& device : found.devices) {
      any |= device.usable();
      if (!device.usable() && found.reason.text.empty()) found.reason.text = device.problem;
    }
    if (any) found.reason = {};
    return found;
  }();
  return instance;
}

struct Tables {
  Mutex mutex;
  std::map<Device, const Table*> of LOCKSTEP_GUARDED_BY(mutex);
};

Tables& tables() {
  static auto* instance = new Tables;
  return *instance;
}

const Table* find_table(Device device) {
  const MutexLock lock(tables().mutex);
  const auto found = tables().of.find(device);
  return found == tables().of.end() ? nullptr : found->second;
}

[[noreturn]] void refuse(Device device, const Reason& reason) {
  throw Unsupported("[device] " + to_string(device) + " cannot be used: " + reason.text,
                    reason.hint);
}

// Verdicts that this process knows, and where others come from.
struct Verdicts {
  Mutex mutex;
  std::map<Device, Verdict> known LOCKSTEP_GUARDED_BY(mutex);
  std::atomic<DeviceTester> tester{nullptr}, source{nullptr};
};

Verdicts& verdicts() {
  static auto* instance = new Verdicts;
  return *instance;
}

std::optional<Verdict> remembered(Device device) {
  const MutexLock lock(verdicts().mutex);
  const auto found = verdicts().known.find(device);
  if (found == verdicts().known.end()) return std::nullopt;
  return found->second;
}

Verdict remember(Device device, Verdict verdict) {
  const MutexLock lock(verdicts().mutex);
  return verdicts().known.insert_or_assign(device, std::move(verdict)).first->second;
}

// A GPU that can be used, apart from its verdict.
const DeviceInfo& usable_gpu(Device device) {
  const Gpus& all = gpus();
  if (all.devices.empty()) refuse(device, all.reason);
  for (const auto& info : all.devices) {
    if (info.device != device) continue;
    if (!info.usable()) refuse(device, {info.problem, ""});
    return info;
  }
  refuse(device, {"the last GPU of this machine is " + to_string(all.devices.back().device), ""});
}

// The verdict on a GPU, which is tested if it is not known.
Verdict verdict_on(const DeviceInfo& info) {
  if (std::optional<Verdict> known = known_verdict(info.device)) return *known;
  const DeviceTester tester = verdicts().tester;
  if (tester) {
    Verdict verdict = tester(info);
    // A GPU that is busy now may be free at the next use.
    if (verdict.kernels.empty()) return verdict;
    return remember(info.device, std::move(verdict));
  }
  Verdict none;
  none.reason = "this program cannot test it, because it has no Runtime";
  return none;
}

// Registers a GPU's kernels and memory. One thread at a time.
void load(Device device) {
  static Mutex mutex;
  const MutexLock lock(mutex);
  if (find_table(device)) return;
  const DeviceInfo& info = usable_gpu(device);
  const Verdict verdict = verdict_on(info);
  if (verdict.kernels.empty()) {
    refuse(device,
           {"its kernels have not been tested: " + verdict.reason,
            "run `lockstep verify-device " + to_string(device) + "` when the device is free"});
  }
  static auto* guarded_tables = new std::map<Device, Table>;
  const Table& table = (*guarded_tables)[device] =
      guarded(*backend_library().backend->table, verdict, device);
  register_device_memory(device, backend_library().backend->memory(device.index));
  register_table(device, &table);
  // The self-test has one GPU, so it says nothing about links between GPUs.
  if (variable(kNcclVariable) == "1") {
    register_device_groups(device, backend_library().backend->groups(device.index));
  }
}

thread_local std::optional<Device> chosen;

[[maybe_unused]] const bool kLoaderSet = (set_device_loader(load), true);

bool all_kernels_usable(Device device) {
  const std::optional<Verdict> verdict = known_verdict(device);
  if (!verdict) return false;
  for (const auto& s : kernel_support(*backend_library().backend->table, *verdict)) {
    if (!s.usable() && !s.optional) return false;
  }
  return true;
}

// What the self-test of a GPU has seen with a type.
std::string because(std::string_view type) {
  const std::string seen = refusal_of(type);
  return seen.empty() ? "" : " (self-test " + seen + ")";
}

}  // namespace

UntestedDevice untested_device(Device device) {
  const Table* const table = &untested_table(device);
  return {table,
          device.is_cpu() ? host_as_device() : backend_library().backend->memory(device.index)};
}

const Table& untested_table(Device device) {
  if (device.is_cpu()) return cpu::table();
  usable_gpu(device);
  return *backend_library().backend->table;
}

VerdictKey verdict_key(const DeviceInfo& info) {
  VerdictKey key{info.uuid, info.name, backend_versions()};
  key.versions.emplace_back("Lockstep", LOCKSTEP_VERSION);
  key.versions.emplace_back("self-test", self_test_version());
  return key;
}

void set_device_tester(DeviceTester tester) { verdicts().tester = tester; }

void set_verdict_source(DeviceTester source) {
  const MutexLock lock(verdicts().mutex);
  verdicts().known.clear();
  verdicts().source = source;
}

std::optional<Verdict> known_verdict(Device device, std::string* note) {
  if (device.is_cpu()) return std::nullopt;
  if (std::optional<Verdict> known = remembered(device)) return known;
  if (const DeviceTester source = verdicts().source) {
    DeviceInfo asked;  // a stand-in is not listed
    asked.device = device;
    for (const DeviceInfo& info : list_devices()) {
      if (info.device == device) asked = info;
    }
    return remember(device, source(asked));
  }
  for (const DeviceInfo& info : list_devices()) {
    if (info.device != device || !info.usable()) continue;
    StoredVerdict stored;
    try {
      stored = read_verdict(verdict_folder(), verdict_key(info));
    } catch (const InvalidArgument& error) {
      stored.problem = error.what();
    }
    if (note) *note = stored.problem;
    if (stored.verdict) return remember(device, *stored.verdict);
  }
  return std::nullopt;
}

BackendLibrary open_backend(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* const said = dlerror();
    return {nullptr, path, explain(path, said ? said : "no reason given")};
  }
  const auto function = reinterpret_cast<BackendFunction>(dlsym(handle, kBackendFunction));
  if (!function) {
    return refused(path, path + " is not a Lockstep back end: it has no " + kBackendFunction, "");
  }
  const Backend* const backend = function();
  const std::string hint = "use the library that was built with this executable";
  if (backend->version != Table::kVersion) {
    return refused(path,
                   path + " has version " + std::to_string(backend->version) +
                       " of the kernel table, but this executable has version " +
                       std::to_string(Table::kVersion),
                   hint);
  }
  if (backend->project_version != std::string_view(LOCKSTEP_VERSION)) {
    return refused(path,
                   path + " belongs to Lockstep " + backend->project_version +
                       ", but this executable to " LOCKSTEP_VERSION,
                   hint);
  }
  return {backend, path, {}};
}

std::vector<DeviceInfo> list_devices() { return gpus().devices; }

Reason no_devices_reason() { return gpus().reason; }

std::string backend_path() { return backend_library().backend ? backend_library().path : ""; }

std::vector<std::pair<std::string, std::string>> backend_versions() {
  const Backend* const backend = backend_library().backend;
  if (!backend) return {};
  return backend->versions();
}

void check_precision(const Table& table, DType dtype) {
  if (dtype == DType::f16 && !table.f16) {
    throw Unsupported(
        "[kernels] f16 is not supported on this device" + because("f16"),
        "use fp32 or bf16: only GPUs whose kernels have passed the self-test with f16 support it");
  }
  if (dtype != DType::bf16 || table.bf16) return;
  throw Unsupported(
      "[kernels] bf16 is not supported on this device" + because("bf16"),
      "use fp32: a processor needs AVX-512 BF16 for it, and the kernels of a GPU must have passed "
      "the self-test with bf16");
}

void check_tf32(const Table& table) {
  if (table.tf32) return;
  throw Unsupported("[kernels] tf32 is not supported on this device" + because("tf32"), "use fp32");
}

const Table& table_for(Device device) {
  if (device.is_cpu()) return cpu::table();
  if (const Table* table = find_table(device)) return *table;
  load(device);
  return *find_table(device);
}

void register_table(Device device, const Table* table) {
  const MutexLock lock(tables().mutex);
  if (table) {
    tables().of[device] = table;
  } else {
    tables().of.erase(device);
  }
}

std::optional<Device> choose_device(std::optional<Device> device) {
  if (device) table_for(*device);
  return std::exchange(chosen, device);
}

std::optional<Device> chosen_device() { return chosen; }

Device resolve_device(std::string_view text, const std::function<void(Device)>& try_out) {
  if (text != "auto" || chosen) {
    const Device device = text != "auto" ? parse_device(text) : *chosen;
    table_for(device);
    if (try_out) try_out(device);
    return device;
  }
  for (const auto& info : list_devices()) {
    if (!info.usable()) continue;
    try {
      table_for(info.device);
      if (!try_out && !all_kernels_usable(info.device)) continue;
      if (try_out) try_out(info.device);
      return info.device;
    } catch (const Unsupported&) {
      // Try the next GPU, or fall back to the CPU.
    }
  }
  return {};
}

}  // namespace lockstep::kernels
