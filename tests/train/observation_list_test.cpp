#include "lockstep/train/input/observation_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

// Digits with other names.
class Named final : public DatastoreWrapper {
 public:
  Named(DatastorePtr store, std::vector<std::string> names)
      : DatastoreWrapper(std::move(store)), names_(std::move(names)) {}
  std::string name(int64_t index) const override { return names_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::string> names_;
};

ObservationList list_of(std::vector<int64_t> digits, std::vector<std::string> names) {
  const ExampleCache cache(std::make_shared<Named>(subset(builtin_digits(), digits), names), 28, 28,
                           1, /*budget_bytes=*/0);
  ThreadPool pool(2);
  cache.fill(pool);
  ObservationList list;
  list.add(cache);
  return list;
}

TEST(ObservationList, ReportsChanges) {
  const auto before = list_of({1, 2, 3, 4}, {"a", "b", "c", "d"});
  EXPECT_EQ(before.changes_to(before), "");
  EXPECT_EQ(before.changes_to(list_of({4, 3, 2, 1}, {"d", "c", "b", "a"})),
            "");  // in another order
  EXPECT_EQ(before.changes_to(list_of({1, 2, 3, 5}, {"a", "b", "c", "d"})), "1 changed (d)");
  EXPECT_EQ(before.changes_to(list_of({1, 2, 3, 4, 4}, {"a", "b", "c", "d", "e"})), "1 added (e)");
  EXPECT_EQ(before.changes_to(list_of({1, 2}, {"a", "b"})), "2 removed (such as c)");
  EXPECT_EQ(before.changes_to(list_of({1, 9, 9, 3}, {"a", "b", "c", "x"})),
            "2 changed (such as b), 1 added (x) and 1 removed (d)");
  // Two observations with the same name.
  const auto twins = list_of({1, 2}, {"a", "a"});
  EXPECT_EQ(twins.changes_to(list_of({1, 3}, {"a", "a"})), "1 changed (a)");
  EXPECT_EQ(twins.changes_to(list_of({2}, {"a"})), "1 removed (a)");
}

TEST(ObservationList, ComesBackFromItsFileWhateverTheNames) {
  const std::string path = ::testing::TempDir() + "/observations-" + std::to_string(getpid());
  const auto before = list_of({1, 2, 3}, {"a b\n", "\xff\x1b", ""});
  before.write(local_files(), path);
  const auto back = ObservationList::read(local_files(), path);
  EXPECT_FALSE(back.empty());
  EXPECT_EQ(before.changes_to(back), "");
  EXPECT_EQ(back.changes_to(list_of({1, 2, 4}, {"a b\n", "\xff\x1b", ""})), "1 changed ()");
  const std::string text = read_text(local_files(), path);
  for (const std::string& damaged :
       {std::string(), std::string("x"), text.substr(0, text.size() - 1), text + "more",
        "other" + text}) {
    write_atomically(local_files(), path, damaged);
    EXPECT_TRUE(ObservationList::read(local_files(), path).empty());
  }
  local_files().remove(path);
  EXPECT_TRUE(ObservationList::read(local_files(), path).empty());
}

}  // namespace
}  // namespace lockstep
