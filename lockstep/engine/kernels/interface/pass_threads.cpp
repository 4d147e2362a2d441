#include "lockstep/engine/kernels/interface/pass_threads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/helping_threads.h"

namespace lockstep::kernels {
namespace {

// Parts for each thread: what a slow one leaves is not much.
constexpr int64_t kPartsOfThread = 4;

thread_local PassThreads* of_thread = nullptr;

// The threads of this thread's passes during its lifetime.
class Assigned {
 public:
  explicit Assigned(PassThreads* threads) : before_(std::exchange(of_thread, threads)) {}
  ~Assigned() { of_thread = before_; }
  Assigned(const Assigned&) = delete;
  Assigned& operator=(const Assigned&) = delete;

 private:
  PassThreads* const before_;
};

}  // namespace

PassThreads::PassThreads(int threads) : threads_(threads) {
  if (threads < 1 || threads > 1024) {
    throw InvalidArgument("[kernels] passes run on 1 to 1024 threads, received " +
                          std::to_string(threads));
  }
}

PassThreads::~PassThreads() = default;

void PassThreads::run(const std::function<void()>& body) {
  const Assigned these(this);
  body();
}

HelpingThreads* PassThreads::helpers() {
  if (threads_ > 1 && !helpers_) {
    try {
      helpers_ = std::make_unique<HelpingThreads>(threads_ - 1);
    } catch (const Error&) {
      threads_ = 1;
    }
  }
  return helpers_.get();
}

void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body) {
  PassThreads* const threads = of_thread;
  const int64_t most = threads && threads->threads_ > 1 ? threads->threads_ * kPartsOfThread : 1;
  const int64_t parts = std::min(most, n / std::max<int64_t>(least, 1));
  HelpingThreads* const helpers = parts > 1 ? threads->helpers() : nullptr;
  if (!helpers) {
    const ArithmeticMode mode;
    return body({0, n});
  }
  const Assigned none(nullptr);
  helpers->share(static_cast<int>(parts), [&](int part) {
    const ArithmeticMode mode;
    const int64_t first = n * part / parts;
    body({first, n * (part + 1) / parts - first});
  });
}

}  // namespace lockstep::kernels
