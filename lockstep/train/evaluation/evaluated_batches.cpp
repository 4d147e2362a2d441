#include "lockstep/train/evaluation/evaluated_batches.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/programs/shard.h"

namespace lockstep {

namespace {

// Rows of a part whose sequences have room for `steps` steps: few of long ones, so that the memory
// of a part does not grow with its steps.
int64_t rows_of_part(int64_t steps) {
  constexpr int64_t short_steps = 512;
  return steps <= short_steps ? 16 : 4;
}

}  // namespace

// All inputs have the same power of two, because pairs of powers would be many plans.
ShardShape evaluated_shape(const std::vector<int64_t>& lengths,
                           const std::vector<int64_t>& longest) {
  constexpr int64_t least = 8;
  int64_t own = least, most = 1;
  for (size_t k = 0; k < longest.size(); ++k) {
    if (longest[k] > 0) own = std::max(own, lengths[k]);
  }
  const auto level = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(own)));
  ShardShape shape;
  for (const int64_t of_all : longest) {
    shape.steps.push_back(of_all > 0 ? std::min(level, steps_capacity(of_all)) : 0);
    most = std::max(most, shape.steps.back());
  }
  shape.rows = rows_of_part(most);
  return shape;
}

EvaluatedBatches::EvaluatedBatches(Network& network, EvaluatedData data, int threads)
    : network_(network),
      data_(std::move(data)),
      targets_(targets_of(*data_.images, data_.targets.get())),
      scratch_(static_cast<size_t>(threads)) {
  if (data_.noise.any()) check_images(*data_.images->store(), "noise");
  if (!data_.compares) {
    against_ = Against::nothing;
  } else if (targets_ && targets_.value->type == DType::i32) {
    against_ = Against::labels;
  } else if (targets_) {
    against_ = Against::images;
  } else if (takes_labels(network.loss()) || data_.loss) {
    against_ = Against::labels;
  }
  if (against_ == Against::labels && targets_ && targets_.value->pixel_labels()) {
    pixels_ = targets_.value->elements();
  }
  measure_sequences();
  const LoweredNetwork lowered =
      lower(in_parts() ? evaluated_shape(longest_, longest_) : ShardShape{size_});
  output_ = network.outputs().at(0).shape;
  parts_ = metric_parts(network);
  if (lowered.output_lengths.at(0) >= 0) number_steps(lowered);
  check_custom_targets();
  if (on_cpu() || in_parts()) return;
  // Of the network alone: neither the type of its inputs nor a loss changes the batches.
  const std::vector<DType> inputs(data_.images->inputs().size(), DType::f32);
  size_ = DeviceBatches::rows_for(
      network.lower(kChunk, {.training = false, .inputs = inputs}).graph, kChunk);
}

std::vector<std::string> EvaluatedBatches::classes() const {
  if (against_ != Against::labels) return {};
  return (data_.targets ? data_.targets : data_.images)->store()->classes();
}

void EvaluatedBatches::measure_sequences() {
  const std::vector<NetworkValue> inputs = network_.inputs();
  if (std::ranges::none_of(inputs, &NetworkValue::sequence)) return;
  for (size_t k = 0; k < inputs.size(); ++k) {
    int64_t longest = 0;
    for (int64_t i = 0; inputs[k].sequence && i < observations(); ++i) {
      longest = std::max(longest, data_.images->steps(i, k));
    }
    longest_.push_back(inputs[k].sequence ? std::max<int64_t>(longest, 1) : 0);
    lengths_ += inputs[k].sequence ? 1 : 0;
  }
  // Before the network is lowered for the longest of each input, which may differ.
  check_combined(network_, *data_.images);
}

ShardShape EvaluatedBatches::shape_of(int64_t observation) const {
  std::vector<int64_t> lengths;
  for (size_t k = 0; k < longest_.size(); ++k) {
    lengths.push_back(longest_[k] > 0 ? data_.images->steps(observation, k) : 0);
  }
  return evaluated_shape(lengths, longest_);
}

std::vector<ShardShape> EvaluatedBatches::shapes() const {
  std::set<ShardShape> found;
  if (!in_parts()) found.insert({size_});
  for (int64_t i = 0; in_parts() && i < observations(); ++i) found.insert(shape_of(i));
  return {found.begin(), found.end()};
}

