#include "runtime/schedule/request.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Request, FinishReasonsHaveTheApisNames) {
  EXPECT_STREQ(finish_reason_name(FinishReason::kNone), "");
  EXPECT_STREQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_STREQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_STREQ(finish_reason_name(FinishReason::kAborted), "abort");
  EXPECT_STREQ(finish_reason_name(FinishReason::kDeadline), "deadline");
  EXPECT_STREQ(finish_reason_name(FinishReason::kError), "error");
}

}  // namespace
}  // namespace ferry
