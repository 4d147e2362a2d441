#include "lockstep/runs/folds/concurrent_folds.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/runs/run_orders.h"
#include "lockstep/runs/sweeps/thread_shares.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double poll_seconds = 0.05;

double seconds_from(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

class Folds {
 public:
  explicit Folds(const ConcurrentFolds& what)
      : what_(what),
        count_(static_cast<int>(what.jobs.size())),
        end_(count_ + 1),
        pool_({.workers = std::clamp(what.workers, 1, count_),
               .threads_per_worker = available_cores()}),
        messages_(pool_),
        shares_(available_cores()) {}

  FoldsEnd run() {
    for (;;) {
      if (!interrupted_ && what_.interrupted && what_.interrupted()) interrupted_ = true;
      begin();
      if (active_.empty()) break;
      give_orders();
      wait();
      collect();
    }
    FoldsEnd result;
    for (int fold = 1; fold <= count_; ++fold) {
      if (const auto failed = errors_.find(fold); failed != errors_.end()) {
        throw_of_fold(fold, failed->second.what(), failed->second.hint());
      }
      const auto done = values_.find(fold);
      if (done == values_.end()) {
        result.stopped = fold;
        return result;
      }
      result.values.push_back(done->second);
    }
    return result;
  }

 private:
  struct Active {
    int fold = 0;
    Future<FoldReport> future = {};
    std::unique_ptr<WorkerQueue<int64_t>> orders = {};
    int64_t told = 0;                            // the last order, or the threads of the beginning
    Clock::time_point heard = Clock::now();      // its last message
    std::optional<Clock::time_point> ends = {};  // since when it is to end
    bool cancelled = false;                      // for silence, or because it does not end
  };
  struct Losses {
    int count = 0;
    int64_t saved = 0;  // the newest checkpoint at the last one
  };

  // Whether the outcome depends on a fold: those after one that has failed or was stopped end.
  bool counts(int fold) const { return !interrupted_ && fold < end_; }

  int next_fold() {
    if (!again_.empty()) {
      const int fold = *std::min_element(again_.begin(), again_.end());
      again_.erase(std::find(again_.begin(), again_.end(), fold));
      return fold;
    }
    return next_ <= count_ ? next_++ : 0;
  }

  void begin() {
    while (static_cast<int>(active_.size()) < pool_.size()) {
      const int fold = next_fold();
      if (fold == 0) return;
      if (!counts(fold)) continue;
      const Job& job = what_.jobs[static_cast<size_t>(fold - 1)];
      Active a{.fold = fold};
      a.orders = std::make_unique<WorkerQueue<int64_t>>(pool_);
      if (job.training.threads == 0) {
        a.told = std::max<int64_t>(1, available_cores() / pool_.size());
      }
      const FoldTask task{.fold = fold,
                          .job = job.resolved().dump(),
                          .file = job.file,
                          .folder = fold_folder(what_.folder, fold),
                          .store = what_.store,
                          .frequency = std::max<int64_t>(1, job.verbose_frequency),
                          .threads = a.told};
      a.future = pool_.submit<&run_fold>(task, messages_.sender(), a.orders->receiver());
      active_.push_back(std::move(a));
    }
  }

  static TrialRun run_of(int fold) { return {.trial = fold, .repeat = 0, .budget = 1}; }

  // Ends folds that do not count, and divides the processors among the others.
  void give_orders() {
    std::vector<TrialRun> runs;
    for (const Active& a : active_) runs.push_back(run_of(a.fold));
    const std::vector<int64_t> shares = shares_.divide(runs);
    for (size_t i = 0; i < active_.size(); ++i) {
      Active& a = active_[i];
      const bool lent = what_.jobs[static_cast<size_t>(a.fold - 1)].training.threads == 0;
      const bool counts_still = counts(a.fold);
      if (!counts_still && !a.ends) a.ends = Clock::now();
      cancel_if_stuck(a);
      const int64_t order = !counts_still ? fold_must_end : lent ? shares[i] : a.told;
      if (order == a.told) continue;
      if (a.future.state() == TaskState::queued && order == fold_must_end) a.future.cancel();
      if (a.future.state() != TaskState::running || a.future.worker() < 0) continue;
      if (a.orders->send(a.future.worker(), order, 0)) a.told = order;
    }
  }

  static void cancel_if_stuck(Active& a) {
    const bool late = a.ends && seconds_from(*a.ends) > longest_end;
    if (a.cancelled || (!late && seconds_from(a.heard) < longest_silence)) return;
    a.cancelled = true;
    a.future.cancel();
  }

  void wait() {
    detail::wait_until(*pool_.core(), poll_seconds, [&] {
      return std::any_of(active_.begin(), active_.end(),
                         [](const Active& a) { return a.future.over(); });
    });
    while (const auto said = messages_.poll()) {
      const int fold = static_cast<int>(said->fold);
      for (Active& a : active_) {
        if (a.fold == fold) a.heard = Clock::now();
      }
      saved_[fold] = std::max(saved_[fold], said->saved);
      shares_.note(run_of(fold), said->shards, said->threads, said->measured, said->rate);
      if (said->shown) tell(*said);
    }
  }

  void collect() {
    const auto first = std::stable_partition(active_.begin(), active_.end(),
                                             [](const Active& a) { return !a.future.done(); });
    const std::vector<Active> ended(std::make_move_iterator(first),
                                    std::make_move_iterator(active_.end()));
    active_.erase(first, active_.end());
    for (const Active& a : ended) settle(a);
  }

  void settle(const Active& a) {
    try {
      const FoldReport report = a.future.get();
      if (report.stopped) {
        end_ = std::min(end_, a.fold);
      } else {
        values_[a.fold] = report.named();
      }
    } catch (const WorkerLost& lost) {
      continue_later(a.fold, lost);
    } catch (const Cancelled& cancelled) {
      if (a.cancelled && !a.ends) {
        continue_later(a.fold, WorkerLost("[pool] its worker said nothing for too long: " +
                                              std::string(cancelled.what()),
                                          cancelled.hint()));
      } else {
        end_ = std::min(end_, a.fold);
      }
    } catch (const Error& error) {
      fail(a.fold, error);
    }
  }

  void continue_later(int fold, const WorkerLost& lost) {
    Losses& losses = losses_[fold];
    if (saved_[fold] > losses.saved) losses = {.saved = saved_[fold]};
    if (++losses.count >= most_losses) {
      fail(fold, WorkerLost("it has ended " + std::to_string(losses.count) +
                                " workers without progress: " + lost.what(),
                            lost.hint()));
      return;
    }
    if (!counts(fold)) return;
    again_.push_back(fold);
    FoldMessage message;
    message.fold = fold;
    message.text = std::string(lost.what()) + "; another worker continues the fold";
    tell(message);
  }

  void fail(int fold, const Error& error) {
    errors_.try_emplace(fold, error.what(), error.hint());
    end_ = std::min(end_, fold);
  }

  void tell(const FoldMessage& message) const {
    if (what_.tell) what_.tell(message);
  }

  const ConcurrentFolds& what_;
  const int count_;
  int end_;  // folds from this one on do not count
  Pool pool_;
  PollableDataQueue<FoldMessage> messages_;
  ThreadShares shares_;
  std::vector<Active> active_;
  int next_ = 1;
  std::vector<int> again_;  // folds that have lost their workers
  std::map<int, FoldValues> values_;
  std::map<int, Error> errors_;
  std::map<int, Losses> losses_;
  std::map<int, int64_t> saved_;  // newest checkpoints
  bool interrupted_ = false;
};

}  // namespace

void throw_of_fold(int fold, const std::string& what, const std::string& hint) {
  throw Error("[cross-validate] fold " + std::to_string(fold) + ": " + what, hint);
}

FoldsEnd run_folds(const ConcurrentFolds& folds) { return Folds(folds).run(); }

}  // namespace lockstep
