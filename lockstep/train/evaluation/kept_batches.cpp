#include "lockstep/train/evaluation/kept_batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/engine/nn/lowering.h"

namespace lockstep {

std::vector<bool> constant_states(const Network& network) {
  std::vector<bool> constant(network.state().size(), true);
  for (const MovingStatistics& s : network.lower(1, {.training = true}).statistics) {
    for (const int state : {s.mean_state, s.variance_state}) {
      constant[static_cast<size_t>(state)] = false;
    }
  }
  return constant;
}

KeptBatches::KeptBatches(const Network& network, EvaluationKeeping keeping, int64_t observations,
                         int64_t rows)
    : network_(network),
      keeping_(std::move(keeping)),
      observations_(observations),
      rows_(rows),
      constant_(constant_states(network)),
      batches_(static_cast<size_t>((observations + rows - 1) / rows)) {}

bool KeptBatches::begin() {
  std::vector<bool> frozen = keeping_.frozen();
  const bool differ = frozen != frozen_;
  frozen_ = std::move(frozen);
  const Digest present = digest_of_values();
  if (differ || present != digest_) clear();
  digest_ = present;
  return differ;
}

Digest KeptBatches::digest_of_values() const {
  Digester digester;
  const auto add = [&](const Tensor& value) {
    digester.bytes(value.data<float>(),
                   static_cast<size_t>(value.shape().elements()) * sizeof(float));
  };
  for (size_t p = 0; p < frozen_.size(); ++p) {
    if (frozen_[p]) add(network_.parameters()[p].value);
  }
  for (size_t s = 0; s < constant_.size(); ++s) {
    if (constant_[s]) add(network_.state()[s].value);
  }
  return digester.finish();
}

Unchanging KeptBatches::unchanging() const {
  return {.rows = rows_,
          .parameters = frozen_,
          .states = constant_,
          .inputs = std::vector<bool>(network_.inputs().size(), true),
          .over_rows = {}};
}

void KeptBatches::divide(const Plan& plan) {
  const KeptPart* const part = plan.kept_part();
  keeps_ = false;
  if (part == nullptr || !part->has_parameters) return;
  arrays_ = part->arrays;
  row_bytes_ = part->row_bytes();
  rest_reads_inputs_ = false;
  for (size_t k = 0; k < network_.inputs().size(); ++k) {
    rest_reads_inputs_ |= part->rest_inputs.at(k);
  }
  most_bytes_ = keeping_.memory->rest();
  keeps_ = most_bytes_ > 0;
  tell(*part);
}

void KeptBatches::tell(const KeptPart& part) const {
  if (!keeping_.notice) return;
  if (keeps_) {
    keeping_.notice("validations keep the results of frozen layers: " +
                    kept_text(part.row_bytes(), observations_, most_bytes_));
    return;
  }
  keeping_.notice("validations compute the results of frozen layers each time, because images " +
                  std::string(keeping_.memory->most() > 0 ? "and results of the training " : "") +
                  "leave no room in " + keeping_.cause);
}

void KeptBatches::load(const IndexRange& observations, const PlanRun& run) const {
  const std::byte* from = at(observations).results.get();
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const size_t bytes = arrays_[a].row_bytes;
    std::byte* const to = run.kept(a);
    const int64_t rows = kept_rows(observations);
    std::memcpy(to, from, static_cast<size_t>(rows) * bytes);
    from += static_cast<size_t>(rows - 1) * bytes;  // the last row, for the padding after it
    for (int64_t i = rows; i < rows_; ++i) {
      std::memcpy(to + static_cast<size_t>(i) * bytes, from, bytes);
    }
    from += bytes;
  }
}

bool KeptBatches::make_room(const IndexRange& observations) {
  Batch& batch = at(observations);
  if (batch.refused) return false;
  if (batch.results) return true;
  const size_t bytes = static_cast<size_t>(kept_rows(observations)) * row_bytes_;
  if (bytes_.fetch_add(bytes) + bytes <= most_bytes_ && keeping_.memory->take(bytes)) {
    batch.results = std::make_unique_for_overwrite<std::byte[]>(bytes);
    return true;
  }
  bytes_.fetch_sub(bytes);
  return false;
}

void KeptBatches::save(const IndexRange& observations, const PlanRun& run) {
  Batch& batch = at(observations);
  std::byte* to = batch.results.get();
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const size_t bytes = arrays_[a].row_bytes;
    const std::byte* const from = run.kept(a);
    const int64_t rows = kept_rows(observations);
    std::memcpy(to, from, static_cast<size_t>(rows) * bytes);
    to += static_cast<size_t>(rows - 1) * bytes;
    // Rows that are padding have one result, unless a layer computes with several rows.
    for (int64_t i = rows; i < rows_; ++i) {
      batch.refused |= std::memcmp(from + static_cast<size_t>(i) * bytes, to, bytes) != 0;
    }
    to += bytes;
  }
  batch.known = !batch.refused;
  if (batch.known) return;
  const size_t bytes = static_cast<size_t>(kept_rows(observations)) * row_bytes_;
  batch.results.reset();
  bytes_.fetch_sub(bytes);
  keeping_.memory->give_back(bytes);
}

void KeptBatches::clear() {
  for (Batch& batch : batches_) batch = {};
  keeping_.memory->give_back(bytes_.exchange(0));
}

}  // namespace lockstep
