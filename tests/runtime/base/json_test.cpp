#include "runtime/base/json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using nlohmann::json;

class JsonFileTest : public testing::Test {
 protected:
  JsonFileTest() {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~JsonFileTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path write(const std::string& content) {
    const std::filesystem::path path = dir_ / "file.json";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  const std::filesystem::path dir_ = std::filesystem::temp_directory_path() / ("ferry_json_test_" + std::to_string(::getpid()));
};

/// The code and message of the Error that `call` throws.
template <class Fn>
std::pair<ErrorCode, std::string> error_of(Fn&& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "no Error";
  return {};
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

TEST_F(JsonFileTest, ReadsWhatIsThere) {
  EXPECT_EQ(read_text_file(write("")), "");
  const std::string bytes("a\0b\xff\n", 5);
  EXPECT_EQ(read_text_file(write(bytes)), bytes);
  EXPECT_EQ(read_json_file(write(R"({"a": [1, "]]]", "\"[[["]})")), json({{"a", {1, "]]]", "\"[[["}}}));
}

TEST_F(JsonFileTest, RefusesWhatIsNoFile) {
  const auto [missing, why] = error_of([&] { read_text_file(dir_ / "missing"); });
  EXPECT_EQ(missing, ErrorCode::kNotFound);
  EXPECT_NE(why.find("missing"), std::string::npos);
  const std::filesystem::path fifo = dir_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {fifo, dir_, std::filesystem::path("/dev/zero")}) {
    const auto [code, message] = error_of([&] { read_text_file(path); });
    EXPECT_EQ(code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(message, path.string() + ": not a regular file");
  }
}

TEST_F(JsonFileTest, RefusesAFileOfGigabytesBeforeReadingIt) {
  const std::filesystem::path path = write("");
  std::filesystem::resize_file(path, std::uintmax_t{5} << 30);
  const auto [code, message] = error_of([&] { read_text_file(path); });
  EXPECT_EQ(code, ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("5368709120 bytes"), std::string::npos) << message;
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "nul", "\xff", "{\"a\":1} x", "1e999999", "\"\\"}) {
    for (const JsonLimits& limits : {JsonLimits{}, kNoDuplicates}) {
      const auto [code, message] = error_of([&] { parse_json(text, "f.json", limits); });
      EXPECT_EQ(code, ErrorCode::kInvalidArgument) << text;
      EXPECT_TRUE(message.starts_with("f.json: not valid JSON: ")) << message;
      EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    }
  }
}

TEST(ParseJson, RefusesDepth) {
  EXPECT_EQ(parse_json(nested(16), "f", kNoDuplicates).size(), 1U);
  EXPECT_EQ(parse_json("[" + nested(15) + "," + nested(15) + "]", "f", {}).size(), 2U);
  for (const int depth : {17, 100000}) {
    for (const std::string& text : {nested(depth), nested(depth).substr(0, static_cast<std::size_t>(depth))}) {
      const auto [code, message] = error_of([&] { parse_json(text, "f", {}); });
      EXPECT_EQ(code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(message, "f: JSON is nested deeper than 16");
    }
  }
  const std::string in_a_string = "[\"\\\\\\\"" + std::string(100, '[') + "\"]";
  EXPECT_EQ(parse_json(in_a_string, "f", {})[0].get<std::string>().size(), 102U);
}

TEST(ParseJson, RefusesBytesAndValuesBeyondTheLimits) {
  EXPECT_EQ(parse_json("[1,2,3]", "f", {.bytes = 7, .values = 4}).size(), 3U);
  EXPECT_EQ(error_of([&] { parse_json("[1,2,3]", "f", {.bytes = 6}); }).second, "f: JSON has 7 bytes; allowed: at most 6");
  for (const char* text : {"[1,2,3]", "[[[1]]]", R"({"a":1,"b":2,"c":3})"})
    EXPECT_EQ(error_of([&] { parse_json(text, "f", {.values = 3}); }).second, "f: JSON has more values than 3") << text;
  EXPECT_EQ(parse_json(R"([",,,,[[[["])", "f", {.values = 2}).size(), 1U);  // in a string they are text
}

TEST(ParseJson, MembersOfAnObjectHaveABoundWhereTheirOrderIsKept) {
  const JsonLimits limits{.members = 2};
  EXPECT_EQ(parse_ordered_json(R"({"b":[1,2,3,{"d":1,"c":2}],"a":"{,,,"})", "f", limits).dump(),
            R"({"b":[1,2,3,{"d":1,"c":2}],"a":"{,,,"})");
  for (const char* wide : {R"({"a":1,"b":2,"c":3})", R"([{"a":{"x":1,"y":2,"z":[]}}])"}) {
    const auto [code, message] = error_of([&] { parse_ordered_json(wide, "f", limits); });
    EXPECT_EQ(code, ErrorCode::kInvalidArgument) << wide;
    EXPECT_NE(message.find("more members than 2"), std::string::npos) << message;
  }
  EXPECT_EQ(error_of([&] { parse_ordered_json("]}{,", "f", limits); }).first, ErrorCode::kInvalidArgument);
}

TEST(ParseJson, KeysThatOccurTwice) {
  const char* text = R"({"b": {"a": 1}, "a": {"a": 1, "a": 2}})";
  EXPECT_EQ(parse_json(text, "f", {})["a"]["a"], 2);
  EXPECT_EQ(error_of([&] { parse_json(text, "f", kNoDuplicates); }).second, "f: key 'a' occurs twice");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": {"a": 1}}])", "f", kNoDuplicates));
}

TEST(ParseJson, ANulByteEndsNothing) {
  for (const std::string& text : {std::string("{}\0", 3), std::string("{}\0garbage", 10), std::string("[1,\0]", 5),
                                  std::string("[\"a\0b\"]", 7), std::string(1, '\0')})
    EXPECT_NE(error_of([&] { parse_json(text, "f", {}); }).second.find("f: JSON has a NUL byte at position "),
              std::string::npos);
  EXPECT_EQ(parse_json("[\"a\\u0000b\"]", "f", {})[0], std::string("a\0b", 3));
}

TEST(Shown, IsShortAndOnOneLine) {
  EXPECT_EQ(shown(json("a\nb")), R"("a\nb")");
  EXPECT_EQ(shown(json(std::string(200, 'x'))), "\"" + std::string(116, 'x') + "...");
  EXPECT_EQ(shown(json::array({1, {{"k", "v"}}, nullptr})), R"([1,{"k":"v"},null])");
  EXPECT_EQ(shown(json::array()), "[]");
  EXPECT_EQ(shown(json(std::vector<int>(1'000'000, 7))).size(), 120U);
  EXPECT_EQ(shown(json(std::string(115, 'x') + "\u00e4")), "\"" + std::string(115, 'x') + "\u00e4\"");
  EXPECT_EQ(shown(json(std::string(115, 'x') + "\u00e4\u00e4\u00e4")), "\"" + std::string(115, 'x') + "...");
  EXPECT_EQ(in_quotes(std::string(119, 'x') + "\u00e4"), "'" + std::string(119, 'x') + "…'");
  EXPECT_EQ(printable("a\u202eb\u2066c\u2028\u2030\u00e4"), "a\\u202eb\\u2066c\\u2028\u2030\u00e4");
  EXPECT_EQ(in_quotes("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(in_quotes(std::string(200, 'x')), "'" + std::string(120, 'x') + "…'");
}

}  // namespace
}  // namespace ferry
