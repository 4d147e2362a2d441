// Predictions whose rows do not depend on other rows.
#include <algorithm>
#include <cstring>
#include <map>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/sequences.h"

namespace lockstep {

namespace {

// Copies rows of `bytes` bytes each.
struct RowCopy {
  Device device;
  size_t bytes;
  void operator()(void* to, int64_t to_row, const void* from, int64_t from_row,
                  int64_t rows) const {
    eager_copy(device, static_cast<std::byte*>(to) + static_cast<size_t>(to_row) * bytes,
               static_cast<const std::byte*>(from) + static_cast<size_t>(from_row) * bytes,
               static_cast<size_t>(rows) * bytes);
  }
};

// The number of observations that predict() runs together. The kernels, and therefore the rounding,
// depend on the shape, so the number is fixed and independent of the caller's batch. On the CPU it
// is the size of a shard. A GPU needs more for good speed.
constexpr int64_t kPredictedTogether = 16, kPredictedTogetherOnGpu = 64;

// Observations of one capacity of steps.
using Capacities = std::map<int64_t, std::vector<int64_t>>;

Capacities by_capacity(const Tensor& lengths) {
  Capacities found;
  for (int64_t i = 0; i < lengths.shape()[0]; ++i) {
    found[steps_capacity(lengths.data<int32_t>()[i])].push_back(i);
  }
  return found;
}

}  // namespace

// Sequences run with others of the same capacity, so that a plan depends on a sequence's own length
// alone.
Tensor Network::predict(const Tensor& input, const Tensor& lengths) {
  const std::span<const Tensor> one(&input, 1);
  const int64_t n = check_inputs(one);
  const std::vector<Tensor> known = sequence_lengths(one, {lengths});
  const Tensor host = known.at(0).to({}), plain = input.to({}).to_row_major();
  const bool sequence = outputs().at(0).sequence;
  const int64_t most = input.shape()[1];
  const size_t step_bytes = plain.bytes() / static_cast<size_t>(n * most);
  Tensor result;
  for (const auto& [capacity, rows] : by_capacity(host)) {
    for (size_t first = 0; first < rows.size(); first += kPredictedTogether) {
      const size_t count = std::min<size_t>(kPredictedTogether, rows.size() - first);
      std::vector<int64_t> dims = input.shape().dims();
      dims[0] = kPredictedTogether;
      dims[1] = capacity;
      const Tensor some = Tensor::zeros(Shape(dims), input.dtype());
      std::vector<int32_t> own(kPredictedTogether, 0);
      for (size_t i = 0; i < count; ++i) {
        const int64_t row = rows[first + i];
        own[i] = host.data<int32_t>()[row];
        std::memcpy(
            static_cast<std::byte*>(some.raw()) + i * static_cast<size_t>(capacity) * step_bytes,
            static_cast<const std::byte*>(plain.raw()) +
                static_cast<size_t>(row * most) * step_bytes,
            static_cast<size_t>(own[i]) * step_bytes);
      }
      const Tensor scores =
          forward(
              {some.to(device())},
              {.record = false,
               .carry = false,
               .lengths = {Tensor::from(std::span<const int32_t>(own), Shape{kPredictedTogether})
                               .to(device())}})
              .to({})
              .to_row_major();
      if (!result.defined()) {
        std::vector<int64_t> all = scores.shape().dims();
        all[0] = n;
        if (sequence) all[1] = most;
        result = Tensor::zeros(Shape(all), DType::f32);
      }
      const int64_t each = scores.shape().elements() / kPredictedTogether;
      const int64_t row_elements = result.shape().elements() / n;
      for (size_t i = 0; i < count; ++i) {
        const int64_t valid = sequence ? each / capacity * own[i] : each;
        std::copy_n(scores.data<float>() + static_cast<int64_t>(i) * each, valid,
                    result.data<float>() + rows[first + i] * row_elements);
      }
    }
  }
  return result.to(device());
}

Tensor Network::predict(const Tensor& input) {
  const int64_t n = check_inputs(std::span(&input, 1));
  if (inputs().at(0).sequence) {
    const std::vector<int32_t> whole(static_cast<size_t>(n),
                                     static_cast<int32_t>(input.shape()[1]));
    return predict(input, Tensor::from(std::span(whole), Shape{n}));
  }
  const bool on_cpu = device().is_cpu();
  const int64_t rows = on_cpu ? kPredictedTogether : kPredictedTogetherOnGpu;
  const std::shared_ptr<NetworkPlan> mine =
      plan_for(rows, {.inputs = {input.dtype()}}, DType::f32, false);
  const std::shared_ptr<NetworkRun> run = lend_run(mine, packed(), state_->states);
  const ArithmeticMode mode;
  packed().refresh(on_cpu ? packed().digests() : std::vector<Digest>());
  const Tensor plain = convert(input, input.spec().plain());
  Tensor result(mine->outputs[0].with_batch(n), DType::f32, device());
  const RowCopy in{device(), plain.bytes() / static_cast<size_t>(n)};
  const RowCopy out{device(), result.bytes() / static_cast<size_t>(n)};
  const int64_t padding = (rows - n % rows) % rows;
  const Tensor zeros = Tensor::zeros(input.shape().with_batch(std::max<int64_t>(padding, 1)),
                                     input.dtype(), device());
  PlanRun& plan = *run->run;
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t some = std::min(rows, n - first);
    in(plan.input(0), 0, plain.raw(), first, some);
    if (some < rows) in(plan.input(0), some, zeros.raw(), 0, padding);
    plan.forward({});
    plan.join();
    out(result.raw(), first, plan.output(0), 0, some);
  }
  return result;
}

}  // namespace lockstep
