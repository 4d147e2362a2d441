#include "lockstep/report/tensorboard/confusion_image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace lockstep {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr Color white{255, 255, 255}, black{32, 32, 32};
constexpr Color blue{31, 99, 170}, orange{214, 96, 20};

// Digits of 3 x 5 pixels: a row has three bits, the left one first.
constexpr std::array<std::array<uint8_t, 5>, 10> digit_rows{{{7, 5, 5, 5, 7},
                                                             {2, 6, 2, 2, 7},
                                                             {7, 1, 7, 4, 7},
                                                             {7, 1, 7, 1, 7},
                                                             {5, 5, 7, 1, 1},
                                                             {7, 4, 7, 1, 7},
                                                             {7, 4, 7, 5, 7},
                                                             {7, 1, 1, 2, 2},
                                                             {7, 5, 7, 5, 7},
                                                             {7, 5, 7, 1, 7}}};

void fill(Image& image, int64_t top, int64_t left, int64_t height, int64_t width, Color color) {
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + height, image.height); ++y) {
    for (int64_t x = std::max<int64_t>(left, 0); x < std::min(left + width, image.width); ++x) {
      std::copy(color.begin(), color.end(), image.pixels.begin() + (y * image.width + x) * 3);
    }
  }
}

// Draws a number in the middle of a rectangle, in the largest size that fits; nothing if none does.
void draw_number(Image& image, int64_t top, int64_t left, int64_t height, int64_t width,
                 int64_t number, Color color) {
  const std::string digits = std::to_string(number);
  const auto columns = static_cast<int64_t>(digits.size()) * 4 - 1;
  const int64_t scale = std::min<int64_t>({2, (width - 2) / columns, (height - 2) / 5});
  if (scale < 1) return;
  const int64_t x = left + (width - columns * scale) / 2, y = top + (height - 5 * scale) / 2;
  for (size_t i = 0; i < digits.size(); ++i) {
    const auto& rows = digit_rows.at(static_cast<size_t>(digits[i] - '0'));
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t column = 0; column < 3; ++column) {
        if ((rows[static_cast<size_t>(row)] >> (2 - column) & 1) == 0) continue;
        fill(image, y + row * scale, x + (static_cast<int64_t>(i) * 4 + column) * scale, scale,
             scale, color);
      }
    }
  }
}

int64_t cell_size(int64_t classes) {
  if (classes <= 12) return 44;
  if (classes <= 28) return 32;
  return std::clamp<int64_t>(1200 / std::max<int64_t>(classes, 1), 1, 32);
}

}  // namespace

Image confusion_image(const ConfusionMatrix& matrix) {
  const std::vector<int64_t> shown = matrix.worst_classes(most_confusion_classes);
  const auto classes = static_cast<int64_t>(shown.size());
  const int64_t cell = cell_size(classes), margin = cell >= 12 ? 24 : 1;
  const int64_t side = margin + classes * cell + 1;
  Image image{side, side, 3, std::vector<uint8_t>(static_cast<size_t>(side * side * 3), 255)};
  const int64_t gap = cell >= 12 ? 1 : 0;
  for (int64_t row = 0; row < classes; ++row) {
    const int64_t top = margin + row * cell;
    if (margin > 1) {
      draw_number(image, top, 0, cell, margin, row, black);
      draw_number(image, 0, top, margin, cell, row, black);
    }
    const int64_t of_row = shown[static_cast<size_t>(row)];
    const int64_t observed = matrix.of_class(of_row).observed;
    for (int64_t column = 0; column < classes; ++column) {
      const int64_t count = matrix.count(of_row, shown[static_cast<size_t>(column)]);
      const int64_t left = margin + column * cell;
      const double share =
          observed > 0 ? static_cast<double>(count) / static_cast<double>(observed) : 0;
      const Color full = row == column ? blue : orange;
      Color color;
      for (size_t c = 0; c < 3; ++c) {
        // A single error of many stays visible.
        const double depth = count == 0 ? 0.02 : 0.12 + 0.88 * share;
        color[c] = static_cast<uint8_t>(std::lround(255 + (full[c] - 255.0) * depth));
      }
      fill(image, top, left, cell - gap, cell - gap, color);
      if (count > 0) {
        draw_number(image, top, left, cell - gap, cell - gap, count, share > 0.45 ? white : black);
      }
    }
  }
  return image;
}

}  // namespace lockstep
