// Custom loops that are saved and resumed: the bits are those of an uninterrupted loop, and files
// that do not fit are refused by name.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/checkpoint.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::BreakingFiles;
using testing::message_of;
using testing::small_classifier;
using testing::TemporaryFolder;

constexpr int64_t kIterations = 6;  // 2 epochs of 3, the last mini-batch is partial

Tensor loss_of(Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); }

void update(Network& network, const std::vector<Tensor>& gradients, SgdmState& state) {
  sgdm_update(network, gradients, state, {.learning_rate = 0.05});
}
void update(Network& network, const std::vector<Tensor>& gradients, AdamState& state) {
  adam_update(network, gradients, state, {.learning_rate = 0.01});
}
void update(Network& network, const std::vector<Tensor>& gradients, RmspropState& state) {
  rmsprop_update(network, gradients, state, {.learning_rate = 0.01});
}

struct LoopOutcome {
  std::vector<double> losses;
  Digest digest;
};

std::shared_ptr<const ExampleCache> images() {
  return std::make_shared<const ExampleCache>(testing::some_digits(50), 28, 28, 1, size_t{1} << 20);
}

// Computes the iterations from the saved one up to `last`, and saves.
template <class State>
LoopOutcome run(const std::string& path, int64_t last, int threads = 1, Device device = {}) {
  Network network = small_classifier();
  network.to(device);
  State state;
  LoopPosition at;
  if (local_files().exists(path)) at = load_loop(local_files(), path, {{network, &state}});
  LoopOutcome outcome;
  {
    ShardGroup group(network, {.threads = threads, .shard_size = 7, .seed = 3});
    MiniBatchQueue queue(images(),
                         {.mini_batch_size = 20, .drop_last = false, .seed = 4, .max_epochs = 2},
                         at.epoch, at.batch);
    int64_t iteration = at.iteration;
    while (iteration < last && queue.has_data()) {
      const auto batch = queue.next();
      const auto [loss, gradients] = sharded_value_and_gradient(
          loss_of, {batch->input().tensor(), Tensor::from(batch->labels(), {batch->size()})}, group,
          ++iteration);
      outcome.losses.push_back(loss);
      update(network, gradients, state);
    }
    save_loop(local_files(), path, {iteration, queue.epoch(), queue.batch()}, {{network, &state}});
  }
  network.to({});
  outcome.digest = network_digest(network);
  return outcome;
}

template <class State>
void expect_resumes_at_every_iteration(Device device = {}) {
  const TemporaryFolder folder;
  const LoopOutcome whole = run<State>(folder.path + "/whole", kIterations, 2, device);
  ASSERT_EQ(whole.losses.size(), static_cast<size_t>(kIterations));
  const auto whole_file = local_files().read(folder.path + "/whole");
  for (int64_t stop = 0; stop < kIterations; ++stop) {
    SCOPED_TRACE(stop);
    const std::string path = folder.path + "/new/stopped-" + std::to_string(stop);
    std::vector<double> losses = run<State>(path, stop, 1, device).losses;
    const LoopOutcome rest = run<State>(path, kIterations, 3, device);
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, whole.losses);
    EXPECT_EQ(rest.digest, whole.digest);
    EXPECT_EQ(local_files().read(path), whole_file) << "solver states or positions differ";
  }
}

TEST(SavedLoop, ResumesAtEveryIterationWithTheBitsOfTheWhole) {
  expect_resumes_at_every_iteration<SgdmState>();
  expect_resumes_at_every_iteration<AdamState>();
  expect_resumes_at_every_iteration<RmspropState>();
}

TEST(SavedLoop, ResumesOnADevice) {
  const devicetest::FakeDevice fake;
  expect_resumes_at_every_iteration<AdamState>(fake);
}

