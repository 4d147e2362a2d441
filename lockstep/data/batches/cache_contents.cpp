// One pass over all examples of a cache: digests of their contents, and statistics.
#include <algorithm>
#include <atomic>
#include <utility>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

Digest digest_of_listing(const Datastore& store, const std::vector<Digest>& contents) {
  Digester digester;
  digester.add(static_cast<uint64_t>(store.classes().size()));
  for (const std::string& name : store.classes()) digester.add(std::string_view(name));
  digester.add(static_cast<uint64_t>(store.size()));
  for (int64_t i = 0; i < store.size(); ++i) {
    const std::string name = store.name(i);
    digester.add(std::string_view(name));
    digester.add(static_cast<uint64_t>(store.label(i)));
    digester.add(contents[static_cast<size_t>(i)]);
  }
  return digester.finish();
}

// Adds what is known of an image that the cache will hold whole. Returns whether it is enough.
bool add_facts(const ImageFacts& facts, const CachedValue& value, ChannelStatistics& statistics) {
  const bool fits = value.kind == ValueKind::image && facts.height == value.height() &&
                    facts.width == value.width() &&
                    (facts.channels == value.channels() || facts.channels == 1);
  if (!fits) return false;  // resized, cut, or converted to gray when it is read
  ChannelStatistics one(value.channels());
  one.count = static_cast<uint64_t>(facts.height * facts.width);
  for (size_t c = 0; c < one.sum.size(); ++c) {
    const ImageFacts::Channel& from = facts.sums.at(facts.channels == 1 ? 0 : c);
    one.sum[c] = from.sum;
    one.sum_of_squares[c] = from.sum_of_squares;
    one.min[c] = from.min;
    one.max[c] = from.max;
  }
  statistics.merge(one);
  return true;
}

// Reports progress to the calling thread, which is number 0, from time to time.
class Told {
 public:
  explicit Told(const std::function<void(int64_t)>& progress) : progress_(progress) {}
  void one_more(int thread) {
    constexpr int64_t kBetweenCalls = 256;
    constexpr double kSeconds = 0.1;  // the callback may stop the work
    const int64_t now = ++done_;
    if (!progress_ || thread != 0) return;
    if (now - told_ < kBetweenCalls && !soon_.reached()) return;
    told_ = now;
    soon_ = TimeLimit(kSeconds);
    progress_(now);
  }

 private:
  const std::function<void(int64_t)>& progress_;
  std::atomic<int64_t> done_{0};
  // Used by thread 0 only.
  int64_t told_ = 0;
  TimeLimit soon_{0.1};
};

}  // namespace

std::vector<std::vector<ChannelSummary>> ExampleCache::Contents::channels() const {
  std::vector<std::vector<ChannelSummary>> all;
  for (size_t i = 0; i < statistics.size(); ++i) {
    all.push_back(array_statistics[i].channels() > 0 ? array_statistics[i].summaries()
                                                     : statistics[i].summaries());
  }
  return all;
}

// Sums of images are exact in any order. Sums of arrays in double precision depend on the order.
// Each chunk is therefore summed in order by one thread, and the chunks are merged in order. The
// bounds of chunks depend on the number of examples only.
ExampleCache::Contents ExampleCache::fill(ThreadPool& pool,
                                          const std::function<void(int64_t)>& progress) const {
  constexpr int64_t kLeast = 64, kMostChunks = 256;
  struct alignas(64) Part {
    std::vector<ChannelStatistics> statistics;
    std::vector<uint8_t> scratch;
  };
  using ChunkStatistics = std::vector<ArrayStatistics>;
  Contents result;
  bool arrays = false;
  for (const CachedValue& input : inputs_) {
    const bool array = input.kind == ValueKind::array;
    arrays |= array;
    result.statistics.emplace_back(array ? 0 : input.channels());
    result.array_statistics.emplace_back(array ? input.channels() : 0);
  }
  std::vector<Digest> contents(static_cast<size_t>(size_));
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  for (Part& part : parts) part.statistics = result.statistics;
  const int64_t chunk_size =
      arrays ? std::max(kLeast, (size_ + kMostChunks - 1) / kMostChunks) : int64_t{1};
  const int64_t chunks = (size_ + chunk_size - 1) / chunk_size;
  std::vector<ChunkStatistics> of_chunks(arrays ? static_cast<size_t>(chunks) : 0);
  Told told(progress);
  const auto read = [&](int64_t index, int thread, ChunkStatistics& sums) {
    Part& part = parts[static_cast<size_t>(thread)];
    const ImageFacts* const facts =
        inputs_.size() == 1 && !target_ ? store_->facts(index) : nullptr;
    if (facts != nullptr && add_facts(*facts, inputs_[0], part.statistics[0])) {
      contents[static_cast<size_t>(index)] = facts->content;
      told.one_more(thread);
      return;
    }
    const Example example = load(index, &contents[static_cast<size_t>(index)]);
    const uint8_t* data = nullptr;
    if (differ()) {
      Whole own;
      cut(*keep_whole(index, example, own), {}, part.scratch);
      data = part.scratch.data();
    } else {
      data = keep(index, example, part.scratch);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const CachedValue& input = inputs_[i];
      const uint8_t* const from = data + input.offset;
      if (input.kind == ValueKind::image) {
        part.statistics[i].add(from, input.height() * input.width());
      } else if (input.dtype() == DType::f32) {
        const Steps steps = input.sequence ? steps_in(input, data) : Steps{from, 1};
        sums[i].add(reinterpret_cast<const float*>(steps.data), input.width(), steps.count);
      }
    }
    told.one_more(thread);
  };
  pool.for_each(chunks, [&](int64_t chunk, int thread) {
    ChunkStatistics sums;
    if (!arrays) return read(chunk, thread, sums);
    const ArithmeticMode mode;
    sums = result.array_statistics;
    const int64_t end = std::min((chunk + 1) * chunk_size, size_);
    for (int64_t i = chunk * chunk_size; i < end; ++i) read(i, thread, sums);
    of_chunks[static_cast<size_t>(chunk)] = std::move(sums);
    mode.check();
  });
  const ArithmeticMode mode;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (const Part& part : parts) result.statistics[i].merge(part.statistics[i]);
    for (const ChunkStatistics& sums : of_chunks) result.array_statistics[i].merge(sums[i]);
  }
  if (progress) progress(size_);
  result.listing = digest_of_listing(*store_, contents);
  keep_contents(std::move(contents));
  return result;
}

ExampleCache::Contents ExampleCache::recall(std::vector<Digest> contents,
                                            std::vector<ChannelStatistics> statistics,
                                            std::function<void()> refuted) const {
  Contents result;
  result.statistics = std::move(statistics);
  result.array_statistics.resize(inputs_.size(), ArrayStatistics(0));
  result.listing = digest_of_listing(*store_, contents);
  recalled_ = true;
  refuted_ = std::move(refuted);
  keep_contents(std::move(contents));
  return result;
}

Digest listing_digest(const Datastore& store, ThreadPool& pool) {
  std::vector<Digest> contents(static_cast<size_t>(store.size()));
  pool.for_each(store.size(), [&](int64_t i, int) {
    contents[static_cast<size_t>(i)] = store.content_digest(i);
  });
  return digest_of_listing(store, contents);
}

}  // namespace lockstep
