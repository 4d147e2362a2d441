// A cache of decoded examples within a memory budget.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/batches/statistics.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/ops/labels.h"

namespace lockstep {

class SharedMemory;
class ThreadPool;
struct SharedRange;
struct Window;  // data/datastores/datastores.h

// The image sizes that an ExampleCache accepts.
enum class CachedImages {
  exact,     // images of the cache's size
  windowed,  // images of at least that size; get() returns a window of the cache's size
  resized,   // images of any size; get() returns a region, resized to the cache's size
};

// How a cache returns an input or the target of an example: u8 for images, channel by channel, and
// f32 for arrays.
struct CachedValue {
  std::string name;  // see MiniBatch::arrays; unused for the target
  ValueKind kind = ValueKind::image;
  Shape shape;                   // channels x rows x columns for images; of sequences of a step
  size_t from = 0;               // number of the example's input; of the target: how many inputs
  size_t offset = 0, bytes = 0;  // within an example of the cache; of sequences bytes of a step
  bool sequence = false;         // see ExampleCache::steps_in()
  size_t number = 0;             // among the sequences of an example
  DType type = DType::f32;       // of arrays; of images i32: label images

  bool pixel_labels() const { return kind == ValueKind::image && type == DType::i32; }
  // How the values lie in the cache.
  DType dtype() const { return kind == ValueKind::image ? DType::u8 : type; }
  int64_t elements() const { return shape.elements(); }
  // For arrays, the number of channels is dimension 0, the height is 1, and the width is the number
  // of elements per channel. Integers have no channels.
  int64_t channels() const { return dtype() == DType::i32 ? 0 : shape.rank() == 0 ? 1 : shape[0]; }
  int64_t height() const { return kind == ValueKind::image ? shape[1] : 1; }
  int64_t width() const {
    if (kind == ValueKind::image) return shape[2];
    return shape.rank() == 0 ? 1 : shape.elements() / shape[0];
  }
};

// What a cache returns of the examples of its datastore.
struct CachedShapes {
  // For each input of the network: channels x rows x columns of an image (1 or 3 channels), or the
  // shape of an array.
  std::vector<Shape> inputs;
  std::optional<Shape> target = {};  // of targets; nothing: the cache leaves them out
  // For each of `inputs`, the number of the example's input; empty: in order.
  std::vector<size_t> from = {};
  // For each of `inputs`, the name of its array in mini-batches; empty: those of the data's inputs.
  std::vector<std::string> names = {};
};

// Examples of one datastore, decoded on first use, with images of one size for each input. The
// cache keeps as many as the budget allows: the first ones of the listing, or for windowed images
// and sequences the first ones that were read, whole. All others are decoded each time. The budget
// affects the speed only, never the results. All const members are thread-safe. A hit takes no
// lock.
class ExampleCache {
 public:
  // The system provides the memory of the budget as the cache fills. Throws InvalidArgument for an
  // invalid size, for shapes that do not fit the datastore's arrays, and for windowed images of
  // different sizes in one example.
  ExampleCache(DatastorePtr store, const CachedShapes& shapes, size_t budget_bytes,
               CachedImages images = CachedImages::exact);
  // One image of height x width x channels bytes (channels 1 or 3). Throws Unsupported for arrays.
  ExampleCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
               size_t budget_bytes, CachedImages images = CachedImages::exact);
  // One array with at least one dimension, or a sequence with steps of this shape.
  ExampleCache(DatastorePtr store, const Shape& shape, size_t budget_bytes);
  ~ExampleCache();
  ExampleCache(const ExampleCache&) = delete;
  ExampleCache& operator=(const ExampleCache&) = delete;

  int64_t size() const { return size_; }
  // The inputs in the network's order.
  const std::vector<CachedValue>& inputs() const { return inputs_; }
  // The type of each input.
  std::vector<DType> input_types() const;
  bool has_images() const;  // among the inputs
  // Null if examples have class labels.
  const CachedValue* target() const { return target_ ? &*target_ : nullptr; }
  // Distance of consecutive examples in memory, in bytes.
  size_t example_bytes() const { return example_bytes_; }
  CachedImages images() const { return images_; }
  // Number of examples that the budget can hold if all have one size, otherwise 0.
  int64_t capacity() const { return capacity_; }
  // The largest amount of memory that the cache takes, in bytes.
  size_t reserved_bytes() const { return reserved_bytes_; }
  const DatastorePtr& store() const { return store_; }
  int64_t label(int64_t index) const { return store_->label(index); }
  // Digest of an example's contents, after fill().
  const Digest& content(int64_t index) const { return contents_.at(static_cast<size_t>(index)); }

