// The receipt: a file with one line for each iteration (JSON), chained by digests, that says what
// was computed from what. It detects faults and differences, not malice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// One line of a receipt.
struct ReceiptLine {
  int64_t iteration = 0, epoch = 0;
  double loss = 0;
  Digest observations, digest, chain;
};

// What a receipt says of an iteration.
ReceiptLine line_of(const IterationRecord& record);

// A receipt's chain after an iteration: a digest of the chain before it and of what the line says.
Digest receipt_link(const Digest& chain, int64_t iteration, const Digest& observations, double loss,
                    const Digest& digest);

// The iterations of a receipt; thread-safe. Throws FileError; DataError naming the line for what is
// no receipt, leaves out an iteration, or does not fit its chain.
std::vector<ReceiptLine> read_receipt(FileSystem& files, const std::string& path);

// Writes the receipt and, with times, the log of every iteration and validation:
// receipt.jsonl and log.jsonl in `folder`. When a training resumes, its receipt must be whole up to
// the resumed iteration (ReceiptDamage otherwise, see receipt_check.h, and nothing is changed);
// lines after that iteration are dropped. Errors of the file system are FileError. Lines reach the
// system with every validation, checkpoint and at the end, and at least once a second.
class ReceiptWriter : public TrainingObserver {
 public:
  ReceiptWriter(FileSystem& files, std::string folder);
  ~ReceiptWriter() override;
  void start(const TrainingStart& start) override;
  void iteration(const IterationRecord& record) override;
  void validation(const ValidationRecord& record) override;
  // A last line with "phase". A training that resumes does the phase anew: the line is dropped.
  void population(const PopulationRecord& record) override;
  void saving(int64_t iteration) override;
  // Stops and resumes are events in the log: the receipt is the same however often a training was
  // interrupted.
  void out_of_patience(int64_t iteration) override;
  void stopped(int64_t iteration) override;
  // In the log.
  void worker(const WorkerChange& change) override;
  // In the log; also before start().
  void notice(const std::string& text) override;
  // Writes what is left. Throws FileError.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
