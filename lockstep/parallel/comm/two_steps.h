// Routes of a large group: every member reaches every other one in two steps, by few connections.
#pragma once

#include <cmath>
#include <set>

namespace lockstep {

// Ranks lie on a circle. The way from a rank to the one `d` further leads by `d % stride` ranks in
// the first step and by a multiple of the stride in the second one. If the stride is the size, the
// first step is the whole way. A value type.
class TwoSteps {
 public:
  // In a group of up to `most_direct` members every other member is one step away.
  TwoSteps(int size, int most_direct)
      : size_(size),
        stride_(size <= most_direct ? size : static_cast<int>(std::ceil(std::sqrt(size)))) {}

  bool direct() const { return stride_ == size_; }
  // Number of distances of the second step, the distance 0 among them.
  int multiples() const { return (size_ + stride_ - 1) / stride_; }
  int stride() const { return stride_; }
  // The rank that is `distance` further, or before if it is negative.
  int at(int rank, int distance) const { return ((rank + distance) % size_ + size_) % size_; }
  // Whether some member is this far away: the sum of both steps may exceed the circle.
  bool has(int near, int multiple) const { return near + multiple * stride_ < size_; }
  // The members to which a member is connected.
  std::set<int> neighbors(int rank) const {
    std::set<int> all;
    for (int near = 1; near < stride_; ++near) all.insert({at(rank, near), at(rank, -near)});
    for (int multiple = 1; multiple < multiples(); ++multiple) {
      all.insert({at(rank, multiple * stride_), at(rank, -multiple * stride_)});
    }
    all.erase(rank);
    return all;
  }

 private:
  int size_, stride_;
};

}  // namespace lockstep
