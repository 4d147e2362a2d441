#include "lockstep/train/state/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using testing::BreakingFiles;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

// A network with a solver in the middle of a training.
struct Snapshot {
  Network network;
  std::unique_ptr<Solver> solver;
  TrainingPosition position;

  explicit Snapshot(uint64_t seed = 1, const std::string& name = "adam")
      : network(small_classifier(seed)) {
    TrainingOptions options;
    options.solver.type = name;
    solver = make_solver(network, options);
    position.identity = {{"training", {{"l2", 0.1}, {"solver", name}}}, {"data", "abc"}};
  }

  // Fills all values with numbers that depend on the iteration.
  void go_to(int64_t iteration) {
    std::mt19937 random(static_cast<unsigned>(iteration));
    std::normal_distribution<float> normal;
    const auto fill = [&](const Tensor& tensor) {
      for (int64_t i = 0; i < tensor.shape().elements(); ++i) {
        tensor.data<float>()[i] = normal(random);
      }
    };
    for (size_t p = 0; p < network.parameters().size(); ++p) {
      fill(network.parameters()[p].value);
      for (const auto& array : solver->state(p)) fill(array);
    }
    for (const auto& state : network.state()) fill(state.value);
    position.iteration = iteration;
    position.epoch = iteration / 3;
    position.batch = iteration % 3;
    position.digest = digest();
    position.chain = Digest{7, static_cast<uint64_t>(iteration)};
    position.validations = {
        {iteration - 1, 1, 0.1 + 0.2, 1.0 / 3, 50, 0.25, {{"b", 0.1}, {"a", std::nan("")}}},
        {iteration, 2, std::nan(""), 0, 0, 0}};
  }

  Digest digest() const { return state_digest(network, *solver, position.iteration); }
  std::string write(const std::string& folder, int64_t keep = 2) {
    return write_checkpoint(local_files(), folder, network, *solver, position, keep);
  }
  std::optional<TrainingPosition> resume(const std::string& folder, bool other_numerics = false,
                                         FileSystem& files = local_files()) {
    notices.clear();
    return resume_from_checkpoint(files, folder, network, *solver, position.identity,
                                  other_numerics,
                                  [&](const std::string& text) { notices.push_back(text); });
  }
  std::vector<std::string> notices;
};

void put(const std::string& path, std::span<const std::byte> bytes) {
  local_files().open(path, false)->append(bytes);
}

TEST(Checkpoint, EverythingComesBackBitForBit) {
  for (const std::string solver : {"sgdm", "adam"}) {
    const TemporaryFolder folder;
    Snapshot run(1, solver);
    run.go_to(7);
    const std::string path = run.write(folder.path);
    EXPECT_EQ(path, folder.path + "/checkpoint-00000007.safetensors");
    Snapshot other(2, solver);
    const auto position = other.resume(folder.path);
    ASSERT_TRUE(position.has_value());
    EXPECT_TRUE(other.notices.empty());
    EXPECT_EQ(position->iteration, 7);
    EXPECT_EQ(position->epoch, 2);
    EXPECT_EQ(position->batch, 1);
    EXPECT_EQ(position->digest, run.position.digest);
    EXPECT_EQ(position->chain, run.position.chain);
    EXPECT_EQ(position->identity, run.position.identity);
    ASSERT_EQ(position->validations.size(), 2u);
    EXPECT_EQ(position->validations[0].loss, 0.1 + 0.2);
    EXPECT_EQ(position->validations[0].accuracy, 1.0 / 3);
    EXPECT_EQ(position->validations[0].observations, 50);
    EXPECT_EQ(position->validations[1].iteration, 7);
    EXPECT_TRUE(std::isnan(position->validations[1].loss));
    ASSERT_EQ(position->validations[0].metrics.size(), 2u);
    EXPECT_EQ(position->validations[0].metrics[0], (MetricValue{"b", 0.1}));
    EXPECT_EQ(position->validations[0].metrics[1].name, "a");
    EXPECT_TRUE(std::isnan(position->validations[0].metrics[1].value));
    EXPECT_TRUE(position->validations[1].metrics.empty());
    EXPECT_EQ(state_digest(other.network, *other.solver, 7), run.position.digest);
  }
}

