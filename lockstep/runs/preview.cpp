#include "lockstep/runs/preview.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/batches/mini_batch_rows.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/pixel_labels.h"
#include "lockstep/runs/job_plan.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {
namespace {

constexpr int64_t kGap = 4;         // pixels between images of the sheet
constexpr int64_t kBetween = 16;    // and between different images next to each other
constexpr int64_t kLeastSide = 96;  // smaller images are enlarged up to this
constexpr uint8_t kBackground = 255;

// The layout of a sheet.
class Sheet {
 public:
  // `channels`: of what is put.
  Sheet(const CachedValue& value, int64_t channels, const PreviewOptions& options)
      : channels_(channels),
        height_(value.height()),
        width_(value.width()),
        factor_(std::max<int64_t>(1, kLeastSide / std::max(height_, width_))),
        draws_(options.epochs + 1) {
    const int64_t rows = options.rows * (height_ * factor_ + kGap) + kGap;
    const int64_t columns =
        options.columns * (draws_ * (width_ * factor_ + kGap) + kBetween) - kBetween + kGap;
    if (rows > max_image_side || columns > max_image_side) {
      throw InvalidArgument("[preview] the sheet would have " + std::to_string(rows) + " x " +
                                std::to_string(columns) + " pixels",
                            "sides must be at most " + std::to_string(max_image_side) +
                                ": choose fewer rows, columns or epochs");
    }
    image_ = {rows, columns, channels_,
              std::vector<uint8_t>(static_cast<size_t>(rows * columns * channels_), kBackground)};
  }

  // Draw number `draw` (0: without changes) of the image in a row and column, plane by plane.
  void put(int64_t row, int64_t column, int64_t draw, const uint8_t* planes) {
    const int64_t top = kGap + row * (height_ * factor_ + kGap);
    const int64_t left = kGap + column * (draws_ * (width_ * factor_ + kGap) + kBetween) +
                         draw * (width_ * factor_ + kGap);
    for (int64_t y = 0; y < height_ * factor_; ++y) {
      uint8_t* to = image_.pixels.data() + ((top + y) * image_.width + left) * channels_;
      for (int64_t x = 0; x < width_ * factor_; ++x) {
        const int64_t from = (y / factor_) * width_ + x / factor_;
        for (int64_t c = 0; c < channels_; ++c) *to++ = planes[c * height_ * width_ + from];
      }
    }
  }
  Image take() { return std::move(image_); }

 private:
  const int64_t channels_, height_, width_, factor_, draws_;
  Image image_;
};

// Images under the colors of the classes of their pixels.
class ClassColors {
 public:
  ClassColors(const CachedValue& image, const PixelClasses& classes)
      : channels_(image.channels()),
        pixels_(static_cast<size_t>(image.height() * image.width())),
        colors_(shown_colors(classes)) {}

  // Three planes, half of each pixel the color of its class. `labels`: numbers of classes, all
  // others have none. Valid until the next call.
  template <class Label>
  const uint8_t* shown(const uint8_t* planes, const Label* labels) {
    shown_.resize(3 * pixels_);
    for (size_t p = 0; p < pixels_; ++p) {
      const int64_t label = labels[p];
      const bool known = label >= 0 && label + 1 < std::ssize(colors_);
      const std::array<uint8_t, 3>& color =
          known ? colors_[static_cast<size_t>(label)] : colors_.back();
      for (size_t c = 0; c < 3; ++c) {
        const uint8_t value = planes[(channels_ == 3 ? c * pixels_ : 0) + p];
        shown_[c * pixels_ + p] = static_cast<uint8_t>((value + color[c]) / 2);
      }
    }
    return shown_.data();
  }

 private:
  const int64_t channels_;
  const size_t pixels_;
  const Palette colors_;
  std::vector<uint8_t> shown_;
};

void require_at_least(int64_t value, int64_t least, const char* name) {
  if (value >= least) return;
  throw InvalidArgument("[preview] " + std::string(name) + " is " + std::to_string(value) +
                        ", but must be at least " + std::to_string(least));
}

size_t image_input(const ExampleCache& cache, const Datastore& data) {
  for (size_t k = 0; k < cache.inputs().size(); ++k) {
    if (cache.inputs()[k].kind == ValueKind::image) return k;
  }
  throw InvalidArgument(
      "[preview] a preview shows images, but " + data.describe() + " has " + examples_word(data),
      "lockstep train JOB --check tells what was read of them");
}

}  // namespace

Preview preview_of(const Job& job, const PreviewOptions& options) {
  require_at_least(options.rows, 1, "rows");
  require_at_least(options.columns, 1, "columns");
  require_at_least(options.epochs, 0, "epochs");
  const Network network = build_network(job);
  const RunData opened = open_run_data(job);
  const TrainingData data = training_data_of(job, opened);
  check_changes(data);
  TrainingOptions training = job.training.resolved();
  training.data.cache_mib = 0;  // each image is read only some times
  const TrainingImages images = open_images(network, data, training);
  const ExampleCache& cache = *images.training;
  const size_t input = image_input(cache, *data.training);
  MiniBatchQueueOptions queue = mini_batches_of(data, training);
  queue.targets = images.targets;
  MiniBatchRows::check(cache, queue);
  const MiniBatchRows rows(cache, queue);

  MiniBatch batch;
  batch.observations = epoch_order(cache.size(), queue.shuffle, queue.seed, 0);
  const auto most = static_cast<size_t>(options.rows * options.columns);
  if (batch.observations.size() > most) batch.observations.resize(most);
  PreviewOptions shown = options;
  shown.rows = std::min(options.rows, (batch.size() + options.columns - 1) / options.columns);
  const CachedValue& value = cache.inputs()[input];
  const CachedValue* const target = cache.target();
  const bool masks = target != nullptr && target->pixel_labels() &&
                     target->elements() == value.height() * value.width();
  Sheet sheet(value, masks ? 3 : value.channels(), shown);
  ClassColors colors(value, job.data.pixel_classes);
  std::vector<uint8_t> scratch;
  Preview preview;
  const bool labels =
      learns_labels(*data.training, data.training_targets) && !has_pixel_labels(*data.training);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const int64_t observation = batch.observations[static_cast<size_t>(i)];
    const auto label = static_cast<size_t>(cache.label(observation));
    preview.images.push_back({data.training->name(observation),
                              labels ? data.training->classes().at(label) : std::string()});
    const uint8_t* const example = cache.get(observation, scratch);
    const uint8_t* const planes = example + value.offset;
    sheet.put(i / options.columns, i % options.columns, 0,
              masks ? colors.shown(planes, example + target->offset) : planes);
  }
  for (batch.epoch = 0; batch.epoch < options.epochs; ++batch.epoch) {
    rows.begin(batch);
    for (int64_t i = 0; i < batch.size(); ++i) {
      rows.label(batch, i);
      rows.make(batch, i, scratch);
    }
    if (rows.mixes()) rows.mix(batch, {IndexRange{0, batch.size()}});
    const RowArray& array = batch.arrays[input];
    for (int64_t i = 0; i < batch.size(); ++i) {
      const auto* const planes = reinterpret_cast<const uint8_t*>(array.bytes.data()) +
                                 static_cast<size_t>(i) * array.row_bytes();
      const int32_t* const classes =
          masks ? batch.labels().data() + i * target->elements() : nullptr;
      sheet.put(i / options.columns, i % options.columns, batch.epoch + 1,
                masks ? colors.shown(planes, classes) : planes);
    }
  }
  preview.sheet = sheet.take();
  return preview;
}

}  // namespace lockstep
