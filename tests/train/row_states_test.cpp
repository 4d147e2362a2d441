// States by row: layers that carry values from one mini-batch to the next, before there is any
// recurrent layer; and the law with them.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/recovery.h"
#include "tests/train/same_history.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::message_of;

// Counts the mini-batches of an epoch; its result depends on the count.
struct Counting {
  static constexpr const char* kType = "counting";
  static constexpr const char* kHelp = "counts mini-batches";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value count = layer.row_state("count", {1, 1, 1}, 3);
    layer.carry(count, count + 1.0);
    return x * (count * 0.125 + 1.0);
  }
};

// Keeps a moving value of each element of each row.
struct Fading {
  static constexpr const char* kType = "fading";
  static constexpr const char* kHelp = "a moving value of each element";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value scale = layer.parameter("scale", {1}, "ones");
    const Value kept = layer.row_state("kept", x.shape().without_batch());
    const Value sum = kept * 0.5 + x * scale;
    layer.carry(kept, sum);
    return sum;
  }
};

Network stateful_network() {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                  convolution2d({.filters = 5, .kernel = {5, 5}, .stride = {3, 3}}),
                  batch_normalization(),
                  custom_layer(Counting{}),
                  relu(),
                  custom_layer(Fading{}),
                  fully_connected({.units = 10}),
                  softmax()};
  network.initialize(3);
  return network;
}

TrainingProblem stateful_problem(testing::Failure failure) {
  testing::fail_here(std::move(failure));
  return {stateful_network(), testing::law_data()};
}

TrainingResult run(const TrainingOptions& options, TrainingControl control = {},
                   const testing::Failure& failure = {}) {
  const auto call = make_call<&stateful_problem>(failure);
  TrainingProblem problem{stateful_network(), testing::law_data()};
  return train(call, problem.network, problem.data, options, control);
}

const TrainingResult& expected() {
  static const TrainingResult result = run(testing::law_options(1));
  return result;
}

TEST(RowStates, CountTheMiniBatchesOfAnEpoch) {
  Network network = stateful_network();
  testing::Recorder recorder;
  std::vector<std::vector<float>> counts;
  std::vector<float> last;
  recorder.on_iteration = [&](const IterationRecord&) {
    ASSERT_EQ(network.row_states().size(), 2u);
    const RowState& count = network.row_states()[0];
    EXPECT_EQ(count.name, "counting_1.count");
    EXPECT_EQ(count.value.shape(), (Shape{100, 1, 1, 1}));
    counts.push_back(count.value.to_vector());
  };
  train(network, testing::law_data(), testing::law_options(2), {.observers = {&recorder}});
  ASSERT_EQ(counts.size(), 12u);
  for (size_t i = 0; i < counts.size(); ++i) {
    // The last mini-batch of an epoch has 70 of 100 rows; the others stay as they are.
    const float full = 3.0f + static_cast<float>(std::min<size_t>(i % 4 + 1, 3));
    const float first = 3.0f + static_cast<float>(i % 4 + 1);
    for (size_t row = 0; row < 100; ++row) {
      ASSERT_EQ(counts[i][row], row < 70 ? first : full) << i << " " << row;
    }
  }
  EXPECT_TRUE(network.row_states().empty()) << "they belong to the training";
}

// The same by hand: one shard, a loop of eager calls.
TEST(RowStates, ATrainingComputesWhatALoopOfForwardRunsDoes) {
  TrainingOptions options = testing::small_options();
  options.mini_batch_size = options.shards.size = 20;
  options.solver.momentum = 0;
  Network trained = stateful_network();
  const DatastorePtr data = testing::some_digits(60);
  train(trained, {.training = data}, options);

  Network network = stateful_network();
  ThreadPool pool(1);
  MiniBatchQueue queue(data, network.input_shapes(), {.mini_batch_size = 20, .max_epochs = 2});
  set_input_normalization(network, queue.channels(pool));
  network.make_row_states(20);
  SgdmState state;
  while (queue.has_data()) {
    const auto batch = queue.next();
    if (batch->index == 0) network.reset_row_states();
    Tape tape;
    tape.watch(network.parameter_values());
    const Tensor scores = network.forward({batch->input().tensor()},
                                          {.training = true, .outputs = {"fully_connected_1"}});
    const Tensor loss = ops::mean(
        ops::softmax_cross_entropy(scores, Tensor::from(batch->labels(), {batch->size()})));
    sgdm_update(network, tape.gradient(loss, network.parameter_values()), state,
                {.learning_rate = 0.05, .momentum = 0});
  }
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    const std::vector<float> a = trained.parameters()[p].value.to_vector(),
                             b = network.parameters()[p].value.to_vector();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5) << p << " " << i;
  }
}

TEST(RowStates, OneDigestForThreadsWorkersAndLoads) {
  for (const int64_t threads : {2, 5}) {
    testing::expect_same_history(expected(), run(testing::law_options(threads)));
  }
  for (const auto& load : {std::vector<double>{}, {1, 1}, {3, 1}, {1, 0, 1}}) {
    TrainingOptions options = testing::law_options(2);
    options.workers.count = static_cast<int64_t>(std::max<size_t>(load.size(), 2));
    options.workers.load = load;
    testing::expect_same_history(expected(), run(options));
  }
}