TEST(Checkpoint, AFolderWithoutAnyIsNotAnError) {
  const TemporaryFolder folder;
  Snapshot run;
  EXPECT_FALSE(run.resume(folder.path).has_value());
  EXPECT_FALSE(run.resume(folder.path + "/missing").has_value());
  folder.write("checkpoint-.safetensors", {});
  folder.write("checkpoint-12x.safetensors", {});
  folder.write("checkpoint-00000009.safetensors.tmp", {});
  folder.write("model.safetensors", {});
  EXPECT_FALSE(run.resume(folder.path).has_value());
  EXPECT_TRUE(run.notices.empty());
}

TEST(Checkpoint, TheNewestAreKept) {
  const TemporaryFolder folder;
  Snapshot run;
  for (const int64_t iteration : {5, 10, 99999999, 100000000}) {
    run.go_to(iteration);
    run.write(folder.path, 2);
  }
  EXPECT_EQ(local_files().list(folder.path),
            (std::vector<std::string>{"checkpoint-100000000.safetensors",
                                      "checkpoint-99999999.safetensors"}));
  EXPECT_EQ(run.resume(folder.path)->iteration, 100000000) << "newest by number, not by name";
  run.go_to(100000001);
  run.write(folder.path, 1);
  EXPECT_EQ(local_files().list(folder.path).size(), 1u);
}

TEST(Checkpoint, ADamagedOneIsNamedAndTheOneBeforeUsed) {
  const TemporaryFolder folder;
  Snapshot run;
  run.go_to(3);
  run.write(folder.path);
  const Digest before = run.position.digest;
  run.go_to(4);
  const std::string newest = run.write(folder.path);
  const auto sound = local_files().read(newest);
  const auto expect_passed_over = [&](std::span<const std::byte> bytes, const std::string& what) {
    put(newest, bytes);
    const auto position = run.resume(folder.path);
    ASSERT_TRUE(position.has_value()) << what;
    EXPECT_EQ(position->iteration, 3) << what;
    EXPECT_EQ(state_digest(run.network, *run.solver, 3), before) << what;
    ASSERT_EQ(run.notices.size(), 1u) << what;
    EXPECT_NE(run.notices[0].find(newest), std::string::npos) << run.notices[0];
  };
  // Truncated at various lengths.
  std::vector<size_t> lengths{0, 1, 7, 8, 9, 100, sound.size() - 1};
  for (size_t at = 200; at < sound.size(); at += sound.size() / 40 + 1) lengths.push_back(at);
  for (const size_t length : lengths) {
    expect_passed_over(std::span(sound).first(length), "cut at " + std::to_string(length));
  }
  // Any flipped bit: many in the header and its padding, some in the data.
  size_t header = 0;
  std::memcpy(&header, sound.data(), 8);
  std::mt19937 random(5);
  std::vector<size_t> bits;
  for (size_t byte = 0; byte < 8 + header; byte += 11) bits.push_back(8 * byte + random() % 8);
  for (size_t bit = 8 * (8 + header) - 64; bit < 8 * (8 + header); ++bit) bits.push_back(bit);
  for (int i = 0; i < 100; ++i) bits.push_back(random() % (8 * sound.size()));
  for (size_t i = 0; i < 64; ++i) bits.push_back(i);  // the length of the header
  for (const size_t bit : bits) {
    auto bytes = sound;
    bytes[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    expect_passed_over(bytes,
                       "bit " + std::to_string(bit) + " of " + std::to_string(8 * sound.size()));
    if (HasFailure()) break;
  }
  put(newest, sound);
  EXPECT_EQ(run.resume(folder.path)->iteration, 4);
}

TEST(Checkpoint, WhenAllAreDamagedThereIsNone) {
  const TemporaryFolder folder;
  Snapshot run;
  run.go_to(3);
  put(run.write(folder.path), as_bytes("rubbish"));
  run.go_to(4);
  put(run.write(folder.path), as_bytes(""));
  EXPECT_FALSE(run.resume(folder.path).has_value());
  EXPECT_EQ(run.notices.size(), 2u);
}

TEST(Checkpoint, ThatOfAnotherTrainingIsRefusedNamingTheDifference) {
  const TemporaryFolder folder;
  Snapshot run;
  run.position.identity = {{"training", {{"l2", 0.1}, {"seed", 3}}},
                           {"network", {{"layers", {{{"name", "a"}, {"units", 3}}}}}},
                           {"data", "abc"}};
  run.go_to(3);
  run.write(folder.path);
  const auto expect = [&](const char* pointer, const ordered_json& value, const char* words) {
    Snapshot other;
    other.position.identity = run.position.identity;
    other.position.identity[ordered_json::json_pointer(pointer)] = value;
    const Digest untouched = other.digest();
    try {
      other.resume(folder.path);
      ADD_FAILURE() << pointer << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(folder.path), std::string::npos) << error.what();
    }
    EXPECT_EQ(other.digest(), untouched) << "nothing was loaded";
  };
  expect("/training/l2", 0.2, "training.l2: 0.2 here, 0.1 there");
  expect("/training/new", 1, "training.new: 1 here");
  expect("/network/layers/0/units", 4, "network.layers[1].units: 4 here, 3 there");
  expect("/network/layers", ordered_json::array(), "network.layers");
  expect("/data", "abd", "the training data differ from the run's");
  // A tensor that only the checkpoint has is a difference, too.
  Snapshot other;
  other.position.identity = run.position.identity;
  other.position.identity["training"].erase("seed");
  try {
    other.resume(folder.path);
    ADD_FAILURE() << "it was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("seed"), std::string::npos) << error.what();
  }
}

