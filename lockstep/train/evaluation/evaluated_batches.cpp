#include "lockstep/train/evaluation/evaluated_batches.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/sequences.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/programs/shard.h"

namespace lockstep {

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
  measure_sequences();
  const LoweredNetwork lowered = lower(kChunk);
  output_ = network.outputs().at(0).shape;
  if (lowered.output_lengths.at(0) >= 0) number_steps(lowered);
  if (on_cpu()) return;
  // Of the network alone: neither the type of its inputs nor a loss changes the batches.
  const std::vector<DType> inputs(data_.images->inputs().size(), DType::f32);
  size_ = DeviceBatches::rows_for(
      network.lower(kChunk, {.training = false, .inputs = inputs}).graph, kChunk);
}

std::vector<std::string> EvaluatedBatches::classes() const {
  if (against_ != Against::labels) return {};
  return (data_.targets ? data_.targets : data_.images)->store()->classes();
}

// One plan has room for the longest sequence.
void EvaluatedBatches::measure_sequences() {
  const std::vector<NetworkValue> inputs = network_.inputs();
  if (std::ranges::none_of(inputs, &NetworkValue::sequence)) return;
  for (size_t k = 0; k < inputs.size(); ++k) {
    int64_t longest = 0;
    for (int64_t i = 0; inputs[k].sequence && i < observations(); ++i) {
      longest = std::max(longest, data_.images->steps(i, k));
    }
    steps_.push_back(inputs[k].sequence ? steps_capacity(longest) : 0);
    lengths_ += inputs[k].sequence ? 1 : 0;
  }
}

