// A receipt that was lost or damaged, made anew by computing its iterations again.
#pragma once

#include <functional>
#include <string>

#include "lockstep/runs/job_file.h"
#include "lockstep/runs/run_folder.h"
#include "lockstep/train/receipt_check.h"

namespace lockstep {

struct ReceiptRebuild {
  const RunFolder& folder;
  const Job& job;                    // the run's
  const std::string& initial_model;  // as in RunOptions
  ReceiptDamage::Where damage;
  std::function<void(const std::string& text)> notice;
  std::function<bool()> stop = {};         // as in RunOptions
  std::function<bool()> interrupted = {};  // as in RunOptions
};

// Keeps the lines before the damage, computes the others again up to the checkpoint from which the
// run goes on (from the newest checkpoint before the damage, or from the start; in this process)
// and writes the receipt, byte for byte what it was. Nothing else is changed, and nothing at all
// before all is computed. Throws what train() throws; DataError where what is computed is not what
// the sound lines and the checkpoint say: then the run is not the job's; Cancelled where it was stopped.
void rebuild_receipt(const ReceiptRebuild& rebuild);

}  // namespace lockstep