// Two networks with their own solvers, as in a GAN.
struct Two {
  Network first = small_classifier(1);
  Network second{image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}),
                 fully_connected({.units = 3})};
  SgdmState sgdm;
  AdamState adam;

  explicit Two(int updates = 0) {
    second.initialize(2);
    for (int i = 0; i < updates; ++i) {
      update(first, ones(first), sgdm);
      update(second, ones(second), adam);
    }
  }
  static std::vector<Tensor> ones(const Network& network) {
    std::vector<Tensor> all;
    for (const Tensor& t : network.parameter_values()) all.push_back(Tensor::full(t.shape(), 1));
    return all;
  }
  std::vector<LoopPart> parts() { return {{first, &sgdm, "generator"}, {second, &adam, "critic"}}; }
  // Everything that a load can change.
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const Network* network : {&first, &second}) {
      for (const auto& p : network->parameters()) all.push_back(p.value.to_vector());
      for (const auto& s : network->state()) all.push_back(s.value.to_vector());
    }
    for (const auto* arrays : {&sgdm.velocity, &adam.mean, &adam.square}) {
      for (const Tensor& t : *arrays) all.push_back(t.to_vector());
    }
    all.push_back({static_cast<float>(adam.iteration)});
    return all;
  }
};

TEST(SavedLoop, SeveralNetworksWithTheirSolvers) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two saved(3), loaded;
  save_loop(local_files(), path, {.iteration = 3, .epoch = 1, .batch = 2}, saved.parts());
  // The order of parts does not matter.
  const auto parts = loaded.parts();
  const LoopPosition at = load_loop(local_files(), path, {parts[1], parts[0]});
  EXPECT_EQ(at.iteration, 3);
  EXPECT_EQ(at.epoch, 1);
  EXPECT_EQ(at.batch, 2);
  EXPECT_EQ(loaded.adam.iteration, 3);
  EXPECT_EQ(loaded.values(), saved.values());
  // The loaded state is independent of the loop that saved it.
  update(saved.first, Two::ones(saved.first), saved.sgdm);
  EXPECT_NE(loaded.values(), saved.values());
  update(loaded.first, Two::ones(loaded.first), loaded.sgdm);
  EXPECT_EQ(loaded.values(), saved.values());
}

// Expects that loading throws E with a message that contains `what`, and changes nothing.
template <class E>
void expect_refused(const std::string& path, Two& two, const std::vector<LoopPart>& parts,
                    const std::string& what) {
  const auto before = two.values();
  const std::string message = message_of<E>([&] { load_loop(local_files(), path, parts); });
  EXPECT_NE(message.find(what), std::string::npos) << message;
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_EQ(two.values(), before);
}

TEST(SavedLoop, DamagedFilesAreRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two two(2);
  save_loop(local_files(), path, {.iteration = 2}, two.parts());
  const std::vector<std::byte> good = local_files().read(path);
  Two other(1);
  expect_refused<FileError>(folder.path + "/none", other, other.parts(), "/none");
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, good.size() / 2, good.size() - 1}) {
    SCOPED_TRACE(size);
    write_atomically(local_files(), path, std::span(good).first(size));
    expect_refused<DataError>(path, other, other.parts(), "");
  }
  // The last ones lie in the tensors.
  for (const size_t place : {size_t{0}, size_t{9}, good.size() / 4, good.size() / 2,
                             good.size() * 3 / 4, good.size() - 1}) {
    SCOPED_TRACE(place);
    std::vector<std::byte> damaged = good;
    damaged[place] ^= std::byte{4};
    write_atomically(local_files(), path, damaged);
    expect_refused<DataError>(path, other, other.parts(), "");
  }
  write_atomically(local_files(), path,
                   write_checked({}, "checkpoint", nlohmann::ordered_json::object()));
  expect_refused<DataError>(path, other, other.parts(), "it has no `lockstep.loop`");
  write_atomically(local_files(), path,
                   write_checked({}, "loop", nlohmann::ordered_json::object()));
  expect_refused<DataError>(path, other, other.parts(), "missing or invalid field");
  write_atomically(local_files(), path, good);
  load_loop(local_files(), path, other.parts());
  EXPECT_EQ(other.values(), two.values());
}

