// Checks every line of a receipt up to the checkpoint from which a training continues.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/state/receipt.h"

namespace lockstep {

// The receipt does not lead up to the checkpoint from which a training continues.
class ReceiptDamage : public DataError {
 public:
  struct Where {
    int64_t sound = 0;  // valid lines before the first wrong one
    int64_t last = 0;   // the iteration of the checkpoint
    Digest chain;       // the chain in the checkpoint
  };
  ReceiptDamage(const std::string& message, const std::string& hint, const Where& where)
      : DataError(message, hint), where_(where) {}
  const Where& where() const { return where_; }

 private:
  Where where_;
};

// The line of an iteration as text, without the line end.
std::string receipt_text(const ReceiptLine& line);

// The inverse of receipt_text(). Throws DataError for text that receipt_text() would not write; the
// message ("it has no loss") follows a location. Does not check the numbers and digests themselves.
ReceiptLine parse_receipt_line(std::string_view text);

// The line of population statistics as text, and the inverse, as above. It must follow `lines`.
std::string population_text(const PopulationLine& line);
PopulationLine parse_population_line(std::string_view text, const std::vector<ReceiptLine>& lines);

// The expected content of a receipt.
struct ReceiptExpectation {
  Digest first;  // the chain before the first iteration, from the training's identity
  int64_t iterations_per_epoch = 1;  // for the lines' epochs
  int64_t iterations = 0;            // iterations to check; further lines are ignored
  Digest last;                       // the chain after the last of them
};

// The result of a check. Without a problem, `sound` is the number of expected iterations.
struct ReceiptFinding {
  int64_t sound = 0;    // valid lines before the first wrong one
  size_t bytes = 0;     // bytes of these lines
  std::string problem;  // of the first wrong line: "line 3: ...", or ""
};

// Checks the lines' bytes, numbers and epochs, and the chain from the first to the last line.
// Thread-safe.
ReceiptFinding check_receipt(std::string_view text, const ReceiptExpectation& expected);

// Returns the text of the file up to the start of the training. Throws ReceiptDamage if it does not
// lead up to there. A missing file counts as empty. Throws FileError.
std::string sound_receipt(FileSystem& files, const std::string& path, const TrainingStart& start);

}  // namespace lockstep
