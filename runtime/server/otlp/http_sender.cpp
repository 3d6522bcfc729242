#include <curl/curl.h>

#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/server/otlp/span_exporter.h"

namespace ferry {
namespace {

constexpr long kDeadlineMs = 5'000, kConnectDeadlineMs = 3'000;

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

/// The answer's body says nothing that is needed.
std::size_t drop_body(char*, std::size_t, std::size_t num_bytes, void*) { return num_bytes; }

/// One connection to the collector, kept open.
class Connection {
 public:
  explicit Connection(const std::string& url) : url_(url) {
    headers_.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
    if (!handle_ || !headers_) throw Error(ErrorCode::kInternal, "libcurl cannot be initialised");
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");  // whatever the environment says
    set(CURLOPT_USERAGENT, "ferry");
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_TIMEOUT_MS, kDeadlineMs);
    set(CURLOPT_CONNECTTIMEOUT_MS, kConnectDeadlineMs);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);
    set(CURLOPT_WRITEFUNCTION, drop_body);
  }

  SendResult post(const std::string& json, std::string& complaint) {
    set(CURLOPT_POSTFIELDS, json.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
    const CURLcode code = curl_easy_perform(handle_.get());
    if (code != CURLE_OK) {
      complaint = url_ + ": " + curl_easy_strerror(code);
      return SendResult::kTryAgain;
    }
    long status = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) return SendResult::kTaken;
    complaint = url_ + " answers with status " + std::to_string(status);
    // What OTLP's specification has tried again ("Retryable Response Codes").
    const bool is_busy = status == 429 || status == 502 || status == 503 || status == 504;
    return is_busy ? SendResult::kTryAgain : SendResult::kRefused;
  }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle_.get(), option, value);
    if (code != CURLE_OK)
      throw Error(ErrorCode::kInternal, "libcurl option " + std::to_string(option) + ": " + curl_easy_strerror(code));
  }

  const std::string url_;
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

SpanExporter::Send http_sender(const std::string& url) {
  return [connection = std::make_shared<Connection>(url)](const std::string& json, std::string& complaint) {
    return connection->post(json, complaint);
  };
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
