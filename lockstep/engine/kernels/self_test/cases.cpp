#include "lockstep/engine/kernels/self_test/cases.h"

#include <algorithm>

#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels::selftest {

std::vector<std::string> types_of(const Table& table, std::string_view kernel) {
  std::vector<std::string> types{"f32"};
  const auto info = std::find_if(kKernels.begin(), kKernels.end(),
                                 [&](const KernelInfo& k) { return k.name == kernel; });
  if (info == kKernels.end()) return types;
  if (table.tf32 && info->multiplies()) types.emplace_back("tf32");
  if (table.bf16 && info->narrow()) types.emplace_back("bf16");
  if (table.f16 && info->narrow()) types.emplace_back("f16");
  return types;
}

DType numbers_of(std::string_view type) {
  return type == "bf16" ? DType::bf16 : type == "f16" ? DType::f16 : DType::f32;
}

std::vector<TestCase> all_cases(const Table& table) {
  std::vector<TestCase> all;
  for (auto& part : {window_cases(table), op_cases(table), index_cases(), recurrent_cases(),
                     function_cases(table)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  std::vector<TestCase> ordered;
  for_each_kernel([&]<KernelId id, auto entry>() {
    if (!(table.*entry)) return;
    for (const TestCase& c : all) {
      if (c.kernel == info_of(id).name) ordered.push_back(c);
    }
  });
  // Small cases first, so that every kernel has run before the large ones.
  std::stable_partition(ordered.begin(), ordered.end(), [](const TestCase& c) { return !c.large; });
  return ordered;
}

}  // namespace lockstep::kernels::selftest
