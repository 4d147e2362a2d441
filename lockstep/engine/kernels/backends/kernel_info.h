// What kernel_list.h says about each kernel, for code that handles all entries of a Table in the
// same way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels {

// A line of the list.
#define LOCKSTEP_KERNEL_ID(name, ...) name,
enum class KernelId : size_t { LOCKSTEP_KERNELS(LOCKSTEP_KERNEL_ID, LOCKSTEP_KERNEL_ID) };
#undef LOCKSTEP_KERNEL_ID

// The columns of the list; see there.
struct KernelInfo {
  enum class Types : uint8_t { wide, narrow };
  enum class Need : uint8_t { required, optional };
  enum class Backends : uint8_t { both, cpu_only, gpu_only };

  std::string_view name;
  bool op = false;  // an op's kernel, as opposed to a function
  Types types = Types::wide;
  Need need = Need::required;
  Backends backends = Backends::both;

  // GPUs may round its factors to TF32 (choice.h).
  constexpr bool multiplies() const {
    return name == "convolution" || name == "transposed_convolution" || name == "fully_connected" ||
           name == "matrix_product";
  }
  constexpr bool narrow() const { return types == Types::narrow; }
  constexpr bool optional() const { return need == Need::optional; }
  constexpr bool on_cpu() const { return backends != Backends::gpu_only; }
  constexpr bool on_gpu() const { return backends != Backends::cpu_only; }
};

// All kernels, in the order of the list.
#define LOCKSTEP_OP_INFO(name, Problem, types, need, backends)              \
  KernelInfo{#name, true, KernelInfo::Types::types, KernelInfo::Need::need, \
             KernelInfo::Backends::backends},
#define LOCKSTEP_FUNCTION_INFO(name, result, parameters, types, need, backends) \
  KernelInfo{#name, false, KernelInfo::Types::types, KernelInfo::Need::need,    \
             KernelInfo::Backends::backends},
inline constexpr std::array kKernels{LOCKSTEP_KERNELS(LOCKSTEP_OP_INFO, LOCKSTEP_FUNCTION_INFO)};
#undef LOCKSTEP_OP_INFO
#undef LOCKSTEP_FUNCTION_INFO

static_assert(std::all_of(kKernels.begin(), kKernels.end(),
                          [](const KernelInfo& k) { return k.on_cpu() || k.optional(); }),
              "callers depend on a required kernel on the CPU too");

constexpr const KernelInfo& info_of(KernelId id) { return kKernels[static_cast<size_t>(id)]; }

// Calls visit.operator()<id, entry>() for each kernel: its KernelId and its member of Table.
template <class Visit>
void for_each_kernel(Visit&& visit) {
#define LOCKSTEP_VISIT_KERNEL(name, ...) visit.template operator()<KernelId::name, &Table::name>();
  LOCKSTEP_KERNELS(LOCKSTEP_VISIT_KERNEL, LOCKSTEP_VISIT_KERNEL)
#undef LOCKSTEP_VISIT_KERNEL
}

}  // namespace lockstep::kernels
