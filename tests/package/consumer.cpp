// A program of a user, in which each part of the library occurs.
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

struct Mixed {
  static constexpr const char* kType = "mixed";
  static constexpr const char* kHelp = "every feature from every feature, without a bias";

  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t n = x.shape()[1];
    return ops::fully_connected(x, layer.parameter("weights", {n, n}), {});
  }
};

DatastorePtr points() {
  ArrayBlock block{.count = 64, .shape = {2}};
  ImageLabels labels{.classes = {"low", "high"}};
  for (int64_t i = 0; i < block.count; ++i) {
    const float x = static_cast<float>(i) / 32 - 1;
    block.values.insert(block.values.end(), {x, -x});
    labels.labels.push_back(i / 32);
  }
  return array_datastore(block, labels);
}

Network make_network() {
  Network network({feature_input({.features = 2, .normalization = "none"}),
                   fully_connected({.units = 4}), tanh(), custom_layer(Mixed{}),
                   fully_connected({.units = 2}), softmax()});
  network.initialize(1);
  return network;
}

class Count : public TrainingObserver {
 public:
  void iteration(const IterationRecord&) override { ++iterations; }
  int64_t iterations = 0;
};

bool trains() {
  Network network = make_network();
  Count count;
  TrainingOptions options;
  options.solver.type = "adam";
  options.solver.initial_learning_rate = 0.05;
  options.mini_batch_size = 16;
  options.max_epochs = 10;
  options.device = "cpu";
  const TrainingResult result =
      train(network, {.training = points()}, options, {.observers = {&count}});
  const Evaluation all = evaluate(network, points(), {.confusion = true});
  std::printf("%s%s", network.summary().c_str(), confusion_table(*all.confusion, 60).c_str());
  const Network copy = decode_model(encode_model(network, {"low", "high"})).network.clone();
  return count.iterations == 40 && result.last_iteration == 40 && all.accuracy > 0.8 &&
         network_digest(copy) == network_digest(network);
}

// The digest of a network after a loop with this number of threads.
Digest looped(int threads) {
  Network network = make_network();
  ShardGroup group(network, {.threads = threads, .shard_size = 4});
  MiniBatchQueue queue(points(), network.input_shapes(), {.mini_batch_size = 16});
  SgdmState state;
  for (int64_t iteration = 1; queue.has_data(); ++iteration) {
    const auto batch = queue.next();
    const Tensor x = batch->input().tensor();
    const Tensor labels = Tensor::from(batch->labels(), {batch->size()});
    const auto step = sharded_value_and_gradient(
        [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
        {x, labels}, group, iteration);
    sgdm_update(network, step.gradients, state, {.learning_rate = 0.1, .pool = &group.pool()});
  }
  return network_digest(network);
}

bool differentiates() {
  const Tensor x = Tensor::full({3}, 2);
  Tape tape;
  tape.watch(x);
  const Tensor loss = ops::sum(ops::multiply({x, x}));
  return tape.gradient(loss, {x})[0].to_vector() == std::vector<float>(3, 4);
}

bool pools() {
  Pool pool({.workers = 2, .threads = true});
  const auto sum = pool.submit([](int a, int b) { return a + b; }, 1, 2);
  const auto squares = parallel_map(pool, 4, [](int64_t i) { return i * i; });
  const auto random = pool.submit([] { return task_random().uniform(); });
  PollableDataQueue<std::string> queue(pool);
  const auto indexes = spmd(
      pool,
      [](Spmd& block, const QueueSender<std::string>& client) {
        if (block.index() == 0) client.send("begun");
        return block.plus(block.index());
      },
      queue.sender());
  return sum.get() == 3 && squares[3] == 9 && random.get() < 1 && indexes[1] == 1 &&
         queue.poll(10) == "begun";
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  register_layer<Mixed>();
  try {
    std::printf("%zu GPUs, %d processors\n", kernels::list_devices().size(), available_cores());
    const LineSeries line{.points = {{0, 1}, {1, 2}}};
    const bool good = trains() && looped(1) == looped(2) && differentiates() && pools() &&
                      !line_chart_text({&line, 1}, {}).empty();
    std::printf("%s\n", good ? "all is well" : "something is wrong");
    return good ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
