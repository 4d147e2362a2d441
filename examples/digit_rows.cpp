// Reads rows of digits without knowing where each digit is: connectionist temporal classification
// (CTC). Images of several drawn digits in a row are sequences of columns; a bidirectional LSTM
// gives scores of ten digits and "blank" for each step, and the loss sums over all alignments of
// the digits to the steps. The program has its own training loop, whose bits do not depend on the
// number of threads.
//
// usage: digit_rows [ITERATIONS]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

constexpr int64_t kSide = 28, kColumns = 4;  // pixels of a digit; columns that are one step
constexpr int64_t kSteps = kSide / kColumns, kChannels = kSide * kColumns;
constexpr int64_t kMost = 6;   // digits in a row
constexpr int32_t kBlank = 0;  // class 1 + d is digit d
constexpr const char* kScores = "scores";

struct Rows {
  Tensor x, lengths, digits, counts;  // n x steps x channels; n; n x kMost; n
};

// `n` rows of 2 to kMost digits, drawn by a key and the number of the first.
Rows rows_of(const Datastore& digits, uint64_t seed, int64_t first, int64_t n) {
  Rows rows{Tensor::zeros({n, kMost * kSteps, kChannels}, DType::f32),
            Tensor::zeros({n}, DType::i32), Tensor::zeros({n, kMost}, DType::i32),
            Tensor::zeros({n}, DType::i32)};
  for (int64_t i = 0; i < n; ++i) {
    const RandomStream random({.seed = seed, .a = static_cast<uint64_t>(first + i)});
    const int64_t count = random.between(0, 2, kMost);
    rows.counts.data<int32_t>()[i] = static_cast<int32_t>(count);
    rows.lengths.data<int32_t>()[i] = static_cast<int32_t>(count * kSteps);
    for (int64_t k = 0; k < count; ++k) {
      const auto which = static_cast<int64_t>(
          random.below(static_cast<uint64_t>(1 + k), static_cast<uint64_t>(digits.size())));
      const Example example = digits.read(which);
      const auto& image = std::get<Image>(example.inputs[0]);
      const auto label = static_cast<int32_t>(std::get<ClassLabel>(example.target).index);
      rows.digits.data<int32_t>()[i * kMost + k] = 1 + label;
      float* const to = rows.x.data<float>() + (i * kMost + k) * kSteps * kChannels;
      for (int64_t column = 0; column < kSide; ++column) {
        for (int64_t row = 0; row < kSide; ++row) {
          to[column * kSide + row] =
              static_cast<float>(image.pixels[static_cast<size_t>(row * kSide + column)]) / 255;
        }
      }
    }
  }
  return rows;
}

// The digits of row i.
std::vector<int32_t> digits_of(const Rows& rows, int64_t i) {
  const int32_t* const first = rows.digits.data<int32_t>() + i * kMost;
  return {first, first + rows.counts.data<int32_t>()[i]};
}

// Errors per digit over `n` rows that were not trained on.
double error_rate(Network& network, const Datastore& digits, int64_t n) {
  const Rows rows = rows_of(digits, /*seed=*/2, 0, n);
  const Tensor scores = network.forward({rows.x}, {.record = false, .lengths = {rows.lengths}});
  const auto read = ctc_greedy_decode(scores, rows.lengths, kBlank);
  ErrorRate rate;
  for (int64_t i = 0; i < n; ++i) rate.add(read[static_cast<size_t>(i)], digits_of(rows, i));
  return rate.value();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t iterations = argc > 1 ? std::atoll(argv[1]) : 1500;
  const DatastorePtr digits = builtin_digits();
  const auto parts = split_each_label(digits, {0.8}, /*seed=*/0);
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "none"}));
  network.add(convolution1d({.filters = 48, .kernel = 3, .padding = {.same = true}}));
  network.add(relu());
  network.add(lstm({.units = 48, .bidirectional = true}));
  network.add(fully_connected({.units = 11}), kScores);
  network.initialize(/*seed=*/0);

  ShardGroup group(network, {.threads = available_cores()});
  // One value for each row of digits.
  const auto loss = [](Shard& shard) {
    const Tensor scores = shard.forward(shard[0], {.lengths = {shard[1]}});
    return ops::ctc_loss(scores, shard[1], shard[2], shard[3], {.blank = kBlank});
  };
  constexpr int64_t kMiniBatch = 32;
  AdamState state;
  double first = 0, last = 0;  // losses
  for (int64_t iteration = 1; iteration <= iterations; ++iteration) {
    const Rows rows = rows_of(*parts[0], /*seed=*/1, (iteration - 1) * kMiniBatch, kMiniBatch);
    const auto step = sharded_value_and_gradient(
        loss, {rows.x, rows.lengths, rows.digits, rows.counts}, group, iteration);
    last = step.value;
    if (iteration == 1) first = last;
    const double rate = iteration < iterations * 3 / 4 ? 0.003 : 0.0005;
    adam_update(network, step.gradients, state, {.learning_rate = rate});
    if (iteration % 100 == 0 || iteration == iterations) {
      std::printf("iteration %3d  loss %.3f  errors %.1f %%\n", static_cast<int>(iteration),
                  step.value, 100 * error_rate(network, *parts[1], 200));
    }
  }
  const double errors = error_rate(network, *parts[1], 500);
  std::printf("character error rate %.1f %%, digest %s\n", 100 * errors,
              network_digest(network).to_string().c_str());
  // After a few iterations the network does not read yet, but its loss has fallen.
  return (iterations < 1500 ? last < first / 2 : errors < 0.05) ? 0 : 1;
}
