#include "lockstep/train/state/receipt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/train/records/observer.h"
#include "tests/base/breaking_files.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

std::string text_of(const TemporaryFolder& folder, const std::string& name) {
  return read_text(local_files(), join_path(folder.path, name));
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

// Trains into a folder: checkpoints, receipt and log.
TrainingResult run_into(const TemporaryFolder& folder, TrainingControl control = {},
                        int64_t threads = 2, int64_t validation_frequency = 2,
                        int64_t shard_size = 7, FileSystem& files = local_files()) {
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.shards.size = shard_size;
  options.threads = threads;
  options.validation.frequency = validation_frequency;
  options.checkpoints.frequency = 2;
  ReceiptWriter receipt(files, folder.path);
  control.observers.push_back(&receipt);
  control.checkpoint_folder = join_path(folder.path, "checkpoints");
  auto result = train(network, {some_digits(60), some_digits(20, 10)}, options, control);
  receipt.finish();
  return result;
}

TEST(Receipt, HasOneLineForEachIterationWithWhatWasComputed) {
  const TemporaryFolder folder;
  const auto result = run_into(folder);
  const auto lines = lines_of(text_of(folder, "receipt.jsonl"));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const IterationRecord& r = result.iterations[i];
    EXPECT_EQ(lines[i]["iteration"], r.iteration);
    EXPECT_EQ(lines[i]["epoch"], r.epoch);
    EXPECT_EQ(lines[i]["loss"].get<double>(), r.loss) << "every bit";
    EXPECT_EQ(lines[i]["observations"], r.observations.to_string());
    EXPECT_EQ(lines[i]["digest"], r.digest.to_string());
    EXPECT_EQ(lines[i]["chain"], r.chain.to_string());
    EXPECT_EQ(lines[i].size(), 6u) << "nothing that depends on who computed";
    // The seed determines the indices of the observations.
    const auto order = epoch_order(60, Shuffle::every_epoch, 0, r.epoch - 1);
    const auto begin = order.begin() + (r.in_epoch - 1) * 20;
    EXPECT_EQ(r.observations, digest_observations({begin, begin + 20}));
  }
  EXPECT_EQ(lines.back()["digest"], result.digest.to_string());
}

TEST(Receipt, EveryLinkIsMadeFromTheOneBefore) {
  const TemporaryFolder folder;
  const auto result = run_into(folder);
  const auto lines = lines_of(text_of(folder, "receipt.jsonl"));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 1; i < lines.size(); ++i) {
    const double loss = lines[i]["loss"].get<double>();
    Digester digester;
    digester.add(Digest::parse(lines[i - 1]["chain"].get<std::string>()));
    digester.add(lines[i]["iteration"].get<uint64_t>());
    digester.add(Digest::parse(lines[i]["observations"].get<std::string>()));
    digester.bytes(&loss, sizeof loss);
    digester.add(Digest::parse(lines[i]["digest"].get<std::string>()));
    EXPECT_EQ(digester.finish().to_string(), lines[i]["chain"]) << "line " << i + 1;
  }
}

TEST(Receipt, WhatFollowsTheLastWholeLineIsNamed) {
  const TemporaryFolder folder;
  run_into(folder);
  const std::string path = join_path(folder.path, "receipt.jsonl"),
                    text = text_of(folder, "receipt.jsonl");
  EXPECT_EQ(read_whole_receipt(local_files(), path).rest_note, "");
  EXPECT_EQ(receipt_rest_note("", path), "");
  for (const std::string rest : {"x", "{\"iteration\":7,\"epo", "  "}) {
    write_atomically(local_files(), path, text + rest);
    const Receipt read = read_whole_receipt(local_files(), path);
    EXPECT_EQ(read.lines.size(), 6u);
    EXPECT_EQ(read.rest_note.find(path + ": " + std::to_string(rest.size()) + " byte"), 0u)
        << read.rest_note;
  }
  write_atomically(local_files(), path, text + "x\n");
  try {
    read_whole_receipt(local_files(), path);
    ADD_FAILURE();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("line 7"), std::string::npos) << error.what();
  }
}

