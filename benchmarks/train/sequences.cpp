// Whole training steps of networks of sequences, as JSON: the median seconds of an iteration, the
// mean processor seconds, and the MiB that the process has had resident at most. Adam, fp32, random
// data. benchmarks/peers/sequences.py runs it beside PyTorch.
//
// usage: sequences lstm|gru|gpt|generate UNITS DIRECTIONS CHANNELS SHORTEST LONGEST MINI_BATCH
//                  THREADS SECONDS [SHARD_SIZE]
//   gpt: UNITS channels, DIRECTIONS blocks of 64 channels a head, CHANNELS tokens
//   generate: texts of LONGEST tokens by such a network instead of trainings
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/text/text.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/trainer.h"

namespace {

using namespace lockstep;

struct Row {
  std::string kind;
  int64_t units, directions, channels, shortest, longest, mini_batch;
};

constexpr int64_t kClasses = 9;
constexpr size_t kWarmUp = 3;  // iterations that do not count: they make the plans

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class Times : public TrainingObserver {
 public:
  void iteration(const IterationRecord& record) override {
    if (record.iteration <= static_cast<int64_t>(kWarmUp)) {
      before_ = processor_seconds();
      begin_ = std::chrono::steady_clock::now();
      return;
    }
    wall_.push_back(record.seconds);
    processor_ = (processor_seconds() - before_) / static_cast<double>(wall_.size());
  }
  bool over(double seconds) const {
    return wall_.size() >= 3 &&
           std::chrono::steady_clock::now() - begin_ > std::chrono::duration<double>(seconds);
  }
  double median() {
    std::ranges::sort(wall_);
    return wall_.at(wall_.size() / 2);
  }
  double processor() const { return processor_; }
  size_t count() const { return wall_.size(); }

 private:
  std::vector<double> wall_;
  double before_ = 0, processor_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

Network recurrent_network(const Row& row) {
  Network network;
  network.add(sequence_input({.channels = row.channels, .normalization = "none"}));
  const bool both = row.directions == 2;
  if (row.kind == "lstm") {
    network.add(lstm({.units = row.units, .output = "last", .bidirectional = both}));
  } else {
    network.add(gru({.units = row.units, .output = "last", .bidirectional = both}));
  }
  network.add(fully_connected({.units = kClasses}));
  network.add(softmax());
  return network;
}

Network gpt_network(const Row& row) {
  Network network;
  network.add(token_input({.vocabulary = row.channels}));
  network.add(embedding({.vocabulary = row.channels, .units = row.units}));
  network.add(position_embedding({.positions = row.longest}));
  for (int64_t i = 0; i < row.directions; ++i) {
    network.add(transformer_block({.heads = row.units / 64, .causal = true}));
  }
  network.add(layer_normalization());
  network.add(fully_connected({.units = row.channels}));
  network.add(softmax());
  return network;
}

// Eight mini-batches; PyTorch has as many.
DatastorePtr data_of(const Row& row) {
  const RandomStream random({.seed = 7});
  uint64_t drawn = 0;
  const int64_t count = 8 * row.mini_batch;
  if (row.kind == "gpt") {
    std::vector<std::string> words;
    for (int64_t i = 0; i < row.channels; ++i) words.push_back("w" + std::to_string(i));
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i <= count * row.longest; ++i) {
      tokens.push_back(
          static_cast<int32_t>(random.below(drawn++, static_cast<uint64_t>(row.channels))));
    }
    return token_windows(tokens_in_memory(std::move(tokens)),
                         Vocabulary::of(std::move(words), TextUnits::words),
                         {.length = row.longest});
  }
  std::vector<Array> sequences;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t steps = random.between(drawn++, row.shortest, row.longest);
    Array one{{steps, row.channels}, {}};
    for (int64_t k = 0; k < one.shape.elements(); ++k) {
      one.values.push_back(static_cast<float>(random.uniform(drawn++)) - 0.5f);
    }
    sequences.push_back(std::move(one));
    labels.push_back(i % kClasses);
  }
  return sequence_datastore(std::move(sequences), {.labels = std::move(labels)});
}

void print_result(double seconds, double processor, size_t count) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("{\"seconds\": %.6g, \"processor\": %.6g, \"mib\": %.1f, \"iterations\": %zu}\n",
              seconds, processor, static_cast<double>(used.ru_maxrss) / 1024, count);
}

void measure_texts(const Row& row, int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  Network network = gpt_network(row);
  network.initialize(1);
  const std::vector<int32_t> prompt{1};
  const auto make = [&](uint64_t seed) {
    generate(network, prompt, {.length = row.longest - 1, .seed = seed, .threads = threads});
  };
  make(0);
  std::vector<double> times;
  const double before = processor_seconds();
  const auto begin = Clock::now();
  while (times.size() < 3 || Clock::now() - begin < std::chrono::duration<double>(seconds)) {
    const auto start = Clock::now();
    make(times.size() + 1);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  const double processor = (processor_seconds() - before) / static_cast<double>(times.size());
  std::ranges::sort(times);
  print_result(times[times.size() / 2], processor, times.size());
}

void measure(const Row& row, int64_t threads, double seconds, int64_t shard_size) {
  Network network = row.kind == "gpt" ? gpt_network(row) : recurrent_network(row);
  network.initialize(1);
  const TrainingOptions options{
      .max_epochs = 1'000'000,
      .mini_batch_size = row.mini_batch,
      .device = "cpu",
      .threads = threads,
      .solver = {.type = "adam",
                 .initial_learning_rate = 1e-3,
                 .gradient_threshold = 1,
                 .gradient_threshold_method = GradientThresholdMethod::global_l2norm},
      .shards = {.size = shard_size}};
  Times times;
  TrainingControl control;
  control.observers = {&times};
  control.stop = [&] { return times.over(seconds); };
  train(network, {.training = data_of(row)}, options, control);
  print_result(times.median(), times.processor(), times.count());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 10 || argc == 11 ? argv[1] : "";
  if (kind != "lstm" && kind != "gru" && kind != "gpt" && kind != "generate") {
    std::fprintf(stderr,
                 "usage: %s lstm|gru|gpt|generate UNITS DIRECTIONS CHANNELS SHORTEST LONGEST "
                 "MINI_BATCH THREADS SECONDS [SHARD_SIZE]\n",
                 argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return int64_t{std::atoll(argv[i])}; };
  try {
    const Row row{kind, number(2), number(3), number(4), number(5), number(6), number(7)};
    if (kind == "generate") {
      measure_texts(row, static_cast<int>(number(8)), std::atof(argv[9]));
    } else {
      measure(row, number(8), std::atof(argv[9]), argc == 11 ? number(10) : 0);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
