// A run with a damaged receipt is refused, or its receipt is rebuilt byte for byte.
#include "lockstep/runs/rebuild_receipt.h"

#include <algorithm>
#include <vector>

#include "lockstep/train/records/observer.h"
#include "tests/runs/digits_run.h"

namespace lockstep {
namespace {

using testing::refusal;

class Notes : public TrainingObserver {
 public:
  void notice(const std::string& text) override { all += text + "\n"; }
  void iteration(const IterationRecord& r) override { iterations.push_back(r.iteration); }
  std::string all;
  std::vector<int64_t> iterations;
};

// Three epochs of two iterations, with a checkpoint after every second iteration. All are kept.
class RebuiltReceipt : public testing::DigitsRun {
 protected:
  RebuiltReceipt()
      : DigitsRun(10, "[data]\ntrain = \"digits\"\n" + testing::digits_layers_and_training +
                          "checkpoints_kept = 10\n") {
    run("whole", 0, false);
    whole = receipt_text("whole");
  }
  RunResult run(const std::string& name, int64_t stop_after, bool rebuild, Notes* notes = nullptr,
                const std::vector<std::string>& settings = {}) {
    RunOptions options = into(name);
    options.stop_after = stop_after;
    options.resume = local_files().exists(options.folder);
    options.rebuild_receipt = rebuild;
    if (notes != nullptr) options.observers.push_back(notes);
    return run_job(job(settings), options);
  }
  std::string receipt(const std::string& name) { return folder + "/" + name + "/receipt.jsonl"; }
  std::string receipt_text(const std::string& name) { return text(name + "/receipt.jsonl"); }
  std::string line(int64_t number) {
    size_t begin = 0;
    for (int64_t i = 1; i < number; ++i) begin = whole.find('\n', begin) + 1;
    return whole.substr(begin, whole.find('\n', begin) + 1 - begin);
  }

  std::string whole;
};

TEST_F(RebuiltReceipt, EveryDamageIsRefusedAndMadeGood) {
  run("four", 4, false);
  const std::string four = receipt_text("four");
  ASSERT_EQ(four, line(1) + line(2) + line(3) + line(4));
  std::string flipped = four, other_loss = line(2);
  flipped[line(1).size() + line(2).size() + 30] ^= 4;
  other_loss[other_loss.find("\"loss\":") + 9] ^= 1;
  const struct {
    const char* what;
    std::string content;
    int64_t line, first;  // the damaged line, the first iteration that is computed again
  } damages[] = {
      {"empty", "", 1, 1},
      {"first line removed", line(2) + line(3) + line(4), 1, 1},
      {"middle line removed", line(1) + line(2) + line(4), 3, 3},
      {"last line removed", line(1) + line(2) + line(3), 4, 3},
      {"doubled", line(1) + line(1) + line(2) + line(3) + line(4), 2, 1},
      {"exchanged", line(1) + line(3) + line(2) + line(4), 2, 1},
      {"a bit", flipped, 3, 3},
      {"another loss", line(1) + other_loss + line(3) + line(4), 2, 1},
      {"cut", four.substr(0, four.size() - 5), 4, 3},
  };
  for (const auto& damage : damages) {
    SCOPED_TRACE(damage.what);
    const std::string name = std::string("again ") + damage.what;
    std::filesystem::copy(folder + "/four", folder + "/" + name,
                          std::filesystem::copy_options::recursive);
    write_atomically(local_files(), receipt(name), damage.content);
    const std::string refused = refusal<ReceiptDamage>([&] { run(name, 0, false); });
    EXPECT_CONTAINS(refused, receipt(name) + ", line " + std::to_string(damage.line) + ": ");
    EXPECT_CONTAINS(refused, "--rebuild-receipt");
    EXPECT_EQ(receipt_text(name), damage.content) << "what was refused is as it was";
    Notes notes;
    run(name, 0, true, &notes);
    EXPECT_EQ(receipt_text(name), whole);
    EXPECT_EQ(notes.iterations, (std::vector<int64_t>{5, 6})) << "the training itself goes on";
    EXPECT_CONTAINS(notes.all, "line " + std::to_string(damage.line) + ": ");
    EXPECT_CONTAINS(notes.all,
                    "computing iterations " + std::to_string(damage.first) + " to 4 again");
    EXPECT_EQ(read_text(local_files(), folder + "/" + name + "/model.safetensors"),
              read_text(local_files(), folder + "/whole/model.safetensors"));
  }
}

TEST_F(RebuiltReceipt, OneThatIsMissingOrAnotherRunsIsMadeGoodToo) {
  run("other", 0, false, nullptr, {"seed=5"});
  for (const bool missing : {true, false}) {
    const std::string name = missing ? "missing" : "foreign";
    run(name, 4, false);
    if (missing) {
      local_files().remove(receipt(name));
    } else {
      write_atomically(local_files(), receipt(name), receipt_text("other"));
    }
    EXPECT_CONTAINS(refusal<ReceiptDamage>([&] { run(name, 0, false); }),
                    missing ? " is missing" : "belongs to another run");
    run(name, 0, true);
    EXPECT_EQ(receipt_text(name), whole);
  }
}

TEST_F(RebuiltReceipt, AFinishedRunIsMadeGoodToo) {
  write_atomically(local_files(), receipt("whole"), line(1) + line(2) + line(2));
  EXPECT_CONTAINS(refusal<ReceiptDamage>([&] { run("whole", 0, false); }), "line 3");
  run("whole", 0, true);
  EXPECT_EQ(receipt_text("whole"), whole);
}

TEST_F(RebuiltReceipt, ASoundOneIsNotComputedAgain) {
  run("four", 4, false);
  Notes notes;
  run("four", 0, true, &notes);
  EXPECT_EQ(notes.all.find("again"), std::string::npos) << notes.all;
  EXPECT_EQ(receipt_text("four"), whole);
}

}  // namespace
}  // namespace lockstep