TEST(Receipt, TwoRunsWriteTheSameBytesOnAnyNumberOfThreads) {
  const TemporaryFolder one, two, three;
  // Shards of 3: with three shards the last one nearly always arrives last.
  run_into(one, {}, 2, 2, 3);
  run_into(two, {}, 2, 2, 3);
  run_into(three, {}, 3, 2, 3);
  EXPECT_FALSE(text_of(one, "receipt.jsonl").empty());
  EXPECT_EQ(text_of(one, "receipt.jsonl"), text_of(two, "receipt.jsonl"));
  EXPECT_EQ(text_of(one, "receipt.jsonl"), text_of(three, "receipt.jsonl"));
}

TEST(Receipt, TheLogHasTimesAndValidations) {
  const TemporaryFolder folder;
  const auto result = run_into(folder);
  int iterations = 0;
  std::vector<json> validations;
  double elapsed = 0;
  for (const auto& line : lines_of(text_of(folder, "log.jsonl"))) {
    if (line.contains("validation_loss")) {
      validations.push_back(line);
      continue;
    }
    ++iterations;
    EXPECT_EQ(line["observations"], 20);
    EXPECT_EQ(line["learning_rate"].get<double>(), 0.05);
    EXPECT_GE(line["accuracy"].get<double>(), 0);
    EXPECT_GT(line["seconds"].get<double>(), 0);
    EXPECT_GE(line["elapsed"].get<double>(), elapsed);
    elapsed = line["elapsed"].get<double>();
  }
  EXPECT_EQ(iterations, 6);
  ASSERT_EQ(validations.size(), 3u);
  for (size_t i = 0; i < validations.size(); ++i) {
    EXPECT_EQ(validations[i]["iteration"], result.validations[i].iteration);
    EXPECT_EQ(validations[i]["validation_accuracy"].get<double>(), result.validations[i].accuracy);
    EXPECT_EQ(validations[i]["validation_loss"].get<double>(), result.validations[i].loss);
    EXPECT_EQ(validations[i]["validation_observations"], 20);
  }
}

TEST(Receipt, ResumingDropsWhatCameAfterTheCheckpointAndEndsInTheSameBytes) {
  const TemporaryFolder whole, parts;
  run_into(whole);
  // Ends in iteration 5. The last checkpoint is that of iteration 4.
  struct Breaks : TrainingObserver {
    void iteration(const IterationRecord& r) override {
      if (r.iteration == 5) throw Error("[test] broken off");
    }
  } breaks;
  {
    Network network = small_classifier();
    TrainingOptions options = small_options();
    options.validation.frequency = options.checkpoints.frequency = 2;
    ReceiptWriter receipt(local_files(), parts.path);
    TrainingControl control;
    control.observers = {&receipt, &breaks};
    control.checkpoint_folder = join_path(parts.path, "checkpoints");
    EXPECT_THROW(train(network, {some_digits(60), some_digits(20, 10)}, options, control), Error);
  }
  EXPECT_EQ(lines_of(text_of(parts, "receipt.jsonl")).size(), 5u);
  // The machine stopped in the middle of a line.
  local_files()
      .open(join_path(parts.path, "receipt.jsonl"), true)
      ->append(as_bytes(R"({"iteration":6,"epo)"));
  TrainingControl control;
  control.resume = true;
  const auto result = run_into(parts, control, 3);
  EXPECT_EQ(result.iterations.front().iteration, 5);
  EXPECT_EQ(text_of(parts, "receipt.jsonl"), text_of(whole, "receipt.jsonl"));
  auto log = lines_of(text_of(parts, "log.jsonl"));
  const auto resumed =
      std::find_if(log.begin(), log.end(), [](const auto& line) { return line.contains("event"); });
  ASSERT_NE(resumed, log.end());
  EXPECT_EQ((*resumed)["event"], "resumed");
  EXPECT_EQ((*resumed)["iteration"], 4);
  log.erase(resumed);
  const auto expected = lines_of(text_of(whole, "log.jsonl"));
  ASSERT_EQ(log.size(), expected.size());
  for (size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i]["iteration"], expected[i]["iteration"]);
}

// Refuses to read a log whole, and measures what is written of it at a time.
class ChunksOfLogs : public testing::BreakingFiles {
 public:
  ChunksOfLogs() : BreakingFiles(-1) {}
  std::vector<std::byte> read(const std::string& path) override {
    EXPECT_FALSE(path.ends_with("log.jsonl")) << "it is read whole";
    return BreakingFiles::read(path);
  }
  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override {
    std::unique_ptr<WritableFile> file = BreakingFiles::open(path, append);
    if (!path.ends_with("log.jsonl.tmp")) return file;
    return std::make_unique<Measured>(*this, std::move(file));
  }
  size_t largest = 0;