TEST(Checkpoint, OfAnIdentityWithAnotherVersionIsRefusedByIt) {
  const TemporaryFolder folder;
  Snapshot run;
  run.position.identity = {{"version", 3}, {"training.l2", 0.1}};
  run.go_to(3);
  const std::string path = run.write(folder.path);
  for (const ordered_json& mine :
       {ordered_json{{"version", 2}, {"training.l2", 0.1}}, ordered_json{{"training.l2", 0.1}}}) {
    Snapshot other;
    other.position.identity = mine;
    try {
      other.resume(folder.path);
      ADD_FAILURE() << "it was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(path + " has an identity of version 3"),
                std::string::npos)
          << error.what();
      EXPECT_NE(error.hint().find("version of lockstep that wrote it"), std::string::npos);
    }
    EXPECT_TRUE(local_files().exists(path)) << "it keeps its name";
  }
}

TEST(Checkpoint, OptionsMayHaveAnotherOrder) {
  const TemporaryFolder folder;
  Snapshot run;
  run.position.identity = {{"a", {{"x", 1}, {"y", 2}}}, {"b", {{{"x", 1}, {"y", 2}}}}};
  run.go_to(3);
  run.write(folder.path);
  Snapshot other;
  other.position.identity = {{"b", {{{"y", 2}, {"x", 1}}}}, {"a", {{"y", 2}, {"x", 1}}}};
  EXPECT_TRUE(other.resume(folder.path).has_value());
}

// Rewrites a checkpoint as if another machine had written it.
void pretend_other_numerics(const std::string& path) {
  SafetensorsFile file = read_safetensors(local_files().read(path), path);
  auto json = ordered_json::parse(file.metadata["lockstep.position"]);
  json["fingerprint"]["oneDNN"] = "1.2.3";
  const std::string position = json.dump();
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Digester digester;
  digester.add(position);
  for (const auto& t : file.tensors) {
    digester.add(t.name);
    digester.add(t.tensor.spec().plain().to_string());
    digester.bytes(t.tensor.raw(), t.tensor.bytes());
  }
  file.metadata["lockstep.position"] = position;
  file.metadata["lockstep.checksum"] = digester.finish().to_string();
  put(path, write_safetensors(file.tensors, file.metadata));
}

TEST(Checkpoint, OtherNumericsAreRefusedUnlessAllowed) {
  const TemporaryFolder folder;
  Snapshot run;
  run.go_to(3);
  pretend_other_numerics(run.write(folder.path));
  Snapshot other(2);
  try {
    other.resume(folder.path);
    FAIL() << "it was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("oneDNN: "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1.2.3 there"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("allow_other_numerics"), std::string::npos) << error.hint();
  }
  ASSERT_TRUE(other.resume(folder.path, true).has_value());
  EXPECT_EQ(state_digest(other.network, *other.solver, 3), run.position.digest);
}

