#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/comm/keyed_rendezvous.h"
#include "lockstep/parallel/pool/task_context.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/iteration/devices/device_links.h"
#include "lockstep/train/iteration/shard_check.h"
#include "lockstep/train/loop/local_iterations.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/state/state_area.h"
#include "lockstep/train/workers/worker_group.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {
namespace {

// Seconds to wait for the client before checking for cancellation. The channel's thread detects the
// client's end.
constexpr double kOrderPatience = 1;
// Periods for sending records, for the group's reporter and for other members; the number of
// records that are kept in case another reporter is needed.
constexpr double kSendPeriod = 0.02, kLongSendPeriod = 0.25;
// The periods of other members grow with the group beyond this size.
constexpr double kFewMembers = 64;
constexpr size_t kKept = 256;

TrainingOptions options_of(const std::string& text) {
  const nlohmann::json object = parse_json<nlohmann::json>(text);
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
        columns_(task.columns),
        stop_retries_([this] { return context_.cancelled() || stop_requested(); }),
        problem_(task.problem()),
        pool_(static_cast<int>(options_.threads)) {
    build();
  }
  ~TrainingWorker() { storage::count_network_waits(nullptr); }
  TrainingWorker(const TrainingWorker&) = delete;
  TrainingWorker& operator=(const TrainingWorker&) = delete;

  // Runs until the task is cancelled.
  void run() {
    const ArithmeticMode mode;
    while (!context_.cancelled()) {
      const bool busy = may_compute();
      if (busy) compute();
      // Does not wait for messages while there is work.
      for (auto order = next_order(busy ? 0 : kOrderPatience); order; order = next_order(0)) {
        std::visit([this](const auto& what) { take(what); }, *order);
      }
    }
  }

 private:
  // Exchanges the listening addresses of the hosts' first members through the client, which sends
  // all that are for this one in one order.
  class ClientRendezvous final : public KeyedRendezvous {
   public:
    ClientRendezvous(TrainingWorker& worker, int64_t generation, int rank)
        : KeyedRendezvous(rank), worker_(worker), generation_(generation), rank_(rank) {}

   private:
    void send(std::span<const RendezvousEntry> entries) override {
      RendezvousReport report{generation_, {}};
      for (const RendezvousEntry& entry : entries)
        report.entries.emplace_back(entry.to, entry.value);
      worker_.send(report);
    }
    void wait(double seconds) override {
      if (worker_.context_.cancelled() || LocalGroup::aborted(worker_.group_memory_)) {
        throw WorkerLost("[group] the group was ended before all members had connected");
      }
      const auto order = worker_.receive(seconds);
      if (!order) return;
      const auto* const theirs = std::get_if<RendezvousOrder>(&*order);
      if (theirs == nullptr) {
        worker_.later_.push_back(*order);
      } else if (theirs->generation == generation_) {
        for (const auto& [from, value] : theirs->entries) take({from, rank_, value});
      }
    }

    TrainingWorker& worker_;
    const int64_t generation_;
    const int rank_;
  };

  std::optional<WorkerOrder> receive(double seconds) {
    const auto message = context_.receive(orders_, TimeLimit(seconds));
    if (!message) return std::nullopt;
    return decode<WorkerOrder>(*message);
  }

  std::optional<WorkerOrder> next_order(double seconds) {
    if (later_.empty()) return receive(seconds);
    WorkerOrder order = std::move(later_.front());
    later_.pop_front();
    return order;
  }

  void build() {
    Network& network = problem_.network;
    if (!network.initialized()) network.initialize(static_cast<uint64_t>(options_.seed));
    network.to(device_);
    solver_ = make_solver(network, options_);
    network.make_row_states(options_.mini_batch_size, false);
    // The client's network may have learned another order than that of the data.
    if (!columns_.empty()) {
      network.set_columns(TableColumns::from_json(parse_json<nlohmann::json>(columns_)));
    }
    MatchedData matched = match_all_columns(network, std::move(problem_.data));
    network.set_columns(std::move(matched.columns));
    problem_.data = std::move(matched.data);
    const TrainingData& data = problem_.data;
    // Empty ones. The client's images replace them if the client shares them.
    images_ = open_images(network, data, options_);
    iterations_ = std::make_unique<LocalIterations>(
        IterationsSetup{.options = options_,
                        .data = data,
                        .interrupted = [this] { return stop_requested(); },
                        .notice =
                            [this](const std::string& text) {
                              if (iterations_->step().executor().group().rank() == 0)
                                send(NoticeReport{text});
                            }});
    iterations_->begin(
        {.network = network, .solver = *solver_, .pool = pool_, .images = images_, .first = 0});
    const GroupSumOptions sum = iterations_->step().executor().sum_options();
    ReadyReport ready{.names = digest_of_names(data),
                      .fingerprint = {},
                      .sum_count = sum.count,
                      .leaf_metadata_bytes = sum.leaf_metadata_bytes,
                      .member_metadata_bytes = sum.member_metadata_bytes,
                      .operand_bytes = sum.operand_bytes,
                      .most_leaves = sum.most_leaves,
                      .update_ranges = sum.update_ranges};
    for (const auto& e : numerics_fingerprint(network.device()))
      ready.fingerprint.emplace_back(e.name, e.value);
    send(ready);
  }

  template <class Report>
  void send(const Report& report) {
    context_.send(reports_, encode(WorkerReport(report)));
  }

  void take(const BeginOrder& order) {
    const SharedMemory& memory = context_.memory();
    attach_images(images_, memory, order.images);
    for (int i = 0; i < 2; ++i) states_[i] = memory.map(order.states[i]);
    if (order.evaluation.bytes > 0) evaluation_ = memory.map(order.evaluation);
    scores_ = order.scores;
    status_memory_ = memory.map(order.status);
    status_ = reinterpret_cast<TrainingWorkerStatus*>(status_memory_.get());
    shared_status_.store(status_);
    storage::count_network_waits(&status_->network_waits);
    iterations_->step().executor().watch([this](int thread, const IndexRange& shards) {
      if (thread >= TrainingWorkerStatus::kThreads) return;
      status_->shards[thread].store(encoded_shards(shards));
    });
  }

  void take(const FormOrder& order) {
    const auto described = decode<GroupOfWorkers>(order.group);
    fail_point("join", described.next);
    if (order.state >= 0) {
      read_state(states_[order.state].get(), problem_.network, *solver_);
      records_.clear();
    }
    finished_ = described.next - 1;
    members_ = described.loads.size();
    generation_ = order.generation;
    rates_.clear();
    group_memory_ = context_.memory().map(order.memory);
    std::optional<LinksWithin> within;
    try {
      if (device_groups_of(device_)) within.emplace(order.address);
    } catch (const Error&) {
      register_device_groups(device_, nullptr);  // sums go through the hosts
    }
    // If no group forms, members may be lost. The client then forms another group.
    std::unique_ptr<Group> group;
    try {
      group = make_worker_group(
          order, described, group_memory_,
          std::make_shared<ClientRendezvous>(*this, order.generation, order.host));
    } catch (const Error& e) {
      return halt(e.what());
    }
    try {
      iterations_->join(std::move(group), described.loads, described.limit, described.next);
    } catch (const WorkerLost& e) {
      return halt(e.what());
    } catch (const Timeout& e) {
      return halt(e.what());
    } catch (const Error& e) {
      // The device may have failed since, together with another one. A new process may be able to
      // use it.
      if (device_.is_cpu() || !joined_) throw;
      send(BrokenReport{generation_, e.what()});
      return;
    }
    iterations_->step().executor().compute_alone(described.alone);
    if (!described.compares) iterations_->step().leave_out_comparison();
    const std::string route = iterations_->step().executor().route();
    if (order.rank == 0 && !route.empty()) send(NoticeReport{"partial sums travel " + route});
    together_ = joined_ = true;
    reporter_ = order.reporter;
    // Sends records that the former reporter did not send.
    sent_ = described.known;
    send_records(0);
    iterations_->begin_timing();
  }

  void take(const GrantOrder& order) {
    // Ignores a grant that was sent before the group ended.
    if (order.generation != generation_ || !together_) return;
    const int64_t expected = finished_ + static_cast<int64_t>(rates_.size()) + 1;
    if (order.first != expected) {
      throw InternalError("[worker] iteration " + std::to_string(order.first) +
                          " is granted, but " + std::to_string(expected) + " is next");
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
    send(PublishedReport{order.state, finished_});
  }

  // For a group that did not form.
  void take(const RendezvousOrder&) {}

  void take(const ValidateOrder& order) {
    if (order.generation != generation_) return;
    ValidatedReport report{.generation = order.generation};
    if (iterations_->step().executor().group().rank() == 0) {
      if (const auto found = iterations_->not_finite()) {
        report.not_finite = found->what;
        report.hint = found->hint;
      }
    }
    const AveragesInPlace averages(problem_.network, *solver_);
    iterations_->evaluator()->take_part(evaluation_.get(), scores_, &status_->evaluated);
    send(report);
  }

  // For threads that read, too.
  bool stop_requested() const {
    const TrainingWorkerStatus* const status = shared_status_.load();
    return status != nullptr && status->stop.load() != 0;
  }

  bool may_compute() const { return together_ && !rates_.empty(); }

  void halt(const std::string& why = {}) {
    send_records(0);  // if this worker is lost next, no other has its unsent records
    together_ = false;
    rates_.clear();
    send(HaltedReport{generation_, finished_, why});
  }

  void compute() {
    status_->iteration.store(finished_ + 1);
    IterationOutcome o;
    try {
      o = iterations_->compute(finished_ + 1, rates_.front());
    } catch (const WorkerLost& e) {
      // The client knows about lost workers already.
      halt(LocalGroup::aborted(group_memory_) ? "" : e.what());
      return;
    } catch (const Cancelled&) {
      halt();  // the client stops the training
      return;
    } catch (const ShardsDiffer& e) {
      send(DisagreementReport{generation_, e.iteration(), e.shard(),
                              std::vector<int32_t>(e.faulty().begin(), e.faulty().end()), e.what(),
                              e.hint()});
      halt();
      return;
    } catch (const Timeout& e) {
      // The client ends hanging workers. If it does not, the group cannot continue.
      halt(LocalGroup::aborted(group_memory_) ? "" : e.what());
      return;
    }
    int64_t shards = 0;
    for (const int64_t n : iterations_->step().executor().shards_by_worker()) shards += n;
    status_->computed.store(shards);
    status_->shard_seconds.store(iterations_->step().executor().shard_seconds());
    status_->iteration_seconds.store(o.seconds);
    rates_.pop_front();
    ++finished_;
    records_.push_back(o);
    if (records_.size() > kKept) records_.pop_front();
    if (!std::isfinite(o.loss_sum)) {
      // Nothing was applied. The values are those of the iteration before, and the training ends.
      send_records(0);
      together_ = false;
      rates_.clear();
      return;
    }
    // The client reads a bounded number of reports a second, however many members there are.
    const double crowd = std::max(1.0, static_cast<double>(members_) / kFewMembers);
    const double soon = reporter_ ? 0 : kSendPeriod * crowd,
                 later = reporter_ ? kSendPeriod : kLongSendPeriod * crowd;
    const bool many = finished_ - sent_ > static_cast<int64_t>(kKept / 2);
    send_records(many ? 0 : rates_.empty() ? soon : later);
  }

  // Sends records that were not sent, unless the last report is less than `after` seconds old.
  void send_records(double after) {
    const auto now = TimeLimit::Clock::now();
    if (std::chrono::duration<double>(now - sent_at_).count() < after) return;
    sent_at_ = now;
    RecordsReport report{.generation = generation_, .records = {}};
    for (const IterationOutcome& r : records_) {
      if (r.iteration > sent_) report.records.push_back(r);
    }
    if (report.records.empty()) return;
    sent_ = report.records.back().iteration;
    send(report);
  }

  TaskContext& context_;
  const uint64_t orders_, reports_;  // queues
  const Device device_;
  const TrainingOptions options_;
  const std::string columns_;  // see TrainingTask
  // Before what ends later: threads that read from the network look at it.
  SharedRegion status_memory_;
  std::atomic<TrainingWorkerStatus*> shared_status_ = nullptr;
  const storage::StopRetries stop_retries_;
  TrainingProblem problem_;
  ThreadPool pool_;
  std::unique_ptr<Solver> solver_;
  TrainingImages images_;
  std::unique_ptr<LocalIterations> iterations_;
  SharedRegion states_[2], evaluation_, group_memory_;
  std::deque<WorkerOrder> later_;  // received while waiting for other orders
  TrainingWorkerStatus* status_ = nullptr;
  bool scores_ = false, reporter_ = false;
  bool together_ = false, joined_ = false;  // in the present group; in any group so far
  int64_t generation_ = 0, finished_ = 0, sent_ = 0;
  size_t members_ = 1;        // of the present group
  std::deque<double> rates_;  // of the granted iterations
  std::deque<IterationOutcome> records_;
  TimeLimit::Clock::time_point sent_at_ = TimeLimit::Clock::now();
};

// Receives the orders that an ended training has not received, because they would stay in the pool.
class DrainOrders {
 public:
  explicit DrainOrders(uint64_t orders) : orders_(orders) {}
  ~DrainOrders() {
    try {
      while (TaskContext::current()->receive(orders_, TimeLimit(0))) {
      }
    } catch (const std::exception&) {
      // The memory is damaged; the next reader reports it.
    }
  }
  DrainOrders(const DrainOrders&) = delete;
  DrainOrders& operator=(const DrainOrders&) = delete;

 private:
  const uint64_t orders_;
};

// Frees cached GPU memory at the end, because other processes share the GPU.
class ReleaseCachedMemory {
 public:
  explicit ReleaseCachedMemory(Device device) : device_(device) {}
  ~ReleaseCachedMemory() {
    if (!device_.is_cpu()) release_cached_memory(device_);
  }
  ReleaseCachedMemory(const ReleaseCachedMemory&) = delete;
  ReleaseCachedMemory& operator=(const ReleaseCachedMemory&) = delete;

 private:
  const Device device_;
};

void add_columns(Digester& digester, const ValueSpec& value) {
  digester.add(static_cast<uint64_t>(value.columns.size()));
  for (const std::string& column : value.columns) digester.add(std::string_view(column));
}

void add_names(Digester& digester, const DatastorePtr& store) {
  digester.add(store ? static_cast<uint64_t>(store->size()) : 0);
  if (!store) return;
  for (const std::string& name : store->classes()) digester.add(std::string_view(name));
  for (int64_t i = 0; i < store->size(); ++i) {
    const std::string name = store->name(i);
    digester.add(std::string_view(name));
    digester.add(static_cast<uint64_t>(store->label(i)));
  }
  const ExampleSpec spec = store->spec();
  for (const ValueSpec& input : spec.inputs) add_columns(digester, input);
  if (spec.target) add_columns(digester, *spec.target);
  digester.add(std::string_view(spec.label_column));
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
  refuse_stray_environment();  // the pool may have been opened with such variables
  const OnCores cores(task.cores);
  const DrainOrders orders(task.orders);
  const ReleaseCachedMemory device(parse_device(task.device));
  TrainingWorker(task).run();
}

}  // namespace lockstep
