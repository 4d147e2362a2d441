#include "lockstep/train/state/finite_values.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/base/counted.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"

namespace lockstep {
namespace {

enum class Kind : uint8_t { parameter, state, rows, solver };

struct Named {
  Kind kind;
  std::string tensor;  // "<layer>.<tensor>"
  std::string array;   // of the solver
  Tensor values;
};

std::vector<Named> all_values(const Network& network, const Solver& solver) {
  std::vector<Named> all;
  for (const auto& p : network.parameters()) all.push_back({Kind::parameter, p.name, {}, p.value});
  for (const auto& s : network.state()) all.push_back({Kind::state, s.name, {}, s.value});
  const auto names = solver.state_names();
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    const auto arrays = solver.state(p);
    for (size_t k = 0; k < arrays.size(); ++k) {
      all.push_back({Kind::solver, network.parameters()[p].name, names[k], arrays[k]});
    }
  }
  return all;
}

bool all_finite(const float* values, size_t count) {
  constexpr uint32_t exponent = 0x7f800000;
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<uint32_t>(values[i]) & exponent) == exponent ? 1u : 0u;
  }
  return found == 0;
}

// Returns the index of the first tensor that is not finite; the number of tensors if all are.
size_t find_on_cpu(const std::vector<Named>& all, ThreadPool& pool) {
  constexpr size_t most = size_t{1} << 16;
  struct ValueRange {
    size_t tensor;
    const float* values;
    size_t count;
  };
  std::vector<ValueRange> ranges;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto count = static_cast<size_t>(all[i].values.shape().elements());
    const float* const values = all[i].values.data<float>();
    for (size_t first = 0; first < count; first += most) {
      ranges.push_back({i, values + first, std::min(most, count - first)});
    }
  }
  std::atomic<size_t> first{all.size()};
  pool.for_each(static_cast<int64_t>(ranges.size()), [&](int64_t i, int) {
    const ValueRange& range = ranges[static_cast<size_t>(i)];
    if (all_finite(range.values, range.count)) return;
    size_t known = first.load();
    while (range.tensor < known && !first.compare_exchange_weak(known, range.tensor)) {
    }
  });
  return first.load();
}

// The device computes sums of squares in f64, which are finite where all values are.
size_t find_on_device(const std::vector<Named>& all, Device device) {
  DeviceMemory& memory = memory_of(device);
  memory.activate();
  std::vector<size_t> ends;
  size_t blocks = 0;
  for (const Named& named : all) {
    blocks += kernels::norm_blocks(static_cast<size_t>(named.values.shape().elements()));
    ends.push_back(blocks);
  }
  if (blocks == 0) return all.size();
  const Memory sums = allocate(blocks * sizeof(double), device);
  void* const stream = memory.default_stream();
  size_t done = 0;
  for (size_t i = 0; i < all.size(); done = ends[i++]) {
    kernels::functions_for(device).block_squares(
        static_cast<const float*>(all[i].values.raw()),
        static_cast<size_t>(all[i].values.shape().elements()), sums.as<double>() + done, stream);
  }
  std::vector<double> here(blocks);
  copy_bytes(here.data(), Device{}, sums.data(), device, blocks * sizeof(double));
  const auto bad =
      std::find_if(here.begin(), here.end(), [](double sum) { return !std::isfinite(sum); });
  const auto block = static_cast<size_t>(bad - here.begin());
  return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), block) - ends.begin());
}

std::string hint_for(Kind kind) {
  switch (kind) {
    case Kind::parameter:
      return "a lower initial_learning_rate often helps";
    case Kind::state:
      return "the square of a number above 1.8e19 overflows: normalize the data, or lower "
             "initial_learning_rate";
    case Kind::rows:
      return "a state by row that grows with each mini-batch overflows: let the layer bound it";
    case Kind::solver:
      return "the square of a gradient above 1.8e19 overflows: normalize inputs and targets, or "
             "set gradient_threshold";
  }
  return {};
}

NotFinite describe(const Named& named) {
  const Tensor host = named.values.to({});
  const std::span values(host.data<float>(), static_cast<size_t>(host.shape().elements()));
  const auto bad =
      std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  const size_t dot = named.tensor.rfind('.');
  const std::string layer = named.tensor.substr(0, dot), tensor = named.tensor.substr(dot + 1);
  const std::string where = "`" + tensor + "` of layer `" + layer + "`";
  return {(named.kind == Kind::solver ? "the solver's `" + named.array + "` for " + where : where) +
              " has " + std::to_string(bad) + " of " + counted(values.size(), "value") +
              " that are not finite",
          hint_for(named.kind)};
}

}  // namespace

std::optional<NotFinite> find_not_finite(const Network& network, const Solver& solver,
                                         ThreadPool& pool) {
  const std::vector<Named> all = all_values(network, solver);
  const Device device = network.device();
  const size_t found = device.is_cpu() ? find_on_cpu(all, pool) : find_on_device(all, device);
  if (found < all.size()) return describe(all[found]);
  std::vector<Named> rows;  // on the CPU
  for (const auto& s : network.row_states()) rows.push_back({Kind::rows, s.name, {}, s.value});
  const size_t row = find_on_cpu(rows, pool);
  if (row == rows.size()) return std::nullopt;
  return describe(rows[row]);
}

}  // namespace lockstep
