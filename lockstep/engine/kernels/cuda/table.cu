#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/cuda/cuda.h"

namespace lockstep::kernels::cuda {
namespace {

Table make_table() {
  Table t;
  t.bf16 = true;
  t.f16 = true;
  t.tf32 = true;
  t.normalization_with_bias = true;
#define LOCKSTEP_ENTRY(name, ...) \
  if constexpr (info_of(KernelId::name).on_gpu()) t.name = name;
  LOCKSTEP_KERNELS(LOCKSTEP_ENTRY, LOCKSTEP_ENTRY)
#undef LOCKSTEP_ENTRY
  return t;
}

}  // namespace

const Table& table() {
  static const Table instance = make_table();
  return instance;
}

}  // namespace lockstep::kernels::cuda