// Nothing in this network depends on other rows, so shards are computed together.
Network dense_network() {
  Network network{feature_input({.features = 3, .normalization = "none"}),
                  custom_layer(Fading{}),
                  fully_connected({.units = 9}),
                  relu(),
                  custom_layer(Fading{}),
                  fully_connected({.units = 2}),
                  softmax()};
  network.initialize(4);
  return network;
}

TrainingProblem dense_problem() {
  ArrayBlock block{.count = 90, .shape = {3}};
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 270; ++i) block.values.push_back(static_cast<float>(i * 37 % 101) / 50);
  for (int64_t i = 0; i < 90; ++i) labels.push_back(i * 7 % 2);
  return {dense_network(), {.training = array_datastore(std::move(block), {.labels = labels})}};
}

TEST(RowStates, OfShardsThatAreComputedTogetherAreThoseOfShardsOneByOne) {
  const auto trained = [](int64_t threads, int64_t workers, int64_t check_frequency) {
    TrainingOptions options = testing::law_options(threads);
    options.mini_batch_size = 40;  // and a last one of 10
    options.workers.count = workers;
    options.shards.check_frequency = check_frequency;
    TrainingProblem problem = dense_problem();
    return train(make_call<&dense_problem>(), problem.network, problem.data, options).digest;
  };
  const Digest together = trained(1, 0, 0);
  EXPECT_EQ(trained(2, 0, 0), together);
  EXPECT_EQ(trained(2, 2, 0), together);
  EXPECT_EQ(trained(1, 0, 1), together) << "a shard that is checked is computed alone";
  EXPECT_EQ(trained(1, 3, 1), together);
}

TEST(RowStates, AreComparedByChecksOfShards) {
  for (const char* const device : {"cpu", "cuda:0"}) {
    const FakeDevice fake;
    TrainingOptions options = testing::law_options(2);
    options.device = device;
    options.shards.check_frequency = 1;
    TrainingProblem problem{stateful_network(), testing::law_data()};
    EXPECT_EQ(train(problem.network, problem.data, options).digest, expected().digest) << device;
  }
  TrainingOptions options = testing::law_options(1);
  options.shards.check_frequency = 1;
  options.workers.count = 3;
  testing::expect_same_history(expected(), run(options));
}

// A row's state survives the worker that has computed it.
TEST(RowStates, AWorkerThatDiesBetweenTwoMiniBatchesChangesNoBit) {
  for (const char* const place : {"backward", "exchange", "update"}) {
    TrainingOptions options = testing::law_options(1);
    options.workers.count = 3;
    testing::Follower follower;
    const TrainingResult result =
        run(options, {.observers = {&follower}}, {place, "kill", 2, 6, -1});
    EXPECT_EQ(testing::losses(follower).size(), 1u) << place;
    testing::expect_same_history(expected(), result);
  }
}

TEST(RowStates, AResumeReadsThem) {
  for (const int64_t workers : {0, 2}) {
    for (const int64_t stop : {6, 8}) {  // in the middle of an epoch and at its end
      const testing::TemporaryFolder folder;
      TrainingOptions options = testing::law_options(2);
      options.workers.count = workers;
      options.checkpoints.frequency = 3;
      run(options, {.checkpoint_folder = folder.path, .stop_after = stop});
      const TrainingResult rest = run(options, {.checkpoint_folder = folder.path, .resume = true});
      EXPECT_EQ(rest.digest, expected().digest) << workers << " " << stop;
      EXPECT_EQ(rest.iterations.back().chain, expected().iterations.back().chain);
    }
  }
}

Tensor own_loss(Shard& shard) {
  const Tensor scores = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
  return ops::softmax_cross_entropy(scores, shard[1]);
}

TEST(RowStates, ALossOfTheUserCarriesThemAsTheNetworksLossDoes) {
  TrainingProblem problem{stateful_network(), testing::law_data()};
  problem.data.loss = {own_loss, "own"};
  const TrainingResult result = train(problem.network, problem.data, testing::law_options(2));
  EXPECT_EQ(result.digest, expected().digest);
}

