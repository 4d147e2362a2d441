#include "lockstep/runs/rebuild_receipt.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

// Appends the computed lines to the valid ones.
class Computed : public TrainingObserver {
 public:
  Computed(std::string sound, const ReceiptRebuild& rebuild)
      : text(std::move(sound)), rebuild_(rebuild) {}

  void start(const TrainingStart& start) override {
    rebuild_.notice(fmt::format("computing iterations {} to {} again", start.first_iteration,
                                rebuild_.damage.last));
    expected = {start.first_chain, start.iterations_per_epoch, rebuild_.damage.last,
                rebuild_.damage.chain};
  }
  void iteration(const IterationRecord& r) override {
    last = r.iteration;
    if (r.iteration > rebuild_.damage.sound) text += receipt_text(line_of(r)) + "\n";
  }

  std::string text;
  ReceiptExpectation expected;
  int64_t last = 0;  // last computed iteration

 private:
  const ReceiptRebuild& rebuild_;
};

// The valid lines of the file.
std::string lines_before_damage(const RunFolder& folder, const std::string& path, int64_t sound) {
  if (sound == 0) return {};
  std::string text = read_text(folder.files(), path);
  size_t end = 0;
  for (int64_t i = 0; i < sound; ++i) end = text.find('\n', end) + 1;
  text.resize(end);
  return text;
}

}  // namespace

void rebuild_receipt(const ReceiptRebuild& rebuild) {
  const ReceiptDamage::Where& damage = rebuild.damage;
  const std::string path = rebuild.folder.file("receipt.jsonl");
  Job job = rebuild.job;
  job.training.workers.count = 0;
  job.training.workers.load.clear();
  job.training.workers.hosts.clear();
  job.training.max_time = 0;
  JobPlan plan = plan_job(job, {.initial_model = rebuild.initial_model,
                                .stop = rebuild.interrupted,
                                .columns = rebuild.columns});
  Computed computed(lines_before_damage(rebuild.folder, path, damage.sound), rebuild);
  TrainingControl control;
  control.observers = {&computed};
  control.replay = Replay{.checkpoints = rebuild.folder.file("checkpoints"),
                          .iteration = damage.last,
                          .from = damage.sound};
  control.stop = rebuild.stop;
  control.interrupted = rebuild.interrupted;
  train(plan.network, plan.training, plan.job.training, control);
  if (computed.last < damage.last) {
    throw Cancelled("[receipt] stopped while the receipt was rebuilt",
                    "nothing was changed; the same command starts again");
  }
  const ReceiptFinding found = check_receipt(computed.text, computed.expected);
  if (!found.problem.empty()) {
    throw DataError("[receipt] " + path + " cannot be rebuilt: computed again, " + found.problem,
                    "on this machine the job computes results that differ from the run's");
  }
  write_atomically(rebuild.folder.files(), path, computed.text);
}

}  // namespace lockstep