  // Returns the decoded example: each input and the target at its offset, floats aligned as floats.
  // The pointer is into the cache, or into `scratch` if the example is not cached. Gray and color
  // are converted as in convert_channels(). Of larger images, returns the center. Throws DataError
  // if the file cannot be decoded or has another size (with its name, its size and the expected
  // size), and InvalidArgument for an index outside the listing.
  const uint8_t* get(int64_t index, std::vector<uint8_t>& scratch) const;
  // The same for any window. `whole`, if not null, receives the rows and columns of the whole
  // images.
  const uint8_t* get(int64_t index, const Window& where, std::vector<uint8_t>& scratch,
                     Size2d* whole = nullptr) const;

  // The steps of a sequence, each of CachedValue::bytes, aligned as floats.
  struct Steps {
    const uint8_t* data = nullptr;
    int64_t count = 0;
  };
  // Those of a value of an example that get() has returned; valid as long as that.
  Steps steps_in(const CachedValue& value, const uint8_t* example) const;
  // The number of steps of an example's input (of its target, if `input` is the number of inputs),
  // which must be a sequence. Reads the example if its datastore does not know the number, which is
  // then kept.
  int64_t steps(int64_t index, size_t input) const;

  // Tells the datastore which examples will be read next, without those that are cached.
  void expect(const std::vector<int64_t>& indices) const;
  // Whether all examples are cached. Once they are, they stay.
  bool filled() const;

  // Moves the cache's memory into an arena, where other processes with the same datastore can use
  // it. Must be called before anything is read. Returns the range for attach(). Windowed images
  // and sequences share only the digests, which detect changes, and numbers of steps. If a process
  // ends while it fills a slot, the example of that slot is never cached.
  SharedRange share(SharedMemory& arena) const;
  // Uses the memory of another process's cache of the same datastore and size, after its fill().
  // Does nothing for an empty range. Throws InvalidArgument for another size.
  void attach(const SharedMemory& arena, const SharedRange& range) const;

  // Results of one pass over all examples.
  struct Contents {
    Digest listing;  // equal to listing_digest()
    // For each input: statistics of images, or of arrays; the other one has a count of 0.
    std::vector<ChannelStatistics> statistics;
    std::vector<ArrayStatistics> array_statistics;
    // The statistics of each input, for set_input_normalization().
    std::vector<std::vector<ChannelSummary>> channels() const;
  };
  // Reads and decodes every example once, caches as many as the budget allows, and returns the
  // listing's digest and the statistics. The calling thread calls `progress`, if given, from time
  // to time with the number of finished examples, and at the end with all. Throws DataError for the
  // invalid example with the lowest index.
  Contents fill(ThreadPool& pool, const std::function<void(int64_t)>& progress = {}) const;

  // What fill() found, for reading_record.h.
  const std::vector<Digest>& contents() const { return contents_; }
  // Takes what fill() found in an earlier process, instead of reading. Examples are then read when
  // they are needed. If one has other contents than those, reading it throws DataError, after a
  // call of `refuted`. `statistics` are those of fill(); returns what fill() would.
  Contents recall(std::vector<Digest> contents, std::vector<ChannelStatistics> statistics,
                  std::function<void()> refuted) const;
  // Whether this or another process has called recall() for this memory.
  bool recalled() const { return recalled_; }
  // Calls `refuted` of recall(), if this process has called it: another process may have found
  // other contents.
  void refute() const;

 private:
  enum State : uint8_t { empty, busy, ready };
  // Whether examples are kept one by one because their sizes differ.
  bool differ() const { return images_ != CachedImages::exact || sequences_ > 0; }
  // Whole images, planar, and arrays, for each input and then the target.
  struct Whole {
    int64_t height = 0, width = 0;
    std::vector<std::vector<uint8_t>> values;
    size_t bytes() const;
  };

