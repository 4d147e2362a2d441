#include "lockstep/base/numeric/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/dtype.h"

namespace lockstep {
namespace {

TEST(Shape, CountsElementsAndDimensions) {
  const Shape images{128, 3, 32, 33};
  EXPECT_EQ(images.rank(), 4);
  EXPECT_EQ(images.elements(), 128 * 3 * 32 * 33);
  EXPECT_EQ(images[1], 3);
  EXPECT_EQ(images[-1], 33);
  EXPECT_EQ(images[-4], 128);
  EXPECT_EQ(images.to_string(), "128x3x32x33");
}

TEST(Shape, WithoutDimensionsIsAScalar) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().to_string(), "scalar");
  EXPECT_THROW(Shape().with_batch(2), InvalidArgument);
  EXPECT_THROW(Shape().without_batch(), InvalidArgument);
}

TEST(Shape, ReplacesAndDropsTheBatch) {
  const Shape images{128, 3, 32, 32};
  EXPECT_EQ(images.with_batch(7), (Shape{7, 3, 32, 32}));
  EXPECT_EQ(images.with_batch(7).elements(), 7 * 3 * 32 * 32);
  EXPECT_EQ(images.without_batch(), (Shape{3, 32, 32}));
  EXPECT_EQ(Shape{0}.elements(), 0);
}

TEST(Shape, OfABatchHasTheObservationsFirst) {
  EXPECT_EQ(batch_shape(128, {3, 32, 33}), (Shape{128, 3, 32, 33}));
  EXPECT_EQ(batch_shape(7, {}), Shape{7});
  EXPECT_EQ(batch_shape(0, {3, 2}), (Shape{0, 3, 2}));
  EXPECT_EQ(batch_shape(0, {}).elements(), 0);
  EXPECT_EQ(batch_shape(2, {0}), (Shape{2, 0}));
  EXPECT_EQ(batch_shape(2, {3, 4, 5, 6, 7}), (Shape{2, 3, 4, 5, 6, 7}));  // more than kShort
  EXPECT_EQ(batch_shape(5, {3, 2}).without_batch(), (Shape{3, 2}));
  EXPECT_THROW(batch_shape(-1, {3, 2}), InvalidArgument);
  EXPECT_THROW(batch_shape(std::numeric_limits<int64_t>::max(), {2}), InvalidArgument);
}

TEST(Shape, RefusesWhatCannotBe) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW((Shape{3, -1}), InvalidArgument);
  EXPECT_THROW((Shape{huge, 2}), InvalidArgument);
  EXPECT_EQ((Shape{int64_t{1} << 29, 1 << 30}).elements(), int64_t{1} << 59);
  EXPECT_THROW((Shape{(int64_t{1} << 59) + 1}), InvalidArgument);
  EXPECT_THROW((Shape{3, 4}[2]), InvalidArgument);
  EXPECT_THROW((Shape{3, 4}[-3]), InvalidArgument);
}

TEST(Shape, IsMadeFromListsOfAllKinds) {
  const std::vector<int64_t> dims{2, 3, 4};
  const Shape shape{2, 3, 4};
  EXPECT_EQ(Shape(dims), shape);
  EXPECT_EQ(Shape(shape.dims()), shape);
  EXPECT_EQ(Shape({dims.begin(), dims.end()}), shape);
  EXPECT_EQ(Shape({dims.data(), dims.data() + 3}), shape);
  EXPECT_EQ(Shape(std::span(dims).first(2)), (Shape{2, 3}));
}

TEST(Shape, KeepsDimensionsOfAnyNumber) {
  std::vector<int64_t> dims;
  for (int64_t d = 1; d < 12; ++d) {
    dims.push_back(d);
    const Shape shape(dims);
    Shape copy = shape, assigned{3, 4};
    assigned = copy;
    const Shape moved = std::move(copy);
    for (const Shape* const same : std::initializer_list<const Shape*>{&shape, &assigned, &moved}) {
      EXPECT_EQ(std::vector<int64_t>(same->dims()), dims);
      EXPECT_EQ(*same, shape);
      EXPECT_EQ(same->dims().back(), d);
    }
    assigned = assigned.with_batch(2);
    EXPECT_EQ(assigned == shape, false);
    EXPECT_EQ(shape < assigned, true);
    EXPECT_EQ(assigned.without_batch(), shape.without_batch());
    const Shape* const self = &assigned;
    assigned = *self;
    EXPECT_EQ(assigned[-1], dims.size() == 1 ? 2 : d);
  }
}

TEST(DType, KnowsItsSizeAndName) {
  EXPECT_EQ(size_of(DType::f32), sizeof(float));
  EXPECT_EQ(size_of(DTypeOf<int64_t>::value), 8u);
  EXPECT_EQ(size_of(DTypeOf<int32_t>::value), 4u);
  EXPECT_EQ(size_of(DType::u8), 1u);
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DTypeOf<uint8_t>::value), "u8");
}

TEST(Error, CarriesItsHintApart) {
  const FileError error("[file] cannot read x", "look elsewhere");
  EXPECT_STREQ(error.what(), "[file] cannot read x");
  EXPECT_EQ(error.hint(), "look elsewhere");
  EXPECT_THROW(throw error, DataError);
}

}  // namespace
}  // namespace lockstep
