#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/digit_strokes.h"

// Uses only + - * / and square roots of doubles, which IEEE 754 rounds equally on all machines. The
// build forbids contraction to fma (-ffp-contract=off).

namespace lockstep {
namespace {

using detail::DigitVariant;
using detail::StrokePoint;

constexpr int64_t digit_side = 28;  // pixels
constexpr int64_t per_class = 1000;
constexpr uint64_t seed = 1;  // seed of the only set of digits
constexpr double step = 1.5;  // distance of the points of a flattened stroke, in pixels

struct Vec {
  double x = 0, y = 0;
};
Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y}; }
Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y}; }
Vec operator*(double s, Vec a) { return {s * a.x, s * a.y}; }
double dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y; }

// Draws numbers from the stream of one image, one after the other. Blocks below `first` are
// reserved for the noise of the pixels.
class Draw {
 public:
  explicit Draw(int64_t index)
      : stream_({.seed = seed, .use = RandomUse::digits, .a = static_cast<uint64_t>(index)}) {}

  double uniform(double low, double high) { return low + (high - low) * unit(next()[0]); }
  // Bell-shaped with mean 0 and standard deviation 1, never beyond 3.5: a scaled sum of 4 uniform
  // numbers.
  double bell() {
    const std::array<uint32_t, 4> w = next();
    return 1.7320508075688772 * ((unit(w[0]) + unit(w[1])) + (unit(w[2]) + unit(w[3])) - 2);
  }
  uint64_t below(uint32_t n) { return (uint64_t{next()[0]} * n) >> 32; }
  const RandomStream& stream() const { return stream_; }

 private:
  static constexpr uint64_t first = 1024;
  static double unit(uint32_t bits) { return bits * 0x1p-32; }
  std::array<uint32_t, 4> next() { return stream_.block(first + position_++); }

  RandomStream stream_;
  uint64_t position_ = 0;
};

// The handwriting of one image: a smooth map from the coordinates in digit_strokes.cpp to pixels.
class Hand {
 public:
  explicit Hand(Draw& draw) {
    const double height = 19.0 + 1.6 * draw.bell();
    scale_y_ = std::clamp(height, 14.5, 23.0);
    scale_x_ = scale_y_ * std::clamp(1.0 + 0.13 * draw.bell(), 0.7, 1.35);
    slant_ = std::clamp(0.12 + 0.17 * draw.bell(), -0.3, 0.55);
    // Rotation from a rational point of the circle: t is the tangent of half the angle.
    const double t = std::clamp(0.05 * draw.bell(), -0.15, 0.15);
    const double one = 1 + t * t;
    cosine_ = (1 - t * t) / one;
    sine_ = 2 * t / one;
    center_ = {13.5 + std::clamp(1.0 * draw.bell(), -2.2, 2.2),
               13.5 + std::clamp(0.9 * draw.bell(), -2.0, 2.0)};
    for (double& bend : bends_) bend = 0.11 * draw.bell();
  }

  // Maps a point, in coordinates with the digit's center at 0 and its height 1, to pixels.
  Vec place(Vec p) const {
    // Smooth distortions of the whole digit: a wider top, a heavier foot, a bow.
    const double u = 2 * p.x, v = 2 * p.y;
    const Vec bent{p.x + 0.5 * (bends_[0] * u * v + bends_[1] * (v * v - 0.4)),
                   p.y + 0.5 * (bends_[2] * u * v + bends_[3] * (v * v - 0.4))};
    const double x = scale_x_ * bent.x - slant_ * scale_y_ * bent.y, y = scale_y_ * bent.y;
    return {center_.x + cosine_ * x - sine_ * y, center_.y + sine_ * x + cosine_ * y};
  }

 private:
  double scale_x_, scale_y_, slant_, cosine_, sine_;
  Vec center_;
  std::array<double, 4> bends_;
};

// The covered share of each pixel.
class Page {
 public:
  // `softness`: width of a stroke's edge from full to no cover, in pixels.
  explicit Page(double softness) : softness_(softness), sharpness_(1 / softness) { cover_.fill(0); }

