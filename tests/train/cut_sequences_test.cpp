// Trainings on sequences that are cut into segments, with states carried from segment to segment,
// and on mini-batches of like lengths; the law with both.
#include "lockstep/train/input/cut_sequences.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/signals.h"
#include "tests/train/support.h"

namespace lockstep::cut_training {
namespace {

using testing::message_of;

constexpr int64_t kSequences = 64, kChannels = 3;

DatastorePtr signals(int64_t channels = kChannels) {
  return sequence_datastore(testing::signals(kSequences, channels));
}

DatastorePtr tagged() {
  return with_targets(signals(), step_labels(testing::signal_tags(kSequences)));
}

// Targets are the running means.
DatastorePtr averaged(int64_t channels = kChannels) {
  std::vector<Array> targets;
  for (const Array& one : testing::signals(kSequences, channels)) {
    Array target{{one.shape[0], 1}, {}};
    float sum = 0;
    for (int64_t t = 0; t < one.shape[0]; ++t) {
      sum += one.values[static_cast<size_t>(t * channels)];
      target.values.push_back(sum / static_cast<float>(t + 1));
    }
    targets.push_back(std::move(target));
  }
  return with_targets(signals(channels), sequence_datastore(std::move(targets)));
}

enum class Kind { tagger, regression };

Network recurrent(Kind kind) {
  Network network{sequence_input({.channels = kChannels, .normalization = "z-score"}),
                  lstm({.units = 6, .carry_state = true}),
                  dropout({.probability = 0.2}),
                  gru({.units = 5, .carry_state = true}),
                  layer_normalization(),
                  rnn({.units = 5, .carry_state = true}),
                  fully_connected({.units = kind == Kind::tagger ? 4 : 1})};
  if (kind == Kind::tagger) {
    network.add(softmax());
  } else {
    network.set_loss("mean_squared_error");
  }
  network.initialize(3);
  return network;
}

TrainingProblem problem_of(Kind kind) {
  TrainingData data{.training = kind == Kind::tagger ? tagged() : averaged()};
  data.validation = subset(data.training, {2, 3, 5, 7, 11, 13, 17, 19, 23, 60});
  return {recurrent(kind), data};
}

TrainingProblem failing_segments(Kind kind, testing::Failure failure) {
  testing::fail_here(std::move(failure));
  return problem_of(kind);
}

TrainingOptions cut_options(int64_t threads, int64_t length = 8) {
  TrainingOptions options = testing::law_options(threads);
  options.mini_batch_size = 30;  // and a last one of 4
  options.solver.initial_learning_rate = 0.05;
  options.data.sequence_length = length;
  return options;
}

TrainingResult run(Kind kind, const TrainingOptions& options, TrainingControl control = {},
                   const testing::Failure& failure = {}) {
  const auto call = make_call<&failing_segments>(kind, failure);
  TrainingProblem problem = problem_of(kind);
  return train(call, problem.network, problem.data, options, control);
}

class CutTraining : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, CutTraining, ::testing::Values(Kind::tagger, Kind::regression),
                         [](const auto& of) {
                           return std::string(of.param == Kind::tagger ? "Tagger" : "Regression");
                         });

TEST_P(CutTraining, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(GetParam(), cut_options(1));
  // Two full mini-batches with sequences of 25 to 29 steps, and a last one of 4 sequences.
  EXPECT_GT(one.iterations.size(), 3u * 3);
  EXPECT_EQ(one.iterations.size() % 3, 0u);
  if (GetParam() == Kind::regression) {
    EXPECT_LT(one.iterations.back().loss, one.iterations.front().loss);
  }
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(one, run(GetParam(), cut_options(threads)));
  }
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}, {1, 0, 1}}) {
    TrainingOptions options = cut_options(2);
    options.workers.count = static_cast<int64_t>(load.size());
    options.workers.load = load;
    testing::expect_same_history(one, run(GetParam(), options));
  }
  TrainingOptions checked = cut_options(2);
  checked.shards.check_frequency = 1;
  EXPECT_EQ(run(GetParam(), checked).digest, one.digest);
  TrainingOptions read_again = cut_options(2);
  read_again.data.cache_mib = 0;
  read_again.data.loader_threads = 3;
  testing::expect_same_history(one, run(GetParam(), read_again));
}

