#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/pool/task_context.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/gpu/device_links.h"
#include "lockstep/train/loop/local_iterations.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/state/state_area.h"
#include "lockstep/train/step/shard_check.h"
#include "lockstep/train/workers/worker_group.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {
namespace {

// How long it waits for the client before it looks again; the channel's thread sees its end.
constexpr double kPatience = 1;
// Records that wait to be sent together, and those kept to be said again by another client's wish.
constexpr double kSpeakAfter = 0.02, kWhisperAfter = 0.25;
constexpr size_t kKept = 256;

TrainingOptions options_of(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text);
  TrainingOptions options;
  FieldReader reader(object, "training");
  options.visit(reader);
  return options.resolved();
}

class TrainingWorker {
 public:
  explicit TrainingWorker(const TrainingTask& task)
      : context_(*TaskContext::current()),
        orders_(task.orders),
        reports_(task.reports),
        device_(parse_device(task.device)),
        options_(options_of(task.options)),
        problem_(task.problem()),
        pool_(static_cast<int>(options_.threads)) {
    build();
  }

  // Until it is cancelled.
  void run() {
    const ArithmeticMode mode;
    while (!context_.cancelled()) {
      const bool busy = may_compute();
      if (busy) compute();
      // With something to do it only looks whether there is a message.
      for (auto order = next_order(busy ? 0 : kPatience); order; order = next_order(0)) {
        std::visit([this](const auto& what) { take(what); }, *order);
      }
    }
  }

 private:
  // Where the hosts' first members leave for each other where they listen: with the client.
  class Meeting final : public MeetingPlace {
   public:
    Meeting(TrainingWorker& worker, int64_t generation)
        : worker_(worker), generation_(generation) {}

    void set(const std::string& key, const Bytes& value) override {
      worker_.say(MeetReport{generation_, key, value});
    }

    Bytes get(const std::string& key, const TimeLimit& limit) override {
      for (;;) {
        const auto found = heard_.find(key);
        if (found != heard_.end()) return found->second;
        if (worker_.context_.cancelled() || LocalGroup::aborted(worker_.group_memory_)) {
          throw WorkerLost("[group] it was ended before all had come");
        }
        if (limit.reached()) throw Timeout("[group] some have not come");
        const auto order = worker_.hear(std::min(0.02, limit.left()));
        if (!order) continue;
        const auto* const meet = std::get_if<MeetOrder>(&*order);
        if (meet == nullptr) {
          worker_.later_.push_back(*order);
        } else if (meet->generation == generation_) {
          heard_.emplace(meet->key, meet->value);
        }
      }
    }

   private:
    TrainingWorker& worker_;
    const int64_t generation_;
    std::map<std::string, Bytes> heard_;
  };

  std::optional<WorkerOrder> hear(double seconds) {
    const auto message = context_.receive(orders_, TimeLimit(seconds));
    if (!message) return std::nullopt;
    return decode<WorkerOrder>(*message);
  }

  std::optional<WorkerOrder> next_order(double seconds) {
    if (later_.empty()) return hear(seconds);
    WorkerOrder order = std::move(later_.front());
    later_.pop_front();
    return order;
  }

  void build() {
    Network& network = problem_.network;
    if (!network.initialized()) network.initialize(static_cast<uint64_t>(options_.seed));
    network.to(device_);
    solver_ = make_solver(network, options_);
    const TrainingData& data = problem_.data;
    // Empty ones: the client's take their place, where it shares them.
    images_ = open_images(network, data, options_);
    iterations_ = std::make_unique<LocalIterations>(LocalIterationsSetup{.network = network,
                                                                         .solver = *solver_,
                                                                         .pool = pool_,
                                                                         .options = options_,
                                                                         .data = data,
                                                                         .images = images_},
                                                    0);
    const GroupSumOptions sum = iterations_->step().executor().sum_options();
    ReadyReport ready{.names = digest_of_names(data),
                      .fingerprint = {},
                      .sum_count = sum.count,
                      .leaf_bytes = sum.leaf_bytes,
                      .member_bytes = sum.member_bytes,
                      .most_leaves = sum.most_leaves};
    for (const auto& e : numerics_fingerprint(network.device()))
      ready.fingerprint.emplace_back(e.name, e.value);
    say(ready);
  }

  template <class Report>
  void say(const Report& report) {
    context_.send(reports_, encode(WorkerReport(report)));
  }