  // Draws a part of a stroke from a to b, whose half width changes from `ra` to `rb`.
  void line(Vec a, Vec b, double ra, double rb) {
    const double reach = std::max(ra, rb) + 0.5 * softness_;
    const int64_t x0 = first_pixel(std::min(a.x, b.x) - reach);
    const int64_t x1 = last_pixel(std::max(a.x, b.x) + reach);
    const int64_t y0 = first_pixel(std::min(a.y, b.y) - reach);
    const int64_t y1 = last_pixel(std::max(a.y, b.y) + reach);
    const Vec along = b - a;
    const double length2 = dot(along, along);
    const Vec scaled = length2 > 0 ? (1 / length2) * along : Vec{};
    for (int64_t y = y0; y <= y1; ++y) {
      for (int64_t x = x0; x <= x1; ++x) {
        const Vec p = Vec{static_cast<double>(x), static_cast<double>(y)} - a;
        const double s = std::clamp(dot(p, scaled), 0.0, 1.0);
        const Vec off = p - s * along;
        const double distance2 = dot(off, off);
        if (distance2 >= reach * reach) continue;
        const double inside = ra + s * (rb - ra) - std::sqrt(distance2);
        double& cover = cover_[static_cast<size_t>(y * digit_side + x)];
        cover = std::max(cover, std::clamp(0.5 + inside * sharpness_, 0.0, 1.0));
      }
    }
  }

  const std::array<double, digit_side * digit_side>& cover() const { return cover_; }

 private:
  static int64_t first_pixel(double at) {
    return static_cast<int64_t>(std::ceil(std::clamp(at, 0.0, 1.0 * digit_side)));
  }
  static int64_t last_pixel(double at) {
    return static_cast<int64_t>(std::floor(std::clamp(at, -1.0, digit_side - 1.0)));
  }

  double softness_, sharpness_;
  std::array<double, digit_side * digit_side> cover_;
};

const DigitVariant& choose_variant(int digit, Draw& draw) {
  const auto variants = detail::digit_variants(digit);
  uint32_t total = 0;
  for (const DigitVariant& v : variants) total += v.weight;
  uint64_t pick = draw.below(total);
  for (const DigitVariant& v : variants) {
    if (pick < v.weight) return v;
    pick -= v.weight;
  }
  throw InternalError("[digits] no variant was chosen");
}

// Returns a point on the Catmull-Rom curve from b (t = 0) to c (t = 1).
Vec curve(Vec a, Vec b, Vec c, Vec d, double t) {
  const Vec linear = c - a;
  const Vec square = 2 * a - 5 * b + 4 * c - d;
  const Vec cube = 3 * (b - c) + d - a;
  return b + (0.5 * t) * (linear + t * (square + t * cube));
}

// The pen's half width, which changes along the digit.
struct Pen {
  double radius = 1;
  double begin = 0, end = 0;  // relative change over the digit

  double at(double progress) const { return radius * (1 + begin + (end - begin) * progress); }
};

// Draws one stroke through `points`, in which corners occur twice. `from` and `to` are its start
// and end as shares of the digit.
void draw_stroke(Page& page, const std::vector<Vec>& points, const Pen& pen, double from,
                 double to) {
  const size_t n = points.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    const Vec b = points[i], c = points[i + 1];
    const Vec a = i > 0 ? points[i - 1] : b, d = i + 2 < n ? points[i + 2] : c;
    const Vec chord = c - b;
    const double length = std::sqrt(dot(chord, chord));
    if (length == 0) continue;  // a corner
    const auto parts = static_cast<int64_t>(std::ceil(length / step));
    const double begin = from + (to - from) * static_cast<double>(i) / static_cast<double>(n);
    const double share = (to - from) / static_cast<double>(n);
    Vec last = b;
    double last_radius = pen.at(begin);
    for (int64_t k = 1; k <= parts; ++k) {
      const double t = static_cast<double>(k) / static_cast<double>(parts);
      const Vec next = curve(a, b, c, d, t);
      const double radius = pen.at(begin + share * t);
      page.line(last, next, last_radius, radius);
      last = next;
      last_radius = radius;
    }
  }
}