 private:
  struct Measured : WritableFile {
    Measured(ChunksOfLogs& f, std::unique_ptr<WritableFile> r) : files(f), real(std::move(r)) {}
    void append(std::span<const std::byte> bytes) override {
      files.largest = std::max(files.largest, bytes.size());
      real->append(bytes);
    }
    void sync() override { real->sync(); }
    ChunksOfLogs& files;
    std::unique_ptr<WritableFile> real;
  };
};

// Logs of long trainings have hundreds of megabytes.
TEST(Receipt, AResumeNeverHasTheWholeLogInMemory) {
  const TemporaryFolder folder;
  TrainingControl control;
  control.stop_after = 4;
  run_into(folder, control);
  const std::string before = text_of(folder, "log.jsonl");
  const size_t second = before.find('\n') + 1;
  std::string many;
  for (int i = 0; i < 200; ++i) {
    many += R"({"event":"notice","iteration":1,"text":")" + std::string(50'000 + i, 'x') + "\"}\n";
  }
  const std::string damaged(size_t{20} << 20, '?');  // a line of this size is left out
  write_atomically(
      local_files(), join_path(folder.path, "log.jsonl"),
      before.substr(0, second) + many + damaged + "\n" + before.substr(second) + "{\"torn");
  control.stop_after = 0;
  control.resume = true;
  ChunksOfLogs files;
  run_into(folder, control, 2, 2, 7, files);
  const std::string after = text_of(folder, "log.jsonl");
  EXPECT_TRUE(after.starts_with(before.substr(0, second) + many + before.substr(second, 10)));
  EXPECT_EQ(after.find('?'), std::string::npos);
  EXPECT_EQ(after.find("torn"), std::string::npos);
  EXPECT_NE(after.find(R"({"iteration":6,)"), std::string::npos);
  EXPECT_GT(files.largest, size_t{1} << 20);
  EXPECT_LT(files.largest, size_t{2} << 20);
}

// Otherwise a training that is killed right after a checkpoint would resume with a gap.
TEST(Receipt, LinesAreThereBeforeTheCheckpointIs) {
  const TemporaryFolder folder;
  struct Looks : TrainingObserver {
    explicit Looks(const TemporaryFolder& f) : folder(f) {}
    void checkpoint(const std::string&, int64_t iteration) override {
      EXPECT_EQ(lines_of(text_of(folder, "receipt.jsonl")).size(), static_cast<size_t>(iteration));
      ++looked;
    }
    const TemporaryFolder& folder;
    int looked = 0;
  } looks(folder);
  TrainingControl control;
  control.observers = {&looks};      // called before the receipt
  run_into(folder, control, 2, 50);  // validations write lines, too
  EXPECT_EQ(looks.looked, 3);
}

TEST(Receipt, StartingAnewStartsANewFile) {
  const TemporaryFolder folder;
  folder.write("receipt.jsonl", std::vector<std::byte>(100, std::byte{'x'}));
  run_into(folder);
  EXPECT_EQ(lines_of(text_of(folder, "receipt.jsonl")).size(), 6u);
}

TEST(Receipt, NumbersThatJsonCannotHoldBecomeNull) {
  const TemporaryFolder folder;
  ReceiptWriter receipt(local_files(), folder.path);
  receipt.start({});
  IterationRecord record;
  record.iteration = 1;
  record.accuracy = std::nan("");
  receipt.iteration(record);
  ValidationRecord validation;
  validation.loss = std::numeric_limits<double>::infinity();
  receipt.validation(validation);
  receipt.finish();
  const auto lines = lines_of(text_of(folder, "log.jsonl"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0]["accuracy"].is_null());
  EXPECT_TRUE(lines[1]["validation_loss"].is_null());
}

TEST(Receipt, ErrorsOfTheFileSystemAreThrown) {
  int thrown = 0, fail_at = 0;
  for (;; ++fail_at) {
    ASSERT_LT(fail_at, 60);
    const TemporaryFolder folder;
    testing::BreakingFiles broken(fail_at);
    try {
      ReceiptWriter receipt(broken, folder.path);
      receipt.start({});
      receipt.iteration({});
      receipt.finish();
      break;
    } catch (const FileError&) {
      ++thrown;
    }
  }
  EXPECT_EQ(thrown, fail_at) << "every call that fails is told";
  EXPECT_GE(thrown, 12);
}

}  // namespace
}  // namespace lockstep
