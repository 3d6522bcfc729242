#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/server/otlp/span_exporter.h"

namespace ferry {
namespace {

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 10;  // what is behind them is not read
constexpr JsonLimits kAnswerJson{.depth = 8, .bytes = kMaxAnswerBytes, .values = 1024};

std::size_t keep_body(char* data, std::size_t, std::size_t num_bytes, void* body) {
  auto& kept = *static_cast<std::string*>(body);
  kept.append(data, std::min(num_bytes, kMaxAnswerBytes - kept.size()));
  return num_bytes;
}

/// 64-bit numbers are texts in OTLP's JSON; some write them as numbers. 0 for what is neither.
int64_t number_from(const nlohmann::json& value) {
  if (value.is_number_integer()) return std::max<int64_t>(value.get<int64_t>(), 0);
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max<int64_t>(number, 0);
}

/// What ExportTraceServiceResponse says of spans that were not taken ("partialSuccess"). An answer that is none says nothing.
SendAnswer read_answer(const std::string& body, const std::string& url) try {
  SendAnswer answer;
  const nlohmann::json partial = parse_json(body, url, kAnswerJson).value("partialSuccess", nlohmann::json::object());
  const nlohmann::json message = partial.value("errorMessage", nlohmann::json());
  answer.num_rejected = number_from(partial.value("rejectedSpans", nlohmann::json()));
  if (message.is_string()) answer.complaint = one_line(message.get<std::string>());
  if (answer.num_rejected == 0) return answer;
  const std::string spans = std::to_string(answer.num_rejected) + (answer.num_rejected == 1 ? " span" : " spans");
  answer.complaint = url + " rejects " + spans + (answer.complaint.empty() ? "" : ": " + answer.complaint);
  return answer;
} catch (const std::exception&) {
  return {};
}

/// One connection to the collector, kept open.
class Connection {
 public:
  Connection(const std::string& url, const SendTimes& times) : url_(url) {
    headers_.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
    if (!handle_ || !headers_) throw Error(ErrorCode::kInternal, "libcurl cannot be initialised");
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");  // whatever the environment says
    set(CURLOPT_USERAGENT, "ferry");
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(times.attempt.count()));
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(times.connect.count()));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);
    set(CURLOPT_WRITEFUNCTION, keep_body);
    set(CURLOPT_WRITEDATA, &body_);
  }

  SendAnswer post(const std::string& json) {
    body_.clear();
    set(CURLOPT_POSTFIELDS, json.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
    const CURLcode code = curl_easy_perform(handle_.get());
    if (code != CURLE_OK) {
      return {.result = SendResult::kTryAgain, .complaint = url_ + ": " + curl_easy_strerror(code)};
    }
    long status = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) return read_answer(body_, url_);
    // What OTLP's specification has tried again ("Retryable Response Codes").
    const bool is_busy = status == 429 || status == 502 || status == 503 || status == 504;
    return {.result = is_busy ? SendResult::kTryAgain : SendResult::kRefused,
            .complaint = url_ + " answers with status " + std::to_string(status)};
  }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle_.get(), option, value);
    if (code != CURLE_OK)
      throw Error(ErrorCode::kInternal, "libcurl option " + std::to_string(option) + ": " + curl_easy_strerror(code));
  }

  const std::string url_;
  std::string body_;  // of the last answer
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::unique_ptr<CURL, FreeEasy> handle_{curl_easy_init()};
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

SpanExporter::Send http_sender(const std::string& url, const SendTimes& times) {
  return [connection = std::make_shared<Connection>(url, times)](const std::string& json) { return connection->post(json); };
}

std::string traces_url(const std::string& option, const std::string& endpoint) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  const bool is_url = url && curl_url_set(url.get(), CURLUPART_URL, endpoint.c_str(), CURLU_DISALLOW_USER) == CURLUE_OK;
  const std::string scheme = is_url ? part_of(url.get(), CURLUPART_SCHEME) : "";
  if (scheme != "http" && scheme != "https")
    throw_invalid(option + ": " + in_quotes(endpoint) + "; allowed: http[s]://HOST[:PORT][/PATH]");
  if (part_of(url.get(), CURLUPART_PATH) == "/") curl_url_set(url.get(), CURLUPART_PATH, "/v1/traces", 0);
  return part_of(url.get(), CURLUPART_URL);
}

}  // namespace ferry
