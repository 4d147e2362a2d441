#include "lockstep/train/iteration/devices/device_update.h"

#include <utility>

#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

DeviceUpdateSettings::DeviceUpdateSettings(const Network& network, const TrainingOptions& options)
    : threshold{options.solver.gradient_threshold, options.solver.gradient_threshold_method},
      loss_scale(options.precision.scale_of_losses()) {
  for (const auto& p : network.parameters()) {
    first_epochs.push_back(first_learning_epoch(p.name, options));
  }
}

std::vector<bool> DeviceUpdateSettings::frozen_in(const UpdateScalars& scalars) const {
  std::vector<bool> frozen;
  for (const int64_t first : first_epochs) frozen.push_back(scalars.number_since(first) < 1);
  return frozen;
}

DeviceUpdate::DeviceUpdate(Network& network, Solver& solver, const DeviceUpdateSettings& settings,
                           std::vector<bool> frozen, const GradientLayout& layout, std::byte* sums,
                           DeviceMirror& mirror, DeviceIteration& iteration)
    : network_(network),
      solver_(solver),
      layout_(layout),
      mirror_(mirror),
      iteration_(iteration),
      memory_(memory_of(network.device())),
      functions_(kernels::functions_for(network.device())),
      settings_(settings),
      frozen_(std::move(frozen)) {
  memory_.activate();
  for (const auto& entry : layout.entries) {
    std::byte* const from_here = sums + entry.offset;
    if (entry.spec.row_major()) {
      values_.push_back(reinterpret_cast<float*>(from_here));
      continue;
    }
    const auto pass = functions_.reorder(entry.spec, entry.spec.plain());
    gradients_.push_back(allocate(entry.spec.plain().bytes(), network.device()));
    scratch_.push_back(allocate(pass.scratch_bytes, network.device()));
    void* const from = from_here;
    void* const to = gradients_.back().data();
    conversions_.push_back(
        pass.bind({std::span<void* const>(&from, 1), std::span<void* const>(&to, 1),
                   scratch_.back().data(), iteration.stream()}));
    values_.push_back(gradients_.back().as<float>());
  }
  if (settings.waits()) place_squares();
  of_all_ = UpdateOfAll::make(network, solver, values_, frozen_, iteration);
}

size_t DeviceUpdate::count(size_t parameter) const {
  const auto& entry = layout_.entries[parameter];
  return static_cast<size_t>(entry.spec.shape.elements());
}

// Frozen parameters have no blocks, because their gradients are not used.
size_t DeviceUpdate::blocks(size_t parameter) const {
  return frozen_[parameter] ? 0 : kernels::norm_blocks(count(parameter));
}

void DeviceUpdate::place_squares() {
  size_t bytes = 0;
  for (size_t p = 0; p < frozen_.size(); ++p) bytes += blocks(p) * sizeof(double);
  squares_ = allocate(bytes, network_.device());
  squares_here_ = std::make_unique<Pinned>(memory_, bytes);
}

void DeviceUpdate::convert() {
  for (const auto& conversion : conversions_) conversion({});
}

// Returns the divisor of each parameter's sum, where the default is the number of observations. The
// host computes it by the CPU's code, from one number for each block.
std::vector<double> DeviceUpdate::cut(double observations) {
  void* const stream = iteration_.stream();
  if (settings_.threshold.of_elements()) {
    for (size_t p = 0; p < frozen_.size(); ++p) {
      if (!frozen_[p])
        functions_.limit(values_[p], count(p), settings_.threshold.most(observations), stream);
    }
    return std::vector<double>(frozen_.size(), observations);
  }
  auto* next = squares_.as<double>();
  for (size_t p = 0; p < frozen_.size(); ++p) {
    if (!frozen_[p]) functions_.block_squares(values_[p], count(p), next, stream);
    next += blocks(p);
  }
  memory_.copy_to_host(squares_here_->data(), squares_.data(), squares_.bytes(), stream);
  memory_.synchronize(stream);
  std::vector<std::vector<double>> by_parameter;
  const auto* here = reinterpret_cast<const double*>(squares_here_->data());
  for (size_t p = 0; p < frozen_.size(); ++p) {
    by_parameter.emplace_back(here, here + blocks(p));
    here += blocks(p);
  }
  return settings_.threshold.divisors(by_parameter, observations);
}

void DeviceUpdate::add(const UpdateScalars& scalars, size_t slot) {
  // Plans that were compiled since then have added copies.
  if (packed_copies_ != network_.packed().number_of_copies()) {
    packed_copies_ = network_.packed().number_of_copies();
    packing_ = network_.packed().packing(iteration_.stream());
  }
  if (iteration_.whole()) {
    UpdateScalars own = scalars;
    own.observations *= settings_.loss_scale;
    for (size_t p = 0; p < values_.size(); ++p) of_all_->note(slot, p, own);
    iteration_.add([this] {
      convert();
      of_all_->add();
      pack_and_digest();
    });
  } else {
    iteration_.add_to_stream([&] {
      convert();
      update(scalars, slot);
      pack_and_digest();
      iteration_.return_updater_part(slot);
    });
  }
}

void DeviceUpdate::pack_and_digest() {
  for (const auto& pass : packing_) pass({});
  mirror_.add_digests();
}

void DeviceUpdate::update(const UpdateScalars& scalars, size_t slot) {
  const double observations = scalars.observations * settings_.loss_scale;
  std::vector<double> divisors(values_.size(), observations);
  if (settings_.threshold.wanted()) divisors = cut(observations);
  const auto scalars_of = [&](size_t p) {
    UpdateScalars own = scalars;
    own.observations = divisors[p];
    return own;
  };
  if (of_all_) {
    for (size_t p = 0; p < values_.size(); ++p) of_all_->note(slot, p, scalars_of(p));
    iteration_.send_updater_part(slot);
    of_all_->add();
    return;
  }
  // The solver adds single updates to the default stream.
  memory_.follow(memory_.default_stream(), iteration_.stream());
  for (size_t p = 0; p < values_.size(); ++p) {
    const Tensor& value = network_.parameters()[p].value;
    solver_.update(p, {0, value.shape().elements()}, values_[p], scalars_of(p));
  }
  memory_.follow(iteration_.stream(), memory_.default_stream());
}

}  // namespace lockstep