// Iteration 2 is the second segment of the first mini-batch.
TEST_P(CutTraining, ADeathBetweenTwoSegmentsChangesNoBit) {
  const TrainingResult one = run(GetParam(), cut_options(1));
  for (const char* const place : {"backward", "exchange", "update"}) {
    for (const int64_t iteration : {2, 3}) {
      TrainingOptions options = cut_options(1);
      options.workers.count = 3;
      testing::Follower follower;
      const TrainingResult killed =
          run(GetParam(), options, {.observers = {&follower}}, {place, "kill", 2, iteration, -1});
      EXPECT_EQ(testing::losses(follower).size(), 1u) << place;
      testing::expect_same_history(one, killed);
    }
  }
}

TEST_P(CutTraining, AResumeWithinASequenceChangesNoBit) {
  const TrainingResult one = run(GetParam(), cut_options(1));
  for (const int64_t workers : {0, 2}) {
    for (int64_t stop = 1; stop <= 6; ++stop) {
      const testing::TemporaryFolder folder;
      TrainingOptions options = cut_options(2);
      options.workers.count = workers;
      run(GetParam(), options, {.checkpoint_folder = folder.path, .stop_after = stop});
      const TrainingResult rest =
          run(GetParam(), options, {.checkpoint_folder = folder.path, .resume = true});
      EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain) << stop;
      EXPECT_EQ(rest.digest, one.digest) << stop;
    }
  }
}

TEST(CutSequencesTraining, TakesPartInTheIdentity) {
  const testing::TemporaryFolder folder;
  run(Kind::tagger, cut_options(2), {.checkpoint_folder = folder.path, .stop_after = 2});
  testing::expect_says(message_of<Error>([&] {
                         run(Kind::tagger, cut_options(2, 9),
                             {.checkpoint_folder = folder.path, .resume = true});
                       }),
                       "sequence_length");
}

// ---- Against a reference in double: truncated backpropagation through time by hand ----

// y = v h + c with h = tanh(w x + u h' + b), learned by the squared error.
struct ByHand {
  double w, u, b, v, c;
  std::vector<double> h;  // of each row

  // Learns one segment: for each row its steps [first, first + count), as far as it has them.
  double learn(const std::vector<std::vector<double>>& x, const std::vector<std::vector<double>>& t,
               double rate) {
    double dw = 0, du = 0, db = 0, dv = 0, dc = 0, loss = 0;
    int64_t steps = 0;
    for (size_t row = 0; row < x.size(); ++row) {
      std::vector<double> before, after;
      double state = h[row];
      for (const double value : x[row]) {
        before.push_back(state);
        state = std::tanh(w * value + u * state + b);
        after.push_back(state);
      }
      h[row] = state;
      double dh = 0;
      for (size_t k = x[row].size(); k-- > 0;) {
        const double error = v * after[k] + c - t[row][k];
        loss += error * error;
        ++steps;
        dv += 2 * error * after[k];
        dc += 2 * error;
        dh += 2 * error * v;
        const double dz = dh * (1 - after[k] * after[k]);
        dw += dz * x[row][k];
        du += dz * before[k];
        db += dz;
        dh = dz * u;
      }
    }
    const auto n = static_cast<double>(steps);
    w -= rate * dw / n, u -= rate * du / n, b -= rate * db / n, v -= rate * dv / n,
        c -= rate * dc / n;
    return loss / n;
  }
};

Network small_recurrent() {
  Network network{sequence_input({.channels = 1, .normalization = "none"}),
                  rnn({.units = 1, .carry_state = true}), fully_connected({.units = 1})};
  network.set_loss("mean_squared_error");
  network.initialize(5);
  return network;
}