  void take(const BeginOrder& order) {
    const SharedMemory& memory = context_.memory();
    attach_images(images_, memory, order.images);
    for (int i = 0; i < 2; ++i) states_[i] = memory.map(order.states[i]);
    if (order.evaluation.bytes > 0) evaluation_ = memory.map(order.evaluation);
    scores_ = order.scores;
    board_memory_ = memory.map(order.board);
    board_ = reinterpret_cast<WorkerBoard*>(board_memory_.get());
    iterations_->step().executor().watch([this](int thread, int64_t shard) {
      if (thread < WorkerBoard::kThreads) board_->shards[thread].store(shard + 1);
    });
  }

  void take(const FormOrder& order) {
    fail_point("join", order.next);
    if (order.state >= 0) {
      read_state(states_[order.state].get(), problem_.network, *solver_);
      records_.clear();
    }
    finished_ = order.next - 1;
    generation_ = order.generation;
    rates_.clear();
    group_memory_ = context_.memory().map(order.memory);
    std::optional<LinksWithin> within;
    try {
      if (device_groups_of(device_)) within.emplace(order.address);
    } catch (const Error&) {
      register_device_groups(device_, nullptr);  // sums go by way of the hosts
    }
    // Where they do not come together some may be gone: the client forms another group.
    std::unique_ptr<Group> group;
    try {
      group = make_worker_group(order, group_memory_,
                                std::make_shared<Meeting>(*this, order.generation));
    } catch (const Error& e) {
      return halt(e.what());
    }
    try {
      iterations_->join(std::move(group), order.loads, order.limit, order.next);
    } catch (const WorkerLost& e) {
      return halt(e.what());
    } catch (const Timeout& e) {
      return halt(e.what());
    } catch (const Error& e) {
      // A device may have failed since, with another's: another process may have it back.
      if (device_.is_cpu() || !joined_) throw;
      say(BrokenReport{generation_, e.what()});
      return;
    }
    iterations_->step().executor().compute_alone(order.alone);
    const std::string route = iterations_->step().executor().route();
    if (order.rank == 0 && !route.empty()) say(NoticeReport{"partial sums go " + route});
    together_ = joined_ = true;
    speaks_ = order.speaks;
    // Records that the one who spoke before did not send any more.
    said_ = order.known;
    speak(0);
    iterations_->begin_timing();
  }

  void take(const GrantOrder& order) {
    // One that was on its way when the group ended is for nobody.
    if (order.generation != generation_ || !together_) return;
    const int64_t expected = finished_ + static_cast<int64_t>(rates_.size()) + 1;
    if (order.first != expected) {
      throw InternalError("[worker] iteration " + std::to_string(order.first) +
                          " is granted where " + std::to_string(expected) + " is the next");
    }
    if (rates_.empty()) iterations_->begin_timing();
    rates_.insert(rates_.end(), order.learning_rates.begin(), order.learning_rates.end());
  }

  void take(const HaltOrder& order) {
    if (order.generation == generation_) halt();
  }

  void take(const PublishOrder& order) {
    fail_point("publish", finished_);
    write_state(problem_.network, *solver_, states_[order.state].get());
    say(PublishedReport{order.state, finished_});
  }

  // Of a group that has not come together.
  void take(const MeetOrder&) {}

  void take(const ValidateOrder& order) {
    if (order.generation != generation_) return;
    iterations_->evaluator()->take_part(evaluation_.get(), scores_, &board_->evaluated);
    say(ValidatedReport{order.generation});
  }

  bool may_compute() const { return together_ && !rates_.empty(); }

  void halt(const std::string& why = {}) {
    speak(0);  // should this one be lost, the others have no records of what they do not know
    together_ = false;
    rates_.clear();
    say(HaltedReport{generation_, finished_, why});
  }

