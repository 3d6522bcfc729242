#include "runtime/server/message_media.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "runtime/server/generate_request.h"
#include "runtime/server/prompt_pools.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/scripted_server.h"
#include "tests/runtime/vision/png_file.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

using test::bytes_of;
using test::drawn_picture;
using test::expect_error;
using test::png_of;

const std::filesystem::path& demo() {
  static const std::filesystem::path folder = test::source_folder() / "launch" / "demo";
  return folder;
}

/// Tokens are bytes, but for the demo's own of pictures.
class MediaEngineClient : public test::FakeEngineClient {
 public:
  explicit MediaEngineClient(MediumReader::Limits limits = {}, int64_t max_open_bytes = 1 << 30)
      : intake_(config(), &tokenizer(), limits, max_open_bytes) {}

  static const VisionConfig& config() {
    static const VisionConfig loaded = load_vision_config(demo()).value();
    return loaded;
  }
  std::vector<TokenId> encode_text(std::string_view text, const std::function<void()>&) const override {
    return tokenizer().encode(text);
  }
  std::vector<TokenId> encode_chat(const ChatInput& chat, const std::function<void()>&) const override {
    std::string text;
    for (const auto& message : chat.messages)
      text += message.at("role").get<std::string>() + ":" + message.at("content").get<std::string>() + ";";
    rendered_ = text;
    return tokenizer().encode(text);
  }
  const MediaIntake& media() const override { return intake_; }

  const std::string& rendered() const { return rendered_; }

 private:
  MediaIntake intake_;
  mutable std::string rendered_;
};

constexpr const char* kImage = "<|vision_start|><|image_pad|><|vision_end|>";
constexpr const char* kVideo = "<|vision_start|><|video_pad|><|vision_end|>";

std::string file_of(int64_t shift) { return png_of(drawn_picture(128, 128, shift)); }

v1::ChatMessage& add_message(v1::GenerateRequest& request) {
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  return message;
}
void add_text(v1::ChatMessage& message, const std::string& text) { message.add_parts()->set_text(text); }
void add_picture(v1::ChatMessage& message, const std::string& file) { message.add_parts()->mutable_picture()->set_data(file); }
void fill_video(v1::Part& part, int num_frames) {
  for (int i = 0; i < num_frames; ++i) part.mutable_video()->add_frames()->set_data(file_of(i));
}

MediaPrompt make_prompt(
    const EngineClient& engine, const v1::GenerateRequest& request, const ServerLimits& limits = {},
    const std::function<void()>& check_in = [] {}) {
  check_bounds(request, limits);
  return prompt_of(engine, request, {.limits = limits, .check_in = check_in, .deadline = {}});
}

void refuse(const v1::GenerateRequest& request, const std::vector<std::string>& parts, const ServerLimits& limits = {}) {
  expect_error([&] { check_bounds(request, limits); }, ErrorCode::kInvalidArgument, parts);
}

TEST(MessageMedia, PartsKeepTheirOrder) {
  v1::GenerateRequest request;
  v1::ChatMessage& first = add_message(request);
  add_text(first, "look: ");
  add_picture(first, file_of(1));
  add_text(first, " and ");
  fill_video(*first.add_parts(), 4);
  add_picture(first, file_of(2));
  add_message(request).set_content("plain");
  add_picture(add_message(request), file_of(3));
  const MediaEngineClient engine;
  const MediaPrompt prompt = make_prompt(engine, request);
  EXPECT_EQ(std::string("user:look: ") + kImage + " and " + kVideo + kImage + ";user:plain;user:" + kImage + ";",
            engine.rendered());
  ASSERT_EQ(4U, prompt.media->media.size());
  for (const auto& [medium, shift] : {std::pair<std::size_t, int64_t>{0, 1}, {2, 2}, {3, 3}})
    EXPECT_EQ(drawn_picture(128, 128, shift).rgb, prompt.media->media[medium]->frames[0].rgb) << medium;
  EXPECT_EQ(Medium::Kind::kVideo, prompt.media->media[1]->kind);
  std::vector<std::size_t> order;
  for (const MediaSpan& span : prompt.media->spans) order.push_back(span.medium);
  EXPECT_EQ((std::vector<std::size_t>{0, 1, 1, 2, 3}), order);
}

TEST(MessageMedia, StandBesideTextAndIds) {
  const MediaEngineClient engine;
  v1::GenerateRequest request;
  request.set_text(std::string("a ") + kImage);
  request.add_media()->mutable_picture()->set_data(file_of(1));
  EXPECT_EQ(1U, make_prompt(engine, request).media->spans.size());
  const VisionTokens& tokens = MediaEngineClient::config().tokens;
  for (const TokenId id : {tokens.image, tokens.video}) request.mutable_token_ids()->add_ids(id);
  fill_video(*request.add_media(), 2);
  const MediaPrompt prompt = make_prompt(engine, request);
  ASSERT_EQ(2U, prompt.media->spans.size());
  EXPECT_EQ(1U, prompt.media->spans[1].medium);
  request.mutable_token_ids()->add_ids(tokens.image);
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument, {"2 places for pictures", "allowed: 1"});
}

