// Iterations that a device computes while the host still reads the results of the iteration before.
// The bits are the same, and after any end the state is that of the last finished iteration.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/train/loop/make_training_iteration.h"
#include "lockstep/train/programs/devices/device_iteration.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;

std::vector<std::vector<float>> values_of(const Network& network) {
  std::vector<std::vector<float>> values;
  for (const auto& l : network.parameters()) values.push_back(l.value.to_vector());
  for (const auto& s : network.state()) values.push_back(s.value.to_vector());
  return values;
}

// Compares bits, because values may be NaN.
void expect_same_bits(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    EXPECT_EQ(0, std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)));
  }
}

// A training that was ended early.
struct Ended {
  std::string message;
  std::vector<std::vector<float>> values;
  std::vector<Digest> digests;  // of the iterations that were reported
};

Ended ended(const std::string& device, TrainingOptions options, const TrainingData& data,
            const std::function<void(const IterationRecord&)>& on_iteration = {}) {
  Network network = small_classifier();
  options.device = device;
  testing::Recorder recorder;
  recorder.on_iteration = on_iteration;
  TrainingControl control;
  control.observers = {&recorder};
  Ended outcome;
  try {
    train(network, data, options, control);
    ADD_FAILURE() << "nothing ended the training";
  } catch (const std::exception& e) {
    outcome.message = e.what();
  }
  EXPECT_EQ(network.device(), Device{}) << "the network did not come back";
  outcome.values = values_of(network);
  for (const auto& r : recorder.iterations) outcome.digests.push_back(r.digest);
  return outcome;
}

void expect_same(const Ended& a, const Ended& b) {
  EXPECT_EQ(a.message, b.message);
  EXPECT_EQ(a.digests, b.digests);
  expect_same_bits(a.values, b.values);
}

// What a launch has sent before it failed may still be read from the slot's memory.
TEST(DeviceAhead, TheWorkOfAFailedLaunchIsWaitedFor) {
  const FakeDevice fake;
  Network network = small_classifier();
  network.to(fake);
  DeviceIteration iteration(network);
  iteration.begin(true, 4, 0, 1, {.sent = 16, .returned = 16});
  std::memset(iteration.to_send(0), 1, 16);
  iteration.add([] { throw Error("[test] this launch fails"); });
  EXPECT_THROW(iteration.launch(), Error);
  iteration.wait();
  std::memset(iteration.to_send(0), 2, 16);  // by the next iteration
  std::vector<unsigned char> arrived(16);
  fake.memory().copy_to_host(arrived.data(), iteration.there(), 16, iteration.stream());
  fake.memory().synchronize(iteration.stream());
  EXPECT_EQ(arrived, std::vector<unsigned char>(16, 1));
}

TEST(DeviceAhead, TwoIterationsUnderWayGiveWhatTheyGiveOneByOne) {
  const FakeDevice fake;
  TrainingOptions options = small_options();
  options.device = "cuda:0";
  options.solver.type = "adam";
  options.shards.check_frequency = 5;
  options = options.resolved();
  const auto images = std::make_shared<ExampleCache>(some_digits(60), 28, 28, 1, size_t{1} << 20);
  const auto with = [&](bool ahead) {
    Network network = small_classifier();
    network.to(fake);
    const auto solver = make_solver(network, options);
    std::vector<std::pair<double, Digest>> outcomes;
    {
      ThreadPool pool(1);
      const auto step = make_training_iteration(network, *solver, pool, options);
      MiniBatchQueue queue(images, {.mini_batch_size = 20, .seed = 1, .max_epochs = 2});
      int64_t begun = 0;
      const auto begin = [&] {
        ++begun;
        step->begin(*queue.next(), {0.01, begun, 20});
      };
      const auto finish = [&] {
        const IterationOutcome f = step->finish();
        outcomes.emplace_back(f.loss_sum, f.digest);
      };
      for (int64_t i = 1; i <= 4; ++i) {
        EXPECT_EQ(step->depth(i), 1);
        if (!ahead) {
          begin();
          finish();
        } else if (begun < 4) {
          if (begun == 0) begin();
          begin();
          finish();
        } else {
          finish();
        }
      }
      EXPECT_EQ(step->depth(5), 0) << "a shard is computed again";
    }
    network.to({});
    return std::pair(outcomes, values_of(network));
  };
  const auto one_by_one = with(false), ahead = with(true);
  EXPECT_EQ(one_by_one.first, ahead.first);
  expect_same_bits(one_by_one.second, ahead.second);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// The exception ends the training after one report, while another iteration is under way.
TEST(DeviceAhead, AnExceptionLeavesTheLastFinishedIteration) {
  const FakeDevice fake;
  for (const int64_t at : {1, 2, 4, 6}) {
    SCOPED_TRACE(at);
    const auto with = [&](const std::string& device) {
      return ended(device, small_options(), {.training = some_digits(60)},
                   [&](const IterationRecord& r) {
                     if (r.iteration == at) throw std::runtime_error("enough");
                   });
    };
    const Ended here = with("cpu");
    EXPECT_EQ(here.message, "enough");
    const int marks = fake.marks();
    expect_same(with("cuda:0"), here);
    EXPECT_EQ(fake.marks() - marks, std::min<int64_t>(at + 1, 6)) << "iterations begun";
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(DeviceAhead, ALossThatIsNotANumberLeavesTheLastFinishedIteration) {
  const FakeDevice fake;
  size_t most = 0;
  for (const double rate : {1e30, 1e18, 1e12}) {
    SCOPED_TRACE(rate);
    TrainingOptions options = small_options();
    options.max_epochs = 20;
    options.solver.initial_learning_rate = rate;
    const auto with = [&](const std::string& device) {
      return ended(device, options, {.training = some_digits(60)});
    };
    const Ended here = with("cpu");
    EXPECT_NE(here.message.find("is not a finite number"), std::string::npos) << here.message;
    expect_same(with("cuda:0"), here);
    most = std::max(most, here.digests.size());
  }
  EXPECT_GT(most, 1u) << "none ended later";
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// A datastore that fails after a number of reads.
class Failing final : public DatastoreWrapper {
 public:
  Failing(DatastorePtr store, int64_t readings)
      : DatastoreWrapper(std::move(store)), left_(readings) {}
  Example read(int64_t index) const override {
    if (left_-- <= 0) throw DataError("[test] no further reading");
    return DatastoreWrapper::read(index);
  }

 private:
  mutable std::atomic<int64_t> left_;
};

// An iteration that cannot begin ends the training after all iterations before it are reported.
TEST(DeviceAhead, AMiniBatchThatCannotBeReadComesAfterThoseThatCan) {
  const FakeDevice fake;
  for (const int64_t readings : {60, 80, 100, 160}) {
    SCOPED_TRACE(readings);
    TrainingOptions options = small_options();
    options.data.cache_mib = 0;
    options.data.loader_threads = 1;
    const auto with = [&](const std::string& device) {
      return ended(device, options,
                   {.training = std::make_shared<Failing>(some_digits(60), readings)});
    };
    const Ended here = with("cpu");
    EXPECT_NE(here.message.find("no further reading"), std::string::npos) << here.message;
    EXPECT_EQ(here.digests.size(), static_cast<size_t>((readings - 60) / 20));
    expect_same(with("cuda:0"), here);
  }
}

}  // namespace
}  // namespace lockstep
