#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels {
namespace {

// The entry of the table for a problem.
template <class Problem>
constexpr Kernel (*Table::*entry_for)(const Problem&) = nullptr;
#define LOCKSTEP_ENTRY(name, Problem, ...) \
  template <>                              \
  constexpr Kernel (*Table::*entry_for<Problem>)(const Problem&) = &Table::name;
LOCKSTEP_OP_KERNELS(LOCKSTEP_ENTRY)
#undef LOCKSTEP_ENTRY

}  // namespace

template <class Problem>
Kernel compile(const Table& table, const Problem& problem) {
  return (table.*entry_for<Problem>)(problem);
}
#define LOCKSTEP_COMPILE(name, Problem, ...) \
  template Kernel compile<Problem>(const Table& table, const Problem& problem);
LOCKSTEP_OP_KERNELS(LOCKSTEP_COMPILE)
#undef LOCKSTEP_COMPILE

Pass reorder(const Table& table, const TensorSpec& from, const TensorSpec& to) {
  return table.reorder(from, to);
}
Pass accumulate(const Table& table, const TensorSpec& spec) { return table.accumulate(spec); }
Pass zero(const Table& table, const TensorSpec& spec) { return table.zero(spec); }

const Functions& functions_for(Device device) { return table_for(device); }

bool normalizes_with_bias(const Table& table) { return table.normalization_with_bias; }
bool normalizes_with_max_pooling(const Table& table) {
  return table.normalization_with_max_pooling;
}

}  // namespace lockstep::kernels