std::vector<EvaluatedPart> EvaluatedBatches::parts(const IndexRange& observations) const {
  std::map<ShardShape, std::vector<int64_t>> by_shape;
  for (int64_t i = observations.first; i < observations.end(); ++i) {
    by_shape[in_parts() ? shape_of(i) : ShardShape{size_}].push_back(i);
  }
  std::vector<EvaluatedPart> found;
  for (const auto& [shape, all] : by_shape) {
    const auto rows = static_cast<size_t>(shape.rows);
    for (size_t first = 0; first < all.size(); first += rows) {
      const auto some = std::span(all).subspan(first, std::min(rows, all.size() - first));
      found.push_back({shape, {some.begin(), some.end()}});
    }
  }
  return found;
}

int64_t EvaluatedBatches::outputs_together(const ShardShape& shape) const {
  return by_step() ? shape.steps[steps_input_] : 1;
}

void EvaluatedBatches::number_steps(const LoweredNetwork& lowered) {
  const auto of = std::ranges::find(lowered.input_lengths, lowered.output_lengths[0]);
  if (of == lowered.input_lengths.end()) {
    throw Unsupported("[evaluate] the steps of the network's output are not those of an input");
  }
  const auto k = static_cast<size_t>(of - lowered.input_lengths.begin());
  steps_input_ = k;
  offsets_.push_back(0);
  for (int64_t i = 0; i < observations(); ++i) {
    offsets_.push_back(offsets_.back() + data_.images->steps(i, k));
  }
  if (!targets_ || !targets_.value->sequence) return;
  for (int64_t i = 0; i < observations(); ++i) {
    const int64_t steps = data_.images->steps(i, k), wanted = targets_.steps(i);
    if (steps == wanted) continue;
    throw InvalidArgument("[evaluate] " + data_.images->store()->name(i) + " has " +
                              counted(steps, "step") + ", but " + std::to_string(wanted) +
                              " in its target",
                          "each step of the output needs a target");
  }
}

IndexRange EvaluatedBatches::outputs_of(const IndexRange& observations) const {
  if (!by_step()) return observations;
  const int64_t first = offsets_[static_cast<size_t>(observations.first)];
  return {first, offsets_[static_cast<size_t>(observations.end())] - first};
}

IndexRange EvaluatedBatches::kept_of(const IndexRange& observations) const {
  if (pixels_ == 0) return outputs_of(observations);
  const auto chunks = [](int64_t count) { return (count + kChunk - 1) / kChunk; };
  const int64_t first = chunks(observations.first);
  return {first * pairs(), (chunks(observations.end()) - first) * pairs()};
}

std::span<const int32_t> EvaluatedBatches::labels_of(int64_t observation,
                                                     std::vector<int32_t>& memory) const {
  if (pixels_ > 0) {
    memory.resize(static_cast<size_t>(pixels_));
    std::vector<uint8_t> scratch;
    copy_pixel_labels(*targets_.value, targets_.cache->get(observation, scratch), memory.data());
    return memory;
  }
  if (!by_step()) {
    memory.assign(1, static_cast<int32_t>(data_.images->label(observation)));
    return memory;
  }
  std::vector<uint8_t> scratch;
  const ExampleCache::Steps steps =
      targets_.cache->steps_in(*targets_.value, targets_.cache->get(observation, scratch));
  const auto* const first = reinterpret_cast<const int32_t*>(steps.data);
  memory.assign(first, first + steps.count);
  return memory;
}

IndexRange EvaluatedBatches::rows(int64_t batch) const {
  return {batch * size_, std::min(size_, observations() - batch * size_)};
}

int64_t EvaluatedBatches::rows_of_chunk(int64_t chunk) const {
  return std::min(kChunk, observations() - chunk * kChunk);
}

LoweredNetwork EvaluatedBatches::lower(const ShardShape& shape) const {
  LoweredNetwork lowered = network_.lower(
      shape.rows, {.training = false, .inputs = data_.images->input_types(), .steps = shape.steps});
  lowered.graph.mark_output(lowered.outputs.at(0));
  if (plans_have_loss()) lowered.graph.mark_output(add_loss(lowered, network_.loss()).loss);
  return lowered;
}

size_t EvaluatedBatches::wanted_bytes(const ShardShape& shape) const {
  const auto outputs = static_cast<size_t>(outputs_together(shape));
  return against_ == Against::images
             ? outputs * static_cast<size_t>(output_.elements()) * sizeof(float)
             : outputs * static_cast<size_t>(std::max<int64_t>(pixels_, 1)) * sizeof(int32_t);
}