void EvaluatedBatches::number_steps(const LoweredNetwork& lowered) {
  const auto of = std::ranges::find(lowered.input_lengths, lowered.output_lengths[0]);
  if (of == lowered.input_lengths.end()) {
    throw Unsupported("[evaluate] the steps of the network's output are not those of an input");
  }
  const auto k = static_cast<size_t>(of - lowered.input_lengths.begin());
  steps_of_output_ = steps_[k];
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

std::span<const int32_t> EvaluatedBatches::labels_of(int64_t observation,
                                                     std::vector<int32_t>& memory) const {
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

LoweredNetwork EvaluatedBatches::lower(int64_t rows) const {
  LoweredNetwork lowered = network_.lower(
      rows, {.training = false, .inputs = data_.images->input_types(), .steps = steps_});
  const LoweredValue scores{lowered.outputs.at(0), lowered.output_lengths.at(0)};
  lowered.graph.mark_output(scores.value);
  if (plans_have_loss()) {
    lowered.graph.mark_output(add_loss(lowered.graph, network_.loss(), scores).loss);
  }
  return lowered;
}

size_t EvaluatedBatches::wanted_bytes() const {
  const auto outputs = static_cast<size_t>(outputs_together());
  return against_ == Against::images
             ? outputs * static_cast<size_t>(output_.elements()) * sizeof(float)
             : outputs * sizeof(int32_t);
}

void EvaluatedBatches::clear_padding(const std::vector<uint8_t*>& to, void* wanted,
                                     int64_t rows) const {
  const auto clear = [&](void* memory, size_t bytes) {
    std::memset(static_cast<uint8_t*>(memory) + static_cast<size_t>(rows) * bytes, 0,
                static_cast<size_t>(size_ - rows) * bytes);
  };
  for (size_t k = 0; k < data_.images->inputs().size(); ++k) {
    const size_t steps = steps_.empty() || steps_[k] == 0 ? 1 : static_cast<size_t>(steps_[k]);
    clear(to[k], steps * data_.images->inputs()[k].bytes);
  }
  for (size_t k = data_.images->inputs().size(); k < to.size(); ++k) clear(to[k], sizeof(int32_t));
  if (against_ != Against::nothing) clear(wanted, wanted_bytes());
}

void EvaluatedBatches::expect(const IndexRange& observations) const {
  std::vector<int64_t> indices(static_cast<size_t>(observations.count));
  std::iota(indices.begin(), indices.end(), observations.first);
  data_.images->expect(indices);
}

void EvaluatedBatches::fill_rows(const std::vector<uint8_t*>& to, void* wanted,
                                 const IndexRange& rows, int64_t first, int thread) {
  auto& memory = scratch_[static_cast<size_t>(thread)];
  for (int64_t i = rows.first; i < rows.end(); ++i) {
    const uint8_t* const example = data_.images->get(first + i, memory);
    for (size_t k = 0; k < data_.images->inputs().size(); ++k) {
      const CachedValue& input = data_.images->inputs()[k];
      if (input.sequence) {
        fill_sequence(k, i, example, to);
        continue;
      }
      uint8_t* const row = to[k] + static_cast<size_t>(i) * input.bytes;
      std::memcpy(row, example + input.offset, input.bytes);
      if (input.kind == ValueKind::array) continue;
      add_noise(data_.noise, data_.seed, fixed_noise_epoch, first + i, row,
                static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
    }
    if (against_ != Against::nothing && by_step()) {
      fill_wanted_steps(i, example, first + i, wanted);
    } else if (against_ == Against::labels) {
      static_cast<int32_t*>(wanted)[i] = static_cast<int32_t>(data_.images->label(first + i));
    } else if (against_ == Against::images) {
      float* const row = static_cast<float*>(wanted) + i * targets_.value->elements();
      if (targets_.cache == data_.images.get()) {
        copy_target(*targets_.value, example, row);
      } else {
        copy_target(targets_, first + i, memory, row);
      }
    }
  }
}

namespace {

// Copies steps of `bytes` bytes each to a row with room for `room` of them, and zeros after them.
void copy_steps(const ExampleCache::Steps& steps, size_t bytes, int64_t room, uint8_t* row) {
  const size_t valid = static_cast<size_t>(steps.count) * bytes;
  if (valid > 0) std::memcpy(row, steps.data, valid);
  std::memset(row + valid, 0, static_cast<size_t>(room) * bytes - valid);
}

}  // namespace

void EvaluatedBatches::fill_sequence(size_t k, int64_t row, const uint8_t* example,
                                     const std::vector<uint8_t*>& to) const {
  const CachedValue& input = data_.images->inputs()[k];
  const ExampleCache::Steps steps = data_.images->steps_in(input, example);
  const size_t room = static_cast<size_t>(steps_[k]) * input.bytes;
  copy_steps(steps, input.bytes, steps_[k], to[k] + static_cast<size_t>(row) * room);
  size_t lengths = data_.images->inputs().size();
  for (size_t before = 0; before < k; ++before) lengths += steps_[before] > 0 ? 1 : 0;
  reinterpret_cast<int32_t*>(to[lengths])[row] = static_cast<int32_t>(steps.count);
}

void EvaluatedBatches::fill_wanted_steps(int64_t row, const uint8_t* example, int64_t observation,
                                         void* wanted) const {
  std::vector<uint8_t> scratch;
  if (targets_.cache != data_.images.get()) example = targets_.cache->get(observation, scratch);
  const ExampleCache::Steps steps = targets_.cache->steps_in(*targets_.value, example);
  copy_steps(steps, targets_.value->bytes, steps_of_output_,
             static_cast<uint8_t*>(wanted) + static_cast<size_t>(row) * wanted_bytes());
}

void EvaluatedBatches::fill(const std::vector<uint8_t*>& to, void* wanted,
                            const IndexRange& observations, int thread) {
  clear_padding(to, wanted, observations.count);
  expect(observations);
  fill_rows(to, wanted, {0, observations.count}, observations.first, thread);
}

std::vector<float> EvaluatedBatches::custom_losses(const IndexRange& observations, int thread) {
  std::vector<Tensor> tensors;
  std::vector<uint8_t*> to;
  const std::vector<Shape> shapes = network_.input_shapes();
  for (size_t k = 0; k < shapes.size(); ++k) {
    tensors.emplace_back(batch_shape(size_, shapes[k]), data_.images->inputs()[k].dtype());
    to.push_back(static_cast<uint8_t*>(tensors.back().raw()));
  }
  Tensor compared(Shape{size_}, DType::i32);
  if (against_ == Against::images) {
    const int64_t elements = targets_.value->elements();
    const Shape shape =
        output_.elements() == elements ? batch_shape(size_, output_) : Shape{size_, elements};
    compared = Tensor(shape, DType::f32);
  }
  fill(to, compared.raw(), observations, thread);
  tensors.push_back(compared);
  for (Tensor& tensor : tensors) tensor = tensor.to(network_.device());
  return evaluate_loss(network_, data_.loss.function, tensors);
}

}  // namespace lockstep
