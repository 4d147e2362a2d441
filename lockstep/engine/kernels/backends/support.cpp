#include "lockstep/engine/kernels/backends/support.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"

namespace lockstep::kernels {
namespace {

// Not entries of Table, but usable under the same conditions.
constexpr const char *kNccl = "nccl", *kBf16 = "bf16", *kF16 = "f16";

template <KernelId id, bool present, class Result, class... Arguments>
Result refuse(Arguments...) {
  const std::string text(info_of(id).name);
  if constexpr (present) {
    throw Unsupported("[kernels] " + text + " has not been verified on a GPU",
                      "set LOCKSTEP_UNVERIFIED=" + text + ",... (or all) to use it anyway");
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

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = list.find(',');
    if (end != 0) names.emplace_back(list.substr(0, end));
    list = end == list.npos ? std::string_view() : list.substr(end + 1);
  }
  return names;
}

bool is_unlocked(std::string_view name, std::string_view unlocked) {
  const std::vector<std::string> named = names_in(unlocked);
  return std::any_of(named.begin(), named.end(),
                     [&](const std::string& n) { return n == name || n == "all"; });
}

}  // namespace

std::vector<KernelSupport> kernel_support(const Table& table,
                                          std::span<const cuda::Verified> verified,
                                          std::string_view unlocked) {
  const std::vector<std::string> named = names_in(unlocked);
  const auto is_named = [&](std::string_view name) {
    return std::find(named.begin(), named.end(), name) != named.end();
  };
  const bool all = is_named("all");
  std::vector<KernelSupport> support;
  for_each_kernel([&]<KernelId id, auto entry>() {
    KernelSupport s{.name = info_of(id).name, .present = table.*entry != nullptr};
    for (const cuda::Verified& v : verified) {
      if (v.name == s.name && !is_narrow(v.dtype)) s.verified = &v;
    }
    s.unlocked = all || is_named(s.name);
    s.optional = info_of(id).optional();
    support.push_back(s);
  });
  std::vector<std::string> known{"all", kNccl, kBf16, kF16};
  for (const auto& s : support) known.emplace_back(s.name);
  for (const std::string& name : named) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw InvalidArgument(
        "[kernels] LOCKSTEP_UNVERIFIED names `" + name + "`, which is not a kernel",
        suggest(name, known));
  }
  return support;
}

bool narrow_usable(const Table& table, DType narrow, std::span<const cuda::Verified> verified,
                   std::string_view unlocked) {
  const bool offered = narrow == DType::bf16 ? table.bf16 : table.f16;
  return offered &&
         (is_unlocked(name_of(narrow), unlocked) ||
          std::all_of(kKernels.begin(), kKernels.end(), [&](const KernelInfo& kernel) {
            return !kernel.narrow() ||
                   std::any_of(verified.begin(), verified.end(), [&](const cuda::Verified& v) {
                     return v.name == kernel.name && v.dtype == narrow;
                   });
          }));
}

bool nccl_usable(std::span<const cuda::Verified> verified, std::string_view unlocked) {
  return is_unlocked(kNccl, unlocked) ||
         std::any_of(verified.begin(), verified.end(),
                     [](const cuda::Verified& v) { return v.name == kNccl; });
}

Table guarded(const Table& table, std::span<const cuda::Verified> verified,
              std::string_view unlocked) {
  const std::vector<KernelSupport> support = kernel_support(table, verified, unlocked);
  Table result = table;
  result.bf16 = narrow_usable(table, DType::bf16, verified, unlocked);
  result.f16 = narrow_usable(table, DType::f16, verified, unlocked);
  auto next = support.begin();
  for_each_kernel([&]<KernelId id, auto entry>() { guard<id>(result.*entry, (next++)->usable()); });
  return result;
}

}  // namespace lockstep::kernels