void EvaluatedBatches::clear_padding(const std::vector<uint8_t*>& to, void* wanted, int64_t rows,
                                     const ShardShape& shape) const {
  const auto clear = [&](void* memory, size_t bytes) {
    std::memset(static_cast<uint8_t*>(memory) + static_cast<size_t>(rows) * bytes, 0,
                static_cast<size_t>(shape.rows - rows) * bytes);
  };
  for (size_t k = 0; k < data_.images->inputs().size(); ++k) {
    const bool sequence = k < shape.steps.size() && shape.steps[k] > 0;
    const size_t steps = sequence ? static_cast<size_t>(shape.steps[k]) : 1;
    clear(to[k], steps * data_.images->inputs()[k].bytes);
  }
  for (size_t k = data_.images->inputs().size(); k < to.size(); ++k) clear(to[k], sizeof(int32_t));
  if (against_ != Against::nothing) clear(wanted, wanted_bytes(shape));
}

void EvaluatedBatches::expect(const IndexRange& observations) const {
  std::vector<int64_t> indices(static_cast<size_t>(observations.count));
  std::iota(indices.begin(), indices.end(), observations.first);
  data_.images->expect(indices);
}

void EvaluatedBatches::fill_rows(const std::vector<uint8_t*>& to, void* wanted,
                                 const IndexRange& rows, int64_t first, int thread) {
  const ShardShape shape{size_};
  for (int64_t i = rows.first; i < rows.end(); ++i) {
    fill_row(to, wanted, i, first + i, shape, thread);
  }
}