TEST(CutSequencesTraining, IsTruncatedBackpropagationThroughTime) {
  for (const int64_t length : {1, 4, 29, 1000}) {
    Network network = small_recurrent();
    const auto value = [&](const char* name) {
      return static_cast<double>(network.parameter(name).to_vector().at(0));
    };
    ByHand expected{value("rnn_1.weights"),
                    value("rnn_1.recurrent_weights"),
                    value("rnn_1.bias"),
                    value("fully_connected_1.weights"),
                    value("fully_connected_1.bias"),
                    {}};
    TrainingOptions options = cut_options(2, length);
    options.shards.size = 4;
    options.solver.momentum = options.solver.l2 = 0;
    options.solver.initial_learning_rate = 0.2;
    const DatastorePtr data = averaged(1);
    const TrainingResult result = train(network, {.training = data}, options);
    MiniBatchQueue queue(data, {{1}},
                         {.mini_batch_size = 30,
                          .drop_last = false,
                          .seed = 5,
                          .sequence_length = length,
                          .max_epochs = 3});
    for (const IterationRecord& record : result.iterations) {
      const auto batch = queue.next();
      if (batch->rows_begin()) expected.h.assign(static_cast<size_t>(batch->size()), 0);
      std::vector<std::vector<double>> x, t;
      int64_t steps = 0;
      for (int64_t i = 0; i < batch->size(); ++i) {
        const auto row = [&](const RowArray& array) {
          const auto first = array.values<float>().begin();
          const auto at = static_cast<size_t>(i);
          return std::vector<double>(first + array.offsets[at], first + array.offsets[at + 1]);
        };
        x.push_back(row(batch->input()));
        t.push_back(row((*batch)["targets"]));
        steps += static_cast<int64_t>(x.back().size());
      }
      EXPECT_EQ(record.steps_count, steps);
      ASSERT_NEAR(record.loss, expected.learn(x, t, 0.2), 2e-5) << record.iteration;
    }
    EXPECT_FALSE(queue.has_data());
    EXPECT_NEAR(value("rnn_1.recurrent_weights"), expected.u, 2e-4);
    EXPECT_NEAR(value("rnn_1.weights"), expected.w, 2e-4);
    EXPECT_NEAR(value("fully_connected_1.weights"), expected.v, 2e-4);
  }
}

// The custom loop of the guide.
Digest digest_of_loop(int threads) {
  Network network = recurrent(Kind::regression);
  ShardGroup group(network, {.threads = threads, .shard_size = 7});
  MiniBatchQueue queue(
      averaged(), network.input_shapes(),
      {.mini_batch_size = 30, .drop_last = false, .seed = 5, .sequence_length = 8});
  set_input_normalization(network, queue.channels(group.pool()));
  network.make_row_states(30);
  SgdmState state;
  int64_t iteration = 0;
  while (queue.has_data()) {
    const auto batch = queue.next();
    if (batch->rows_begin()) network.reset_row_states();
    // Padded: n x steps x channels.
    const RowArray& x = batch->input();
    const RowArray& t = (*batch)["targets"];
    const int64_t n = batch->size();
    const Tensor input = Tensor::zeros({n, 8, kChannels}), wanted = Tensor::zeros({n, 8});
    const Tensor lengths = Tensor::zeros({n}, DType::i32);
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t count = x.offsets[at + 1] - x.offsets[at];
      lengths.data<int32_t>()[i] = static_cast<int32_t>(count);
      std::copy_n(x.values<float>().begin() + x.offsets[at] * kChannels, count * kChannels,
                  input.data<float>() + i * 8 * kChannels);
      std::copy_n(t.values<float>().begin() + t.offsets[at], count, wanted.data<float>() + i * 8);
    }
    const auto step = sharded_value_and_gradient(
        [](Shard& shard) {
          const Tensor y = shard.forward(shard[0], {.lengths = {shard[1]}});
          const Tensor error = ops::squeeze(y, {2}) - shard[2];
          const Tensor valid = ops::less(ops::arange(error, 0, 8),
                                         ops::expand_dims(ops::astype(shard[1], DType::f32), 1));
          return ops::sum(ops::where(valid, error * error, 0), {1});
        },
        {input, lengths, wanted}, group, ++iteration);
    sgdm_update(network, step.gradients, state, {.learning_rate = 0.05});
  }
  return network_digest(network);
}