  void compute() {
    board_->iteration.store(finished_ + 1);
    IterationOutcome o;
    try {
      o = iterations_->compute(finished_ + 1, rates_.front());
    } catch (const WorkerLost& e) {
      // That somebody was lost the client knows.
      halt(LocalGroup::aborted(group_memory_) ? "" : e.what());
      return;
    } catch (const ShardsDiffer& e) {
      say(DisagreementReport{generation_, e.iteration(), e.shard(),
                             std::vector<int32_t>(e.faulty().begin(), e.faulty().end()), e.what(),
                             e.hint()});
      halt();
      return;
    } catch (const Timeout& e) {
      // The client ends whoever hangs; should it not, there is nothing to go on with.
      halt(LocalGroup::aborted(group_memory_) ? "" : e.what());
      return;
    }
    int64_t shards = 0;
    for (const int64_t n : iterations_->step().executor().shards_by_worker()) shards += n;
    board_->computed.store(shards);
    board_->shard_seconds.store(iterations_->step().executor().shard_seconds());
    board_->iteration_seconds.store(o.seconds);
    rates_.pop_front();
    ++finished_;
    records_.push_back(o);
    if (records_.size() > kKept) records_.pop_front();
    if (!std::isfinite(o.loss_sum)) {
      // Nothing was applied: the values are those of the iteration before, and the training ends.
      speak(0);
      together_ = false;
      rates_.clear();
      return;
    }
    const double soon = speaks_ ? 0 : kSpeakAfter, later = speaks_ ? kSpeakAfter : kWhisperAfter;
    speak(rates_.empty() ? soon : later);
  }

  // Sends the records that were not sent, unless the last time is less than `after` seconds ago.
  void speak(double after) {
    const auto now = TimeLimit::Clock::now();
    if (std::chrono::duration<double>(now - spoken_).count() < after) return;
    spoken_ = now;
    RecordsReport report{.generation = generation_, .records = {}};
    for (const IterationOutcome& r : records_) {
      if (r.iteration > said_) report.records.push_back(r);
    }
    if (report.records.empty()) return;
    said_ = report.records.back().iteration;
    say(report);
  }

  TaskContext& context_;
  const uint64_t orders_, reports_;  // queues
  const Device device_;
  const TrainingOptions options_;
  TrainingProblem problem_;
  ThreadPool pool_;
  std::unique_ptr<Solver> solver_;
  TrainingImages images_;
  std::unique_ptr<LocalIterations> iterations_;
  SharedRegion states_[2], evaluation_, board_memory_, group_memory_;
  std::deque<WorkerOrder> later_;  // came while others were waited for
  WorkerBoard* board_ = nullptr;
  bool scores_ = false, speaks_ = false;
  bool together_ = false, joined_ = false;  // in the present group; in any, ever
  int64_t generation_ = 0, finished_ = 0, said_ = 0;
  std::deque<double> rates_;  // of the iterations that are granted
  std::deque<IterationOutcome> records_;
  TimeLimit::Clock::time_point spoken_ = TimeLimit::Clock::now();
};

// Takes what a training that ended has not: it would wait here for ever.
class NothingLeft {
 public:
  explicit NothingLeft(uint64_t orders) : orders_(orders) {}
  ~NothingLeft() {
    try {
      while (TaskContext::current()->receive(orders_, TimeLimit(0))) {
      }
    } catch (const std::exception&) {
      // The memory is damaged: whoever reads on hears of it.
    }
  }
  NothingLeft(const NothingLeft&) = delete;
  NothingLeft& operator=(const NothingLeft&) = delete;

 private:
  const uint64_t orders_;
};

// Gives a GPU's memory back that would be kept for this process: others share it.
class NothingCached {
 public:
  explicit NothingCached(Device device) : device_(device) {}
  ~NothingCached() {
    if (!device_.is_cpu()) release_cached_memory(device_);
  }
  NothingCached(const NothingCached&) = delete;
  NothingCached& operator=(const NothingCached&) = delete;

 private:
  const Device device_;
};

void add_names(Digester& digester, const DatastorePtr& store) {
  digester.add(store ? static_cast<uint64_t>(store->size()) : 0);
  if (!store) return;
  for (const std::string& name : store->classes()) digester.add(std::string_view(name));
  for (int64_t i = 0; i < store->size(); ++i) {
    const std::string name = store->name(i);
    digester.add(std::string_view(name));
    digester.add(static_cast<uint64_t>(store->label(i)));
  }
}

}  // namespace

Digest digest_of_names(const TrainingData& data) {
  Digester digester;
  for (const DatastorePtr& store :
       {data.training, data.validation, data.training_targets, data.validation_targets}) {
    add_names(digester, store);
  }
  if (data.loss) digester.add(std::string_view(data.loss.name));
  return digester.finish();
}

void train_as_worker(const TrainingTask& task) {
  refuse_stray_environment();  // the pool may have been opened with one
  const OnCores cores(task.cores);
  const NothingLeft orders(task.orders);
  const NothingCached device(parse_device(task.device));
  TrainingWorker(task).run();
}

}  // namespace lockstep