TEST(MessageMedia, TextThatLooksLikeAPictureIsNone) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_text(message, kImage);
  add_picture(message, file_of(1));
  expect_error([&] { make_prompt(MediaEngineClient(), request); }, ErrorCode::kInvalidArgument,
               {"2 places for pictures", "allowed: 1"});
}

TEST(MessageMedia, DataUrlsAreRead) {
  v1::GenerateRequest request;
  // A PNG of one red pixel.
  add_message(request).add_parts()->mutable_picture()->set_url(
      "data:image/png;base64,"
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC");
  const MediaPrompt prompt = make_prompt(MediaEngineClient(), request);
  const Picture& red = prompt.media->media.at(0)->frames.at(0);
  EXPECT_EQ(128, red.width);
  EXPECT_EQ((std::vector<uint8_t>{255, 0, 0}), (std::vector<uint8_t>(red.rgb.end() - 3, red.rgb.end())));
  request.mutable_chat()->mutable_messages(0)->mutable_parts(0)->mutable_picture()->set_url("data:image/png;base64,!");
  expect_error([&] { make_prompt(MediaEngineClient(), request); }, ErrorCode::kInvalidArgument, {"picture 1"});
}

TEST(MessageMedia, FilesHaveTheReadersLimits) {
  const MediaEngineClient engine({.picture = {.max_bytes = 60}});
  v1::GenerateRequest request;
  v1::Picture& picture = *add_message(request).add_parts()->mutable_picture();
  picture.set_data(std::string(61, 'x'));
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument,
               {"picture 1", "more than 60 bytes", "at most 60"});
  picture.set_url("data:;base64," + std::string(84, 'A'));
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument, {"picture 1", "60"});
}

TEST(MessageMedia, MessagesCountPicturesAndVideosApart) {
  const MediaEngineClient engine;
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_picture(message, file_of(1));
  fill_video(*message.add_parts(), 3);
  message.mutable_parts(1)->mutable_video()->mutable_frames(2)->set_data("broken");
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument, {"video 1, frame 2: "});
  add_picture(message, "broken");
  message.mutable_parts()->DeleteSubrange(1, 1);
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument, {"picture 2: "});
}

TEST(MessageMedia, TheRateOfAVideoIsTaken) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(MediaEngineClient::config().tokens.video);
  fill_video(*request.add_media(), 9);
  request.mutable_media(0)->mutable_video()->set_fps(4.0);
  const MediaEngineClient engine;
  EXPECT_EQ(4U, make_prompt(engine, request).media->media[0]->frames.size());
  request.mutable_media(0)->mutable_video()->clear_fps();
  EXPECT_EQ(9U, make_prompt(engine, request).media->media[0]->frames.size());
  request.mutable_media(0)->mutable_video()->set_fps(0.0);
  expect_error([&] { make_prompt(engine, request); }, ErrorCode::kInvalidArgument,
               {"video 1: fps is '0'; allowed: 0.001 to 1000000"});
}

TEST(MessageMedia, AVideoWithoutFramesIsToldTheServersRange) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(MediaEngineClient::config().tokens.video);
  request.add_media()->mutable_video();
  const MediaEngineClient engine;
  ServerLimits limits;
  limits.video_frames = 7;
  expect_error([&] { make_prompt(engine, request, limits); }, ErrorCode::kInvalidArgument,
               {"video 1: it has 0 frames; allowed: 2 to 7"});
}

TEST(MessageMediaDeathTest, FilesAreReadWithALookAtTheCall) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  const MediaEngineClient engine;
  EXPECT_EQ(1U, make_prompt(engine, request, {}, {}).ids.size()) << "ids need none";
  request.add_media()->mutable_picture()->set_data(file_of(1));
  EXPECT_DEATH(make_prompt(engine, request, {}, {}), "looking after the call");
}

TEST(MessageMedia, OtherHostsNeedTheServersLeave) {
  v1::GenerateRequest request;
  v1::Picture& picture = *add_message(request).add_parts()->mutable_picture();
  picture.set_url("https://pictures.example/a.png");
  expect_error([&] { make_prompt(MediaEngineClient(), request); }, ErrorCode::kInvalidArgument,
               {"picture 1", "another host", "--allow-remote-images"});
  ServerLimits limits;
  limits.picture_hosts = {"other.example"};
  expect_error([&] { make_prompt(MediaEngineClient(), request, limits); }, ErrorCode::kInvalidArgument,
               {"picture 1", "pictures.example"});
  picture.set_url("file:///etc/passwd");
  expect_error([&] { make_prompt(MediaEngineClient(), request, limits); }, ErrorCode::kInvalidArgument, {"picture 1"});
}