TEST(Checkpoint, AWriteBrokenAtAnyCallLeavesAFolderToResumeFrom) {
  int calls = 0;
  for (int fail_at = 0;; ++fail_at) {
    ASSERT_LT(fail_at, 40);
    const TemporaryFolder folder;
    Snapshot run;
    for (const int64_t iteration : {1, 2}) {
      run.go_to(iteration);
      run.write(folder.path);
    }
    run.go_to(3);
    BreakingFiles broken(fail_at);
    bool thrown = false;
    try {
      write_checkpoint(broken, folder.path, run.network, *run.solver, run.position, 2);
    } catch (const FileError&) {
      thrown = true;
    }
    Snapshot other(2);
    const auto position = other.resume(folder.path);
    ASSERT_TRUE(position.has_value()) << "call " << fail_at;
    EXPECT_TRUE(other.notices.empty()) << "call " << fail_at << ": " << other.notices[0];
    EXPECT_GE(position->iteration, 2) << "call " << fail_at;
    EXPECT_EQ(state_digest(other.network, *other.solver, position->iteration), position->digest);
    run.go_to(4);  // the disk works again
    run.write(folder.path);
    EXPECT_EQ(other.resume(folder.path)->iteration, 4);
    EXPECT_EQ(local_files().list(folder.path).size(), 2u) << "call " << fail_at;
    if (!thrown) {
      calls = broken.calls();
      break;
    }
  }
  EXPECT_EQ(calls, 7) << "open, append, sync, rename, sync_folder, list, remove";
}

// ---- In a training ----

TrainingResult run_training(const std::string& folder, TrainingOptions options,
                            TrainingControl control = {}, int64_t observations = 60,
                            uint64_t seed = 1) {
  Network network = small_classifier(seed);
  control.checkpoint_folder = folder;
  return train(network, {some_digits(observations), some_digits(20, 10)}, options, control);
}

TEST(Checkpoint, TrainingsWriteThemAtTheirFrequency) {
  TrainingOptions options = small_options();  // 3 iterations per epoch, 6 in total
  const auto written = [&](int64_t frequency) {
    const TemporaryFolder folder;
    testing::Recorder recorder;
    TrainingControl control;
    control.observers = {&recorder};
    options.checkpoints.frequency = frequency;
    run_training(folder.path, options, control);
    std::vector<int64_t> iterations;
    for (const auto& [path, iteration] : recorder.checkpoints) iterations.push_back(iteration);
    return iterations;
  };
  EXPECT_EQ(written(0), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(written(2), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(written(4), (std::vector<int64_t>{4, 6})) << "always at the end";
}

TEST(Checkpoint, AnotherTrainingIsRefusedByWhatDiffers) {
  const TemporaryFolder folder;
  const TrainingOptions options = small_options();
  TrainingControl stop;
  stop.stop_after = 2;
  run_training(folder.path, options, stop);
  TrainingControl resume;
  resume.resume = true;
  const auto error_of = [&](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  TrainingOptions other = options;
  other.solver.l2 = 0.5;
  EXPECT_NE(error_of([&] { run_training(folder.path, other, resume); }).find("training.l2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { run_training(folder.path, options, resume, 50); }).find("data"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                              fully_connected({.units = 10}), softmax()};
              network.initialize(1);
              resume.checkpoint_folder = folder.path;
              train(network, {some_digits(60), some_digits(20, 10)}, options, resume);
            }).find("network.layers"),
            std::string::npos);
  // Options that affect only speed and output may change.
  other = options;
  other.threads = 1;
  other.data.cache_mib = 0;
  other.data.prefetch = 9;
  other.data.loader_threads = 2;
  other.checkpoints.frequency = 1;
  other.checkpoints.kept = 9;
  const TrainingResult resumed = run_training(folder.path, other, resume);
  ASSERT_EQ(resumed.iterations.front().iteration, 3) << "it has begun anew";
  EXPECT_EQ(resumed.digest, run_training(TemporaryFolder().path, options).digest);
}

TEST(Checkpoint, ResumingWithoutAFolderOrCheckpointsIsReported) {
  TrainingControl control;
  control.resume = true;
  EXPECT_THROW(run_training("", small_options(), control), InvalidArgument);
  const TemporaryFolder folder;
  testing::Recorder recorder;
  control.observers = {&recorder};
  const auto result = run_training(folder.path, small_options(), control);
  EXPECT_EQ(result.last_iteration, 6);
  ASSERT_EQ(recorder.notices.size(), 1u);
  EXPECT_NE(recorder.notices[0].find("no checkpoint"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
