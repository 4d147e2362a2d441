// A custom training loop over worker processes for a recurrent network that carries its state: the
// lawful loop of custom_parallel_loop.cpp with an LSTM. The signals are long. Each row of a
// mini-batch is a segment of one of them, and the following mini-batch has the segments that
// follow, so row i begins with the state that row i has left. Workers share the shards of a
// mini-batch; the states belong to the rows, and all workers receive those of all rows. So the
// number of workers, and which of them computes which rows, change no bit.
//
// usage: custom_sequence_loop [EPOCHS]
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

constexpr int64_t kSignals = 22, kSteps = 240, kSegment = 12;

// Waves of two amplitudes whose periods differ. Their values are 0 again and again, so a step says
// little about the next one without its past.
float signal_at(int64_t signal, int64_t step) {
  const double period = 9 + static_cast<double>(signal % 11);
  const double angle = 6.283185307 * static_cast<double>(step + 5 * signal) / period;
  return static_cast<float>((signal % 2 == 0 ? 1 : 0.5) * std::sin(angle));
}

// Steps [first, first + kSegment) of all signals: signals x steps x 1.
Tensor segments(int64_t first) {
  std::vector<float> values;
  for (int64_t i = 0; i < kSignals; ++i) {
    for (int64_t t = 0; t < kSegment; ++t) values.push_back(signal_at(i, first + t));
  }
  return Tensor::from(std::span<const float>(values), {kSignals, kSegment, 1});
}

struct Trained {
  std::string digest, states;
  double loss = 0;  // mean of the last epoch

  template <class Archive>
  void serialize(Archive& archive) {
    archive(digest, states, loss);
  }
};

Trained loop(Spmd& block, int64_t epochs, bool carry) {
  Network network({sequence_input({.channels = 1, .normalization = "none"}),
                   lstm({.units = 24, .carry_state = carry}), fully_connected({.units = 1})});
  network.initialize(/*seed=*/0);
  network.make_row_states(kSignals);  // from now on forward() carries states
  ShardGroup group(network, {.threads = 1, .shard_size = 4}, block.group());
  AdamState state;
  Trained result;
  int64_t iteration = 0;
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    network.reset_row_states();  // the signals begin again
    result.loss = 0;
    for (int64_t first = 0; first + kSegment < kSteps; first += kSegment) {
      const auto [loss, gradients] = sharded_value_and_gradient(
          [](Shard& shard) { return ops::mean_squared_error(shard.forward(shard[0]), shard[1]); },
          {segments(first), segments(first + 1)}, group, ++iteration);
      adam_update(network, gradients, state, {.learning_rate = 0.005});
      result.loss += loss * kSegment / (kSteps - kSegment);
    }
  }
  // The states after the last segments are those of all rows, on every worker.
  Digester states;
  for (const RowState& s : network.row_states()) states.bytes(s.value.raw(), s.value.bytes());
  result.states = states.finish().to_string();
  result.digest = network_digest(network).to_string();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    const int64_t epochs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 30;
    Pool pool({.workers = 3});
    std::vector<Trained> all;
    for (const int workers : {3, 2, 1}) {
      pool.resize(workers);
      const auto by_worker = spmd(
          pool, [](Spmd& block, int64_t n) { return loop(block, n, true); }, epochs);
      for (const Trained& one : by_worker) all.push_back(one);
      std::printf("%d %s: loss %.4f, digest %s, states %s\n", workers,
                  workers == 1 ? "worker" : "workers", all.back().loss, all.back().digest.c_str(),
                  all.back().states.c_str());
    }
    bool good = true;
    for (const Trained& one : all) {
      good &= one.digest == all[0].digest && one.states == all[0].states;
    }
    const auto forgetful = spmd(
        pool, [](Spmd& block, int64_t n) { return loop(block, n, false); }, epochs);
    std::printf("without carried states: loss %.4f\n", forgetful[0].loss);
    return good && (epochs < 10 || all[0].loss < 0.5 * forgetful[0].loss) ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
