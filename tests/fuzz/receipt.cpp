// Receipts, which anyone may have changed.
#include "lockstep/train/state/receipt.h"

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/state/receipt_check.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {
namespace {

constexpr int64_t kIterations = 6, kPerEpoch = 4;

std::string receipt(ReceiptExpectation& expected) {
  std::string text;
  Digest chain = digest_of("first", 5);
  expected = {chain, kPerEpoch, kIterations, {}};
  for (int64_t i = 1; i <= kIterations; ++i) {
    ReceiptLine line;
    line.iteration = i;
    line.epoch = (i - 1) / kPerEpoch + 1;
    line.loss = i == 3 ? std::numeric_limits<double>::max() : 2.5 / static_cast<double>(i);
    line.observations = digest_of(&i, sizeof i);
    line.digest = digest_of("digest", 6);
    chain = line.chain = receipt_link(chain, i, line.observations, line.loss, line.digest);
    text += receipt_text(line) + "\n";
  }
  expected.last = chain;
  return text;
}

}  // namespace

void parse(std::span<const std::byte> bytes) {
  static ReceiptExpectation expected;
  static const std::string sound = receipt(expected);
  const std::string text = text_of(bytes);
  const ReceiptFinding finding = check_receipt(text, expected);
  if (finding.bytes > text.size() || finding.sound > kIterations) {
    throw InternalError("[fuzz] more is sound than there is");
  }
  // Its lines alone have these digests.
  if (finding.problem.empty() && !text.starts_with(sound)) {
    throw InternalError("[fuzz] another receipt is sound");
  }
  testing::PowerCutFiles files;  // in memory
  write_atomically(files, "receipt.jsonl", bytes);
  for (const ReceiptLine& line : read_receipt(files, "receipt.jsonl")) {
    const std::string written = receipt_text(line);
    if (receipt_text(parse_receipt_line(written)) != written) {
      throw InternalError("[fuzz] read back otherwise: " + written);
    }
  }
}

std::vector<Bytes> seeds() {
  ReceiptExpectation ignored;
  const std::string whole = receipt(ignored);
  return {bytes_of(whole), bytes_of(whole.substr(0, whole.find('\n') + 1)), Bytes()};
}

}  // namespace lockstep::fuzz
