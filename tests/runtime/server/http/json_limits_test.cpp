#include "runtime/server/http/json_limits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

TEST(ModelJsonLimits, FollowTheOptions) {
  ServerLimits limits;
  limits.http_json_depth = 8;
  limits.http_json_values = 100;
  limits.http_body_bytes = 300;
  const auto parse = [&](const std::string& text) { return parse_json(text, "body", model_json_limits(limits)); };
  const auto refuse = [&](const std::string& text) {
    test::expect_error([&] { parse(text); }, ErrorCode::kInvalidArgument, {"body"});
  };
  EXPECT_TRUE(parse(nested(8)).is_array());
  refuse(nested(9));
  std::string many = "[0";
  for (int i = 1; i < 99; ++i) many += ",0";
  EXPECT_EQ(parse(many + "]").size(), 99U);
  refuse(many + ",0]");
  EXPECT_TRUE(parse("\"" + std::string(298, 'x') + "\"").is_string());
  refuse("\"" + std::string(299, 'x') + "\"");
  refuse("{\"a\": 1, \"a\": 2}");
}

TEST(ModelJsonLimits, DefaultsTakeAPromptOfTokensAndADeepSchema) {
  const JsonLimits limits = model_json_limits({});
  std::string prompt = "[0";
  for (int i = 1; i < 262'144; ++i) prompt += ",0";
  EXPECT_EQ(parse_json(prompt + "]", "body", limits).size(), 262'144U);
  EXPECT_TRUE(parse_json(nested(64), "body", limits).is_array());
}

}  // namespace
}  // namespace ferry
