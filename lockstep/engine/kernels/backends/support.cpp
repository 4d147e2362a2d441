#include "lockstep/engine/kernels/backends/support.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels {
namespace {

// Entries of Table are plain functions, so what they were refused for is kept here.
struct Refusals {
  Mutex mutex;
  std::map<std::string, std::map<Device, std::string>, std::less<>> by_name
      LOCKSTEP_GUARDED_BY(mutex);
};

Refusals& refusals() {
  static auto* instance = new Refusals;
  return *instance;
}

void note(std::string_view name, Device device, const std::string& why) {
  const MutexLock lock(refusals().mutex);
  auto& devices = refusals().by_name[std::string(name)];
  if (why.empty()) {
    devices.erase(device);
  } else {
    devices[device] = why;
  }
}

template <KernelId id, bool present, class Result, class... Arguments>
Result refuse(Arguments...) {
  const std::string text(info_of(id).name);
  if constexpr (present) {
    throw Unsupported("[kernels] " + text + " has not passed the self-test " + refusal_of(text),
                      "use another device; `lockstep verify-device --again` tests again");
  } else {
    throw Unsupported("[kernels] " + text + " has no CUDA kernel", "use the CPU for it");
  }
}

template <KernelId id, class Result, class... Arguments>
void guard(Result (*&entry)(Arguments...), bool usable) {
  if (usable) return;
  if constexpr (info_of(id).optional()) {
    entry = nullptr;
  } else {
    entry =
        entry ? refuse<id, true, Result, Arguments...> : refuse<id, false, Result, Arguments...>;
  }
}

// Why a kernel may not be used with a type.
std::string problem_of(const Verdict& verdict, std::string_view kernel, std::string_view type) {
  const KernelVerdict* const found = verdict.find(kernel, type);
  if (!found) return "it was not tested" + (verdict.reason.empty() ? "" : ": " + verdict.reason);
  if (found->state == TestState::passed) return "";
  return found->state == TestState::failed ? found->seen : "it was not tested: " + found->seen;
}

// Whether a kernel has code of its own for the type.
bool computes(const KernelInfo& kernel, std::string_view type) {
  return type == "tf32" ? kernel.multiplies() : kernel.narrow();
}

}  // namespace

std::vector<KernelSupport> kernel_support(const Table& table, const Verdict& verdict) {
  std::vector<KernelSupport> support;
  for_each_kernel([&]<KernelId id, auto entry>() {
    const std::string_view name = info_of(id).name;
    support.push_back(
        {name, table.*entry != nullptr, verdict.passed(name), info_of(id).optional()});
  });
  return support;
}

std::string type_problem(const Table& table, std::string_view type, const Verdict& verdict) {
  const bool offered = type == "tf32" ? table.tf32 : type == "bf16" ? table.bf16 : table.f16;
  if (!offered) return "the device does not compute with it";
  std::string problem;
  for_each_kernel([&]<KernelId id, auto entry>() {
    if (!problem.empty() || !(table.*entry) || !computes(info_of(id), type)) return;
    const std::string why = problem_of(verdict, info_of(id).name, type);
    if (!why.empty()) problem = std::string(info_of(id).name) + ": " + why;
  });
  return problem;
}

Table guarded(const Table& table, const Verdict& verdict, Device device) {
  const std::vector<KernelSupport> support = kernel_support(table, verdict);
  Table result = table;
  const auto admits = [&](std::string_view type) {
    const std::string problem = type_problem(table, type, verdict);
    note(type, device, problem);
    return problem.empty();
  };
  result.tf32 = admits("tf32");
  result.bf16 = admits("bf16");
  result.f16 = admits("f16");
  auto next = support.begin();
  for_each_kernel([&]<KernelId id, auto entry>() {
    const KernelSupport& s = *next++;
    note(s.name, device, s.usable() ? "" : problem_of(verdict, s.name, "f32"));
    guard<id>(result.*entry, s.usable());
  });
  return result;
}

std::string refusal_of(std::string_view name) {
  const MutexLock lock(refusals().mutex);
  const auto found = refusals().by_name.find(name);
  std::string text;
  if (found == refusals().by_name.end()) return text;
  for (const auto& [device, why] : found->second) {
    text += (text.empty() ? "on " : "; on ") + to_string(device) + ": " + why;
  }
  return text;
}

}  // namespace lockstep::kernels