TEST(MessageMedia, WhatCheckInThrowsEndsIt) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_picture(message, file_of(1));
  fill_video(*message.add_parts(), 4);
  for (int num_calls = 0; num_calls < 6; ++num_calls) {  // each picture, video and frame
    int count = 0;
    const auto check_in = [&] {
      if (count++ == num_calls) throw Error(ErrorCode::kCancelled, "the caller left");
    };
    expect_error([&] { make_prompt(MediaEngineClient(), request, {}, check_in); }, ErrorCode::kCancelled, {"the caller left"});
    EXPECT_EQ(num_calls + 1, count);
  }
}

TEST(MessageMedia, FetchesOfARequestHaveOneTime) {
  const std::string file = file_of(1);
  ManualClock clock;
  std::atomic<int> num_asked = 0;
  const test::ScriptedServer server([&](test::ScriptedConnection& connection, const std::string&) {
    if (++num_asked > 2) return connection.wait();  // all time is over, so the fetch ends
    clock.advance(std::chrono::minutes(20));
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(file.size()) + "\r\n\r\n" + file);
  });
  ServerLimits limits;
  limits.picture_hosts = {"127.0.0.1:" + std::to_string(server.port())};
  limits.picture_fetch_s = 30 * 60;
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  for (int i = 0; i < 9; ++i)
    message.add_parts()->mutable_picture()->set_url("http://" + limits.picture_hosts.front() + "/" + std::to_string(i));
  const FetchTrust trust{.may_connect = [](const sockaddr*) { return true; }, .authorities = {}};
  const PromptTask task{
      .limits = limits, .check_in = [] {}, .deadline = {}, .trust = trust, .connect_timeout = kTestLimit, .clock = clock};
  expect_error([&] { prompt_of(MediaEngineClient(), request, task); }, ErrorCode::kUnavailable,
               {"did not come within", "--picture-fetch-seconds", "together"});
  EXPECT_GE(server.num_connections(), 2);
  EXPECT_LE(server.num_connections(), 3);
}

TEST(MessageMedia, CopiesOfOnePictureAreOneMedium) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  for (int i = 0; i < 16; ++i) add_picture(message, file_of(1));
  const MediaEngineClient engine({}, 128 * 128 * 3);  // there is room for one
  const MediaPrompt prompt = make_prompt(engine, request);
  ASSERT_EQ(16U, prompt.media->media.size());
  for (const auto& medium : prompt.media->media) EXPECT_EQ(prompt.media->media.front(), medium);
}

TEST(MessageMedia, TheStepOfARequestIsWhereItsFilesAre) {
  ServerLimits limits;
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_picture(message, file_of(1));
  fill_video(*message.add_parts(), 2);
  message.mutable_parts(1)->mutable_video()->mutable_frames(1)->set_url("https://a.example/1.png");
  const auto step = [&] { return step_of_media(urls_of_media(request), limits); };
  EXPECT_EQ(step().work, PromptWork::kMedia) << "nothing is fetched";
  limits.picture_hosts = {"a.example"};
  EXPECT_EQ(step().work, PromptWork::kFetch);
  EXPECT_EQ(step().hosts, limits.picture_hosts);
  message.mutable_parts()->RemoveLast();
  EXPECT_EQ(step().work, PromptWork::kMedia);
}

/// A request for one picture, which is at `url`.
v1::GenerateRequest picture_at(const std::string& url) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(MediaEngineClient::config().tokens.image);
  request.add_media()->mutable_picture()->set_url(url);
  return request;
}

