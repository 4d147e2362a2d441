#include "lockstep/engine/kernels/backends/table.h"

#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {
namespace {

Table make_table() {
  Table t;
  t.bf16 = computes_bf16();
  t.normalization_with_max_pooling = true;
#define LOCKSTEP_ENTRY(name, ...) \
  if constexpr (info_of(KernelId::name).on_cpu()) t.name = name;
  LOCKSTEP_KERNELS(LOCKSTEP_ENTRY, LOCKSTEP_ENTRY)
#undef LOCKSTEP_ENTRY
  return t;
}

}  // namespace

const Table& table() {
  static const Table instance = make_table();
  return instance;
}

}  // namespace lockstep::kernels::cpu
