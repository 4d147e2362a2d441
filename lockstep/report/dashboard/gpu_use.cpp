#include "lockstep/report/dashboard/gpu_use.h"

#include <dlfcn.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

GpuUse::GpuUse(const std::string& library) {
  // Never unloaded: the driver may have started threads.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return;
  int (*init)() = nullptr;
  usable_ = find_function(loaded, "nvmlInit_v2", init) &&
            find_function(loaded, "nvmlDeviceGetCount_v2", count_) &&
            find_function(loaded, "nvmlDeviceGetHandleByIndex_v2", handle_) &&
            find_function(loaded, "nvmlDeviceGetName", name_) &&
            find_function(loaded, "nvmlDeviceGetUtilizationRates", utilization_) &&
            find_function(loaded, "nvmlDeviceGetMemoryInfo", memory_) && init() == 0;
}

nlohmann::ordered_json GpuUse::json() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  unsigned int count = 0;
  if (!usable_ || count_(&count) != 0) return all;
  for (unsigned int i = 0; i < count; ++i) {
    // A GPU that fails keeps its place, so that the others keep their numbers.
    nlohmann::ordered_json one{
        {"name", ""}, {"busy", nullptr}, {"memory", nullptr}, {"memory_bytes", nullptr}};
    Handle handle = nullptr;
    if (handle_(i, &handle) != 0) {
      all.push_back(std::move(one));
      continue;
    }
    char name[96] = "";
    if (name_(handle, name, sizeof name) == 0) one["name"] = name;
    Utilization use = {};
    if (utilization_(handle, &use) == 0) one["busy"] = use.gpu / 100.0;
    Memory memory = {};
    if (memory_(handle, &memory) == 0 && memory.total > 0) {
      one["memory"] = static_cast<double>(memory.used) / static_cast<double>(memory.total);
      one["memory_bytes"] = memory.total;
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace lockstep
