// Power cuts at every writing call. A run can always be resumed, and ends with the bits and the
// receipt of a run without a cut.
#include "tests/train/power_cut.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/receipt.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using namespace testing;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

void write(PowerCutFiles& files, const std::string& path, const std::string& text) {
  files.open(path, false)->append(as_bytes(text));
}

// Tests the file system itself: it must lose data, or the test below shows nothing.
TEST(PowerCutFiles, LosesWhatWasNotSynced) {
  PowerCutFiles files;
  files.make_folder("run");
  files.make_folder("run/gone");
  files.sync_folder("run");
  files.power_on(PowerCutFiles::Rest::nothing, 0);
  EXPECT_FALSE(files.exists("run"));
  EXPECT_FALSE(files.exists("run/gone"));

  make_folders(files, "run");
  write(files, "run/a", "new");
  EXPECT_EQ(files.read("run/a"), bytes_of("new"));
  files.power_on(PowerCutFiles::Rest::nothing, 0);
  EXPECT_FALSE(files.exists("run/a"));

  const auto file = files.open("run/a", false);
  file->append(as_bytes("synced"));
  file->sync();
  files.sync_folder("run");
  file->append(as_bytes(" and more"));
  files.rename("run/a", "run/b");
  files.power_on(PowerCutFiles::Rest::nothing, 0);
  EXPECT_FALSE(files.exists("run/b"));
  EXPECT_EQ(files.read("run/a"), bytes_of("synced"));

  // A name may be safe before its bytes are.
  write(files, "run/c", "unsynced");
  files.sync_folder("run");
  files.power_on(PowerCutFiles::Rest::nothing, 0);
  EXPECT_EQ(files.read("run/c"), bytes_of(""));
}

TEST(PowerCutFiles, WritesWithoutSyncingAreFoundOut) {
  // write_atomically() without its first sync: the new name without contents.
  bool lost = false;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    PowerCutFiles files;
    make_folders(files, "run");
    write_atomically(files, "run/a", "old");
    write(files, "run/a.tmp", "new");
    files.rename("run/a.tmp", "run/a");
    files.sync_folder("run");
    files.power_on(PowerCutFiles::Rest::some, seed);
    const auto found = files.read("run/a");
    lost |= found != bytes_of("old") && found != bytes_of("new");
  }
  EXPECT_TRUE(lost);
}

TEST(WriteAtomically, LeavesTheOldOrTheNewWhereverThePowerGoes) {
  for (int call = 0;; ++call) {
    bool finished = false;
    for (uint64_t seed = 0; seed < 32; ++seed) {
      PowerCutFiles files;
      make_folders(files, "run");
      write_atomically(files, "run/a", "old");
      files.cut_at(files.calls() + call);
      try {
        write_atomically(files, "run/a", "new");
        finished = true;
      } catch (const PowerCut&) {
      }
      files.power_on(PowerCutFiles::Rest::some, seed);
      const auto found = files.read("run/a");
      EXPECT_TRUE(found == bytes_of("new") || (!finished && found == bytes_of("old"))) << call;
    }
    if (finished) break;
  }
}

// ---- A training ----

struct TrainedFiles {
  std::string digest, receipt;
};

// Trains into `files` and resumes from what is there. Returns nothing after a power cut.
std::optional<TrainedFiles> train_in(PowerCutFiles& files,
                                     std::vector<std::string>* notices = nullptr) {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}),
                   convolution2d({.filters = 2, .kernel = {7, 7}, .stride = {7, 7}}),
                   batch_normalization(), relu(), fully_connected({.units = 10}), softmax()});
  network.initialize(1);
  TrainingOptions options = small_options();
  options.threads = 1;
  options.checkpoints.frequency = 1;
  options.validation.output_network = OutputNetwork::best;
  try {
    ReceiptWriter receipt(files, "run");
    Recorder recorder;
    TrainingControl control;
    control.files = &files;
    control.checkpoint_folder = "run/checkpoints";
    control.resume = true;
    control.observers = {&receipt, &recorder};
    const TrainingResult result =
        train(network, {some_digits(60), some_digits(10, 10)}, options, control);
    receipt.finish();
    if (notices) *notices = recorder.notices;
    return TrainedFiles{result.digest.to_string(), read_text(files, "run/receipt.jsonl")};
  } catch (const PowerCut&) {
    return std::nullopt;
  }
}

TEST(PowerCuts, AnywhereLeadToTheSameBitsAndTheSameReceipt) {
  PowerCutFiles whole;
  const auto expected = train_in(whole);
  ASSERT_TRUE(expected);
  const int calls = whole.calls();
  int cuts = 0;
  using Rest = PowerCutFiles::Rest;
  for (int call = 0; call < calls; ++call) {
    const auto seed = static_cast<uint64_t>(call);
    for (Rest rest : {Rest::nothing, Rest::everything, Rest::some}) {
      SCOPED_TRACE("cut at call " + std::to_string(call) + " of " + std::to_string(calls) +
                   ", rest " + std::to_string(static_cast<int>(rest)));
      PowerCutFiles files;
      files.cut_at(call);
      ASSERT_FALSE(train_in(files));
      files.power_on(rest, seed);
      // A second cut during recovery, if it takes that long.
      files.cut_at(call % 11);
      auto ended = train_in(files);
      cuts += 1 + !ended;
      if (!ended) {
        files.power_on(rest, seed + 1000);
        ended = train_in(files);
      }
      ASSERT_TRUE(ended);
      EXPECT_EQ(ended->digest, expected->digest);
      EXPECT_EQ(ended->receipt, expected->receipt);
    }
  }
  std::printf("%d power cuts at %d places, always digest %s\n", cuts, calls,
              expected->digest.c_str());
}

// Checkpoints are safe as soon as they are reported: at most the iterations since the last
// checkpoint are computed again.
TEST(PowerCuts, LoseNothingBeforeTheLastCheckpoint) {
  class Watch : public TrainingObserver {
   public:
    void checkpoint(const std::string&, int64_t iteration) override { last = iteration; }
    void start(const TrainingStart& s) override { first = s.first_iteration; }
    int64_t last = 0, first = 0;
  };
  const auto train_watched = [](PowerCutFiles& files, Watch& watch) {
    Network network = small_classifier();
    TrainingControl control;
    control.files = &files;
    control.checkpoint_folder = "run/checkpoints";
    control.resume = true;
    control.observers = {&watch};
    TrainingOptions options = small_options();
    options.checkpoints.frequency = 2;
    try {
      train(network, {some_digits(60)}, options, control);
    } catch (const PowerCut&) {
    }
  };
  PowerCutFiles whole;
  Watch all;
  train_watched(whole, all);
  for (int call = 0; call < whole.calls(); ++call) {
    PowerCutFiles files;
    files.cut_at(call);
    Watch before, after;
    train_watched(files, before);
    files.power_on(PowerCutFiles::Rest::nothing, 0);
    train_watched(files, after);
    EXPECT_GE(after.first, before.last + 1) << "cut at call " << call;
  }
}

}  // namespace
}  // namespace lockstep
