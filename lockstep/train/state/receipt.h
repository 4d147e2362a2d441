// The receipt: a file with one line (JSON) for each iteration, chained by digests. It records the
// inputs and results of the iterations. It detects faults and differences. It does not protect
// against deliberate changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

class FileSystem;

// One line of a receipt.
struct ReceiptLine {
  int64_t iteration = 0, epoch = 0;
  double loss = 0;
  Digest observations, digest, chain;
};

// The line for an iteration.
ReceiptLine line_of(const IterationRecord& record);

// The chain after an iteration: a digest of the previous chain and of the line's values.
Digest receipt_link(const Digest& chain, int64_t iteration, const Digest& observations, double loss,
                    const Digest& digest);
// The chain after population statistics. `chain` of the record is not used.
Digest receipt_link(const Digest& chain, const PopulationRecord& record);

// The last line of a receipt whose network has batch normalization, written at the end.
struct PopulationLine {
  int64_t iteration = 0;
  Digest observations, digest, chain;
};

// All of a receipt.
struct Receipt {
  std::vector<ReceiptLine> lines;
  std::optional<PopulationLine> population;
  std::string rest_note;  // see receipt_rest_note()
};

// Thread-safe. Throws FileError, and DataError naming the line if it is invalid, is out of sequence
// or does not fit its chain.
Receipt read_whole_receipt(FileSystem& files, const std::string& path);
// The iterations alone.
std::vector<ReceiptLine> read_receipt(FileSystem& files, const std::string& path);

// Names the bytes after the last whole line of a receipt: "runs/a/receipt.jsonl: 12 bytes follow
// ...". They are not part of it: a crash cut a line off, or something was appended. "" if there are
// none. `text` is the content of the file.
std::string receipt_rest_note(std::string_view text, const std::string& path);

// Writes receipt.jsonl and log.jsonl in `folder`. The log contains every iteration and validation
// with times. If a training resumes, its receipt must be complete up to the resumed iteration.
// Otherwise DataError is thrown and nothing is changed. Later lines are dropped. File system errors
// are FileError. Lines are written to the files at every validation, checkpoint and the end, and at
// an iteration if the last write was more than a second ago.
class ReceiptWriter : public TrainingObserver {
 public:
  ReceiptWriter(FileSystem& files, std::string folder);
  ~ReceiptWriter() override;
  void start(const TrainingStart& start) override;
  void iteration(const IterationRecord& record) override;
  void validation(const ValidationRecord& record) override;
  // A last line with "phase". A resumed training repeats the phase, so the line is dropped.
  void population(const PopulationRecord& record) override;
  void saving(int64_t iteration) override;
  // Stops and resumes are recorded only in the log, so interruptions do not change the receipt.
  void out_of_patience(int64_t iteration) override;
  void stopped(int64_t iteration) override;
  // Recorded in the log.
  void worker(const WorkerChange& change) override;
  void workers(const std::vector<WorkerSummary>& all, int64_t iteration) override;
  // Recorded in the log. May be called before start().
  void notice(const std::string& text) override;
  // Writes the remaining lines. Throws FileError.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
