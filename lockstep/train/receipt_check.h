// Whether a receipt leads up to where a training goes on: every line of it, not only the last.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/train/receipt.h"

namespace lockstep {

// A receipt that does not lead up to the checkpoint from which a training goes on.
class ReceiptDamage : public DataError {
 public:
  struct Where {
    int64_t sound = 0;  // lines before the first that is wrong
    int64_t last = 0;   // the iteration after which the training goes on
    Digest chain;       // there, as the checkpoint says
  };
  ReceiptDamage(const std::string& message, const std::string& hint, const Where& where)
      : DataError(message, hint), where_(where) {}
  const Where& where() const { return where_; }

 private:
  Where where_;
};

// The line of an iteration as it stands in a receipt, without the end of the line.
std::string receipt_text(const ReceiptLine& line);

// The inverse. Throws DataError ("it has no loss", to be put behind a place) for text that
// receipt_text() would not write: every byte counts. Numbers and digests are not judged.
ReceiptLine parse_receipt_line(std::string_view text);

// What a receipt should be.
struct ReceiptExpectation {
  Digest first;                      // the chain before the first iteration: what is trained
  int64_t iterations_per_epoch = 1;  // for the lines' epochs
  int64_t iterations = 0;            // it goes up to this one; what follows does not matter
  Digest last;                       // the chain there
};

// What was found. Without a problem `sound` is the number of iterations expected.
struct ReceiptFinding {
  int64_t sound = 0;    // lines that are right, before the first that is not
  size_t bytes = 0;     // that they take
  std::string problem;  // of the first that is not: "line 3: ...", or ""
};

// Checks all lines: their bytes, numbers, epochs, and the chain from before the first to the last.
// Thread-safe.
ReceiptFinding check_receipt(std::string_view text, const ReceiptExpectation& expected);

// Throws ReceiptDamage unless the file leads up to where the training begins; its text up to there.
// A file that is not there is an empty one. Throws FileError.
std::string sound_receipt(FileSystem& files, const std::string& path, const TrainingStart& start);

}  // namespace lockstep