TEST(RowStates, AreThoseOfTheProcessorOnADevice) {
  const FakeDevice fake(0, {.large_pages = true});
  TrainingOptions options = testing::law_options(1);
  options.device = "cuda:0";
  for (const bool own : {false, true}) {
    TrainingProblem problem{stateful_network(), testing::law_data()};
    if (own) problem.data.loss = {own_loss, "own"};
    const TrainingResult result = train(problem.network, problem.data, options);
    EXPECT_EQ(result.digest, expected().digest) << own;
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

struct LoopSettings {
  int threads = 1;
  bool twice = false;      // runs the network twice in a shard
  int64_t rows = 20;       // of the states by row; 0: they are not made
  std::string path = {};   // continues a saved loop, and saves
  int64_t iterations = 3;  // all
};

Digest looped(const LoopSettings& settings) {
  Network network = stateful_network();
  ShardGroup group(network, {.threads = settings.threads, .shard_size = 7});
  if (settings.rows > 0) network.make_row_states(settings.rows);
  SgdmState state;
  LoopPosition at;
  if (local_files().exists(settings.path)) {
    at = load_loop(local_files(), settings.path, {{network, &state}});
  }
  MiniBatchQueue queue(testing::some_digits(60), network.input_shapes(), {.mini_batch_size = 20},
                       at.epoch, at.batch);
  if (at.iteration == 0) set_input_normalization(network, queue.channels(group.pool()));
  int64_t iteration = at.iteration;
  while (iteration < settings.iterations && queue.has_data()) {
    const auto batch = queue.next();
    const auto step = sharded_value_and_gradient(
        [&](Shard& shard) {
          if (settings.twice) shard.forward(shard[0]);
          return own_loss(shard);
        },
        {batch->input().tensor(), Tensor::from(batch->labels(), {batch->size()})}, group,
        ++iteration);
    sgdm_update(network, step.gradients, state, {.learning_rate = 0.05});
    const float count = network.row_states()[0].value.to_vector()[19];
    EXPECT_EQ(count, 3.0f + static_cast<float>(iteration));
  }
  if (!settings.path.empty()) {
    save_loop(local_files(), settings.path, {iteration, queue.epoch(), queue.batch()},
              {{network, &state}});
  }
  Digester digester;
  digester.add(network_digest(network));
  for (const RowState& s : network.row_states()) digester.bytes(s.value.raw(), s.value.bytes());
  return digester.finish();
}

TEST(RowStates, OwnLoopsCarryThem) {
  const Digest one = looped({});
  for (const int threads : {2, 3}) EXPECT_EQ(looped({.threads = threads}), one);
  testing::expect_says(message_of<InvalidArgument>([] { looped({.twice = true}); }),
                       "a shard runs the network twice, and both runs carry the state by row");
  testing::expect_says(message_of<InvalidArgument>([] { looped({.rows = 19}); }),
                       "20 observations, but the network's states by row are made for 19");
}

// Shards are computed at once, so none of them may change what another network carries.
TEST(RowStates, OtherNetworksCarryNothingInALossOfShards) {
  Network network = stateful_network(), other = stateful_network();
  for (Network* n : {&network, &other}) {
    const Tensor offset = n->state_value("image_input_1.offset");
    offset.copy_from(Tensor::zeros(offset.shape()));
    n->make_row_states(20);
  }
  ShardGroup group(network, {.threads = 2, .shard_size = 7});
  const Tensor x = Tensor::full({20, 1, 28, 28}, 3), labels = Tensor::zeros({20}, DType::i32);
  const auto loss = [&](bool carry) {
    return [&other, carry](Shard& shard) {
      other.forward({shard[0]}, {.record = false, .update_state = false, .carry = carry});
      return own_loss(shard);
    };
  };
  testing::expect_says(message_of<InvalidArgument>([&] {
                         sharded_value_and_gradient(loss(true), {x, labels}, group, 1);
                       }),
                       "forward() in a loss of shards cannot carry states by row");
  sharded_value_and_gradient(loss(false), {x, labels}, group, 1);
  EXPECT_EQ(other.row_states()[0].value.to_vector(), std::vector<float>(20, 3));
}

TEST(RowStates, ASavedLoopHasThem) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  looped({.path = path, .iterations = 1});
  looped({.path = path, .iterations = 2});
  testing::expect_says(message_of<InvalidArgument>([&] { looped({.rows = 21, .path = path}); }),
                       "states by row for 20 rows, but they are made for 21");
  EXPECT_EQ(looped({.threads = 2, .rows = 0, .path = path}), looped({}));
}

// Evaluation begins with the initial values, whatever a training carries.
TEST(RowStates, ValidationDoesNotReadThem) {
  Network network = stateful_network();
  const TrainingData data = testing::law_data();
  TrainingOptions options = testing::law_options(2);
  options.validation.frequency = 3;
  options.max_epochs = 1;
  const TrainingResult result = train(network, data, options);
  EXPECT_EQ(result.validations.back().iteration, 4);
  EXPECT_EQ(evaluate(network, data.validation).loss, result.validations.back().loss);
}

// A state that grows without bound is named when it is not finite any more.
struct Growing {
  static constexpr const char* kType = "growing";
  static constexpr const char* kHelp = "squares a state that its result hardly depends on";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value state = layer.row_state("size", {1, 1, 1}, 1e10f);
    layer.carry(state, state * state);
    return x + ops::minimum(state, 0.0);
  }
};

TEST(RowStates, OneThatOverflowsIsNamed) {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}), custom_layer(Growing{}),
                  fully_connected({.units = 10}), softmax()};
  network.initialize(1);
  const std::string message = message_of<Diverged>(
      [&] { train(network, {.training = testing::some_digits(60)}, testing::small_options()); });
  testing::expect_says(message,
                       "`size` of layer `growing_1` has 20 of 20 values that are not finite");
}

}  // namespace
}  // namespace lockstep