TEST(CutSequencesTraining, OwnLoopsHaveTheSameCuts) {
  const Digest one = digest_of_loop(1);
  EXPECT_EQ(digest_of_loop(2), one);
  EXPECT_EQ(digest_of_loop(5), one);
}

// Whole sequences, from the initial states, whatever the training carries.
TEST(CutSequencesTraining, ValidationIsOfWholeSequences) {
  TrainingProblem problem = problem_of(Kind::regression);
  const TrainingResult result = train(problem.network, problem.data, cut_options(2));
  EXPECT_EQ(evaluate(problem.network, problem.data.validation).loss,
            result.validations.back().loss);
  Network whole{sequence_input({.channels = kChannels, .normalization = "z-score"}),
                lstm({.units = 6}),
                dropout({.probability = 0.2}),
                gru({.units = 5}),
                layer_normalization(),
                rnn({.units = 5}),
                fully_connected({.units = 1})};
  whole.set_loss("mean_squared_error");
  whole.initialize(1);
  for (size_t p = 0; p < whole.parameters().size(); ++p) {
    whole.parameters()[p].value.copy_from(problem.network.parameters()[p].value);
  }
  for (size_t s = 0; s < whole.state().size(); ++s) {
    whole.state()[s].value.copy_from(problem.network.state()[s].value);
  }
  EXPECT_EQ(evaluate(whole, problem.data.validation).loss, result.validations.back().loss);
}

TEST(CutSequencesTraining, StatesThatPassToOtherSequencesAreSaid) {
  for (const int64_t length : {0, 8}) {
    TrainingProblem problem = problem_of(Kind::regression);
    TrainingOptions options = cut_options(1, length);
    options.max_epochs = 1;
    testing::Recorder recorder;
    train(problem.network, problem.data, options, {.observers = {&recorder}});
    std::vector<std::string> about;
    for (const std::string& notice : recorder.notices) {
      if (notice.find("carry_state") != std::string::npos) about.push_back(notice);
    }
    ASSERT_EQ(about.size(), length == 0 ? 1 : 0);
    if (length > 0) continue;
    EXPECT_NE(about[0].find("`lstm_1`, `gru_1`, `rnn_1`"), std::string::npos) << about[0];
  }
}

// ---- What cannot be cut ----

struct RunningSum {
  static constexpr const char* kType = "running_sum";
  static constexpr const char* kHelp = "the sum over the steps until now";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const { return ops::cumsum(x, 1); }
};

// What was `back` steps earlier.
struct StepsBack {
  int64_t back = 20;
  static constexpr const char* kType = "steps_back";
  static constexpr const char* kHelp = "an earlier step";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor& v) { v.integer("back", back, "steps"); }
  Value build(LayerBuilder&, Value x) const {
    return ops::slice(ops::pad(x, {{}, {back, 0}, {}}), {{}, {0, x.shape()[1]}});
  }
};

// Nothing but a limit of steps.
struct FewSteps {
  static constexpr const char* kType = "few_steps";
  static constexpr const char* kHelp = "at most 40 steps";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const {
    if (x.shape()[1] > 40) throw InvalidArgument("more than 40 steps");
    return x;
  }
};

std::string refusal(std::vector<LayerPtr> layers, const DatastorePtr& data = averaged()) {
  Network network;
  network.add(sequence_input({.channels = kChannels, .normalization = "none"}));
  for (const LayerPtr& layer : layers) network.add(layer);
  network.set_loss("mean_squared_error");
  network.initialize(1);
  return message_of<InvalidArgument>([&] { train(network, {.training = data}, cut_options(1)); });
}

