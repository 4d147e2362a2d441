// Every possible damage to a receipt is found and reported with its line.
#include "lockstep/train/state/receipt_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

// Six lines of two epochs, as a training would write them.
class ReceiptOfSix : public ::testing::Test {
 protected:
  ReceiptOfSix() {
    Digest chain{1, 2};
    expected = {chain, 3, 6, {}};
    for (int64_t i = 1; i <= 6; ++i) {
      ReceiptLine line{i, (i - 1) / 3 + 1, 2.5 / static_cast<double>(i), Digest{3, 4}, Digest{5, 6},
                       {}};
      line.observations.low += static_cast<uint64_t>(i);
      line.digest.high += static_cast<uint64_t>(i);
      chain = receipt_link(chain, i, line.observations, line.loss, line.digest);
      line.chain = chain;
      lines.push_back(receipt_text(line) + "\n");
    }
    expected.last = chain;
  }
  static std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line;
    return text;
  }
  // Expects that the damage is found at line `line` (from 1), which the message names.
  void expect_damage(const std::string& text, int64_t line, const std::string& what = "") {
    const ReceiptFinding found = check_receipt(text, expected);
    EXPECT_EQ(found.sound, line - 1) << found.problem;
    EXPECT_EQ(found.problem.substr(0, 8), "line " + std::to_string(line) + ": ") << text;
    EXPECT_NE(found.problem.find(what), std::string::npos) << found.problem;
    EXPECT_EQ(found.bytes, joined({lines.begin(), lines.begin() + line - 1}).size());
  }
  std::vector<std::string> lines;
  ReceiptExpectation expected;
};

TEST_F(ReceiptOfSix, IsRightAsItIsWhateverFollows) {
  for (const char* tail :
       {"", "{\"iteration\":7,\"ep", "{\"phase\":\"population statistics\"}\n"}) {
    const ReceiptFinding found = check_receipt(joined(lines) + tail, expected);
    EXPECT_EQ(found.problem, "");
    EXPECT_EQ(found.sound, 6);
    EXPECT_EQ(found.bytes, joined(lines).size());
  }
  ReceiptExpectation none;
  EXPECT_EQ(check_receipt("", none).problem, "");
  EXPECT_EQ(check_receipt("anything", none).bytes, 0u) << "nothing is needed";
}

TEST_F(ReceiptOfSix, EveryBitOfEveryLineCounts) {
  for (const size_t i : {size_t{0}, size_t{3}, size_t{5}}) {
    for (size_t at = 0; at < lines[i].size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        auto damaged = lines;
        damaged[i][at] = static_cast<char>(damaged[i][at] ^ (1 << bit));
        if (damaged[i][at] == '\n' || at + 1 == lines[i].size()) {
          EXPECT_EQ(check_receipt(joined(damaged), expected).sound, static_cast<int64_t>(i));
        } else {
          expect_damage(joined(damaged), static_cast<int64_t>(i) + 1);
        }
      }
    }
  }
}

TEST_F(ReceiptOfSix, LinesThatAreMissingDoubledOrExchangedAreNamed) {
  for (size_t i = 0; i < 6; ++i) {
    const auto line = static_cast<int64_t>(i) + 1;
    const auto at = static_cast<std::ptrdiff_t>(i);
    auto without = lines;
    without.erase(without.begin() + at);
    expect_damage(joined(without), line, i == 5 ? "ends before it" : "missing, repeated");
    auto twice = lines;
    twice.insert(twice.begin() + at, lines[i]);
    if (i == 5) {
      EXPECT_EQ(check_receipt(joined(twice), expected).problem, "") << "that follows the last one";
    } else {
      expect_damage(joined(twice), line + 1, "missing, repeated");
    }
    if (i == 5) continue;
    auto exchanged = lines;
    std::swap(exchanged[i], exchanged[i + 1]);
    expect_damage(joined(exchanged), line, "another order");
  }
}

TEST_F(ReceiptOfSix, EveryShorterFileIsTooShort) {
  const std::string whole = joined(lines);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    int64_t line = 1;
    for (size_t at = 0, end; (end = whole.find('\n', at)) < bytes; at = end + 1) ++line;
    expect_damage(whole.substr(0, bytes), line,
                  bytes == 0                 ? "no lines"
                  : whole[bytes - 1] == '\n' ? "ends before it"
                                             : "in the middle");
  }
}