TEST(SavedLoop, OtherLoopsAreRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two saved(2), two(1);
  save_loop(local_files(), path, {.iteration = 2}, saved.parts());
  const auto refused = [&](const std::vector<LoopPart>& parts, const std::string& what) {
    expect_refused<InvalidArgument>(path, two, parts, what);
  };
  const auto parts = two.parts();
  refused({parts[0]}, "it has the part critic");
  refused({parts[0], parts[1], {two.second, &two.adam, "third"}}, "it has no part third");
  RmspropState rmsprop;
  refused({{two.first, &rmsprop, "generator"}, parts[1]},
          "generator.solver: \"rmsprop\" here, \"sgdm\" there");
  EXPECT_TRUE(rmsprop.square.empty());
  Network wider{image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}),
                fully_connected({.units = 4})};
  wider.initialize(2);
  AdamState adam;
  refused({parts[0], {wider, &adam, "critic"}}, "critic.layers[2].units: 4 here, 3 there");
  // A layer without parameters.
  Network longer{image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}),
                 fully_connected({.units = 3}), relu()};
  longer.initialize(2);
  refused({parts[0], {longer, &adam, "critic"}}, "critic.layers");
}

TEST(SavedLoop, OtherNumericsAreRefusedUnlessAllowed) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two saved(2), two(1);
  save_loop(local_files(), path, {.iteration = 2}, saved.parts());
  CheckedFile file = read_checked(local_files(), path, "loop");
  file.position["fingerprint"]["oneDNN"] = "0.1";
  write_atomically(local_files(), path, write_checked(file.file.tensors, "loop", file.position));
  expect_refused<InvalidArgument>(path, two, two.parts(), "0.1 there");
  EXPECT_EQ(load_loop(local_files(), path, two.parts(), true).iteration, 2);
  EXPECT_EQ(two.values(), saved.values());
}

TEST(SavedLoop, PartsThatCannotBeSavedAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two two(1);
  const auto parts = two.parts();
  const auto refused = [&](const std::vector<LoopPart>& wrong, const std::string& what) {
    const std::string message =
        message_of<InvalidArgument>([&] { save_loop(local_files(), path, {}, wrong); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_FALSE(local_files().exists(path));
  };
  refused({}, "no parts");
  refused({parts[0], parts[0]}, "two parts have the name generator");
  refused({{two.first, &two.sgdm, ""}}, "name");
  refused({{two.first, &two.sgdm, "a/b"}}, "a/b");
  refused({{two.first, static_cast<SgdmState*>(nullptr)}}, "no state");
  refused({{two.second, &two.sgdm}}, "`velocity` in the state of sgdm is of");
  AdamState half = two.adam;
  half.square.clear();
  refused({{two.second, &half}}, "`square` in the state of adam is of 0 parameters");
  Network empty({image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"})});
  SgdmState sgdm;
  refused({{empty, &sgdm}}, "not initialized");
}

// A full disk, or a crash, at any call.
TEST(SavedLoop, AWriteBrokenAtAnyCallLeavesTheOldOrTheNewFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/loop";
  Two old(1), fresh(2);
  bool succeeded = false;
  for (int fail_at = 0; !succeeded; ++fail_at) {
    ASSERT_LT(fail_at, 20);
    save_loop(local_files(), path, {.iteration = 1}, old.parts());
    BreakingFiles breaking(fail_at);
    try {
      save_loop(breaking, path, {.iteration = 2}, fresh.parts());
      succeeded = true;
    } catch (const FileError&) {
    }
    Two loaded;
    const int64_t iteration = load_loop(local_files(), path, loaded.parts()).iteration;
    EXPECT_TRUE(!succeeded || iteration == 2);
    EXPECT_EQ(loaded.values(), (iteration == 1 ? old : fresh).values());
  }
}

}  // namespace
}  // namespace lockstep