TEST(CutSequencesTraining, LayersThatNeedWholeSequencesAreNamed) {
  const LayerPtr end = fully_connected({.units = 1});
  const auto expect_named = [&](std::vector<LayerPtr> layers, const std::string& name) {
    layers.push_back(end);
    testing::expect_says(refusal(std::move(layers)), "the layer `" + name + "` has other results");
  };
  expect_named({lstm({.units = 3})}, "lstm_1");
  expect_named({gru({.units = 3, .bidirectional = true})}, "gru_1");
  expect_named({lstm({.units = 3, .carry_state = true}), rnn({.units = 2})}, "rnn_1");
  expect_named({fully_connected({.units = 4}), self_attention({.heads = 2})}, "self_attention_1");
  expect_named({convolution1d({.filters = 2, .kernel = 3, .causal = true})}, "convolution1d_1");
  expect_named({custom_layer(RunningSum{})}, "running_sum_1");
  ArrayBlock one{.count = kSequences, .shape = {1}};
  one.values.assign(kSequences, 0.5f);
  const DatastorePtr whole = with_targets(signals(), array_datastore(std::move(one)));
  testing::expect_says(
      refusal({lstm({.units = 3, .output = "last", .carry_state = true}), end}, whole),
      "gives one result for a whole sequence (layer `fully_connected_1`)");
  // What is applied to each step alone needs no state.
  EXPECT_EQ(refusal({fully_connected({.units = 3}), tanh(), layer_normalization(), end}),
            "(nothing was thrown)");
  Network digits = testing::small_classifier();
  TrainingOptions options = testing::small_options();
  options.data.sequence_length = 5;
  testing::expect_says(message_of<InvalidArgument>(
                           [&] { train(digits, {.training = testing::some_digits(40)}, options); }),
                       "sequence_length = 5 is for sequences, but no input of the network is one");
  options.data.sequence_length = 0;
  options.data.group_by_length = 5;
  testing::expect_says(message_of<InvalidArgument>(
                           [&] { train(digits, {.training = testing::some_digits(40)}, options); }),
                       "group_by_length = 5 is for sequences");
}

TEST(CutSequencesTraining, TokensAndInitialValuesThatAreZeroAreSeenThrough) {
  const auto named = [](std::vector<LayerPtr> layers) {
    Network network;
    network.add(token_input({.vocabulary = 9}));
    network.add(embedding({.vocabulary = 9, .units = 4}));
    for (const LayerPtr& layer : layers) network.add(layer);
    network.initialize_sizes();
    return layer_that_segments_change(network, 8);
  };
  EXPECT_EQ(
      named({lstm({.units = 4, .carry_state = true}), fully_connected({.units = 9}), softmax()}),
      "");
  EXPECT_EQ(named({position_embedding({.positions = 64})}), "position_embedding_1");
  EXPECT_EQ(named({lstm({.units = 4, .weights_initializer = "zeros"})}), "lstm_1");
}

// They see nothing of earlier segments in the first steps of a sequence, which alone were tried.
TEST(CutSequencesTraining, LayersThatLookFarBackAreNamed) {
  const auto named = [](const std::vector<LayerPtr>& layers, int64_t sequence_length = 8) {
    Network network;
    network.add(sequence_input({.channels = 2, .normalization = "none"}));
    for (const LayerPtr& layer : layers) network.add(layer);
    network.initialize_sizes();
    return layer_that_segments_change(network, sequence_length);
  };
  const LayerPtr state = lstm({.units = 2, .carry_state = true});
  const auto filter = [](int64_t dilation) {
    return convolution1d({.filters = 2, .kernel = 2, .dilation = dilation, .causal = true});
  };
  EXPECT_EQ(named({state, filter(40)}), "convolution1d_1");
  EXPECT_EQ(named({state, filter(3000)}), "convolution1d_1");
  EXPECT_EQ(named({filter(9), state}), "convolution1d_1");
  EXPECT_EQ(named({state, custom_layer(StepsBack{20})}), "steps_back_1");
  EXPECT_EQ(named({state, custom_layer(StepsBack{94})}), "steps_back_1");
  EXPECT_EQ(named({state, custom_layer(StepsBack{300})}, 128), "steps_back_1");
  EXPECT_EQ(named({state, gru({.units = 2, .carry_state = true}), relu()}), "");
  // A limit of steps is not a reason to refuse a layer, and hides no other one.
  EXPECT_EQ(named({custom_layer(FewSteps{}), state}), "");
  EXPECT_EQ(named({custom_layer(FewSteps{}), state, custom_layer(StepsBack{20})}), "steps_back_1");
  EXPECT_EQ(named({position_embedding({.positions = 3})}), "position_embedding_1");
}

