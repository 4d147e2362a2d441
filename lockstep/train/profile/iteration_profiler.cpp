#include "lockstep/train/profile/iteration_profiler.h"

#include <algorithm>

namespace lockstep {
namespace {

// For one thread: about ten iterations of a large network.
constexpr size_t kMostSpans = 20'000;

double in_seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

double Profile::charged() const {
  double sum = 0;
  for (const ProfileAccount& a : accounts) sum += a.seconds;
  return sum;
}

double Profile::floor() const {
  double sum = 0;
  for (const ProfileAccount& a : accounts) sum += std::isnan(a.floor) ? 0 : a.floor;
  return sum;
}

IterationProfiler::IterationProfiler(int threads) : threads_(static_cast<size_t>(threads)) {
  waiting_ = account(Phase::iteration, "waiting for other threads", true);
  begin_iteration();
}

int IterationProfiler::account(Phase phase, const std::string& name, bool waiting) {
  const auto found = std::find_if(accounts_.begin(), accounts_.end(), [&](const auto& a) {
    return a.phase == phase && a.name == name;
  });
  if (found != accounts_.end()) return static_cast<int>(found - accounts_.begin());
  ProfileAccount opened;
  opened.phase = phase;
  opened.name = name;
  opened.waiting = waiting;
  accounts_.push_back(std::move(opened));
  for (Thread& t : threads_) t.entries.resize(accounts_.size());
  return static_cast<int>(accounts_.size()) - 1;
}

void IterationProfiler::begin_iteration() {
  begun_ = Clock::now();
  for (Thread& t : threads_) {
    t.last = begun_;
    t.entries_before = t.entries;
    t.spans_before = t.spans.size();
  }
}

void IterationProfiler::drop_iteration() {
  for (Thread& t : threads_) {
    t.entries = t.entries_before;
    t.entries.resize(accounts_.size());
    t.spans.resize(std::min(t.spans_before, t.spans.size()), Span());
  }
}

void IterationProfiler::drop_earlier() {
  for (Thread& t : threads_) {
    for (size_t a = 0; a < t.entries_before.size(); ++a) {
      t.entries[a].calls -= t.entries_before[a].calls;
      t.entries[a].time -= t.entries_before[a].time;
    }
    std::fill(t.entries_before.begin(), t.entries_before.end(), Entry());
    t.spans.erase(t.spans.begin(), t.spans.begin() + static_cast<std::ptrdiff_t>(t.spans_before));
    t.spans_before = 0;
  }
  iterations_ = 0;
  wall_ = 0;
  keep_spans_ = true;
}

double IterationProfiler::end_iteration() {
  const auto now = Clock::now();
  for (Thread& t : threads_) charge(t, waiting_, now);
  for (const Thread& t : threads_) keep_spans_ &= t.spans.size() < kMostSpans;
  const double seconds = in_seconds(now - begun_);
  ++iterations_;
  wall_ += seconds;
  return seconds;
}

void IterationProfiler::charge(int thread, int account) {
  charge(threads_[static_cast<size_t>(thread)], account, Clock::now());
}

void IterationProfiler::charge_first(int thread, int account, double seconds) {
  Thread& t = threads_[static_cast<size_t>(thread)];
  const auto length = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::max(seconds, 0.0)));
  if (length > Clock::duration::zero()) charge(t, account, std::min(Clock::now(), t.last + length));
}

void IterationProfiler::charge(Thread& t, int account, Clock::time_point now) const {
  Entry& entry = t.entries[static_cast<size_t>(account)];
  ++entry.calls;
  entry.time += now - t.last;
  if (keep_spans_) t.spans.push_back({account, t.last, now});
  t.last = now;
}

void IterationProfiler::forget() {
  for (Thread& t : threads_) {
    std::fill(t.entries.begin(), t.entries.end(), Entry());
    std::fill(t.entries_before.begin(), t.entries_before.end(), Entry());
    t.spans.clear();
    t.spans_before = 0;
  }
  iterations_ = 0;
  wall_ = 0;
  keep_spans_ = true;
}

void IterationProfiler::set_floor(int account, double seconds_each) {
  accounts_[static_cast<size_t>(account)].floor = seconds_each;
}

Profile IterationProfiler::finish(double preparation_each) const {
  Profile p;
  p.threads = static_cast<int>(threads_.size());
  p.iterations = iterations_;
  p.wall = wall_;
  p.preparation = preparation_each * static_cast<double>(iterations_);
  // The accounts of the iteration follow those of the passes. Waiting is the last one.
  std::vector<int> order, index(accounts_.size());
  for (size_t a = 0; a < accounts_.size(); ++a) order.push_back(static_cast<int>(a));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto key = [&](int k) {
      const ProfileAccount& of = accounts_[static_cast<size_t>(k)];
      return std::pair(of.phase, of.waiting);
    };
    return key(a) < key(b);
  });
  for (int from : order) {
    index[static_cast<size_t>(from)] = static_cast<int>(p.accounts.size());
    ProfileAccount a = accounts_[static_cast<size_t>(from)];
    for (const Thread& t : threads_) {
      const Entry& entry = t.entries[static_cast<size_t>(from)];
      a.calls += entry.calls;
      a.seconds += in_seconds(entry.time);
    }
    a.floor *= static_cast<double>(a.calls);
    p.accounts.push_back(std::move(a));
  }
  auto first = Clock::time_point::max();
  for (const Thread& t : threads_) {
    if (!t.spans.empty()) first = std::min(first, t.spans.front().begin);
  }
  for (size_t t = 0; t < threads_.size(); ++t) {
    for (const Span& s : threads_[t].spans) {
      p.spans.push_back({static_cast<int>(t), index[static_cast<size_t>(s.account)],
                         in_seconds(s.begin - first), in_seconds(s.end - s.begin)});
    }
  }
  return p;
}

}  // namespace lockstep