void EvaluatedBatches::fill_row(const std::vector<uint8_t*>& to, void* wanted, int64_t row,
                                int64_t observation, const ShardShape& shape, int thread) {
  auto& memory = scratch_[static_cast<size_t>(thread)];
  const uint8_t* const example = data_.images->get(observation, memory);
  for (size_t k = 0; k < data_.images->inputs().size(); ++k) {
    const CachedValue& input = data_.images->inputs()[k];
    if (input.sequence) {
      fill_sequence(k, row, example, shape, to);
      continue;
    }
    uint8_t* const at = to[k] + static_cast<size_t>(row) * input.bytes;
    std::memcpy(at, example + input.offset, input.bytes);
    if (input.kind == ValueKind::array) continue;
    add_noise(data_.noise, data_.seed, fixed_noise_epoch, observation, at,
              static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
  }
  fill_wanted_row(wanted, row, example, observation, shape, thread);
}

void EvaluatedBatches::fill_wanted_row(void* wanted, int64_t row, const uint8_t* example,
                                       int64_t observation, const ShardShape& shape, int thread) {
  auto& memory = scratch_[static_cast<size_t>(thread)];
  if (against_ != Against::nothing && by_step()) {
    fill_wanted_steps(row, example, observation, shape, wanted);
  } else if (pixels_ > 0) {
    copy_pixel_labels(*targets_.value, example, static_cast<int32_t*>(wanted) + row * pixels_);
  } else if (against_ == Against::labels) {
    static_cast<int32_t*>(wanted)[row] = static_cast<int32_t>(data_.images->label(observation));
  } else if (against_ == Against::images) {
    float* const at = static_cast<float*>(wanted) + row * targets_.value->elements();
    if (targets_.cache == data_.images.get()) {
      copy_target(*targets_.value, example, at);
    } else {
      copy_target(targets_, observation, memory, at);
    }
  }
}

void EvaluatedBatches::fill_sequence(size_t k, int64_t row, const uint8_t* example,
                                     const ShardShape& shape,
                                     const std::vector<uint8_t*>& to) const {
  const CachedValue& input = data_.images->inputs()[k];
  const ExampleCache::Steps steps = data_.images->steps_in(input, example);
  const size_t room = static_cast<size_t>(shape.steps[k]) * input.bytes;
  copy_steps(steps, input.bytes, shape.steps[k], to[k] + static_cast<size_t>(row) * room);
  size_t lengths = data_.images->inputs().size();
  for (size_t before = 0; before < k; ++before) lengths += shape.steps[before] > 0 ? 1 : 0;
  reinterpret_cast<int32_t*>(to[lengths])[row] = static_cast<int32_t>(steps.count);
}

void EvaluatedBatches::fill_wanted_steps(int64_t row, const uint8_t* example, int64_t observation,
                                         const ShardShape& shape, void* wanted) const {
  std::vector<uint8_t> scratch;
  if (targets_.cache != data_.images.get()) example = targets_.cache->get(observation, scratch);
  const ExampleCache::Steps steps = targets_.cache->steps_in(*targets_.value, example);
  copy_steps(steps, targets_.value->bytes, outputs_together(shape),
             static_cast<uint8_t*>(wanted) + static_cast<size_t>(row) * wanted_bytes(shape));
}

void EvaluatedBatches::fill(const std::vector<uint8_t*>& to, void* wanted,
                            const EvaluatedPart& part, int thread) {
  const auto rows = static_cast<int64_t>(part.observations.size());
  clear_padding(to, wanted, rows, part.shape);
  for (int64_t i = 0; i < rows; ++i) {
    fill_row(to, wanted, i, part.observations[static_cast<size_t>(i)], part.shape, thread);
  }
}

void EvaluatedBatches::fill_wanted(void* wanted, const EvaluatedPart& part, int thread) {
  if (against_ == Against::nothing) return;
  const size_t rows = part.observations.size(), bytes = wanted_bytes(part.shape);
  std::memset(static_cast<uint8_t*>(wanted) + rows * bytes, 0,
              (static_cast<size_t>(part.shape.rows) - rows) * bytes);
  auto& memory = scratch_[static_cast<size_t>(thread)];
  const bool own = pixels_ > 0 || (targets_ && targets_.cache == data_.images.get());
  for (size_t i = 0; i < rows; ++i) {
    const int64_t observation = part.observations[i];
    const uint8_t* const example = own ? data_.images->get(observation, memory) : nullptr;
    fill_wanted_row(wanted, static_cast<int64_t>(i), example, observation, part.shape, thread);
  }
}

int64_t EvaluatedBatches::loss_terms() const {
  if (!data_.loss) return outputs();
  if (!data_.loss.by_step) return observations();
  if (by_step()) return outputs();
  const auto first = std::ranges::find_if(longest_, [](int64_t steps) { return steps > 0; });
  const auto k = static_cast<size_t>(first - longest_.begin());
  int64_t steps = 0;
  for (int64_t i = 0; i < observations(); ++i) steps += data_.images->steps(i, k);
  return steps;
}

void EvaluatedBatches::check_custom_targets() const {
  const bool targets_by_step = targets_ && targets_.value->sequence;
  if (!data_.loss || !data_.compares || targets_by_step == by_step()) return;
  throw Unsupported(
      "[evaluate] a loss of the user cannot be evaluated where " +
          std::string(by_step() ? "the network gives a result for each step, but the data has one "
                                  "label or target for each sequence"
                                : "the data has a label or target for each step, but the network "
                                  "gives one result for each sequence"),
      "end the network in a layer whose results fit, or train without validation data");
}

std::vector<float> EvaluatedBatches::custom_losses(const IndexRange& observations, int thread) {
  expect(observations);
  std::vector<float> all(static_cast<size_t>(observations.count));
  for (const EvaluatedPart& part : parts(observations)) {
    const std::vector<float> some = custom_losses(part, thread);
    for (size_t i = 0; i < part.observations.size(); ++i) {
      all[static_cast<size_t>(part.observations[i] - observations.first)] = some[i];
    }
  }
  return all;
}

std::vector<float> EvaluatedBatches::custom_losses(const EvaluatedPart& part, int thread) {
  const int64_t rows = part.shape.rows;
  const std::vector<NetworkValue> inputs = network_.inputs();
  std::vector<Tensor> tensors, lengths(inputs.size() + 1);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Shape shape = inputs[k].sequence
                            ? shape_of_dims({rows, part.shape.steps[k]}, inputs[k].shape.dims(), 0)
                            : batch_shape(rows, inputs[k].shape);
    tensors.emplace_back(shape, data_.images->inputs()[k].dtype());
    if (inputs[k].sequence) lengths[k] = Tensor(Shape{rows}, DType::i32);
  }
  // Of an output.
  Shape each;
  if (against_ == Against::images) {
    const int64_t elements = targets_.value->elements();
    each = output_.elements() == elements ? output_ : Shape{elements};
  }
  if (pixels_ > 0) each = output_.without_batch();
  const std::vector<int64_t> all =
      by_step() ? std::vector{rows, outputs_together(part.shape)} : std::vector{rows};
  tensors.emplace_back(shape_of_dims(all, each.dims(), 0),
                       against_ == Against::images ? DType::f32 : DType::i32);
  std::vector<uint8_t*> to;
  for (const auto* const list : {&tensors, &lengths}) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Tensor& tensor = (*list)[k];
      if (tensor.defined()) to.push_back(static_cast<uint8_t*>(tensor.raw()));
    }
  }
  fill(to, tensors.back().raw(), part, thread);
  if (by_step()) lengths.back() = lengths[steps_input_];
  for (auto* const list : {&tensors, &lengths}) {
    for (Tensor& tensor : *list) tensor = tensor.to(network_.device());
  }
  return evaluate_loss(network_, data_.loss, tensors, in_parts() ? lengths : std::vector<Tensor>());
}

}  // namespace lockstep
