// Images a second of one epoch: read from a folder or an S3 store, decoded, shuffled, in
// mini-batches. benchmarks/peers/s3_loading.py compares it with other loaders.
//
// usage: loading FOLDER_OR_ADDRESS [THREADS]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <variant>

#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"

namespace {

using namespace lockstep;

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const char* name, int threads) {
  const auto begin = std::chrono::steady_clock::now();
  const DatastorePtr images = image_folder(name);
  const double listed = seconds_since(begin);
  const Example first = images->read(0);
  const Image& image = std::get<Image>(first.inputs.at(0));
  const Shape shape{image.channels, image.height, image.width};
  MiniBatchQueueOptions options;
  options.mini_batch_size = 128;
  options.drop_last = false;
  options.seed = 1;
  options.cache_bytes = static_cast<size_t>(shape.elements() * images->size());
  options.threads = threads;
  MiniBatchQueue queue(images, {shape}, options);
  int64_t count = 0;
  double first_batch = 0;
  uint64_t sum = 0;  // so that the pixels are used
  while (queue.has_data()) {
    const auto batch = queue.next();
    if (count == 0) first_batch = seconds_since(begin);
    count += batch->size();
    sum += batch->input().values<uint8_t>()[0];
  }
  std::printf(
      "{\"images\": %lld, \"seconds\": %.3f, \"listed\": %.3f, \"first\": %.3f, "
      "\"processor\": %.3f, \"sum\": %llu}\n",
      static_cast<long long>(count), seconds_since(begin), listed, first_batch, processor_seconds(),
      static_cast<unsigned long long>(sum));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: loading FOLDER_OR_ADDRESS [THREADS]\n");
    return 2;
  }
  try {
    measure(argv[1], argc > 2 ? std::atoi(argv[2]) : 2);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
