#include "runtime/vision/shared_pictures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using Held = std::shared_ptr<const Medium>;

/// Counts how often it decodes.
class SharedPicturesTest : public ::testing::Test {
 protected:
  Held get(const std::string& file, const std::function<void()>& check_in = {}) {
    return shared_.get(std::as_bytes(std::span(file)), check_in, [this] { return decode(); });
  }
  Held decode() {
    ++num_decoded_;
    while (is_slow_) std::this_thread::yield();
    if (fails_.exchange(false)) throw Error(ErrorCode::kCancelled, "the call was cancelled");
    return std::make_shared<const Medium>();
  }

  SharedPictures shared_;
  std::atomic<int> num_decoded_ = 0;
  std::atomic<bool> is_slow_ = false;
  std::atomic<bool> fails_ = false;
};

TEST_F(SharedPicturesTest, AFileThatIsHeldIsNotDecodedAgain) {
  const Held first = get("a");
  for (int i = 0; i < 15; ++i) EXPECT_EQ(get("a"), first);
  EXPECT_EQ(num_decoded_, 1);
  EXPECT_NE(get("b"), first);
  EXPECT_EQ(num_decoded_, 2);
}

TEST_F(SharedPicturesTest, NothingIsKeptForItsOwnSake) {
  get("a");
  get("a");
  EXPECT_EQ(num_decoded_, 2);
}

TEST_F(SharedPicturesTest, RequestsAtOnceDecodeOnce) {
  is_slow_ = true;
  std::vector<Held> pictures(16);
  std::vector<std::thread> requests;
  std::atomic<int> num_looks = 0;
  for (Held& picture : pictures) requests.emplace_back([&] { picture = get("a", [&] { ++num_looks; }); });
  eventually([&] { return num_decoded_ == 1 && num_looks >= 100; }, "the others to wait");
  is_slow_ = false;
  for (std::thread& request : requests) request.join();
  EXPECT_EQ(num_decoded_, 1);
  for (const Held& picture : pictures) EXPECT_EQ(picture, pictures.front());
}

TEST_F(SharedPicturesTest, OneThatWaitsTakesOverFromOneThatFails) {
  is_slow_ = fails_ = true;
  std::thread failing([&] { EXPECT_THROW(get("a"), Error); });
  eventually([&] { return num_decoded_ == 1; }, "the first one to decode");
  std::atomic<int> num_looks = 0;
  Held picture;
  std::thread waiting([&] { picture = get("a", [&] { ++num_looks; }); });
  eventually([&] { return num_looks > 0; }, "the second one to wait");
  is_slow_ = false;
  failing.join();
  waiting.join();
  EXPECT_NE(picture, nullptr);
  EXPECT_EQ(num_decoded_, 2);
}

TEST_F(SharedPicturesTest, WhoeverIsUnwantedWaitsNoLonger) {
  is_slow_ = true;
  Held picture;
  std::thread decoding([&] { picture = get("a"); });
  eventually([&] { return num_decoded_ == 1; }, "the first one to decode");
  EXPECT_THROW(get("a", [] { throw Error(ErrorCode::kCancelled, "the call was cancelled"); }), Error);
  is_slow_ = false;
  decoding.join();
  EXPECT_NE(picture, nullptr);
}

}  // namespace
}  // namespace ferry
