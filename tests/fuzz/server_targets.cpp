#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ferry/v1/experts.pb.h"
#include "ferry/v1/inference.pb.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/grammar/grammar_engine.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/server/generate_request.h"
#include "runtime/server/http/guard.h"
#include "runtime/server/http/request_head.h"
#include "runtime/server/parsed_bytes.h"
#include "runtime/server/picture_address.h"
#include "runtime/server/profile_request.h"
#include "runtime/server/trace_folder.h"
#include "runtime/server/vllm/engine_request.h"
#include "runtime/server/vllm/inference_request.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/unicode_text.h"
#include "runtime/worker_record.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/fuzz/small_tokenizer.h"
#include "tests/fuzz/targets.h"

// What clients of `ferry serve` send, behind the libraries that speak HTTP and gRPC.

namespace ferry::fuzz {
namespace {

const HttpRouter& small_router() {
  static const HttpRouter router = [] {
    HttpRouter made;
    made.add("POST", "/do", {.handler = {}, .blocking = [](const HttpRequest&) { return HttpResponse{}; }});
    made.add("GET", "/health", {.handler = {}, .blocking = {}, .guard = HttpGuard::kOpen});
    return made;
  }();
  return router;
}

/// Tokenizes, and takes nothing.
class TextEngineClient final : public EngineClient {
 public:
  PromptBounds prompt_bounds() const override { return {.max_tokens = 4096, .max_bytes = 8192}; }
  std::vector<TokenId> encode_text(std::string_view text, const std::function<void()>&) const override {
    return small_tokenizer().encode(text);
  }
  std::vector<TokenId> encode_chat(const ChatInput& input, const std::function<void()>&) const override {
    static const ChatTemplate chat = ChatTemplate::parse(
        R"({%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{{- m.content }}{{- '<|im_end|>\n' }}{%- endfor %})"
        R"({%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{%- endif %})");
    return small_tokenizer().encode(chat.render(input));
  }
  const Tokenizer& tokenizer() const override { return small_tokenizer(); }
  GrammarEngine& grammars() override {
    static GrammarEngine grammars(small_tokenizer(), {});
    return grammars;
  }
  const MediaIntake& media() const override {
    static const VisionConfig config{.plan = {.merge_size = 2},
                                     .tokens = {.image = 5, .video = 6, .vision_start = 7, .vision_end = 8}};
    static const MediaIntake intake(config, &small_tokenizer(),
                                    {.picture = {.max_bytes = 1 << 16, .max_pixels = 1 << 14}, .max_tokens = 64}, 1 << 24);
    return intake;
  }
  RequestNumber submit(Request, EventSink) override { throw Error(ErrorCode::kUnavailable, "nothing is served"); }
  bool abort(RequestNumber) override { return false; }
  bool abort(const std::string&, const std::string&) override { return false; }
  EngineLoad load() const override {
    EngineLoad load;
    load.max_running_requests = 16;
    return load;
  }
  std::optional<Error> failure() const override { return std::nullopt; }
  WorkerReport workers() const override { return {}; }
  const ExpertRecord& experts() const override { throw Error(ErrorCode::kUnavailable, "nothing is served"); }
  const ModelInfo& model_info() const override {
    static const ModelInfo info;
    return info;
  }
  uint32_t set_placement(const GivenPlacement&, uint32_t, const std::function<bool()>&) override {
    throw Error(ErrorCode::kUnavailable, "nothing is served");
  }
};

/// What answers to a request have to do: texts that may end at its stop strings.
void answer(const Request& request) {
  Detokenizer detokenizer(small_tokenizer(), request.sampling.stop, SpecialTokens::kSkip);
  std::string text;
  for (const TokenId token : request.prompt) {
    if (detokenizer.stopped()) break;
    text += detokenizer.push(token);
  }
  text += detokenizer.finish();
  FERRY_CHECK(is_utf8(text));
  for (const std::string& stop : request.sampling.stop) FERRY_CHECK(text.find(stop) == std::string::npos);
}

/// What is told of a message's size before it is parsed is not far below what it takes then, in however many pieces it comes.
template <class Message>
void count_and_parse(Input bytes) {
  constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();
  constexpr int64_t kSlack = 256;  // bytes, of small messages
  static const ParsedBytes parsed_bytes(*Message::descriptor());
  const auto count = [&](int64_t most, int piece) {
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), piece);
    return parsed_bytes.count(stream, most);
  };
  const int64_t num_bytes = count(kNoBound, -1);
  FERRY_CHECK_EQ(count(kNoBound, 3), num_bytes);
  FERRY_CHECK_EQ(count(num_bytes, -1), num_bytes);
  FERRY_CHECK_GE(count(num_bytes - 1, 3), num_bytes);
  Message message;
  const bool is_message = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  FERRY_CHECK_LE(static_cast<int64_t>(message.SpaceUsedLong()), 2 * num_bytes + kSlack) << (is_message ? "" : " of no message");
}

}  // namespace

/// A head that reaches a guarded route has one Host and one idea of where its body ends; a gate with keys lets through no more.
void judge_http_head(Input input) {
  static const ServerLimits limits;
  static const Access open, keyed{.keys = ApiKeys({"open-sesame"}), .tls = {}, .allowed_hosts = {"ferry.example"}};
  static const HttpGate open_gate(open, small_router(), "127.0.0.1"), keyed_gate(keyed, small_router(), "0.0.0.0");
  HttpParser parser;
  set_limits(parser, limits);
  boost::system::error_code error;
  parser.put(boost::asio::buffer(input.data(), input.size()), error);
  if (!parser.is_header_done() || check_head(parser, limits)) return;
  const HttpRequest request = read_head(parser, "10.1.2.3");
  FERRY_CHECK(!parser.chunked() || (!parser.content_length() && request.count("content-length") == 0));
  FERRY_CHECK(parser.chunked() || request.count("transfer-encoding") == 0);
  for (const HttpGate* gate : {&open_gate, &keyed_gate}) {
    const HttpGate::Verdict verdict = gate->judge(request);
    FERRY_CHECK((verdict.route == nullptr) == verdict.answer.has_value());
    FERRY_CHECK(!verdict.answer || (verdict.answer->status >= 400 && verdict.answer->body.starts_with("{\"error\":")));
    if (verdict.route == nullptr || verdict.route->guard == HttpGuard::kOpen) continue;
    FERRY_CHECK(request.count("host") == 1 && request.method == "POST" && request.path == "/do");
    FERRY_CHECK(gate == &open_gate || verdict.caller.has_value());
  }
}

