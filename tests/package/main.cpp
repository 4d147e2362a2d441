#include <cstdio>

#include "lockstep/base/numeric/shape.h"

int main() {
  const lockstep::Shape images{128, 3, 32, 32};
  std::printf("%s\n", images.without_batch().to_string().c_str());
  return images.without_batch().elements() == 3 * 32 * 32 ? 0 : 1;
}