  void place_values(const CachedShapes& shapes);
  void place_value(CachedValue& value, const ValueSpec& spec, const std::string& what);
  void make_slots(size_t budget_bytes);
  // The number of inputs and targets; each of them.
  size_t values() const { return inputs_.size() + (target_ ? 1 : 0); }
  const CachedValue& value_at(size_t i) const { return i < inputs_.size() ? inputs_[i] : *target_; }
  size_t digests_offset() const;
  size_t steps_offset() const;
  size_t slots_offset() const;
  void use(const std::shared_ptr<std::byte[]>& region) const;
  void check_index(int64_t index) const;
  // Stores the digest of the contents read in `content`. If `content` is null, throws DataError
  // unless the digest equals that of the first reading.
  void take_content(int64_t index, const Digest& read, Digest* content) const;
  std::string named(int64_t index) const;
  // Reads an example and checks it. Images have the cache's channels afterwards.
  Example load(int64_t index, Digest* content) const;
  void check_value(int64_t index, const CachedValue& value, Example& example) const;
  void check_array(int64_t index, const CachedValue& value, const Example& example) const;
  // Where the number of steps of a sequence is kept; 0: not known.
  std::atomic<int64_t>& kept_steps(const CachedValue& value, int64_t index) const;
  // Keeps it. Throws DataError for another number than before.
  void keep_steps(const CachedValue& value, int64_t index, int64_t steps) const;
  // Writes a loaded example of exact size.
  void write(const Example& example, uint8_t* to) const;
  // Caches a loaded example if it has a slot that no thread fills. Returns its address there, or in
  // `scratch`.
  const uint8_t* keep(int64_t index, const Example& example, std::vector<uint8_t>& scratch) const;
  // The same for examples that differ, within the budget, unless another thread was first. `own` is
  // the memory of an example that is not kept.
  const Whole* keep_whole(int64_t index, const Example& example, Whole& own) const;
  // Keeps the digests of all contents, also for other processes.
  void keep_contents(std::vector<Digest> contents) const;
  void cut(const Whole& whole, const Window& where, std::vector<uint8_t>& scratch) const;

  DatastorePtr store_;
  int64_t size_ = 0;
  std::vector<CachedValue> inputs_;
  std::optional<CachedValue> target_;
  size_t example_bytes_ = 0;
  mutable int64_t capacity_ = 0;  // number of slots; in an arena, that of the arena
  CachedImages images_ = CachedImages::exact;
  size_t reserved_bytes_ = 0;
  // Slots and their states, in this process's memory or in an arena.
  mutable std::unique_ptr<uint8_t[]> own_slots_;
  mutable std::unique_ptr<std::atomic<uint8_t>[]> own_states_;
  mutable std::shared_ptr<std::byte[]> shared_;
  mutable uint8_t* slots_ = nullptr;                // capacity_ x example_bytes_, uninitialized
  mutable std::atomic<uint8_t>* states_ = nullptr;  // State of each slot
  size_t sequences_ = 0;                            // number of values that are sequences
  // Steps of the sequences of each example, in this process's memory or in an arena.
  mutable std::unique_ptr<std::atomic<int64_t>[]> own_steps_;
  mutable std::atomic<int64_t>* steps_ = nullptr;        // size_ x sequences_; 0: not known
  std::unique_ptr<std::atomic<const Whole*>[]> wholes_;  // by example; only if they differ
  mutable std::atomic<size_t> taken_bytes_{0};           // bytes of the examples in wholes_
  // Digest of each example, set by fill(). An example that is read again must not have changed.
  mutable std::vector<Digest> contents_;
  mutable bool recalled_ = false;
  mutable std::function<void()> refuted_;   // of recall() in this process
  mutable std::atomic<int64_t> filled_{0};  // number of cached examples, from the first on
};

// What a pixel is as a target: 0 to 1.
inline float target_of(uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; }

// What a pixel of a label image is as a label.
inline int32_t label_of_pixel(uint8_t pixel) {
  return pixel == ignored_pixel ? kIgnoredLabel : int32_t{pixel};
}

// The targets of a cache's examples: their own ones, or the first inputs of another cache.
struct CachedTargets {
  const ExampleCache* cache = nullptr;  // null: class labels
  const CachedValue* value = nullptr;

  explicit operator bool() const { return cache != nullptr; }
  // The number of steps of an example's target, which must be a sequence (ExampleCache::steps()).
  int64_t steps(int64_t index) const {
    return cache->steps(index, value == cache->target() ? cache->inputs().size() : 0);
  }
};

// `targets`: the other cache, or null. Throws InvalidArgument if the examples have
// targets already.
CachedTargets targets_of(const ExampleCache& examples, const ExampleCache* targets);

// Copies steps of `bytes` bytes each to a row with room for `room` of them, at least as many, and
// zeros after them.
void copy_steps(const ExampleCache::Steps& steps, size_t bytes, int64_t room, void* row);

// Returns the digest of a listing: its classes, and the name, label and content digest of every
// observation in order. Reads every file. Does not depend on the number of threads. Throws
// DataError.
Digest listing_digest(const Datastore& store, ThreadPool& pool);

}  // namespace lockstep
