#include "lockstep/engine/kernels/cpu/pass_threads.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/helping_threads.h"

namespace lockstep::kernels::cpu {
namespace {

// Parts for each thread: what a slow one leaves is not much.
constexpr int64_t kPartsOfThread = 4;

thread_local PassThreads* of_thread = nullptr;

}  // namespace

PassThreads::PassThreads(int threads) : threads_(threads), before_(of_thread) {
  if (threads < 1 || threads > 1024) {
    throw InvalidArgument("[kernels] passes run on 1 to 1024 threads, received " +
                          std::to_string(threads));
  }
  of_thread = this;
}

PassThreads::~PassThreads() { of_thread = before_; }

void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body) {
  PassThreads* const threads = of_thread;
  const int64_t most = threads && threads->threads_ > 1 ? threads->threads_ * kPartsOfThread : 1;
  const int64_t parts = std::min(most, n / std::max<int64_t>(least, 1));
  if (parts <= 1) return body({0, n});
  if (!threads->helpers_) {
    threads->helpers_ = std::make_unique<HelpingThreads>(threads->threads_ - 1);
  }
  threads->helpers_->share(static_cast<int>(parts), [&](int part) {
    const ArithmeticMode mode;
    const int64_t first = n * part / parts;
    body({first, n * (part + 1) / parts - first});
  });
}

}  // namespace lockstep::kernels::cpu
