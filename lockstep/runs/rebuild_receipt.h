// Rebuilds a lost or damaged receipt by computing its iterations again.
#pragma once

#include <functional>
#include <string>

#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/train/state/receipt_check.h"

namespace lockstep {

struct ReceiptRebuild {
  const RunFolder& folder;
  const Job& job;                    // of the run
  const std::string& initial_model;  // as in RunOptions
  const TableColumns& columns;       // of the run
  ReceiptDamage::Where damage;
  std::function<void(const std::string& text)> notice;
  std::function<bool()> stop = {};         // as in RunOptions
  std::function<bool()> interrupted = {};  // as in RunOptions
};

// Keeps the lines before the damage and computes the other lines again, up to the checkpoint from
// which the run continues. The computation runs in this process and begins at the newest checkpoint
// before the damage, or at the first iteration. Writes the receipt with the same bytes as before
// the damage. Nothing else is changed, and nothing is written before all lines are computed. Throws
// what train() throws, DataError if the results contradict the valid lines or the checkpoint (the
// job is then not that of the run), and Cancelled if it was stopped.
void rebuild_receipt(const ReceiptRebuild& rebuild);

}  // namespace lockstep