TEST(MessageMedia, ADataPictureIsReadWhileFetchesHang) {
  const test::ScriptedServer silent([](test::ScriptedConnection& connection, const std::string&) { connection.wait(); });
  ServerLimits limits;
  limits.picture_hosts = {"127.0.0.1:" + std::to_string(silent.port())};
  limits.picture_fetch_s = std::chrono::duration<double>(kTestLimit).count();
  const MediaEngineClient engine;
  std::atomic<bool> is_over = false;
  const PromptTask task{.limits = limits,
                        .check_in =
                            [&] {
                              if (is_over) throw Error(ErrorCode::kCancelled, "the test is over");
                            },
                        .deadline = {},
                        .trust = {.may_connect = [](const sockaddr*) { return true; }, .authorities = {}},
                        .connect_timeout = kTestLimit};
  EngineLoad load;
  load.max_running_requests = 8;
  load.max_waiting_requests = 100;
  std::atomic<int> num_begun = 0, num_ended = 0;
  {
    PromptPools pools(load, limits);
    const auto begin = [&](const v1::GenerateRequest& request, const std::function<void()>& on_end) {
      return pools.try_run(step_of_media(urls_of_media(request), limits), [&, request, on_end] {
        ++num_begun;
        try {
          prompt_of(engine, request, task);
        } catch (const Error& error) {
          EXPECT_EQ(ErrorCode::kCancelled, error.code()) << error.what();
        }
        on_end();
      });
    };
    const v1::GenerateRequest hanging = picture_at("http://" + limits.picture_hosts.front() + "/a.png");
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(begin(hanging, [&] { ++num_ended; }));
    eventually([&] { return num_begun == 3 && silent.num_connections() > 0; }, "fetches to hang");
    std::promise<void> is_read;
    ASSERT_TRUE(
        begin(picture_at("data:image/png;base64,"
                         "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"),
              [&] { is_read.set_value(); }));
    EXPECT_EQ(std::future_status::ready, is_read.get_future().wait_for(kTestLimit));
    EXPECT_EQ(0, num_ended) << "the fetches still hang";
    is_over = true;
  }
  EXPECT_EQ(40, num_ended);
}

TEST(MessageMedia, NeedATower) {
  v1::GenerateRequest request;
  add_picture(add_message(request), file_of(1));
  expect_error([&] { make_prompt(test::FakeEngineClient(), request); }, ErrorCode::kFailedPrecondition, {"there is no tower"});
}

TEST(CheckMedia, ContentAndPartsExcludeEachOther) {
  v1::GenerateRequest request;
  add_message(request).set_content("plain");
  v1::ChatMessage& message = add_message(request);
  message.set_content("a");
  add_text(message, "b");
  refuse(request, {"chat.messages[1]", "content and parts", "one of them"});
}

TEST(CheckMedia, PartsHoldSomething) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_text(message, "a");
  v1::Part& part = *message.add_parts();
  refuse(request, {"chat.messages[0].parts[1] is empty", "text, picture or video"});
  part.mutable_picture();
  refuse(request, {"chat.messages[0].parts[1].picture has neither data nor a url"});
  part.mutable_picture()->set_data("");
  refuse(request, {"chat.messages[0].parts[1].picture has neither"});
  part.mutable_picture()->set_url("");
  refuse(request, {"chat.messages[0].parts[1].picture has neither"});
  part.mutable_video()->add_frames()->set_data("x");
  check_media(request, {});
  part.mutable_video()->add_frames();
  refuse(request, {"chat.messages[0].parts[1].video.frames[1] has neither"});
}

TEST(CheckMedia, MediaIsOfTextAndIds) {
  v1::GenerateRequest request;
  request.set_text("a");
  request.add_media()->mutable_picture()->set_data("x");
  check_media(request, {});
  request.add_media()->set_text("b");
  refuse(request, {"media[1] is text", "picture or video"});
  request.mutable_media(1)->Clear();
  refuse(request, {"media[1] is empty"});
  request.mutable_media(1)->mutable_picture()->set_url("y");
  check_media(request, {});
  request.mutable_chat();
  refuse(request, {"media is given beside chat"});
}

TEST(CheckMedia, CountsPicturesAndFrames) {
  ServerLimits limits;
  limits.pictures = 3;
  limits.video_frames = 5;
  v1::GenerateRequest request;
  for (int i = 0; i < 2; ++i) {
    v1::ChatMessage& message = add_message(request);
    add_text(message, "text is none");
    v1::Part& part = *message.add_parts();
    for (int f = 0; f < 2 + i; ++f) part.mutable_video()->add_frames()->set_data("x");
  }
  add_picture(add_message(request), "x");
  check_bounds(request, limits);
  limits.video_frames = 4;
  refuse(request, {"5 frames of videos", "at most 4"}, limits);
  limits.video_frames = 5;
  add_picture(add_message(request), "x");
  refuse(request, {"4 pictures and videos", "at most 3"}, limits);
  limits.pictures = 0;
  refuse(request, {"1 pictures and videos", "at most 0"}, limits);
}

TEST(CheckMedia, TextPartsAreBytesOfThePrompt) {
  ServerLimits limits;
  limits.prompt_bytes = 20;
  v1::GenerateRequest request;
  v1::ChatMessage& message = add_message(request);
  add_text(message, std::string(8, 'a'));
  add_picture(message, file_of(1));
  add_text(message, std::string(8, 'b'));
  check_bounds(request, limits);
  add_text(message, "c");
  refuse(request, {"chat has 21 bytes", "at most 20"}, limits);
}

}  // namespace
}  // namespace ferry
