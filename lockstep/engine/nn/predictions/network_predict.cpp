// Predictions whose rows do not depend on other rows.
#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/nn/network_state.h"
#include "lockstep/engine/nn/predictions/sequence_groups.h"

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
constexpr int64_t kPredictedTogetherOnGpu = 64;

}  // namespace

void Network::refresh_packed() {
  if (state_->fixed) return;
  packed().refresh(device().is_cpu() ? packed().digests() : std::vector<Digest>());
}

FixedParameters::FixedParameters(Network& network)
    : network_(network), before_(network.state_->fixed) {
  network.refresh_packed();
  network.state_->fixed = true;
}
FixedParameters::~FixedParameters() { network_.state_->fixed = before_; }

Tensor Network::predict(const Tensor& input, const Tensor& lengths) {
  const std::span<const Tensor> one(&input, 1);
  check_inputs(one);
  const std::vector<Tensor> known = sequence_lengths(one, {lengths});
  const auto run = [&](const Tensor& x, const Tensor& own, std::span<const int64_t>) {
    return forward({x}, {.record = false, .carry = false, .lengths = {own}});
  };
  return SequenceGroups(input, known.at(0), kPredictedTogether)
      .run(run, outputs().at(0).sequence, device());
}

Tensor Network::predict(const Tensor& input) {
  const int64_t n = check_inputs(std::span(&input, 1));
  if (inputs().at(0).sequence) return predict(input, whole_lengths(input));
  const bool on_cpu = device().is_cpu();
  const int64_t rows = on_cpu ? kPredictedTogether : kPredictedTogetherOnGpu;
  const std::shared_ptr<NetworkPlan> mine =
      plan_for(rows, {.inputs = {input.dtype()}}, DType::f32, false);
  const std::shared_ptr<NetworkRun> run = lend_run(mine, packed(), state_->states);
  const ArithmeticMode mode;
  refresh_packed();
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