/// The first byte tells which body it is.
void parse_profile_body(Input input) {
  if (input.empty()) return;
  const std::string_view body = text_of(input).substr(1);
  if (input[0] % 2 == 1) {
    parse_stop_profile(body);
    return;
  }
  const StartProfile start = parse_start_profile(body);
  check_plan(start.plan);
  FERRY_CHECK(start.plan.delay_steps >= 0 && start.plan.num_steps >= 0 && start.plan.max_bytes > 0);
}

/// Whatever is asked for lies below the root, and what lies beside the root stays as it is.
void claim_trace_folder(Input input) {
  static const MemoryFolder root, outside;
  static const TraceFolder folder(root.path());
  std::filesystem::create_directory_symlink(outside.path(), root.path() / "link");
  std::filesystem::create_directory(root.path() / "a");
  std::string claimed;
  try {
    claimed = folder.claim(text_of(input)).lexically_normal().string();
  } catch (const Error&) {
    root.clear();
    throw;
  }
  FERRY_CHECK(claimed.starts_with(root.path().string() + "/") && std::filesystem::is_directory(claimed));
  FERRY_CHECK(std::filesystem::is_empty(outside.path()));
  root.clear();
}

/// A message as protobuf writes it, up to the request that the scheduler takes and the stop strings that its answer may hold.
void take_generate_request(Input input) {
  static const ServerLimits limits{.prompt_bytes = 4096};
  static const SchedulerOptions options{.num_blocks = 64, .max_context = 512, .vocab_size = small_tokenizer().size()};
  static const TextEngineClient engine;
  v1::GenerateRequest message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  check_bounds(message, limits);
  Request request;
  request.id = message.request_id();
  MediaPrompt prompt = prompt_of(engine, message, {.limits = limits, .check_in = [] {}, .deadline = {}});
  request.prompt = std::move(prompt.ids);
  request.media = std::move(prompt.media);
  request.sampling = sampling_of(message.sampling());
  validate_request(request, options);
  answer(request);
}

/// The first byte tells which of vLLM's services it is for.
void take_vllm_request(Input input) {
  if (input.empty()) return;
  static const ServerLimits limits{.prompt_bytes = 4096};
  static const SchedulerOptions options{.num_blocks = 64, .max_context = 512, .vocab_size = small_tokenizer().size()};
  static const vllm::Settings settings{.model_names = {"small"}, .model_path = "", .defaults = {}};
  static TextEngineClient engine;
  const Input bytes = input.subspan(1);
  const auto take = [&](vllm::GenerateFields fields) {
    FERRY_CHECK(fields.num_choices >= 1 && fields.sampling.min_tokens >= 0);
    for (Request& request :
         vllm::make_requests(fields, engine, {.limits = limits, .check_in = [] {}, .deadline = {}}, AnswerForm::kStream)) {
      validate_request(request, options);
      answer(request);
    }
  };
  if (input[0] % 2 == 1) {
    ::vllm::grpc::engine::GenerateRequest message;
    if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) take(vllm::read_engine_request(message, limits));
  } else {
    ::vllm::GenerateRequest message;
    if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      take(vllm::read_inference_request(message, settings, limits));
  }
}

/// The first byte tells which message it is.
void count_parsed_bytes(Input input) {
  if (input.empty()) return;
  switch (const Input bytes = input.subspan(1); input[0] % 4) {
    case 0: return count_and_parse<v1::GenerateRequest>(bytes);
    case 1: return count_and_parse<v1::SetPlacementRequest>(bytes);
    case 2: return count_and_parse<::vllm::grpc::engine::GenerateRequest>(bytes);
    default: return count_and_parse<::vllm::GenerateRequest>(bytes);
  }
}

void decode_data_url(Input input) {
  constexpr int64_t kMaxBytes = 100;
  FERRY_CHECK_LE(std::ssize(read_data_url(text_of(input), kMaxBytes)), kMaxBytes);
}

/// The value of --allow-remote-images, a line break, a URL. What is let through names a listed host, and only that one.
void judge_remote_url(Input input) {
  const std::string_view text = text_of(input);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::vector<std::string> hosts = parse_remote_hosts(std::string(text.substr(0, end)));
  const RemoteUrl url = parse_remote_url(text.substr(std::min(end + 1, text.size())), hosts);
  const bool is_default = url.port == (url.scheme == "http" ? 80 : 443);
  const auto is_this = [&](const std::string& entry) {
    return entry == url.host + ":" + std::to_string(url.port) || (is_default && entry == url.host);
  };
  FERRY_CHECK(std::any_of(hosts.begin(), hosts.end(), is_this));
  FERRY_CHECK(url.host.find_first_of("@[]%/\\?#:") == std::string::npos && url.target.starts_with('/'));
  FERRY_CHECK(std::ranges::all_of(url.text(), [](char c) { return c > ' ' && c <= '~'; }));
  FERRY_CHECK(parse_remote_url(url.text(), hosts).text() == url.text());
}

}  // namespace ferry::fuzz
