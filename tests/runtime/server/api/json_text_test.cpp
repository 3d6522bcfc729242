#include "runtime/server/api/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/server/api/answer.h"

namespace ferry::api {
namespace {

TEST(JsonText, PutsCommasWhereTheyBelong) {
  JsonText json;
  json.begin_object().member("a", 1).member("b", nullptr).key("c").begin_array().end_array();
  json.key("d").begin_array().null().begin_object().end_object();
  write_token_ids(std::vector<TokenId>{3, 4}, json);
  json.end_array();
  json.key("e").begin_object().member("f", {{"g", "h"}}).end_object().member("i", true).end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":null,"c":[],"d":[null,{},[3,4]],"e":{"f":{"g":"h"}},"i":true})");
}

TEST(JsonText, EscapesAsTheTreesTextDoes) {
  std::string all;
  for (char c = 1; c < 127; ++c) all += c;
  all += "\x7f" + std::string(1, '\0') + "é☃𝄞";
  JsonText json;
  json.begin_object().key(all).string(all).end_object();
  EXPECT_EQ(json.take(), dump({{all, all}}));
}

TEST(JsonText, NumbersAreReadBackAsTheyWere) {
  for (const double number : {0.0, -0.0, 1.0, -9999.0, -12.345678901234567, 1e-7, -1e300, 5e-324, 0.1, 1e22,
                              static_cast<double>(-0.7F), std::numeric_limits<double>::max()}) {
    JsonText json;
    json.number(number);
    const std::string text = json.take();
    const ordered_json read = ordered_json::parse(text);
    EXPECT_TRUE(read.is_number_float()) << text;
    EXPECT_EQ(read.get<double>(), number) << text;
    EXPECT_EQ(std::signbit(read.get<double>()), std::signbit(number)) << text;
  }
}

}  // namespace
}  // namespace ferry::api