TEST_F(ReceiptOfSix, AnotherRunsIsNoneOfThis) {
  expected.first = {1, 3};
  expect_damage(joined(lines), 1, "another run");
  expected.first = {1, 2};
  expected.last = {9, 9};
  expect_damage(joined(lines), 6, "differs from the checkpoint's");
  expected.iterations_per_epoch = 2;
  expect_damage(joined(lines), 3, "epoch");
}

TEST_F(ReceiptOfSix, AForgedLineThatFitsItsNeighborsIsFoundByTheLast) {
  // All links are recomputed after the change, so only the checkpoint shows the difference.
  Digest chain = expected.first;
  std::string text;
  for (std::string& line : lines) {
    ReceiptLine read = parse_receipt_line(std::string_view(line).substr(0, line.size() - 1));
    if (read.iteration == 2) read.loss += 1;
    chain = receipt_link(chain, read.iteration, read.observations, read.loss, read.digest);
    read.chain = chain;
    text += receipt_text(read) + "\n";
  }
  expect_damage(text, 6, "differs from the checkpoint's");
}

// A training that stops after four iterations and resumes, with a changed receipt.
class ResumedReceipt : public ::testing::Test {
 protected:
  void run(int64_t stop_after, bool resume) {
    Network network = small_classifier();
    TrainingOptions options = small_options();
    options.checkpoints.frequency = 2;
    ReceiptWriter receipt(local_files(), folder.path);
    TrainingControl control;
    control.observers.push_back(&receipt);
    control.checkpoint_folder = join_path(folder.path, "checkpoints");
    control.resume = resume;
    control.stop_after = stop_after;
    train(network, {some_digits(60), some_digits(20, 10)}, options, control);
    receipt.finish();
  }
  std::string text() const { return read_text(local_files(), path); }

  const TemporaryFolder folder;
  const std::string path = join_path(folder.path, "receipt.jsonl");
};

TEST_F(ResumedReceipt, IsCheckedBeforeAnythingIsChanged) {
  run(4, false);
  const std::string whole = text(),
                    log = read_text(local_files(), join_path(folder.path, "log.jsonl"));
  // In the middle of the first line, far from the checkpoint's position.
  std::string damaged = whole;
  char& digit = damaged[damaged.find("digest") + 12];
  digit = digit == 'a' ? 'b' : 'a';
  const auto refused = [&](const std::string& content, int64_t sound, const std::string& what) {
    write_atomically(local_files(), path, content);
    try {
      run(0, true);
      ADD_FAILURE() << "it went on";
    } catch (const ReceiptDamage& error) {
      EXPECT_EQ(error.where().sound, sound);
      EXPECT_EQ(error.where().last, 4);
      EXPECT_NE(std::string(error.what()).find(path + what), std::string::npos) << error.what();
      EXPECT_NE(error.hint().find("--rebuild-receipt"), std::string::npos);
    }
    EXPECT_EQ(text(), content) << "it stays as it was";
    EXPECT_EQ(read_text(local_files(), join_path(folder.path, "log.jsonl")), log);
  };
  refused(damaged, 0, ", line 1: it does not match the chain of this run");
  refused("", 0, ", line 1: the file has no lines");
  refused(whole.substr(0, whole.size() - 3), 3, ", line 4: the file ends in the middle of it");
  local_files().remove(path);
  EXPECT_THROW(run(0, true), ReceiptDamage);
  EXPECT_FALSE(local_files().exists(path));
  write_atomically(local_files(), path, whole + "torn");
  run(0, true);
  const std::string end = text();
  EXPECT_EQ(end.substr(0, whole.size()), whole);
  EXPECT_EQ(std::count(end.begin(), end.end(), '\n'), 6);
}

TEST_F(ResumedReceipt, ADamagedLogLosesItsDamagedLinesAlone) {
  run(4, false);
  const std::string log = join_path(folder.path, "log.jsonl");
  std::string content = read_text(local_files(), log);
  const auto lines = std::count(content.begin(), content.end(), '\n');
  content[content.find('\n') + 1] = '?';  // the second line
  write_atomically(local_files(), log, content);
  run(4, true);
  const std::string kept = read_text(local_files(), log);
  EXPECT_EQ(kept.find('?'), std::string::npos);
  EXPECT_NE(kept.find(R"({"iteration":1,)"), std::string::npos);
  EXPECT_NE(kept.find(R"({"iteration":4,)"), std::string::npos) << "what comes after the damage";
  EXPECT_GE(std::count(kept.begin(), kept.end(), '\n'), lines - 2);
}

}  // namespace
}  // namespace lockstep