// ---- Like lengths ----

TEST(GroupedTraining, OneDigestForThreadsWorkersAndResumes) {
  for (const int64_t length : {0, 8}) {
    TrainingOptions options = cut_options(1, length);
    options.mini_batch_size = 10;
    options.shards.size = 2;  // a sum of two shards would not depend on their order
    options.data.group_by_length = 3;
    const TrainingResult one = run(Kind::tagger, options);
    TrainingOptions mixed = options;
    mixed.data.group_by_length = 0;
    EXPECT_NE(run(Kind::tagger, mixed).digest, one.digest);
    for (const int64_t workers : {0, 3}) {
      options.threads = 2;
      options.workers.count = workers;
      testing::expect_same_history(one, run(Kind::tagger, options));
      const testing::TemporaryFolder folder;
      run(Kind::tagger, options, {.checkpoint_folder = folder.path, .stop_after = 9});
      const TrainingResult rest =
          run(Kind::tagger, options, {.checkpoint_folder = folder.path, .resume = true});
      EXPECT_EQ(rest.iterations.back().chain, one.iterations.back().chain);
    }
  }
}

// ---- Memory ----

// Bytes in use after each epoch.
std::vector<size_t> memory_of_epochs(TrainingOptions options, int64_t per_epoch) {
  testing::Recorder recorder;
  std::vector<size_t> used;
  recorder.on_iteration = [&](const IterationRecord& r) {
    const auto info = mallinfo2();
    if (r.in_epoch == per_epoch) used.push_back(info.uordblks + info.hblkhd);
  };
  TrainingProblem problem = problem_of(Kind::tagger);
  train(problem.network, problem.data, options, {.observers = {&recorder}});
  return used;
}

// Shapes of shards that each epoch meets for the first time: rows, and the steps of the plan.
std::vector<size_t> new_shapes(MiniBatchQueue& queue, const TrainingOptions& options) {
  std::vector<size_t> fresh(static_cast<size_t>(options.max_epochs));
  std::set<std::pair<int64_t, int64_t>> known;
  while (queue.has_data()) {
    const auto batch = queue.next();
    for (const IndexRange& shard : cut_into_shards(batch->size(), options.shards.size)) {
      int64_t longest = 0;
      for (int64_t i = shard.first; i < shard.end(); ++i) {
        const std::vector<int64_t>& offsets = batch->input().offsets;
        const auto at = static_cast<size_t>(i);
        longest = std::max(longest, offsets[at + 1] - offsets[at]);
      }
      const bool added = known.emplace(shard.count, steps_capacity(longest)).second;
      fresh[static_cast<size_t>(batch->epoch)] += added ? 1 : 0;
    }
  }
  return fresh;
}

// Memory grows only in epochs that meet a shape of shards for the first time, but for the records
// of iterations, some 300 bytes each. A plan with its memory has some 100 KB.
TEST(CutSequencesTraining, RaggedEpochsCompileOnlyNewShapes) {
  for (const int64_t length : {0, 8}) {
    TrainingOptions options = cut_options(2, length);
    options.max_epochs = 150;
    options.validation.frequency = 10;
    MiniBatchQueue queue(tagged(), {{kChannels}},
                         {.mini_batch_size = 30,
                          .drop_last = false,
                          .seed = 5,
                          .sequence_length = length,
                          .max_epochs = 150});
    const std::vector<size_t> used = memory_of_epochs(options, queue.batches_per_epoch());
    const std::vector<size_t> fresh = new_shapes(queue, options);
    ASSERT_EQ(used.size(), fresh.size());
    int64_t quiet = 0, grown = 0;
    for (size_t e = 3; e < used.size(); ++e) {
      if (fresh[e] > 0) continue;
      ++quiet;
      grown += static_cast<int64_t>(used[e]) - static_cast<int64_t>(used[e - 1]);
    }
    EXPECT_GT(quiet, 120) << length;
    EXPECT_LT(grown, 800 << 10) << length;
  }
}

}  // namespace
}  // namespace lockstep::cut_training
