// The results of an expression in order, a few at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels::cpu {

// Takes the elements of dst in row-major order.
class ExpressionSink {
 public:
  virtual ~ExpressionSink() = default;
  // Returns memory for the next n elements. They are there when end(n) is called.
  virtual float* begin(int64_t n) = 0;
  virtual void end(int64_t n) = 0;
};

// All of dst.
class ExpressionMemory final : public ExpressionSink {
 public:
  explicit ExpressionMemory(float* dst) : dst_(dst) {}
  float* begin(int64_t) override { return dst_; }
  void end(int64_t n) override { dst_ += n; }

 private:
  float* dst_;
};

class ExpressionStream {
 public:
  // The most elements that a sink gets together.
  static constexpr int64_t kMostTogether = 1024;

  // Throws InvalidArgument for a problem that is not one.
  explicit ExpressionStream(const ExpressionProblem& p);
  ~ExpressionStream();

  size_t scratch_bytes() const;
  // `reads`: the inputs. Thread-safe with scratch memory of each thread's own.
  void run(void* const* reads, void* scratch, ExpressionSink& sink) const;

  struct Compiled;

 private:
  std::unique_ptr<const Compiled> compiled_;
  int64_t elements_;
};

}  // namespace lockstep::kernels::cpu
