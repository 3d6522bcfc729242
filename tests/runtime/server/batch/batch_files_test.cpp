#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "runtime/base/error.h"
#include "runtime/server/batch/batch_input.h"
#include "runtime/server/batch/batch_line.h"
#include "runtime/server/batch/batch_output.h"
#include "tests/support/temp_folder.h"

namespace ferry::batch {
namespace {

using nlohmann::json;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

BatchRequest request_of(const std::string& text) { return std::get<BatchRequest>(read_batch_line(text, 4, {})); }
BatchComplaint complaint_of(const std::string& text) { return std::get<BatchComplaint>(read_batch_line(text, 4, {})); }

TEST(BatchLine, IsOpenAis) {
  const BatchRequest request = request_of(
      R"({"custom_id":"a b","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"é","seed":18446744073709551615}})");
  EXPECT_EQ(request.line, 4);
  EXPECT_EQ(request.custom_id, "a b");
  EXPECT_EQ(request.url, "/v1/completions");
  EXPECT_EQ(request.body, R"({"model":"m","prompt":"é","seed":18446744073709551615})");
}

TEST(BatchLine, IsRefusedByWhatIsWrong) {
  const std::string begin = R"({"custom_id":"a","method":"POST","url":"/v1/completions",)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"custom_id":"a","url":"/v1/completions","body":{}})", "method is missing"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "method is \"GET\""},
      {R"({"custom_id":"a","method":"POST","body":{}})", "url is missing"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}})", "url is \"/v1/embeddings\""},
      {begin + R"("x":1})", "body is missing"},
      {begin + R"("body":[1]})", "body is [1]"},
      {begin + R"("body":{"stream":true}})", "body.stream is true"},
  };
  for (const auto& [text, message] : cases) {
    const BatchComplaint complaint = complaint_of(text);
    EXPECT_EQ(complaint.code, "invalid_request") << text;
    EXPECT_EQ(complaint.custom_id, "a");
    EXPECT_NE(complaint.message.find(message), std::string::npos) << complaint.message;
  }
  EXPECT_EQ(request_of(begin + R"("body":{"stream":false}})").custom_id, "a");
  for (const char* url : {"/v1/completions", "/v1/chat/completions", "/v1/responses"})
    EXPECT_EQ(request_of(std::string(R"({"custom_id":"a","method":"POST","body":{},"url":")") + url + "\"}").url, url);
  for (const std::string twice : {R"("body":{},"body":{}})", R"("body":{"seed":1,"seed":2}})"}) {
    EXPECT_EQ(complaint_of(begin + twice).code, "invalid_json_line");
    EXPECT_NE(complaint_of(begin + twice).message.find("twice"), std::string::npos) << complaint_of(begin + twice).message;
  }
  for (const char* id : {"", R"("custom_id":"",)", R"("custom_id":7,)", R"("custom_id":null,)"}) {
    const BatchComplaint complaint =
        complaint_of(std::string("{") + id + R"("method":"POST","url":"/v1/completions","body":{}})");
    EXPECT_EQ(complaint.custom_id, "");
    EXPECT_NE(complaint.message.find("custom_id"), std::string::npos);
  }
  for (const std::string text : {"", "{", "nope", "[1]", "7", "{\"custom_id\":\"\xff\"}"}) {
    EXPECT_EQ(complaint_of(text).line, 4) << text;
    EXPECT_EQ(complaint_of(std::string(200, '[')).code, "invalid_json_line");
  }
}

TEST(BatchLine, AnswersSayWhatTheyAnswer) {
  const BatchRequest request{.line = 3, .custom_id = "c", .url = "/v1/completions", .body = "{}"};
  const std::string line = answer_line(request, "r1", {.status = 400, .body = R"({"error":{"code":400}})"});
  const json answer = json::parse(line);
  EXPECT_EQ(answer["custom_id"], "c");
  EXPECT_EQ(answer["response"]["status_code"], 400);
  EXPECT_EQ(answer["response"]["request_id"], "r1");
  EXPECT_EQ(answer["response"]["body"]["error"]["code"], 400);
  EXPECT_TRUE(answer["error"].is_null());
  EXPECT_EQ(read_output_line(line, "x").custom_id, "c");
  EXPECT_TRUE(read_output_line(line, "x").is_failed);
  EXPECT_FALSE(read_output_line(answer_line(request, "r1", {.status = 200, .body = "{}"}), "x").is_failed);
  EXPECT_TRUE(may_begin_output_line(line));

  const std::string complained = complaint_line({.line = 9, .custom_id = "c", .code = "invalid_request", .message = "no\nurl"});
  EXPECT_EQ(complained.find('\n'), std::string::npos);
  EXPECT_EQ(json::parse(complained)["error"]["message"], "no\nurl");
  EXPECT_TRUE(json::parse(complained)["response"].is_null());
  EXPECT_EQ(read_output_line(complained, "x").line, 9);
  EXPECT_EQ(read_output_line(complained, "x").custom_id, "") << "the id may be another line's";
  EXPECT_TRUE(read_output_line(complained, "x").is_failed);
  EXPECT_TRUE(json::parse(complaint_line({.line = 9}))["custom_id"].is_null());

  for (const char* foreign : {"{}", "[]", "7", R"({"custom_id":"c"})", R"({"custom_id":"c","response":null})"})
    EXPECT_NE(error_of([&] { read_output_line(foreign, "out line 1"); }).find("out line 1 is "), std::string::npos) << foreign;
  EXPECT_TRUE(may_begin_output_line("{\"id\":\"ba"));
  EXPECT_FALSE(may_begin_output_line("{\"custom_id\""));
}

class BatchFilesTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
    return folder_.path() / name;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_.path() / name, std::ios::binary).rdbuf();
    return text.str();
  }
  std::filesystem::path out() const { return folder_.path() / "out"; }

  test::TempFolder folder_;
};

TEST_F(BatchFilesTest, InputIsReadLineByLine) {
  const std::string large(200'000, 'x');
  BatchInput input(write("in", "one\n\n  \r\n" + large + "\nthree\r\n" + std::string(300'001, 'y') + "\nlast"), 300'000);
  const auto first = input.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->text, "one");
  EXPECT_EQ(first->number, 1);
  EXPECT_EQ(first->end, 4);
  const auto second = input.next();
  EXPECT_EQ(second->text, large);
  EXPECT_EQ(second->number, 4);
  EXPECT_EQ(input.next()->text, "three\r");
  const auto too_long = input.next();
  EXPECT_TRUE(too_long->is_too_long);
  EXPECT_EQ(too_long->text, "");
  const auto last = input.next();
  EXPECT_EQ(last->text, "last");
  EXPECT_EQ(last->number, 7);
  EXPECT_EQ(last->end, input.bytes());
  EXPECT_FALSE(input.next());
  EXPECT_FALSE(BatchInput(write("empty", ""), 10).next());
  EXPECT_FALSE(BatchInput(write("blank", "\n \n\t"), 10).next());
}

TEST_F(BatchFilesTest, InputsThatAreNoneAreRefused) {
  EXPECT_NE(error_of([&] { BatchInput(folder_.path() / "no", 10); }).find("no cannot be read"), std::string::npos);
  EXPECT_NE(error_of([&] { BatchInput(folder_.path(), 10); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { BatchInput("/dev/zero", 10); }).find("not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder_.path() / "fifo").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { BatchInput(folder_.path() / "fifo", 10); }).find("not a regular file"), std::string::npos);
}

TEST_F(BatchFilesTest, OutputGoesOnBehindWhatItHas) {
  const BatchRequest request{.line = 1, .custom_id = "a", .url = "", .body = ""};
  BatchInput input(write("in", "x"), 10);
  {
    BatchOutput output(out(), input.fd());
    EXPECT_EQ(output.num_found(), 0);
    output.add(answer_line(request, "r", {.status = 200, .body = "{}"}));
    output.add(complaint_line({.line = 7}));
    EXPECT_NE(error_of([&] { BatchOutput(out(), input.fd()); }).find("being written"), std::string::npos);
    output.sync();
  }
  const std::string whole = read("out");
  for (const std::string& torn : {std::string("{"), std::string(R"({"id":"batch_req_12)"), whole.substr(0, whole.find('\n'))}) {
    write("out", whole + torn);
    BatchOutput output(out(), input.fd());
    EXPECT_EQ(output.num_found(), 2);
    EXPECT_EQ(output.num_failed(), 1);
    EXPECT_EQ(output.num_cut_bytes(), std::ssize(torn));
    EXPECT_TRUE(output.has_answer_to("a"));
    EXPECT_FALSE(output.has_answer_to("b"));
    EXPECT_TRUE(output.has_answer_to_line(7));
    EXPECT_FALSE(output.has_answer_to_line(1));
    EXPECT_EQ(read("out"), whole);
    output.add("{\"id\":\"more\"}");
    EXPECT_EQ(read("out"), whole + "{\"id\":\"more\"}\n");
  }
}

TEST_F(BatchFilesTest, FilesOfOthersAreLeftAsTheyAre) {
  BatchInput input(write("in", R"({"custom_id":"a"})"), 100);
  EXPECT_NE(error_of([&] { BatchOutput(folder_.path() / "in", input.fd()); }).find("file of the requests"), std::string::npos);
  for (const std::string text : {"hello", "hello\n", "{\"custom_id\":\"a\"}\n", "{\"custom_id\":\"a\"}", "\n"}) {
    write("out", text);
    EXPECT_NE(error_of([&] { BatchOutput(out(), input.fd()); }).find("out"), std::string::npos) << text;
    EXPECT_EQ(read("out"), text);
  }
  write("out", "");
  std::filesystem::resize_file(out(), uintmax_t{1} << 40);  // of which no more is read than may be ours
  EXPECT_NE(error_of([&] { BatchOutput(out(), input.fd()); }).find("number 1"), std::string::npos);
  EXPECT_NE(error_of([&] { BatchOutput(folder_.path(), input.fd()); }), "");
  EXPECT_NE(error_of([&] { BatchOutput("/dev/null", input.fd()); }).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace ferry::batch