void draw_strokes(Page& page, const DigitVariant& variant, Draw& draw, const Hand& hand,
                  const Pen& pen) {
  const double wobble = draw.uniform(0.014, 0.036);  // share of the height
  const auto total = static_cast<double>(variant.points.size());
  std::vector<Vec> points;
  size_t done = 0;
  // Displaces strokes after the first one slightly.
  Vec lift{};
  for (size_t i = 0; i < variant.points.size(); ++i) {
    const StrokePoint& point = variant.points[i];
    const Vec written{0.01 * (point.x - 32) + lift.x + wobble * draw.bell(),
                      0.01 * (point.y - 50) + lift.y + wobble * draw.bell()};
    points.push_back(hand.place(written));
    if (point.kind == StrokePoint::corner) points.push_back(points.back());
    if (point.kind != StrokePoint::end) continue;
    draw_stroke(page, points, pen, static_cast<double>(done) / total,
                static_cast<double>(i + 1) / total);
    done = i + 1;
    points.clear();
    lift = {0.025 * draw.bell(), 0.02 * draw.bell()};
  }
}

Image draw_digit(int64_t index) {
  Draw draw(index);
  const DigitVariant& variant = choose_variant(static_cast<int>(index / per_class), draw);
  const Hand hand(draw);
  Pen pen;
  pen.radius = std::clamp(1.15 + 0.28 * draw.bell(), 0.6, 2.0);
  pen.begin = 0.13 * draw.bell();
  pen.end = 0.13 * draw.bell();
  Page page(draw.uniform(0.9, 1.7));
  draw_strokes(page, variant, draw, hand, pen);
  const double ink = draw.uniform(190, 255);
  // Noise: the sum of 4 random bytes for each pixel, with a standard deviation of 147.8.
  const double grain = draw.uniform(1, 9) / 147.8;
  Image image{digit_side, digit_side, 1,
              std::vector<uint8_t>(static_cast<size_t>(digit_side * digit_side))};
  for (size_t i = 0; i < image.pixels.size(); i += 4) {
    const std::array<uint32_t, 4> words = draw.stream().block(i / 4);
    for (size_t k = 0; k < 4; ++k) {
      const uint32_t w = words[k];
      const auto sum = static_cast<int>((w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24));
      const double value = ink * page.cover()[i + k] + grain * (sum - 510);
      image.pixels[i + k] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
    }
  }
  return image;
}

class BuiltinDigits final : public Datastore {
 public:
  BuiltinDigits() {
    for (char c = '0'; c <= '9'; ++c) classes_.emplace_back(1, c);
  }

  int64_t size() const override { return 10 * per_class; }
  Example read(int64_t index) const override {
    Image image = draw_digit(check(index));
    const Digest content = digest_of_image(image);
    return one_input(std::move(image), ClassLabel{label(index)}, content);
  }
  int64_t label(int64_t index) const override { return check(index) / per_class; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override {
    const std::string number = std::to_string(check(index) % per_class);
    return classes_[static_cast<size_t>(index / per_class)] + '/' +
           std::string(3 - number.size(), '0') + number + ".png";
  }
  std::string describe() const override { return "built-in digits"; }

 private:
  int64_t check(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                            " among " + std::to_string(size()) + " (" + describe() + ")");
    }
    return index;
  }

  std::vector<std::string> classes_;
};

}  // namespace

DatastorePtr builtin_digits() { return std::make_shared<BuiltinDigits>(); }

void export_as_folder(const Datastore& store, const std::string& folder) {
  FileSystem& files = local_files();
  const std::vector<int64_t> counts = count_each_label(store);
  std::vector<size_t> widths;
  std::vector<int64_t> next(counts.size(), 0);
  for (size_t c = 0; c < counts.size(); ++c) {
    widths.push_back(std::to_string(std::max<int64_t>(counts[c] - 1, 0)).size());
    make_folders(files, join_path(folder, store.classes()[c]));
  }
  for (int64_t i = 0; i < store.size(); ++i) {
    const auto label = static_cast<size_t>(store.label(i));
    const std::string number = std::to_string(next[label]++);
    const std::string path = join_path(join_path(folder, store.classes()[label]),
                                       std::string(widths[label] - number.size(), '0') + number) +
                             ".png";
    files.open(path, false)->append(encode_png(read_image(store, i)));
  }
}

}  // namespace lockstep
