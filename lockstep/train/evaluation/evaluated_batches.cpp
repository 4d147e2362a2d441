#include "lockstep/train/evaluation/evaluated_batches.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/engine/nn/loss.h"
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
  } else if (targets_) {
    against_ = Against::images;
  } else if (takes_labels(network.loss()) || data_.loss) {
    against_ = Against::labels;
  }
  const LoweredNetwork lowered = lower(kChunk);
  output_ = lowered.graph.shape(lowered.outputs.at(0)).without_batch();
  if (on_cpu()) return;
  // Of the network alone: neither the type of its inputs nor a loss changes the batches.
  const std::vector<DType> inputs(data_.images->inputs().size(), DType::f32);
  size_ = DeviceBatches::rows_for(
      network.lower(kChunk, {.training = false, .inputs = inputs}).graph, kChunk);
}

std::vector<std::string> EvaluatedBatches::classes() const {
  return against_ == Against::labels ? data_.images->store()->classes()
                                     : std::vector<std::string>{};
}

IndexRange EvaluatedBatches::rows(int64_t batch) const {
  return {batch * size_, std::min(size_, observations() - batch * size_)};
}

int64_t EvaluatedBatches::rows_of_chunk(int64_t chunk) const {
  return std::min(kChunk, observations() - chunk * kChunk);
}

LoweredNetwork EvaluatedBatches::lower(int64_t rows) const {
  LoweredNetwork lowered =
      network_.lower(rows, {.training = false, .inputs = data_.images->input_types()});
  const int scores = lowered.outputs.at(0);
  lowered.graph.mark_output(scores);
  if (plans_have_loss()) {
    lowered.graph.mark_output(add_loss(lowered.graph, network_.loss(), scores).loss);
  }
  return lowered;
}

size_t EvaluatedBatches::wanted_bytes() const {
  return against_ == Against::images
             ? static_cast<size_t>(targets_.value->elements()) * sizeof(float)
             : sizeof(int32_t);
}

void EvaluatedBatches::clear_padding(const std::vector<uint8_t*>& to, void* wanted,
                                     int64_t rows) const {
  const auto clear = [&](void* memory, size_t bytes) {
    std::memset(static_cast<uint8_t*>(memory) + static_cast<size_t>(rows) * bytes, 0,
                static_cast<size_t>(size_ - rows) * bytes);
  };
  for (size_t k = 0; k < to.size(); ++k) clear(to[k], data_.images->inputs()[k].bytes);
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
    for (size_t k = 0; k < to.size(); ++k) {
      const CachedValue& input = data_.images->inputs()[k];
      uint8_t* const row = to[k] + static_cast<size_t>(i) * input.bytes;
      std::memcpy(row, example + input.offset, input.bytes);
      if (input.kind == ValueKind::array) continue;
      add_noise(data_.noise, data_.seed, fixed_noise_epoch, first + i, row,
                static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
    }
    if (against_ == Against::labels) {
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
